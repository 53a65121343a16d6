"""Keys and values that fit where the cursor is, from the catalog."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Literal

import yaml
from lsprotocol.types import (
    CompletionItem,
    CompletionItemKind,
    CompletionItemTag,
    MarkupContent,
    MarkupKind,
    TextEdit,
)

from zerocfg.catalog.schema import Key, Schema, Section, load_schema
from zerocfg.lsp.cursor import Cursor, in_json, in_yaml
from zerocfg.lsp.hover import describe, kinds
from zerocfg.lsp.keys import Place, place_in
from zerocfg.lsp.positions import Lines
from zerocfg.source.node import dotted

Format = Literal["json", "yaml"]


def complete(
    kind: str, form: Format, lines: Lines, offset: int, data: object, consumers: Collection[str | None]
) -> list[CompletionItem]:
    """What may be written at an offset of a file of this kind.

    ``data`` is the plain value of the file when it last could be read. ``consumers``: who reads the file, as far as
    its runs tell; "auto" is offered where one of them, or nobody known, fills it.
    """
    cursor = in_json(lines.text, offset) if form == "json" else in_yaml(lines.text, offset)
    if cursor is None:
        return []
    place = place_in(kind, data, cursor.path)
    if cursor.at == "key":
        return [_key_item(*found, cursor, form, lines) for found in _keys(place, cursor, lines.text)]
    found = place.key(cursor.key)
    if found is None:
        return []
    key, schema = found
    inner = key.section(schema) or key.entries(schema)
    items = [_value_item(*value, cursor, form, lines) for value in values(key, consumers)]
    return items if items or inner is None or form == "yaml" else [_section_item(cursor, lines)]


# -- keys -----------------------------------------------------------------------------------------------------------


def _keys(place: Place, cursor: Cursor, text: str) -> Iterator[tuple[str, Key, Schema]]:
    """The keys that are not there yet, in the order of the schema; old names last."""
    typed = text[cursor.typed.start : cursor.typed.end].strip("\"'")
    old: list[tuple[str, Key, Schema]] = []
    offered: set[str] = set()
    for section, schema in place.sections:
        for name, key in _names(section, typed):
            taken = {key.name, *key.facts.get("aliases", ()), name} & cursor.present
            if taken or name in offered or "removed" in key.facts:
                continue
            offered.add(name)
            if {"deprecated", "inert"} & set(key.facts):
                old.append((name, key, schema))
            else:
                yield name, key, schema
    yield from old


def _names(section: Section, typed: str) -> Iterator[tuple[str, Key]]:
    """The keys by their first name; by another name, or one that the library takes from elsewhere, once it is begun."""
    yield from section.keys.items()
    if not typed:
        return
    for name, key in section.names.items():
        if name not in section.keys and name.startswith(typed) and not key.name.startswith(typed):
            yield name, key
    if "also" in section.facts:
        for name, key in load_schema(section.facts["also"]).root.keys.items():
            if name not in section.names and name.startswith(typed):
                yield name, key


def _key_item(name: str, key: Key, schema: Schema, cursor: Cursor, form: Format, lines: Lines) -> CompletionItem:
    written = json.dumps(name) if form == "json" else name
    nested = (key.section(schema) or key.entries(schema)) is not None and not _plain_branches(key)
    if cursor.follows == ":":
        new = written
    elif form == "json":
        new = f"{written}: "
    else:
        new = f"{written}:" if nested else f"{written}: "
    old = bool({"deprecated", "inert"} & set(key.facts))
    return CompletionItem(
        label=name,
        kind=CompletionItemKind.Module if nested else CompletionItemKind.Property,
        detail=key.facts.get("unit") or kinds(key),
        documentation=MarkupContent(MarkupKind.Markdown, describe(dotted((*cursor.path, name)), key)),
        tags=[CompletionItemTag.Deprecated] if "deprecated" in key.facts else None,
        sort_text=f"{int(old)}{name}",
        filter_text=written,
        text_edit=TextEdit(lines.range(cursor.typed), new),
    )


def _plain_branches(key: Key) -> bool:
    """Whether a section may also be written as a plain value."""
    return any("properties" not in branch and branch.get("type") != "object" for branch in key.scalars)


# -- values ---------------------------------------------------------------------------------------------------------


def values(key: Key, consumers: Collection[str | None]) -> Iterator[tuple[object, str]]:
    """The values worth offering, each with a remark, the default first."""
    found: list[object] = []
    for branch in key.branches:
        if "enum" in branch:
            found += branch["enum"]
        elif branch.get("type") == "boolean":
            found += [True, False]
        elif "const" in branch and branch["const"] != "auto":
            found.append(branch["const"])
    found += key.facts.get("known_values", [])
    default = key.raw.get("default")
    if isinstance(default, (str, int, float)) and not isinstance(default, bool):
        found.append(default)
    found += [item for item in key.raw.get("examples", []) if isinstance(item, (str, int, float))]
    offered: list[tuple[type, object]] = []
    for value in sorted((item for item in found if item != "auto"), key=lambda item: not _same(item, default)):
        if (type(value), value) not in offered:
            offered.append((type(value), value))
            yield value, "default" if _same(value, default) else ""
    if auto := _auto(key, consumers):
        yield "auto", auto


def _auto(key: Key, consumers: Collection[str | None]) -> str:
    """Who fills a literal "auto"; empty where none of the consumers does."""
    fillers = key.facts.get("auto", {})
    known = [consumer for consumer in consumers if consumer is not None]
    who = [filler for filler in fillers if not known or filler in known]
    return f"filled by {who[0]}: {fillers[who[0]]}" if who else ""


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default


def _value_item(value: object, remark: str, cursor: Cursor, form: Format, lines: Lines) -> CompletionItem:
    written = json.dumps(value) if form == "json" else yaml_text(value)
    return CompletionItem(
        label=value if isinstance(value, str) and value else written,
        kind=CompletionItemKind.EnumMember if isinstance(value, str) else CompletionItemKind.Value,
        detail=remark or None,
        preselect=remark == "default" or None,
        sort_text=f"{['default', ''].index(remark) if remark in ('default', '') else 2}{written}",
        filter_text=written,
        text_edit=TextEdit(lines.range(cursor.typed), written),
    )


def _section_item(cursor: Cursor, lines: Lines) -> CompletionItem:
    return CompletionItem(
        label="{}",
        kind=CompletionItemKind.Module,
        detail="a section",
        text_edit=TextEdit(lines.range(cursor.typed), "{}"),
    )


def yaml_text(value: object) -> str:
    """A value so that PyYAML reads it as what it is: `no` and `1e-5` in quotes where a word is meant."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        return str(yaml.safe_dump(value).removesuffix("\n...\n"))
    if not isinstance(value, str):
        return str(value)
    try:
        plain = yaml.safe_load(f"k: {value}") == {"k": value}
    except yaml.YAMLError:
        plain = False
    return value if plain else json.dumps(value, ensure_ascii=False)
