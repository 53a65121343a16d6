"""Line and column of a key in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.source.node import Document, Mapping

if TYPE_CHECKING:
    from collections.abc import Iterable


def position(document: Document, keys: Iterable[str | int]) -> tuple[int, int]:
    """Line and column, from 1, of the deepest part of a path that exists; (0, 0) where none does."""
    path: tuple[str | int, ...] = ()
    for key in keys:
        if document.get((*path, key)) is None:
            break
        path = (*path, key)
    if not path:
        return 0, 0
    entry, node = document.entry(path), document.get(path)
    if entry is None and node is None:
        return 0, 0
    span = entry.key_span if entry is not None else node.span if node is not None else None
    place = document.source.place(span.start if span is not None else 0)
    return place.line, place.column


def dotted_position(document: Document, name: str) -> tuple[int, int]:
    """The same for a dotted name; a key may hold dots itself."""
    return position(document, _parts(document, name))


def _parts(document: Document, name: str) -> list[str]:
    parts: list[str] = []
    node = document.root
    rest = name
    while rest and isinstance(node, Mapping):
        entry = max(
            (item for item in node.entries if rest == item.key or rest.startswith(f"{item.key}.")),
            key=lambda item: len(item.key),
            default=None,
        )
        if entry is None:
            break
        parts.append(entry.key)
        node, rest = entry.value, rest[len(entry.key) + 1 :]
    return parts
