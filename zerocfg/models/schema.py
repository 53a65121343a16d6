"""Compiles the typed models to JSON Schema, draft 2020-12: for editors, and for the catalog of the lint road.

How the parts of a model appear:

* every section is an entry of ``$defs`` under the name of its class, without its type, which each reference states;
  the root section is written out;
* a key is a property; a union is one schema with several types where each has words of its own, else ``anyOf`` with a
  branch for each kind of value (:mod:`zerocfg.catalog.alternatives`); the literal ``"auto"`` is a branch of its own
  (``{"const": "auto"}``);
* facts that JSON Schema has no word for are under ``x-zerocfg`` (see :mod:`zerocfg.models.base`); what a
  section says about all its keys (``reads``, ``auto_raw``) is repeated at each scalar key;
* other spellings of a key are properties behind all keys, with ``x-zerocfg.read_as``;
* ``additionalProperties`` is false wherever an unknown key is refused or ignored (an editor should underline
  both) and true where it is handed on; ``x-zerocfg.unknown`` tells refused from ignored.

Annotations are compiled here rather than by pydantic, whose output differs between its releases.
"""

from __future__ import annotations

import importlib
import json
import types
import typing
from typing import Annotated, Any, Literal, NamedTuple

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from zerocfg.catalog.alternatives import AUTO, WORDS
from zerocfg.models.base import Section, keys_of
from zerocfg.models.base import spellings as written_as

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SCALARS: dict[Any, dict[str, object]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
    object: {},
}
_NUMBER_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LENGTHS = {
    "string": {"min_length": "minLength", "max_length": "maxLength"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
}
_TEXTS = {
    "integer": r"^\s*[+-]?\d+(_\d+)*\s*$",
    "number": r"^\s*[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)([eE][+-]?\d+)?\s*$",
    "boolean": "^([yY][eE][sS]|[nN][oO]|[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[tTyYfFnN01])$",
}
"""Text that argparse takes for a value of each type."""
_SINGLE = ({"type": "null"}, {"const": "auto"})
_OWN = {word for words in WORDS.values() for word in words}
_SECTION_FACTS = (
    "unknown",
    "null",
    "source",
    "library",
    "prefix",
    "prefix_optional",
    "also",
    "shared",
    "readers",
    "yaml_numbers",
)


class _Compiler:
    """Collects the sections that are met on the way from the root."""

    def __init__(self) -> None:
        self.classes: dict[str, type[Section]] = {}
        self.defs: dict[str, dict[str, object]] = {}

    def reference(self, model: type[Section]) -> dict[str, object]:
        name = model.__name__
        if self.classes.setdefault(name, model) is not model:
            raise TypeError(f"two sections of one schema are named {name}: their names are the names of $defs")
        if name not in self.defs:
            self.defs[name] = {}
            self.defs[name] = {word: part for word, part in self.section(model).items() if word != "type"}
        return {"type": "object", "$ref": f"#/$defs/{name}"}

    def section(self, model: type[Section]) -> dict[str, Any]:
        properties: dict[str, dict[str, Any]] = {}
        others: dict[str, dict[str, Any]] = {}
        required: list[str] = []
        for name, field in model.model_fields.items():
            properties[name] = self.key(model, name, field)
            if field.is_required():
                required.append(name)
            for alias in written_as(model, name):
                facts = {**properties[name].get("x-zerocfg", {}), "read_as": name}
                others[alias] = {**properties[name], "description": f"Read as {name}.", "x-zerocfg": facts}
                if "$ref" in properties[name]:
                    others[alias]["type"] = "object"  # the library unpacks it even where it is null
        facts = {fact: value for fact in _SECTION_FACTS if (value := getattr(model, fact))}
        text = " ".join((model.__dict__.get("__doc__") or "").split())
        schema: dict[str, object] = {
            "description": f"{text} {read_by(facts)}".rstrip(),
            "type": "object",
            "properties": properties | others,
        }
        if required and model.required_unless:
            schema["anyOf"] = [{"required": required}, *({"required": [name]} for name in model.required_unless)]
        elif required and model.required_unless is not None:
            schema["required"] = required
        schema["additionalProperties"] = model.unknown == "passed" or model.shared
        schema["x-zerocfg"] = facts
        return schema

    def key(self, model: type[Section], name: str, field: FieldInfo) -> dict[str, Any]:
        facts = dict(keys_of(model)[name].facts)
        if "removed" in facts:
            return {
                "description": f"Removed: {facts['removed']}.",
                **({} if model.shared else {"not": {}}),
                "deprecated": True,
                "x-zerocfg": facts,
            }
        branches = self.branches(field.annotation, field.metadata)
        if "auto" in facts and {"const": "auto"} not in branches:
            raise TypeError(f"{model.__name__}.{name}: somebody fills its auto, so its type needs the literal")
        if name in model.variants:
            variants = model.variants[name]
            facts["variants"] = {
                "key": variants.key,
                "any_case": variants.any_case,
                "cases": {value: self.reference(case)["$ref"] for value, case in variants.cases.items()},
            }
        schema: dict[str, object] = {"description": describe(field.description or "", facts)}
        if model.reads == "argument":
            branches = [_as_text(branch, facts) for branch in branches]
        schema.update(_one_of(branches))
        default = _default(field)
        one_default = "defaults" not in facts and default is not PydanticUndefined
        if one_default and (default is not None or {"type": "null"} in branches):
            schema["default"] = default
        if field.examples:
            schema["examples"] = list(field.examples)
        if "deprecated" in facts:
            schema["deprecated"] = True
        if facts:
            schema["x-zerocfg"] = facts
        return schema

    def branches(self, annotation: Any, metadata: Iterable[Any] = ()) -> list[dict[str, object]]:
        """One schema for each kind of value of a type, with the bounds of ``metadata`` where they apply."""
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is Annotated:
            found = self.branches(arguments[0], arguments[1:])
        elif origin in (typing.Union, types.UnionType):
            found = [branch for argument in arguments for branch in self.branches(argument)]
        elif origin is Literal:
            found = _literal(arguments)
        elif origin in (list, set, tuple):
            items = [argument for argument in arguments if argument is not Ellipsis]
            found = [{"type": "array", "items": _one_of(self.branches(items[0]))}] if items else [{"type": "array"}]
        elif origin is dict:
            found = [{"type": "object", "additionalProperties": _one_of(self.branches(arguments[1])) or True}]
        elif isinstance(annotation, type) and issubclass(annotation, Section):
            found = [self.reference(annotation)]
        elif annotation in _SCALARS:
            found = [dict(_SCALARS[annotation])]
        else:
            raise TypeError(f"no JSON Schema for the type {annotation!r}")
        for branch in found:
            for item in _flat(metadata):
                _bound(branch, item)
        return found


def _literal(values: tuple[Any, ...]) -> list[dict[str, object]]:
    if values == ("auto",):
        return [{"const": "auto"}]
    found: list[dict[str, object]] = []
    some = [value for value in values if value is not None]
    kinds = {type(value) for value in some}
    if some:
        found.append({**(_SCALARS[kinds.pop()] if len(kinds) == 1 else {}), "enum": some})
    if len(some) < len(values):
        found.append({"type": "null"})
    return found


def _one_of(branches: list[dict[str, Any]]) -> dict[str, object]:
    """A schema of these kinds of value; in one breath where each has words of its own (see `alternatives`)."""
    if len(branches) == 1:
        return branches[0]
    choices = [branch["enum"] for branch in branches if "enum" in branch]
    single = [branch for branch in branches if "enum" not in branch]
    if len(choices) == 1 and all(branch in _SINGLE for branch in single):
        return {"enum": [*choices[0], *(branch.get("const") for branch in single)]}
    branches = [{"type": "string", "pattern": AUTO} if branch == {"const": "auto"} else branch for branch in branches]
    types = [kind for branch in branches for kind in _types(branch)]
    apart = len({"number" if kind == "integer" else kind for kind in types}) == len(types)
    if apart and all({"type"} <= set(branch) <= {"type", *_OWN} for branch in branches):
        return {word: part for branch in branches for word, part in branch.items()} | {"type": types}
    return {"anyOf": [{"const": "auto"} if branch.get("pattern") == AUTO else branch for branch in branches]}


def _types(branch: dict[str, Any]) -> list[str]:
    types: str | list[str] = branch.get("type", [])
    return types if isinstance(types, list) else [types]


def _as_text(branch: dict[str, Any], facts: dict[str, Any]) -> dict[str, object]:
    """A number or truth value that may also be written as text, which the parser of the command line converts."""
    text = _TEXTS.get(branch.get("type", ""))
    cli = facts.get("cli", {})
    if text is None or "enum" in branch or cli.get("nargs") == "+" or cli.get("type") not in ("int", "float", "bool"):
        return branch
    return {**branch, "type": [branch["type"], "string"], "pattern": text}


def _flat(metadata: Iterable[Any]) -> Iterable[Any]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from item.metadata
        else:
            yield item


def _bound(branch: dict[str, Any], item: Any) -> None:
    """Add the bound that a piece of metadata states, when it speaks about this kind of value."""
    kind = branch.get("type", "")
    if kind in ("integer", "number") and "enum" not in branch:
        table = _NUMBER_BOUNDS
    else:
        table = _LENGTHS.get(kind, {})
        if kind == "string" and isinstance(pattern := getattr(item, "pattern", None), str):
            branch["pattern"] = pattern
    for attribute, word in table.items():
        value = getattr(item, attribute, None)
        if value is not None and not (attribute == "min_length" and value == 0):
            branch[word] = value


def _default(field: FieldInfo) -> Any:
    """The default as JSON, or PydanticUndefined for a required key and for a section."""
    factory = field.default_factory
    if factory is None:
        return field.default
    if isinstance(factory, type) and issubclass(factory, Section):
        return PydanticUndefined
    return typing.cast("Callable[[], Any]", factory)()


def read_by(facts: dict[str, Any]) -> str:
    """The sentence about a section's reader, appended to its description; empty where no reader is named."""
    reader = " ".join(
        part for part in (facts.get("library"), f"({facts['source']})" if facts.get("source") else "") if part
    )
    return f"Read by {reader}." if reader else ""


def describe(text: str, facts: dict[str, object]) -> str:
    """A key's description: its author's words and the facts about it."""
    parts = [text] if text else []
    if "unit" in facts:
        parts.append(f"Unit: {facts['unit']}.")
    if "deprecated" in facts:
        parts.append(f"Deprecated: {facts['deprecated']}.")
    if "inert" in facts:
        parts.append(f"No effect: {facts['inert']}.")
    if "since" in facts:
        parts.append(f"Since {facts['since']}.")
    if "source" in facts:
        parts.append(f"Read in {facts['source']}.")
    return " ".join(parts)


def compile_schema(model: type[Section], title: str = "") -> dict[str, object]:
    """JSON Schema of a root section and of every section below it.

    Raises TypeError for a type that has no JSON form, and for two different sections of one name.
    """
    compiler = _Compiler()
    root = compiler.section(model)
    if model.unknown == "ignored":
        # A loose reader ignores the key by which editors find the schema, and comments (`_comment`) as well.
        root.setdefault("patternProperties", {})[r"^(\$schema$|_)"] = {}
    return {"$schema": DIALECT, "title": title or model.__name__, **root, "$defs": compiler.defs}


class Entry(NamedTuple):
    """One schema file: name (``schemas/NAME.json``), title, and the module and class of its root section."""

    name: str
    title: str
    module: str
    root: str


ENTRIES = (
    Entry("deepspeed", "DeepSpeed configuration (ds_config.json)", "zerocfg.models.deepspeed", "DeepSpeedConfig"),
    Entry("accelerate", "accelerate configuration", "zerocfg.models.accelerate", "ClusterConfig"),
    Entry("accelerate-launcher", "Arguments of accelerate launch", "zerocfg.models.accelerate", "Launcher"),
    Entry(
        "accelerate-sagemaker",
        "accelerate configuration for SageMaker",
        "zerocfg.models.accelerate",
        "SageMakerConfig",
    ),
    Entry(
        "training-arguments",
        "TrainingArguments of transformers",
        "zerocfg.models.training_arguments",
        "TrainingArguments",
    ),
    Entry("trl", "TRL recipe", "zerocfg.models.trl", "Recipe"),
    Entry("hardware", "Hardware profile", "zerocfg.models.hardware", "HardwareProfile"),
    Entry("model-facts", "Facts about a model", "zerocfg.models.model_facts", "ModelFacts"),
    Entry("spec", "zerocfg spec (zerocfg.yaml)", "zerocfg.models.spec", "WrittenSpec"),
)


def _factory(entry: Entry) -> Callable[[], dict[str, object]]:
    return lambda: compile_schema(getattr(importlib.import_module(entry.module), entry.root), entry.title)


SCHEMAS: dict[str, Callable[[], dict[str, object]]] = {entry.name: _factory(entry) for entry in ENTRIES}


def schema_text(name: str) -> str:
    """The text of ``schemas/NAME.json``. Raises KeyError for a name that is not in SCHEMAS."""
    return json.dumps(SCHEMAS[name](), indent=2, ensure_ascii=False) + "\n"
