"""An editor's schema from a compiled one: JSON Schema draft-07, which every editor reads.

Differences from the compiled form, which linting reads: the facts under ``x-zerocfg`` are words; values that a library
converts are taken; keys that take effect from another schema are known; the parameters of an optimizer follow from
its type; removed and deprecated keys carry the message that an editor shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from zerocfg.catalog.alternatives import alternatives, own_keys
from zerocfg.models.editor import values, words
from zerocfg.models.schema import describe, read_by

DIALECT = "http://json-schema.org/draft-07/schema#"

_CONDITION = {"doNotSuggest": True}
"""A key of a condition is declared elsewhere, and proposed from there, with its default."""

Compiled = Callable[[str], dict[str, Any]]
"""The compiled schema of a name."""


def editor_schema(name: str, compiled: Compiled, *, yaml: bool, address: str) -> dict[str, object]:
    """The schema for editors of the format ``name``.

    ``yaml``: its files are read by PyYAML.
    """
    return _Form(compiled(name), compiled, yaml).whole(address)


def joined(cases: list[tuple[str, str, dict[str, Any]]], otherwise: dict[str, Any], title: str) -> dict[str, object]:
    """One schema for a file whose format follows from a key: (key, value that tells it, schema), else the last one."""
    definitions: dict[str, Any] = {}

    def root(schema: dict[str, Any], name: str) -> dict[str, object]:
        inner = {word: part for word, part in schema.items() if word not in ("$schema", "$id", "title", "definitions")}
        for each, section in schema["definitions"].items():
            if definitions.setdefault(each, section) != section:
                raise TypeError(f"two sections are named {each}")
        definitions[name] = inner
        return {"$ref": f"#/definitions/{name}"}

    chosen = root(otherwise, "Otherwise")
    for key, value, schema in cases:
        chosen = {
            "if": {"required": [key], "properties": {key: {"const": value, **_CONDITION}}},
            "then": root(schema, value.title().replace("_", "")),
            "else": chosen,
        }
    return {
        "$schema": DIALECT,
        "$id": otherwise["$id"],
        "title": title,
        "description": otherwise["description"],
        "type": "object",
        **chosen,
        "definitions": definitions,
    }


class _Form:
    def __init__(self, source: dict[str, Any], compiled: Compiled, yaml: bool) -> None:
        self.source = source
        self.compiled = compiled
        self.yaml = yaml
        self.shared = "shared" in source["x-zerocfg"]
        self.told = {
            _name(reference)
            for section in (source, *source["$defs"].values())
            for prop in section["properties"].values()
            for reference in (*_references(prop), *_cases(prop).values())
        }

    def whole(self, address: str) -> dict[str, object]:
        definitions = {name: self.section(each) for name, each in self.source["$defs"].items()}
        # A server shows the first words that it finds: those of the key, which are about its section, too.
        for name in self.told:
            del definitions[name]["description"], definitions[name]["markdownDescription"]
        return {
            "$schema": DIALECT,
            "$id": address,
            "title": self.source["title"],
            **self.section(self.source),
            "definitions": definitions,
        }

    def section(self, source: dict[str, Any]) -> dict[str, object]:
        facts = source["x-zerocfg"]
        made: dict[str, Any] = {
            "description": source["description"],
            "markdownDescription": words.section_text({}, source, "", _own_words(source)),
            "type": "object",
            "properties": {},
        }
        cases: list[dict[str, Any]] = []
        named = own_keys(source["properties"])
        for name, prop in named.items():
            made["properties"][name] = self.key(prop, facts)
            if "variants" in prop.get("x-zerocfg", {}):
                cases.append(self.variants(name, prop))
        spellings = {
            f"^{re.escape(name)}$": self.alias(prop, facts)
            for name, prop in source["properties"].items()
            if name not in named
        } | source.get("patternProperties", {})
        if "also" in facts:
            elsewhere = self.compiled(facts["also"])["properties"]
            other = [re.escape(name) for name in own_keys(elsewhere) if name not in source["properties"]]
            spellings[f"^(?:{'|'.join(other)})$"] = {}
        if spellings:
            made["patternProperties"] = spellings
        for word in ("required", "anyOf", "additionalProperties"):
            if word in source:
                made[word] = source[word]
        if cases:
            made["allOf"] = cases
        return made

    def key(self, prop: dict[str, Any], section: dict[str, object]) -> dict[str, object]:
        facts = prop.get("x-zerocfg", {})
        inner = _references(prop)
        text = _own_words(prop)
        if inner and "variants" not in facts:
            target = self.target(inner[0])
            markdown = words.section_text(prop, target, text, _own_words(target))
        else:
            markdown = words.hover(prop, section, text)
        made: dict[str, Any] = {"description": words.plain(markdown), "markdownDescription": markdown}
        if "removed" in facts and self.shared:
            return {**made, "deprecated": True, "doNotSuggest": True}
        if "not" in prop or "never" in facts:
            said = f"Removed: {facts['removed']}." if "removed" in facts else f"The value {facts['never']}."
            made |= {**_refused(facts), "errorMessage": said}
            return made | ({"doNotSuggest": True} if "removed" in facts else {})
        if "variants" not in facts:  # else the value follows from the sibling
            made.update(self.value(prop, inner))
        # Servers write the colon behind a proposed key only where they see what follows.
        if inner:
            made["properties"] = {}
        elif "default" in prop:
            made["default"] = prop["default"]
        elif "oneOf" in made:
            made.update(_opened(made["oneOf"], words.expected(prop)))
        if prop.get("examples"):
            made["examples"] = prop["examples"]
        if "deprecated" in facts:
            # The YAML server shows the message as an error.
            warned = {} if self.shared else {"deprecationMessage": f"Deprecated: {facts['deprecated']}."}
            made |= {"deprecated": True, **warned}
        return made

    def value(self, prop: dict[str, Any], sections: list[str]) -> dict[str, object]:
        """The schema of a key's value: one of these sections, or what else is taken."""
        facts = prop.get("x-zerocfg", {})
        branches = alternatives(prop)
        others = [branch for branch in branches if "$ref" not in branch]
        absent = [value for reference in sections for value in self.absent(facts, reference)]
        found: list[dict[str, Any]] = []
        if others or absent:
            found = values.accepted(others, {} if sections else facts, yaml=self.yaml, absent=absent)
        if found and found != [{}] and (message := words.expected(prop)) is not None:
            # An editor shows the problem of the first alternative when none fits.
            found[0]["errorMessage"] = message
        references = [{"$ref": values.moved(reference)} for reference in sections]
        # Words beside a bare reference are not read in draft-07.
        return {"allOf": references} if references and not found else values.one_of([*references, *found])

    def absent(self, facts: dict[str, object], reference: str) -> list[Any]:
        """What may stand in the place of a section and counts as none."""
        inner = self.target(reference)["x-zerocfg"]
        found: list[Any] = []
        if inner["null"] in ("absent", "falsy"):
            found.append(None)
        if inner["null"] == "falsy":
            found += [False, 0, ""]
        if inner.get("library") == "deepspeed" and facts.get("auto_raw") != "error":
            found.append("auto")
        return found

    def alias(self, prop: dict[str, Any], section: dict[str, object]) -> dict[str, object]:
        made = self.key({**prop, "description": ""}, section)
        text = prop["description"]
        return {**made, "description": text, "markdownDescription": f"{text}\n\n{made['markdownDescription']}".strip()}

    def variants(self, name: str, prop: dict[str, Any]) -> dict[str, object]:
        """The section of a key by the value of its sibling, and the declared one for every other value."""
        stated = prop["x-zerocfg"]["variants"]
        chosen = self.holding(name, prop, _references(prop)[0])
        by_section: dict[str, list[str]] = {}
        for value, reference in stated["cases"].items():
            by_section.setdefault(reference, []).append(value)
        for reference, names in reversed(by_section.items()):
            form = values.any_case if stated["any_case"] else re.escape
            pattern = f"^(?:{'|'.join(form(each) for each in names)})$"
            chosen = {
                "if": {"required": [stated["key"]], "properties": {stated["key"]: {"pattern": pattern, **_CONDITION}}},
                "then": self.holding(name, prop, reference),
                "else": chosen,
            }
        return chosen

    def holding(self, name: str, prop: dict[str, Any], reference: str) -> dict[str, object]:
        target = self.target(reference)
        markdown = words.section_text({}, target, "", _own_words(target))
        said = {"description": words.plain(markdown), "markdownDescription": markdown}
        return {"properties": {name: {**said, **self.value(prop, [reference]), **_CONDITION}}}

    def target(self, reference: str) -> dict[str, Any]:
        found: dict[str, Any] = self.source["$defs"][_name(reference)]
        return found


