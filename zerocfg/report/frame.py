"""A line of source with marks below it, cut to the columns there are. Columns, not characters: some take two."""

from __future__ import annotations

from zerocfg.record import record
from zerocfg.rules.place import FileSpan
from zerocfg.run.model import may_be_quoted

WIDEST = 160
"""Columns of a source line that are shown when the width of the output is unknown."""
REACH = 2
"""How many times the shown columns are looked at on each side of what is marked."""
TAB = "    "
CUT = "..."
"""Stands where a line goes on."""


@record(frozen=True)
class Frame:
    """``marks``: lines below the source, each an indent in columns and a text."""

    source: str
    marks: list[tuple[int, str]]


def frame(span: FileSpan, mark: str, width: int | None = None) -> Frame | None:
    """The first line of a span; None where there is nothing to see. Longer lines are cut around the marked part."""
    if not may_be_quoted(span.file):
        return None
    text = span.file.source.line(span.start.line)
    if not text.strip():
        return None
    room = max(width or WIDEST, 2 * len(CUT) + 1)
    # what is farther from the mark is not shown, so a long line with many findings is not looked at whole for each
    before = max(0, min(span.start.column - 1, len(text)) - REACH * room)
    end = len(text) if span.end.line > span.start.line else min(span.end.column - 1, len(text))
    text = text[before : before + 2 * REACH * room]
    cells = [_cell(char) for char in text]
    edges = _edges(cells)
    start = edges[min(span.start.column - 1 - before, len(cells))]
    last = edges[min(end - before, len(cells))]
    offset = 0 if edges[-1] <= room or last <= room - len(CUT) else max(0, start - room // 3)
    offset = min(offset, max(0, edges[-1] - room))
    source = _window(cells, edges, offset, room)
    start, last = max(0, start - offset), min(last - offset, room)
    marks = mark * max(1, last - start)
    return Frame(source, _labelled(start, marks, span.label, width))


def _labelled(start: int, marks: str, label: str, width: int | None) -> list[tuple[int, str]]:
    """The label behind the marks, or below them where no room is left."""
    if not label:
        return [(start, marks)]
    if width is None or start + len(marks) + 1 + len(label) <= width:
        return [(start, f"{marks} {label}")]
    from textwrap import wrap

    lines = wrap(label, width, break_long_words=False) if len(label) > width else [label]
    indent = max(0, min(start, width - max(map(len, lines))))
    return [(start, marks), *((indent, line) for line in lines)]


def _window(cells: list[tuple[str, int]], edges: list[int], offset: int, room: int) -> str:
    """``room`` columns from ``offset`` on, with signs where something was left out."""
    left, right = offset > 0, edges[-1] > offset + room
    first, end = offset + len(CUT) * left, offset + room - len(CUT) * right
    shown = [(text, edges[at]) for at, (text, size) in enumerate(cells) if first <= edges[at] <= end - size]
    text = "".join(piece for piece, _ in shown)
    gap = shown[0][1] - first if shown else 0
    return CUT * left + " " * gap + text + CUT * right


def _edges(cells: list[tuple[str, int]]) -> list[int]:
    """The column where each cell begins, and where the last one ends."""
    edges = [0]
    for _, size in cells:
        edges.append(edges[-1] + size)
    return edges


def _cell(char: str) -> tuple[str, int]:
    """What is shown for a character, and how many columns that takes."""
    if char == "\t":
        return TAB, len(TAB)
    if " " <= char <= "~":
        return char, 1
    if not char.isprintable():
        return "\N{REPLACEMENT CHARACTER}", 1
    from unicodedata import combining, east_asian_width

    if combining(char):
        return char, 0
    return char, 2 if east_asian_width(char) in "WF" else 1
