"""Where things stand in a piece of Python code, as its parser counts."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from zerocfg.source.text import BOM, Span


class PythonSpans:
    """Places of nodes as code points of the text that holds the code. Python counts columns in bytes of UTF-8, lines as
    it ends them, and a byte order mark not at all."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _starts(self) -> list[int]:
        """Offset of each line's first character; computed lazily, because few programs have a reported place."""
        first = len(self.text) - len(self.text.removeprefix(BOM))
        return [first, *(found.end() for found in re.finditer(r"\r\n|\r|\n", self.text))]

    def _offset(self, line: int, column: int) -> int:
        start = self._starts[min(line, len(self._starts)) - 1]
        return start + len(self.text[start : start + column].encode()[:column].decode("utf-8", "ignore"))

    def span(self, node: ast.expr | ast.keyword | ast.alias) -> Span:
        start = self._offset(node.lineno, node.col_offset)
        return Span(start, self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset))
