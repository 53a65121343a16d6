"""Where an expression of a script stands."""

from __future__ import annotations

import ast

from zerocfg.run.script.modules import Module
from zerocfg.source.text import Span


def span_of(module: Module, node: ast.expr) -> Span:
    """Where an expression stands, in code points of the text."""
    start = _offset(module, node.lineno, node.col_offset)
    end = _offset(module, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return Span(start, end) if module.at is None else Span(module.at[start], module.at[end - 1] + 1)


def _offset(module: Module, line: int, column: int) -> int:
    """Python counts columns in bytes of UTF-8."""
    start = module.starts[min(line, len(module.starts)) - 1]
    text = module.text[start : start + column]
    if text.isascii():
        return start + column
    return start + len(module.text[start:].encode()[:column].decode("utf-8", "ignore"))
