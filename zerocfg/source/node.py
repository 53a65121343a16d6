"""The parsed tree of a source file: every key and every value knows its span."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from zerocfg.record import field, record
from zerocfg.source.text import SourceText, Span

Path = tuple[str | int, ...]
"""A key path: mapping keys and sequence indices from the root."""


@record(slots=True)
class Scalar:
    """A value without parts. ``value`` is what the file's own reader makes of it; ``raw`` the text as written."""

    value: Any
    span: Span
    raw: str
    quoted: bool = False


_MANY = 64
"""Number of entries from which a mapping caches lookups, because every diagnostic repeats them."""


@record(slots=True)
class Entry:
    """One ``key: value`` of a mapping. Duplicates are kept: the last one is what a reader sees."""

    key: str
    key_span: Span
    value: Node


class _Known(NamedTuple):
    """Lookups cached by a large mapping: the entry that counts by key, and its own entries."""

    size: int
    counting: dict[str, Entry]
    own: list[Entry]


@record(slots=True)
class Mapping:
    span: Span
    entries: list[Entry] = field(default_factory=list)
    _known: _Known | None = field(default=None, init=False, repr=False, compare=False)

    def entry(self, key: str) -> Entry | None:
        """The entry that counts: the last one of that key."""
        if len(self.entries) > _MANY:
            return self._looked_up().counting.get(key)
        for entry in reversed(self.entries):
            if entry.key == key:
                return entry
        return None

    def own(self) -> list[Entry]:
        """The entries that are written in the mapping itself: without those that a merge key brought in."""
        if len(self.entries) > _MANY:
            return self._looked_up().own
        return [entry for entry in self.entries if self.holds(entry)]

    def holds(self, entry: Entry) -> bool:
        """Whether an entry is written in the mapping itself."""
        return self.span.start <= entry.key_span.start and entry.key_span.end <= self.span.end

    def _looked_up(self) -> _Known:
        known = self._known
        if known is None or known.size != len(self.entries):
            counting = {entry.key: entry for entry in self.entries}
            own = [entry for entry in self.entries if self.holds(entry)]
            known = self._known = _Known(len(self.entries), counting, own)
        return known


@record(slots=True)
class Sequence:
    span: Span
    items: list[Node] = field(default_factory=list)


Node = Scalar | Mapping | Sequence


Form = Literal["", "comment", "trailing comma", "bare key", "single quotes", "tab"]


@record(slots=True, frozen=True)
class Problem:
    """Something that a reader could not read as its author must have meant it.

    ``kind`` names the reading rule: "syntax", "encoding", "unreadable", "too-large", "too-deep", "empty",
    "not-a-mapping", "duplicate-key", "hjson-only", "alias-cycle", "multiple-documents", ...
    ``fatal`` problems leave no tree. ``path`` is the key path where there is one. ``form``: of "hjson-only", the
    construct, where one edit writes it in strict JSON; of "syntax", "tab" where that is all. ``why``: of "unreadable",
    what the system says; of "syntax", what the parser says, where the message says more. ``brief``: the message without
    what becomes of it, where it tells that as well.
    """

    kind: str
    message: str
    span: Span
    path: Path = ()
    fatal: bool = False
    related: Span | None = None
    form: Form = ""
    why: str = ""
    brief: str = ""


@record(slots=True)
class Document:
    """A parsed source file. ``root`` is None when a fatal problem left nothing to look at. ``editable`` False: a
    dict that stands in a script, in whose language there are no edits."""

    source: SourceText
    format: Literal["yaml", "json"]
    root: Node | None
    problems: list[Problem] = field(default_factory=list)
    readers: dict[str, bool] = field(default_factory=dict)
    """JSON only: whether ``json`` (accelerate, transformers) and ``hjson`` (DeepSpeed) accept the text."""
    editable: bool = True

    @property
    def name(self) -> str:
        return self.source.name

    def get(self, path: Path) -> Node | None:
        """The node at a key path, or None."""
        node = self.root
        for part in path:
            if isinstance(node, Mapping) and isinstance(part, str):
                entry = node.entry(part)
                node = entry.value if entry else None
            elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
            else:
                return None
        return node

    def entry(self, path: Path) -> Entry | None:
        """The ``key: value`` entry at a key path, or None."""
        parent = self.get(path[:-1]) if path else None
        if isinstance(parent, Mapping) and isinstance(path[-1], str):
            return parent.entry(path[-1])
        return None

    def data(self) -> object:
        """The plain Python value, as the file's reader would return it (of duplicate keys the last wins)."""
        return None if self.root is None else plain(self.root)


def plain(node: Node) -> Any:
    """Plain dicts, lists and scalars."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {entry.key: plain(entry.value) for entry in node.entries}


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node, Entry | None]]:
    """Every node below ``node`` with its path and, inside a mapping, its entry; parents first."""
    yield path, node, None
    yield from _below(node, path)


def _below(node: Node, path: Path) -> Iterator[tuple[Path, Node, Entry | None]]:
    if isinstance(node, Mapping):
        for entry in node.entries:
            here = (*path, entry.key)
            yield here, entry.value, entry
            yield from _below(entry.value, here)
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            here = (*path, index)
            yield here, item, None
            yield from _below(item, here)


def dotted(path: Path) -> str:
    """``zero_optimization.offload_param.device``; indices as ``[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text