def _refused(facts: dict[str, object]) -> dict[str, object]:
    """A schema that no value fits, but an "auto" that the library drops before it looks at the value."""
    if facts.get("auto_raw") == "default":
        return {"type": "string", "pattern": "^auto$"}
    # A type that nothing has: for other refusals the YAML server shows no words of a schema's author.
    return {"type": "null", "not": {"type": "null"}}


def _references(prop: dict[str, Any]) -> list[str]:
    """The sections that a key may hold."""
    return [branch["$ref"] for branch in alternatives(prop) if "$ref" in branch]


def _cases(prop: dict[str, Any]) -> dict[str, str]:
    """The sections that a key may hold by the value of its sibling."""
    found: dict[str, str] = prop.get("x-zerocfg", {}).get("variants", {}).get("cases", {})
    return found


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _opened(alternatives: list[dict[str, Any]], message: str | None) -> dict[str, object]:
    """What makes servers write the colon behind a key without a default: the types of its values.

    From the type of a truth value they would propose true and false, though these are only taken. Proposals of the
    words that are offered anyway do the same.
    """
    types = values.types_of(alternatives)
    if "boolean" not in types:
        return {"type": types, **({"errorMessage": message} if message else {})}
    choices = [choice for each in alternatives for choice in each.get("enum", ()) if isinstance(choice, str)]
    plain = [choice for choice in choices if choice.lower() not in ("no", "yes", "on", "off")]
    return {"defaultSnippets": [{"label": choice, "body": choice} for choice in plain]} if len(plain) > 1 else {}


def _own_words(part: dict[str, Any]) -> str:
    """What the model's author wrote about a key or a section, without the facts that the compiler puts behind it."""
    facts = part.get("x-zerocfg", {})
    if "removed" in facts:
        return ""
    added = read_by(facts) if "properties" in part else describe("", facts)
    return str(part["description"]).removesuffix(added).rstrip()
