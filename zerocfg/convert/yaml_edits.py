"""Edits of an accelerate config that keep every comment."""

from __future__ import annotations

import json
import re
from collections import abc

from zerocfg.rules.renaming import written
from zerocfg.run.model import SourceFile
from zerocfg.source.edit import Edit, apply_edits, delete_entry
from zerocfg.source.load import load_as
from zerocfg.source.node import Document, Mapping, Path, Scalar
from zerocfg.source.text import SourceText, Span

_COMMENT = re.compile(r"[ \t]+#[ \t]*(?=\S)")


def document_of(file: SourceFile, text: str) -> Document:
    """A text of the file as its document."""
    assert file.document is not None
    return load_as(SourceText(file.source.name, text), file.document.format)


def without_key(file: SourceFile, text: str, path: Path, now: str) -> str:
    """The text without a key, however often it is written. The comment behind it stays, as a line that names what it
    speaks of: ``now``.

    Raises ValueError where the key cannot be taken out.
    """
    document = document_of(file, text)
    edits = delete_entry(document, path)
    entry = document.entry(path)
    assert entry is not None
    start, end = entry.key_span.start, entry.value.span.end
    comment = _COMMENT.match(text, end)
    alone = not text[text.rfind("\n", 0, start) + 1 : start].strip() and "\n" not in text[start:end]
    if isinstance(entry.value, Scalar) and alone and comment and start < entry.value.span.start:
        edits = [Edit(Span(start, comment.end()), f"# {now}: ")]
    after = apply_edits(text, edits)
    return after if document_of(file, after).get(path) is None else without_key(file, after, path, now)


def with_section(file: SourceFile, text: str, name: str, values: abc.Mapping[str, object]) -> str:
    """The text with a section at its end. Raises ValueError where the file has one, or is no block of YAML."""
    document = document_of(file, text)
    root = document.root
    if document.format != "yaml" or not isinstance(root, Mapping) or text[root.span.start : root.span.start + 1] == "{":
        raise ValueError("the config is not written as a block of YAML")
    if document.get((name,)) is not None:
        raise ValueError(f"`{name}` is there already")
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [f"{name}:", *(f"  {key}: {written(file, value) or json.dumps(value)}" for key, value in values.items())]
    gap = "" if text.endswith("\n") else end
    return f"{text}{gap}{end.join(lines)}{end}"
