"""Offsets in a text as positions of the language server protocol, and back.

The protocol counts lines and columns from 0, ends a line at LF, CR LF or CR alone, and counts columns in units of the
encoding that client and server agree on: UTF-16 unless the client offers another one. A byte-order mark has no width:
editors keep it out of the text that they show.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

from lsprotocol.types import Position, Range

from zerocfg.source.text import BOM, Span

_LINE_END = re.compile(r"\r\n|\n|\r")


class Lines:
    """A text with its line starts. ``encoding``: "utf-8", "utf-16" or "utf-32"."""

    def __init__(self, text: str, encoding: str) -> None:
        self.text = text
        self.encoding = encoding
        self.starts = [int(text.startswith(BOM)), *(match.end() for match in _LINE_END.finditer(text))]

    def position(self, offset: int) -> Position:
        """The position of an offset; one past the end is at the end."""
        offset = max(self.starts[0], min(offset, len(self.text)))
        line = bisect_right(self.starts, offset) - 1
        return Position(line, width(self.text[self.starts[line] : offset], self.encoding))

    def offset(self, position: Position) -> int:
        """The offset of a position; columns behind the end of a line are at its end, as the protocol asks."""
        if position.line >= len(self.starts):
            return len(self.text)
        start = self.starts[position.line]
        end = self.starts[position.line + 1] if position.line + 1 < len(self.starts) else len(self.text)
        line = self.text[start:end].rstrip("\r\n")
        if self.encoding == "utf-32" or line.isascii():
            return start + min(position.character, len(line))
        units = 0
        for index, character in enumerate(line):
            if units >= position.character:
                return start + index
            units += width(character, self.encoding)
        return start + len(line)

    def range(self, span: Span) -> Range:
        return Range(self.position(span.start), self.position(span.end))


def width(text: str, encoding: str) -> int:
    """How many units of the encoding a text takes."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@lru_cache(maxsize=64)
def lines_of(text: str, encoding: str) -> Lines:
    return Lines(text, encoding)
