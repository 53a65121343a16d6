"""Types, defaults and bounds as plain data, in words that do not change with the Python or pydantic that tells them.

Part of the walking programs: it imports nothing but the standard library, because it runs beside any release.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import math
import types
import typing
from pathlib import Path

Facts = dict[str, object]
KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Path: "string",
    dict: "object",
    list: "array",
    tuple: "array",
    set: "array",
    type(None): "null",
}


def kinds(annotation: object) -> list[object]:
    """The kinds of value that an annotation takes, in the words of JSON Schema; choices as {"enum": [...]}."""
    if isinstance(annotation, str):
        return [annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _once(kind for argument in arguments for kind in kinds(argument))
    if origin is typing.Annotated:
        return kinds(arguments[0])
    if origin is typing.Literal:
        return [{"enum": [value(argument) for argument in arguments]}]
    kind = origin or annotation
    if not isinstance(kind, type) or kind is object:
        return ["any"]
    if issubclass(kind, enum.Enum):
        return [{"enum": choices(kind)}]
    for base, word in KINDS.items():
        if kind is base or (base is not int and issubclass(kind, base)):
            return [word]
    return [kind.__name__]


def _once(items: typing.Iterable[object]) -> list[object]:
    found: list[object] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def value(of: object) -> object:
    """A default as JSON holds it: enums by value, what JSON has no form for as {"python": its repr}."""
    if isinstance(of, enum.Enum):
        return value(of.value)
    if isinstance(of, float) and not math.isfinite(of):
        return {"python": repr(of)}
    if of is None or isinstance(of, (bool, int, float, str)):
        return of
    if isinstance(of, (list, tuple)):
        return [value(item) for item in of]
    if isinstance(of, dict):
        return {str(name): value(item) for name, item in of.items()}
    if isinstance(of, type) or inspect.isroutine(of):
        return {"python": getattr(of, "__name__", "?")}
    return {"python": type(of).__name__}


def fields(of: type) -> dict[str, Facts]:
    """The fields of a dataclass that its constructor takes: kinds and default of each.

    ``computed``: the default is made when an object is (often from an environment variable).
    """
    hints = _hints(of)
    found: dict[str, Facts] = {}
    for field in dataclasses.fields(of):
        if not field.init:
            continue
        facts: Facts = {"kinds": kinds(hints.get(field.name, field.type))}
        if field.default is not dataclasses.MISSING:
            facts["default"] = value(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            facts["computed"] = True
        else:
            facts["required"] = True
        choices = field.metadata.get("choices")
        if choices:
            facts["choices"] = value(list(choices))
        found[field.name] = facts
    return found


def _hints(of: type) -> dict[str, object]:
    """Resolved annotations, class by class: one that cannot be resolved costs only its own."""
    found: dict[str, object] = {}
    for base in reversed(of.__mro__):
        for name, annotation in vars(base).get("__annotations__", {}).items():
            found[name] = annotation
            if isinstance(annotation, str):
                module = inspect.getmodule(base)
                try:
                    found[name] = eval(annotation, dict(vars(module)) if module else {}, dict(vars(base)))
                except Exception:
                    found[name] = annotation
    return found


def choices(of: type[enum.Enum]) -> list[object]:
    return [value(member) for member in of]


def tell(census: dict[str, object]) -> None:
    """Print a census where the caller finds it, whatever else the libraries print."""
    print("CENSUS " + json.dumps(census, sort_keys=True, allow_nan=False), flush=True)
