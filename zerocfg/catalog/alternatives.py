"""The kinds of value that a key of a compiled schema takes, one schema for each.

The compiled schemas say in one breath what JSON Schema can: ``{"type": ["object", "null"], "$ref": ...}`` is a section
or null, ``{"type": ["integer", "null"], "minimum": 1}`` a number or null, and ``{"type": ["integer", "string"],
"pattern": ...}`` a number that may also be written as text, or be
"auto", ``{"enum": ["cpu", null]}`` a choice or null. A validator that is told so names the wrong
key inside the section, or the bound, not the alternatives that the value is none of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NUMBERS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
WORDS: dict[str, tuple[str, ...]] = {
    "integer": _NUMBERS,
    "number": _NUMBERS,
    "boolean": (),
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("items", "minItems", "maxItems"),
    "object": ("$ref", "additionalProperties"),
    "null": (),
}
"""Words of JSON Schema that speak of one type alone."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
AUTO = "^auto$"
"""The literal "auto" beside values that are no text."""


def alternatives(prop: dict[str, Any]) -> list[dict[str, Any]]:
    """One schema for each kind of value, in the order in which the model names them."""
    return [kind for branch in prop.get("anyOf", [prop]) for kind in _kinds(branch)]


def _kinds(branch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    types = branch.get("type")
    if "enum" in branch and types is None:
        yield from _choices(branch["enum"])
        return
    if not isinstance(types, list):
        yield {"$ref": branch["$ref"]} if "$ref" in branch else branch
        return
    as_text = "pattern" in branch and bool({"integer", "number", "boolean"} & set(types))
    for kind in types:
        if kind == "string" and branch.get("pattern") == AUTO:
            yield {"const": "auto"}
            continue
        words = {word: branch[word] for word in WORDS[kind] if word in branch}
        if "$ref" in words:
            yield words
        elif kind != "string" or not as_text:
            yield {"type": kind, **words}


def _choices(choices: list[Any]) -> Iterator[dict[str, Any]]:
    """The words or numbers of a choice; beside them null and the literal "auto" are kinds of their own."""
    some = [choice for choice in choices if choice is not None and choice != "auto"]
    kinds = {_TYPES[type(choice)] for choice in some}
    yield {**({"type": kinds.pop()} if len(kinds) == 1 else {}), "enum": some}
    for choice in choices:
        if choice is None or choice == "auto":
            yield {"type": "null"} if choice is None else {"const": "auto"}


def own_keys(properties: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The keys of a section, each under its first name alone."""
    return {name: prop for name, prop in properties.items() if "read_as" not in prop.get("x-zerocfg", {})}
