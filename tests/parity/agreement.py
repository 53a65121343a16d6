"""What the typed models, the compiled schemas and a plain validator say of the same config."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pydantic

from zerocfg.catalog.alternatives import alternatives
from zerocfg.catalog.check import check
from zerocfg.catalog.schema import Schema, load_schema
from zerocfg.models.accelerate import ClusterConfig
from zerocfg.models.base import Section, keys_of
from zerocfg.models.deepspeed import DeepSpeedConfig
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.models.trl import Recipe
from zerocfg.source.node import Entry, Mapping, Node, Path, Scalar, Sequence
from zerocfg.source.text import Span

MODELS: dict[str, type[Section]] = {
    "deepspeed": DeepSpeedConfig,
    "accelerate": ClusterConfig,
    "training-arguments": TrainingArguments,
    "trl": Recipe,
}
REFUSED = ("unknown-crash", "removed", "type", "range", "choice", "null", "section-type")
_NOWHERE = Span(0, 0)


def node(value: Any) -> Node:
    """A value as a document holds it."""
    if isinstance(value, dict):
        return Mapping(_NOWHERE, [Entry(str(key), _NOWHERE, node(item)) for key, item in value.items()])
    if isinstance(value, list):
        return Sequence(_NOWHERE, [node(item) for item in value])
    return Scalar(value, _NOWHERE, str(value))


def by_catalog(data: dict[str, Any], schema: Schema, *, silent: bool = False) -> dict[Path, str]:
    """The keys that linting refuses, and why; with ``silent`` also those that nobody reads."""
    kinds = (*REFUSED, "unknown-ignored") if silent else REFUSED
    found = {issue.path: issue.kind for issue in check(node(data), schema) if issue.kind in kinds}
    if "shared" in schema.root.facts:  # of another release, says ZC801 in a note
        found = {path: kind for path, kind in found.items() if kind != "removed"}
    return found


def by_model(data: dict[str, Any], model: type[Section]) -> tuple[Section | None, list[str]]:
    """The instance, or what the model refuses; a key that is missing is not about a key that is there."""
    try:
        return model.model_validate(data), []
    except pydantic.ValidationError as error:
        return None, [f"{one['loc']}: {one['msg']}" for one in error.errors() if one["type"] != "missing"]


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(load_schema(name).raw)


def by_validator(data: dict[str, Any], name: str) -> list[jsonschema.ValidationError]:
    return [error for error in validator(name).iter_errors(data) if error.validator != "required"]


# --- one key at a time ------------------------------------------------------------------------------------------------

PROBES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 0.5, 1.5, -0.5, 10**9, "", "1", "0", "-1", "1.5", "true", "maybe", "x", "auto",
    [], ["x"], [1], [0.5, 0.5], {}, {"a": 1}, math.inf, 1e30,
)  # fmt: skip


def sections(model: type[Section], raw: dict[str, Any]) -> Iterator[tuple[type[Section], dict[str, Any]]]:
    """Every section class below a model with its part of a compiled schema."""
    seen: set[str] = set()
    waiting = [model]
    while waiting:
        one = waiting.pop()
        yield one, raw if one is model else raw["$defs"][one.__name__]
        inner = [key.section for key in keys_of(one).values()]
        inner += [case for variants in one.variants.values() for case in variants.cases.values()]
        for section in inner:
            if section is not None and section.__name__ not in seen:
                seen.add(section.__name__)
                waiting.append(section)


def probes(prop: dict[str, Any]) -> Iterator[Any]:
    """Values around what a key takes: on both sides of each bound, every choice and one that is none."""
    yield from PROBES
    for branch in alternatives(prop):
        for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if word in branch:
                yield from (branch[word] - 1, branch[word] - 0.25, branch[word], branch[word] + 0.25, branch[word] + 1)
        yield from branch.get("enum", ())
        yield from (f"{choice}x" for choice in branch.get("enum", ()) if isinstance(choice, str))


def words(annotation: Any) -> Iterator[Any]:
    """Every choice that a type names."""
    for part in typing.get_args(annotation):
        yield from [part] if typing.get_origin(annotation) is typing.Literal else words(part)


def differences(model: type[Section], part: dict[str, Any], whole: dict[str, Any], only: str = "") -> list[str]:
    """Where a section class and its part of a compiled schema say different things of a key: values, default."""
    schema = Schema({**part, "$defs": whole["$defs"]})
    wrong = []
    for name, key in schema.root.keys.items():
        field = model.model_fields.get(name)
        if field is None:
            wrong.append(f"{name}: no key of the model")
            continue
        if only not in ("", name) or "variants" in key.facts:
            continue
        default = field.get_default(call_default_factory=True)
        if "default" in key.raw and (key.default != default or type(key.default) is not type(default)):
            wrong.append(f"{name}: default {key.default!r}, of the model {default!r}")
        for value in [*probes(key.raw), *words(field.annotation)]:
            refused = bool(by_catalog({name: value}, schema))
            if refused is not bool(by_model({name: value}, model)[1]):
                wrong.append(f"{name}: {value!r} is {'refused' if refused else 'taken'} by the schema alone")
    return wrong + [f"{name}: no key of the schema" for name in set(model.model_fields) - set(schema.root.keys)]
