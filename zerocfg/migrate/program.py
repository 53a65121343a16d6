"""The Python of a script, or of all cells of a notebook, as a text in which edits are made.

Keywords of calls and entries of dicts are found by where they stand in the file. In a notebook code stands in strings
of JSON: what comes in is escaped, and of lines that go as a whole the strings go.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass

from zerocfg.run.model import SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.source.edit import Edit
from zerocfg.source.python_spans import PythonSpans
from zerocfg.source.text import BOM, Span

_LONG = {"u": 6}
_PAIR = 12
"""Characters of an escape in JSON, where they are not two: of ``\\u00e4``, and of one written as two halves."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """``text``: the code; ``at``: where each character of it stands in the ``file``, None where that is the code."""

    file: str
    text: str
    at: Sequence[int] | None
    spans: PythonSpans
    tree: ast.Module

    def span(self, node: ast.expr | ast.keyword) -> Span:
        """Where something stands in the code."""
        return self.spans.span(node)

    def stands_at(self, node: ast.expr, offset: int) -> bool:
        """Whether an expression begins there in the file."""
        start = self.span(node).start
        return (start if self.at is None else self.at[start]) == offset

    def keyword(self, name: str, value: int) -> ast.keyword | None:
        """The keyword of a call whose value begins there in the file."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        words = (word for call in calls for word in call.keywords if word.arg == name)
        return next((word for word in words if self.stands_at(word.value, value)), None)

    def call(self, start: int) -> ast.Call | None:
        """The call that begins there in the file: what is made of its result begins there, too."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and self.stands_at(node, start)]
        return calls[-1] if calls else None

    def entry(self, key: int) -> tuple[ast.expr, ast.expr] | None:
        """Key and value of a dict whose key begins there in the file."""
        pairs = ((item, value) for node in self._dicts() for item, value in zip(node.keys, node.values, strict=True))
        return next(((pair, value) for pair, value in pairs if pair is not None and self.stands_at(pair, key)), None)

    def mapping(self, start: int) -> ast.Dict | None:
        """The dict that begins there in the file."""
        return next((node for node in self._dicts() if self.stands_at(node, start)), None)

    def _dicts(self) -> list[ast.Dict]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Dict)]

    def replaced(self, span: Span, text: str) -> tuple[Edit, ...]:
        """A text in the place of a piece of the code."""
        if self.at is None:
            return (Edit(span, text),)
        new = json.dumps(text, ensure_ascii=False)[1:-1]
        if span.start == span.end:
            end = self._end(span.start - 1)
            return (Edit(Span(end, end), new),)
        strings = self._strings(span)
        return tuple(Edit(string, "" if at else new) for at, string in enumerate(strings))

    def added(self, last: Span, texts: Sequence[str]) -> tuple[Edit, ...]:
        """More keywords or entries behind one, each on a line of its own where that one begins its line. A comment that
        stands behind it stays with it."""
        line = self.text.rfind("\n", 0, last.start) + 1
        indent = self.text[line : last.start]
        if indent.strip() or not line:
            return self.replaced(Span(last.end, last.end), "".join(f", {text}" for text in texts))
        lines = f"{_line_end(self.text, line)}{indent}"
        stop = self.text.find("\n", last.end)
        tail = self.text[last.end : stop].removesuffix("\r")
        if tail[:1] == "," and tail[1:].strip()[:1] in ("", "#"):
            at = last.end + len(tail)
            return self.replaced(Span(at, at), "".join(f"{lines}{text}," for text in texts))
        return self.replaced(Span(last.end, last.end), "".join(f",{lines}{text}" for text in texts))

    def removed(self, start: int, end: int) -> tuple[Edit, ...]:
        """Without a keyword or an entry: its comma goes too, and the lines that it has for itself."""
        span = _with_comma(self.text, start, end)
        if self.at is not None:
            first, last = self.at[span.start] - 1, self.at[min(span.end, len(self.at) - 1)] - 1
            if self.file[first] == self.file[last] == '"' and first < last:  # both begin a string
                return (Edit(Span(first, last), ""),)
        return self.replaced(span, "")

    def _strings(self, span: Span) -> list[Span]:
        """What a piece of the code takes up of each string of a notebook."""
        assert self.at is not None
        found: list[Span] = []
        for at in range(*span):
            here, end = self.at[at], self._end(at)
            if found and found[-1].end == here:
                found[-1] = Span(found[-1].start, end)
            else:
                found.append(Span(here, end))
        return found

    def _end(self, offset: int) -> int:
        """Where a character of the code ends in the file, however it is escaped."""
        assert self.at is not None
        here = self.at[offset]
        if self.file[here] != "\\":
            return here + 1
        return here + (_PAIR if ord(self.text[offset]) > 0xFFFF else _LONG.get(self.file[here + 1], 2))


@remembered
def program_of(file: SourceFile) -> Program | None:
    """The program of a script or a notebook; None for any other file, and where Python could not parse it."""
    text, at = file.source.text, None
    if file.path is None or file.path.suffix not in (".py", ".ipynb"):
        return None
    if file.path.suffix == ".ipynb":
        from zerocfg.source.launch.notebook import python_of  # few scripts are notebooks

        text, at, _ = python_of(file.source)
    try:
        tree = ast.parse(text.removeprefix(BOM))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Program(file.source.text, text, at, PythonSpans(text), tree)


def literal(value: object) -> str:
    """A value as Python writes it, with the quotes that most formatters ask for."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(name)}: {literal(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return (
        f'"{value}"' if isinstance(value, str) and value.isprintable() and not {'"', "\\"} & {*value} else repr(value)
    )


def _line_end(text: str, line: int) -> str:
    """As the line before one ends."""
    return "\r\n" if text[:line].endswith("\r\n") else "\n"


def _with_comma(text: str, start: int, end: int) -> Span:
    """What to take out of a list of things to be rid of one of them."""
    after = end
    while after < len(text) and text[after] in " \t\r\n":
        after += 1
    comma = text[after : after + 1] == ","
    if comma:
        end = after + 1
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    alone = not text[line:start].strip() and stop >= 0 and not text[end:stop].strip()
    if alone:
        return Span(line, stop + 1)
    while comma and text[end : end + 1] in (" ", "\t"):
        end += 1
    if not comma:  # the last one: the comma before it goes too
        before = text[:start].rstrip()
        if before.endswith(","):
            start = len(before) - 1
    elif not text[end:stop].strip() or text[end : end + 1] in (")", "}"):
        start = len(text[:start].rstrip(" \t"))  # nothing stands behind it on its line
    return Span(start, end)
