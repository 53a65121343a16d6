"""The text of a source file: decoding that keeps every byte, and offsets turned into lines and columns.

Offsets count code points of the decoded text from 0. Lines and columns, which people see, count from 1.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple

from zerocfg.budgets import DIGITS
from zerocfg.record import record

BOM = "\ufeff"


class Span(NamedTuple):
    """Half-open range [start, end) of code points in the text of one file."""

    start: int
    end: int


class Place(NamedTuple):
    """Line and column as an editor shows them, both from 1; columns in code points."""

    line: int
    column: int


class Where(NamedTuple):
    """A place in a named file; line and column as an editor shows them, from 1; 0: the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    @classmethod
    def parse(cls, text: str) -> Where:
        """``ds_config.json:12:5``, or a file alone, as a lock holds it."""
        head, _, column = text.rpartition(":")
        file, _, line = head.rpartition(":")
        counted = all(part.isdecimal() and len(part) <= DIGITS for part in (line, column))
        return cls(file, int(line), int(column)) if file and counted else cls(text)


@record(frozen=True)
class SourceText:
    """A file's name and its decoded text. ``text`` includes a byte-order mark and the original line ends."""

    name: str
    text: str

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        find = self.text.find
        at = find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = find("\n", at + 1)
        return starts

    @property
    def line_count(self) -> int:
        return len(self._starts)

    def place(self, offset: int) -> Place:
        """Line and column of an offset; offsets past the end are shown at the end."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset)
        start = self._starts[line - 1]
        column = offset - start + 1
        if line == 1 and self.text.startswith(BOM) and column > 1:
            column -= 1
        return Place(line, column)

    def offset(self, line: int, column: int) -> int:
        """Offset of a line and column that both count from 0, as parsers report them."""
        line = max(0, min(line, len(self._starts) - 1))
        return min(self._starts[line] + column, len(self.text))

    def line(self, number: int) -> str:
        """The text of a line (from 1) without its line end."""
        if not 1 <= number <= len(self._starts):
            return ""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r").lstrip(BOM)

    def line_span(self, number: int) -> Span:
        """The span of a line (from 1), its line end included."""
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return Span(start, end)
