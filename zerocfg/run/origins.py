"""The provenance of a value as a short text and as a place, worded alike in every command."""

from __future__ import annotations

from zerocfg.run.model import Origin
from zerocfg.source.text import Span, Where

_UNNAMED = {
    "file": "written",
    "flag": "given on the launch line",
    "environment": "an environment variable",
    "default": "default",
    "computed": "computed",
}

ASSUMED = (Origin("default", "nothing tells the release"),)
"""The places of a release that is assumed, because nothing states one."""


def origin_label(origin: Origin) -> str:
    """A short name for what set a value, as ``default of accelerate 1.15.0``, ``--zero_stage``, ``2 ranks * 4``."""
    if origin.kind == "default" and origin.note:
        return f"default of {origin.note}"
    return origin.note or _UNNAMED[origin.kind]


def span_of(origin: Origin) -> Span | None:
    """The span at the origin: a key, an item of a list, a word of a launch line; None where there is no single one."""
    if origin.span is not None:
        return origin.span
    document = origin.file.document if origin.file is not None else None
    if document is None or not origin.path:
        return None
    entry, node = document.entry(origin.path), document.get(origin.path)
    return entry.key_span if entry is not None else node.span if node is not None else None


def place_of(origin: Origin) -> Where | None:
    """The place that sets the value, or its file where there is no single place; None where no file sets it."""
    if origin.file is None:
        return None
    span = span_of(origin)
    return Where(origin.file.name) if span is None else Where(origin.file.name, *origin.file.source.place(span.start))
