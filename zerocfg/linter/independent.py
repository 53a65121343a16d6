"""Which fixes can be applied together: those that give the same texts one after the other.

Two fixes depend on each other where their edits meet, where one edits what the finding of the other is about, and where
both set the same thing in one run.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from zerocfg.linter.engine import Diagnostic, FileSpan, real_name
from zerocfg.source.node import Mapping, Path, walk
from zerocfg.source.text import Span

if TYPE_CHECKING:
    from zerocfg.run.model import SourceFile
    from zerocfg.source.edit import Edit


def independent(candidates: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Those, in their order, that depend on none before them. What only meets an edit of one that has to wait itself
    need not wait for it."""
    places, edits = _Places(), _Edits()
    chosen = []
    for candidate in candidates:
        first = places.add(candidate)
        if first and edits.add(candidate):
            chosen.append(candidate)
    return chosen


class _Places:
    """What the findings so far are about: keys of documents with those above them, ranges of other texts, and what
    their fixes set in which runs."""

    def __init__(self) -> None:
        self._keys: set[tuple[str, Path]] = set()
        self._above: set[tuple[str, Path]] = set()
        self._ranges: dict[str, _Ranges] = {}
        self._set: dict[tuple[str, str], set[str]] = {}

    def add(self, candidate: Diagnostic) -> bool:
        """Note a finding; whether none before is about the same."""
        assert candidate.fix is not None
        free = True
        for span in (candidate.span, *candidate.related):
            name = real_name(span.file)
            if span.file.document is not None and span.file.kind != "launch":
                free &= self._key(name, span.keys)
            else:
                free &= self._ranges.setdefault(name, _Ranges()).add(_range(span))
        for intent in candidate.fix.gives:
            runs = self._set.setdefault((intent.of, intent.name), set())
            free &= runs.isdisjoint(candidate.met_in)
            runs |= candidate.met_in
        return free

    def _key(self, name: str, keys: Path) -> bool:
        above = [(name, keys[:end]) for end in range(len(keys) + 1)]
        free = above[-1] not in self._above and self._keys.isdisjoint(above)
        self._keys.add(above[-1])
        self._above.update(above)
        return free


class _Edits:
    """The edits that are chosen so far, by file."""

    def __init__(self) -> None:
        self._ranges: dict[str, _Ranges] = {}
        self._gone: dict[tuple[str, Span], int] = {}

    def add(self, candidate: Diagnostic) -> bool:
        """Choose the edits of a fix; False where one of them meets one that is chosen."""
        assert candidate.fix is not None
        edits = candidate.fix.edits
        if any(self._meets(file, edit) for file, edit in edits):
            return False
        emptied = list(_holders(edits))
        if any(self._gone.get(holder, 0) + 1 >= size for holder, size in emptied):
            return False  # a mapping that loses all of its keys is written in another way
        for holder, _ in emptied:
            self._gone[holder] = self._gone.get(holder, 0) + 1
        for file, edit in edits:
            self._ranges.setdefault(real_name(file), _Ranges()).add(edit.span)
        return True

    def _meets(self, file: SourceFile, edit: Edit) -> bool:
        ranges = self._ranges.get(real_name(file))
        return ranges is not None and ranges.meets(edit.span)


def _holders(edits: Iterable[tuple[SourceFile, Edit]]) -> Iterator[tuple[tuple[str, Span], int]]:
    """The mappings of documents that an edit takes a key out of, each with how many keys it has."""
    for file, edit in edits:
        root = file.document.root if file.document is not None else None
        if root is None or edit.replacement.strip() or edit.span.start == edit.span.end:
            continue
        inside = [
            node
            for _, node, _ in walk(root)
            if isinstance(node, Mapping) and node.span.start <= edit.span.start < node.span.end
        ]
        if inside:
            holder = min(inside, key=lambda node: node.span.end - node.span.start)
            yield (real_name(file), holder.span), len(holder.own())


def _range(span: FileSpan) -> Span:
    source = span.file.source
    start = source.offset(span.start.line - 1, span.start.column - 1)
    return Span(start, max(start, source.offset(span.end.line - 1, span.end.column - 1)))


class _Ranges:
    """Ranges of one text, joined where they meet, so that they are in order by their ends as well."""

    def __init__(self) -> None:
        self._joined: list[Span] = []

    def meets(self, span: Span) -> bool:
        """Whether a range overlaps one of these, or abuts it."""
        at = self._first(span)
        return at < len(self._joined) and self._joined[at].start <= span.end

    def add(self, span: Span) -> bool:
        """Add a range; whether it meets none."""
        first = last = self._first(span)
        while last < len(self._joined) and self._joined[last].start <= span.end:
            span = Span(min(span.start, self._joined[last].start), max(span.end, self._joined[last].end))
            last += 1
        del self._joined[first:last]
        insort(self._joined, span)
        return first == last

    def _first(self, span: Span) -> int:
        return bisect_left(self._joined, span.start, key=lambda one: one.end)
