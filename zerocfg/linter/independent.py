"""Which fixes can be applied together: those that give the same texts one after the other.

Two fixes depend on each other where their edits meet, where one edits what the finding of the other is about, and where
both set the same thing in one run.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from zerocfg.linter.engine import Diagnostic, real_name
from zerocfg.record import record
from zerocfg.rules.place import FileSpan
from zerocfg.source.node import Mapping, Path, walk
from zerocfg.source.text import Span

if TYPE_CHECKING:
    from zerocfg.run.model import SourceFile
    from zerocfg.source.edit import Edit


@record(frozen=True, slots=True)
class Offer:
    """Edits, and the findings that they are offered for."""

    edits: tuple[tuple[SourceFile, Edit], ...]
    findings: tuple[Diagnostic, ...]

    @property
    def files(self) -> dict[str, SourceFile]:
        """The files that the edits are in, by real path."""
        return {real_name(file): file for file, _ in self.edits}


def offers(findings: Iterable[Diagnostic]) -> list[Offer]:
    """The findings with a fix, in their order; those whose fixes are the same edits together."""
    found: dict[frozenset[tuple[str, Edit]], list[Diagnostic]] = {}
    for finding in findings:
        if finding.fix is not None:
            key = frozenset((real_name(file), edit) for file, edit in finding.fix.edits)
            found.setdefault(key, []).append(finding)
    return [Offer(some[0].fix.edits if some[0].fix else (), tuple(some)) for some in found.values()]


class Independence:
    """The offers so far, in their order, and which of them are chosen."""

    def __init__(self) -> None:
        self.places, self.edits = _Places(), _Edits()

    def add(self, offer: Offer, *, chosen: bool, any_place: bool) -> bool:
        """Note an offer, and choose it if wanted, where it depends on none before it (``any_place``: or does) and its
        edits meet none that are chosen; whether it is."""
        free = self.places.add(offer) or any_place
        return free and chosen and self.edits.add(offer)


class _Places:
    """What the findings so far are about: keys of documents with those above them, ranges of other texts, and what
    their fixes set in which runs."""

    def __init__(self) -> None:
        self._keys: set[tuple[str, Path]] = set()
        self._above: set[tuple[str, Path]] = set()
        self._ranges: dict[str, _Ranges] = {}
        self._set: dict[tuple[str, str], set[str]] = {}

    def add(self, candidate: Offer) -> bool:
        """Note the findings of an offer; whether none before is about the same."""
        keys: set[tuple[str, Path]] = set()
        ranges: set[tuple[str, Span]] = set()
        intents: dict[tuple[str, str], set[str]] = {}
        for finding in candidate.findings:
            for span in (finding.span, *finding.related):
                name = real_name(span.file)
                if span.file.document is not None and span.file.kind != "launch":
                    keys.add((name, span.keys))
                else:
                    ranges.add((name, _range(span)))
            for intent in finding.fix.gives if finding.fix is not None else ():
                intents.setdefault((intent.of, intent.name), set()).update(finding.met_in)
        free = all(self._set.get(intent, set()).isdisjoint(runs) for intent, runs in intents.items())
        free &= all(key not in self._above and self._keys.isdisjoint(_above(key)) for key in keys)
        free &= not any(self._ranges[name].meets(span) for name, span in ranges if name in self._ranges)
        for key in keys:
            self._keys.add(key)
            self._above.update(_above(key))
        for name, place in ranges:
            self._ranges.setdefault(name, _Ranges()).add(place)
        for of, runs in intents.items():
            self._set.setdefault(of, set()).update(runs)
        return free


def _above(key: tuple[str, Path]) -> list[tuple[str, Path]]:
    name, path = key
    return [(name, path[:end]) for end in range(len(path) + 1)]


class _Edits:
    """The edits that are chosen so far, by file."""

    def __init__(self) -> None:
        self._ranges: dict[str, _Ranges] = {}
        self._gone: dict[tuple[str, Span], int] = {}

    def add(self, candidate: Offer) -> bool:
        """Choose the edits of an offer; False where one of them meets one that is chosen."""
        edits = candidate.edits
        if any(self._meets(file, edit) for file, edit in edits):
            return False
        emptied = list(_holders(edits))
        if any(0 < self._gone.get(holder, 0) >= size - 1 for holder, size in emptied):
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

    def add(self, span: Span) -> None:
        first = last = self._first(span)
        while last < len(self._joined) and self._joined[last].start <= span.end:
            span = Span(min(span.start, self._joined[last].start), max(span.end, self._joined[last].end))
            last += 1
        del self._joined[first:last]
        insort(self._joined, span)

    def _first(self, span: Span) -> int:
        return bisect_left(self._joined, span.start, key=lambda item: item.end)
