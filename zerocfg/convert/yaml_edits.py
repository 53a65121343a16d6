"""Edits of an accelerate config that keep every comment."""

from __future__ import annotations

import re

from zerocfg.run.model import SourceFile
from zerocfg.source.edit import Edit, apply_edits, delete_entry
from zerocfg.source.load import load_as
from zerocfg.source.node import Document, Path, Scalar
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
