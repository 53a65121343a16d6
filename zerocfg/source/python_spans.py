"""Where the expressions of Python code stand in its text."""

from __future__ import annotations

import ast
import re

from zerocfg.source.text import Span


class PythonSpans:
    """Python counts columns in bytes of UTF-8, and lines as it ends them. ``lead``: where the code starts."""

    def __init__(self, text: str, lead: int) -> None:
        self.whole = text
        self.starts = [lead, *(found.end() for found in re.finditer(r"\r\n|\r|\n", text))]

    def _offset(self, line: int, column: int) -> int:
        start = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.whole)
        return start + len(self.whole[start:end].encode()[:column].decode("utf-8", "ignore"))

    def span(self, node: ast.expr) -> Span:
        start = self._offset(node.lineno, node.col_offset)
        return Span(start, self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset))
