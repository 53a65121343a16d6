"""Where a value comes from, in words and as a place: each command says it alike."""

from __future__ import annotations

from zerocfg.run.model import Origin
from zerocfg.source.text import Span

_UNNAMED = {
    "file": "written",
    "flag": "given on the launch line",
    "environment": "an environment variable",
    "default": "default",
    "computed": "computed",
}


def said(origin: Origin) -> str:
    """What set a value: ``default of accelerate 1.15.0``, ``--zero_stage``, ``ACCELERATE_USE_CPU``, ``2 ranks * 4``."""
    if origin.kind == "default" and origin.note:
        return f"default of {origin.note}"
    return origin.note or _UNNAMED[origin.kind]


def span_of(origin: Origin) -> Span | None:
    """What is written there: a key, an item of a list, a word of a launch line; None for no single place of a text."""
    if origin.span is not None:
        return origin.span
    document = origin.file.document if origin.file is not None else None
    if document is None or not origin.path:
        return None
    entry, node = document.entry(origin.path), document.get(origin.path)
    return entry.key_span if entry is not None else node.span if node is not None else None


def place_of(origin: Origin) -> str:
    """``ds_config.json:12:5``; the file alone where it is no single place of it, empty where no file says it."""
    if origin.file is None:
        return ""
    span = span_of(origin)
    return f"{origin.file.name}:{at(origin, span)}" if span is not None else origin.file.name


def at(origin: Origin, span: Span) -> str:
    """``12:5``: line and column, both from 1, of a span of the origin's file."""
    assert origin.file is not None
    place = origin.file.source.place(span.start)
    return f"{place.line}:{place.column}"
