"""The DeepSpeed config that a framework makes of keys of its own, as a tree whose nodes lie at those keys."""

from __future__ import annotations

import json
from collections.abc import Mapping

from zerocfg.frontends.api import Value
from zerocfg.run.model import UNKNOWN, Setting, SourceFile
from zerocfg.run.templates import CODE
from zerocfg.source.node import Document, Entry, Node, Scalar, Sequence, plain
from zerocfg.source.node import Mapping as Section
from zerocfg.source.text import Span


def config_of_keys(
    keys: Mapping[str, Value], recipe: SourceFile | None, options: Mapping[str, Setting]
) -> SourceFile | None:
    """The config as a file that lies in the recipe, or in the launch line where there is none; None without a key.
    ``keys``: by path with dots. An option's value is unknown where there is a recipe: a config has one file."""
    lines = [options[value.key].origin.file for value in keys.values() if value.option]
    file = recipe if recipe is not None and recipe.document is not None else next(iter(lines), None)
    if file is None or not keys:
        return None
    root = Section(Span(0, len(file.source.text)))
    for path, value in keys.items():
        _put(root, tuple(path.split(".")), _entry(value, file, options))
    format_ = file.document.format if file.document is not None else "json"
    inside = Document(file.source, format_, root, editable=False)
    return SourceFile(file.name, "deepspeed", file.source, inside, file.path, file)


def _put(section: Section, path: tuple[str, ...], found: Entry) -> None:
    *above, last = path
    for name in above:
        inner = section.entry(name)
        if inner is None:
            inner = Entry(name, found.key_span, Section(found.key_span))
            section.entries.append(inner)
        assert isinstance(inner.value, Section), "no key is both a value and a section"
        span = inner.value.span
        inner.value.span = Span(min(span.start, found.key_span.start), max(span.end, found.value.span.end))
        section = inner.value
    section.entries.append(Entry(last, found.key_span, found.value))


def _entry(value: Value, file: SourceFile, options: Mapping[str, Setting]) -> Entry:
    """The entry of a key, at the key or the option that gives it."""
    if value.option:
        origin = options[value.key].origin
        here = origin.file is file
        span = origin.span if here and origin.span is not None else Span(0, 0)
        return Entry("", span, _node(value.value if here else UNKNOWN, span))
    entry = file.document.entry((value.key,)) if file.document is not None else None
    if entry is None:
        return Entry("", Span(0, 0), _node(UNKNOWN, Span(0, 0)))
    same = type(plain(entry.value)) is type(value.value) and plain(entry.value) == value.value
    return Entry("", entry.key_span, entry.value if same else _node(value.value, entry.value.span))


def _node(value: object, span: Span) -> Node:
    if isinstance(value, dict):
        return Section(span, [Entry(str(key), span, _node(inner, span)) for key, inner in value.items()])
    if isinstance(value, (list, tuple)):
        return Sequence(span, [_node(inner, span) for inner in value])
    if not isinstance(value, (str, int, float, bool, type(None))):
        return Scalar(CODE, span, CODE)  # not known
    return Scalar(value, span, json.dumps(value), isinstance(value, str))
