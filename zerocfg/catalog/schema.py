"""Reading ``schemas/*.json``: sections, keys and their facts."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from zerocfg.catalog.alternatives import alternatives, own_keys


def schema_folder() -> Path:
    """Where the compiled schemas lie: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent.parent / "schemas"
    return inside if inside.is_dir() else Path(__file__).parent.parent.parent / "schemas"


_OPENING = frozenset({"$ref", "anyOf", "properties"})
"""What the schema of a key has that opens a section: that section, or a reference to one, or alternatives."""


class Key:
    """One key of a section: its JSON Schema and the facts under ``x-zerocfg``."""

    __slots__ = ("_branches", "_scalars", "_schema", "facts", "name", "raw")

    def __init__(self, name: str, raw: dict[str, Any], schema: Schema) -> None:
        self.name = name
        self.raw = raw
        self.facts: dict[str, Any] = raw.get("x-zerocfg", {})
        self._schema = schema
        self._branches: list[dict[str, Any]] | None = None
        self._scalars: list[dict[str, Any]] | None = None

    @property
    def branches(self) -> list[dict[str, Any]]:
        """One schema for each kind of value; built lazily, because few keys of a schema are ever looked up."""
        if self._branches is None:
            self._branches = [self._schema.deref(branch) for branch in alternatives(self.raw)]
        return self._branches

    @property
    def default(self) -> object:
        return self.raw.get("default")

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that carry the key to the job."""
        return tuple(str(fact["name"]) for fact in self.facts.get("env", ()))

    @property
    def description(self) -> str:
        return str(self.raw.get("description", ""))

    def section(self, schema: Schema) -> Section | None:
        """The section that this key opens, when it is one."""
        if _OPENING.isdisjoint(self.raw):  # most keys, told without looking at the kinds of their values
            return None
        for branch in self.branches:
            if "properties" in branch:
                return schema.section(branch)
        return None

    @property
    def chooser(self) -> str | None:
        """The sibling whose value chooses the section of this key: the `type` of an optimizer for its `params`."""
        variants = self.facts.get("variants")
        return str(variants["key"]) if variants else None

    def variant(self, chosen: object, schema: Schema) -> Section | None:
        """The section that a value of that sibling chooses, where the facts have one for it."""
        variants = self.facts.get("variants")
        if not variants or not isinstance(chosen, str):
            return None
        reference = variants["cases"].get(chosen.lower() if variants.get("any_case") else chosen)
        return schema.section(schema.deref({"$ref": reference})) if reference else None

    def entries(self, schema: Schema) -> Section | None:
        """The section that every value of this key's mapping is, when names are free (the runs of a spec)."""
        for branch in self.branches:
            each = branch.get("additionalProperties")
            only = isinstance(each, dict) and "$ref" in each and not isinstance(each.get("type"), list)
            if "properties" not in branch and isinstance(each, dict) and only:
                return schema.section(schema.deref(each))
        return None

    @property
    def nullable(self) -> bool:
        return any(
            branch.get("type") == "null"
            or not {"type", "enum", "const", "properties", "not"} & set(branch)
            or (isinstance(branch.get("type"), list) and "null" in branch["type"])
            or (branch.get("const", 0) is None)
            for branch in self.branches
        )

    @property
    def scalars(self) -> list[dict[str, Any]]:
        """The branches that describe a value: neither null nor the literal "auto"."""
        if self._scalars is None:
            self._scalars = [b for b in self.branches if b.get("type") != "null" and b.get("const") != "auto"]
        return self._scalars


class Section:
    """One mapping: its keys by every name that is read, and what unknown keys and null do to it."""

    __slots__ = ("facts", "keys", "names", "raw")

    def __init__(self, raw: dict[str, Any], schema: Schema) -> None:
        self.raw = raw
        self.facts: dict[str, Any] = raw.get("x-zerocfg", {})
        self.keys = {name: Key(name, prop, schema) for name, prop in own_keys(raw.get("properties", {})).items()}
        self.names: dict[str, Key] = {}
        for key in self.keys.values():
            for alias in key.facts.get("aliases", ()):
                self.names.setdefault(alias, key)
        self.names.update(self.keys)
        prefix = self.facts.get("prefix")
        if prefix and self.facts.get("prefix_optional"):
            for name, key in list(self.names.items()):
                self.names.setdefault(name.removeprefix(prefix), key)

    def key(self, name: str) -> Key | None:
        """The key that is read under a name, also one that the library takes from another place of its own."""
        found = self.names.get(name)
        if found is None and "also" in self.facts:
            found = load_schema(self.facts["also"]).root.names.get(name)
        return found

    @property
    def unknown(self) -> str:
        return str(self.facts.get("unknown", "error"))

    def missing(self, names: Collection[str]) -> list[str]:
        """The required keys that are not among these."""
        ways = self.raw.get("anyOf", [{"required": self.raw.get("required", [])}])
        lacking = [[name for name in way["required"] if name not in names] for way in ways]
        return lacking[0] if all(lacking) else []

    @property
    def open(self) -> bool:
        """True when any further key is allowed (values are passed through to another library)."""
        extra = self.raw.get("additionalProperties", False)
        return extra is True or isinstance(extra, dict)


class Schema:
    """One compiled schema."""

    def __init__(self, raw: dict[str, object]) -> None:
        self.raw = raw
        self._sections: dict[int, Section] = {}
        self.root = self.section(self.deref(raw))

    def deref(self, node: dict[str, object]) -> dict[str, Any]:
        """Follow ``$ref`` within the file."""
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return node
        target: Any = self.raw
        for part in reference.lstrip("#/").split("/"):
            target = target[part]
        return self.deref(target)

    def section(self, raw: dict[str, object]) -> Section:
        found = self._sections.get(id(raw))
        if found is None:
            found = self._sections[id(raw)] = Section(raw, self)
        return found

    def find(self, path: tuple[str, ...]) -> Key | None:
        """The key at a path of names, or None."""
        key: Key | None = None
        for part in path:
            section = self.root if key is None else key.section(self)
            key = section.key(part) if section is not None else None
            if key is None:
                return None
        return key

    def default(self, dotted: str) -> object:
        """The library's default of a key, or None when it has none."""
        key = self.find(tuple(dotted.split(".")))
        return None if key is None else key.default


@cache
def load_schema(name: str) -> Schema:
    """A compiled schema by name: "deepspeed", "accelerate", "training-arguments", ..."""
    text = (schema_folder() / f"{name}.json").read_text(encoding="utf-8")
    return Schema(json.loads(text))
