"""Whether the names that a policy asks for are names of anything: a misspelt one would be met by every run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import Key, Schema, Section, load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.gate.model import GateError
from zerocfg.gate.positions import position

if TYPE_CHECKING:
    from zerocfg.source.node import Document

_SCHEMAS = ("deepspeed", "accelerate", "training-arguments", "trl")
_OF_EVERY_RUN = frozenset(("engine", "num_processes", "num_machines", "mixed_precision"))
_SAME_OBJECT = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose schemas judge the same object."""

Path = tuple[str | int, ...]


def check_names(schema: Any, document: Document, known: Collection[str]) -> None:
    """Raises GateError for a name that no run can have. ``known``: names of values that the judged runs do have."""
    for name, path in _asked(schema, "", ()):
        if name in known or any(key.startswith(f"{name}.") for key in known) or exists(name):
            continue
        line, column = position(document, path)
        near = closest(name, sorted(_top_names() | set(known)))
        hint = f"did you mean {near}?" if near else "it is met by every run"
        raise GateError(f"{document.source.name}:{line}:{column}: the policy asks for {name}, which no run has; {hint}")


def exists(name: str) -> bool:
    """Whether a release of a library has a value of this dotted name, or a section that takes any."""
    parts = name.split(".")
    if parts[0] in _OF_EVERY_RUN and len(parts) == 1:
        return True
    if any(name in histories(library).raw for library in ("deepspeed", "accelerate")):
        return True
    if len(parts) == 1 and name in _top_names():
        return True
    return any(_leads(schema.root, schema, parts) for schema in map(load_schema, _SCHEMAS))


@cache
def _top_names() -> frozenset[str]:
    """Names without a dot: of sections, keys and arguments in any known release."""
    arguments = {key.rpartition(".")[2] for library in ("transformers", "trl") for key in histories(library).raw}
    keys = {name for schema in map(load_schema, _SCHEMAS) for name in schema.root.names}
    return frozenset(arguments | keys | _OF_EVERY_RUN)


def _leads(section: Section, schema: Schema, parts: list[str]) -> bool:
    key = section.key(parts[0])
    if key is None:
        return False
    if len(parts) == 1:
        return True
    inner = key.section(schema)
    return _takes_any(key) if inner is None else inner.open or _leads(inner, schema, parts[1:])


def _takes_any(key: Key) -> bool:
    """Whether a key may hold a mapping whose names are not known."""
    return any("object" in branch.get("type", ()) if "type" in branch else not branch for branch in key.branches)


def _asked(schema: Any, prefix: str, path: Path) -> Iterator[tuple[str, Path]]:
    """The dotted names of the values that a schema asks for, each with its place. ``prefix``: of the judged object."""
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        yield f"{prefix}{name}", (*path, "properties", name)
        yield from _asked(inner, f"{prefix}{name}.", (*path, "properties", name))
    required = schema.get("required")
    for at, name in enumerate(required if isinstance(required, list) else ()):
        yield f"{prefix}{name}", (*path, "required", at)
    for keyword in _SAME_OBJECT:
        inner = schema.get(keyword)
        if isinstance(inner, list):
            for at, item in enumerate(inner):
                yield from _asked(item, prefix, (*path, keyword, at))
        elif keyword == "dependentSchemas" and isinstance(inner, dict):
            for name, item in inner.items():
                yield from _asked(item, prefix, (*path, keyword, name))
        else:
            yield from _asked(inner, prefix, (*path, keyword))
