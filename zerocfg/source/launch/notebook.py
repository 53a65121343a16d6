"""Jupyter notebooks: the code of their cells and the shell commands among it, every character with its place.

Places are those of the notebook's own text, where each line of a cell has a line of its own.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]
from typing import Any

from zerocfg.source.launch.line import Written
from zerocfg.source.launch.shell_words import UNKNOWN, Chars
from zerocfg.source.text import BOM, SourceText, Span

_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_COMMAND = re.compile(r"[ \t]*(?:\w+[ \t]*=[ \t]*)?([!%?])")
_INSERTED = re.compile(r"\{[^{}\n]*\}")
"""What IPython puts a value of the notebook in the place of."""
_SETS = re.compile(r"\benviron(?:\.setdefault\(|\[)[ ]*[\"'](\w+)[\"']|^[ \t]*%env[ \t]+(\w+)[ \t]*=", re.MULTILINE)
_SHELL_CELLS = frozenset({"bash", "sh", "shell", "script"})
_WRITING_CELLS = frozenset({"writefile", "file"})
_PROGRAM = re.compile(r"(?:pip|conda|mamba|uv)[ \t]")
"""What IPython starts by a magic of its name."""
_SHELL_LINE = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:\w+=\S*[ \t]+)*"
    r"(?:sudo|export[ \t]+\w+=|cd|git|bash|sh|pip3?|conda|uv|python3?|accelerate|deepspeed|torchrun)\b[ \t]*[^=(,.\s]"
)
"""A first line that a shell runs. It only counts in a cell that is no Python: of a kernel for a shell, or commands to
copy into a terminal."""
_WRITES = re.compile(r"\bopen\(|\bdumps?\(|\bwrite")
_PYTHON_CELLS = frozenset({"time", "timeit", "capture", "prun"})
_PASS = "pass"
_scan = JSONDecoder().scan_once  # type: ignore[attr-defined]
_BLANK = re.compile(r"[ \t\n\r]*").match
_SEPARATOR = re.compile(r"[ \t\n\r]*[,:]?[ \t\n\r]*").match


def python_of(source: SourceText) -> Chars:
    """The Python of all cells, one after the other; a cell that Python could not parse is left out."""
    parts = [part for _, cell in _cells(source) if (part := _python(cell)) is not None]
    return _joined(parts)


def shell_of(source: SourceText) -> Iterator[Chars]:
    """The commands that cells hand to a shell: `!` at the start of a line, and cells of `%%bash` or of nothing but
    commands."""
    return (item for item in started_of(source) if not isinstance(item, Written))


def started_of(source: SourceText) -> Iterator[Chars | Written]:
    """The same with the files that cells of `%%writefile` write, in their order. Of one that is added to, or that code
    may write again, nobody knows the text."""
    written: set[str] = set()
    for _, cell in _cells(source):
        magic = _magic(cell)
        start = cell.text.find("\n") + 1 or len(cell.text)
        if magic in _SHELL_CELLS:
            yield cell.part(start, len(cell.text))
        elif magic in _WRITING_CELLS:
            words = cell.text[:start].split()[1:]
            if len(words) in (1, 2) and words[:-1] in ([], ["-a"]):
                name = words[-1].strip("\"'")
                written.add(name)
                yield Written(name, None if len(words) == 2 else cell.part(start, len(cell.text)))
        elif not magic and _SHELL_LINE.match(cell.text) and _python(cell) is None:
            yield cell
        elif not magic or magic in _PYTHON_CELLS:
            if written and _WRITES.search(cell.text):
                yield from (Written(name, None) for name in sorted(written) if name in cell.text)
            for begin, end in _commands(cell.text):
                mark = _COMMAND.match(cell.text, begin)
                if mark is not None and (mark[1] == "!" or _PROGRAM.match(cell.text, mark.end())):
                    command = cell.part(mark.end(), end)
                    yield Chars(_INSERTED.sub(lambda found: UNKNOWN * len(found[0]), command.text), command.at)


def environment_of(source: SourceText) -> dict[str, str | None]:
    """The variables that cells set for the programs that they start; what they hold is not looked at."""
    return {found[1] or found[2]: None for _, cell in _cells(source) for found in _SETS.finditer(cell.text)}


def cell_at(source: SourceText, offset: int) -> tuple[int, int] | None:
    """The cell that holds a place, counted from 1 among all cells, and the line in it; None where there is no code."""
    for number, cell in _cells(source):
        if cell.at and cell.at[0] <= offset <= cell.at[-1] + 1:
            return number, cell.text.count("\n", 0, bisect_left(cell.at, offset)) + 1
    return None


@lru_cache(maxsize=8)  # asked several times in a row; in an editor more would be old versions of one notebook
def _cells(source: SourceText) -> tuple[tuple[int, Chars], ...]:
    """The text of every cell of code, with its number among all cells. Most of a notebook is output, which is passed
    over: by the scanner of `json` itself, which tells no places, so that they are kept on the way to the cells alone.
    """
    text = source.text
    try:
        start = _BLANK(text, len(text) - len(text.removeprefix(BOM))).end()  # type: ignore[union-attr]
        cells = dict(_members(text, start)).get("cells")
        return tuple(
            (number, _code(text, at))
            for number, (at, cell) in enumerate(_items(text, cells), 1)
            if isinstance(cell, dict) and cell.get("cell_type") == "code"
        )
    except (ValueError, IndexError, RecursionError):  # no JSON
        return ()


def _code(text: str, cell: int) -> Chars:
    lines = dict(_members(text, cell)).get("source")
    if lines is None:
        return _joined([])
    starts = [lines] if text[lines] == '"' else [at for at, line in _items(text, lines) if isinstance(line, str)]
    return _joined([_unescaped(text, Span(at, scanstring(text, at + 1, True)[1])) for at in starts])


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """The keys of the JSON object that starts there, and where their values start."""
    end = _BLANK(text, at + 1).end()  # type: ignore[union-attr]
    while text.startswith('"', end) and text[at] == "{":
        key, end = scanstring(text, end + 1, True)
        value = _SEPARATOR(text, end).end()  # type: ignore[union-attr]
        yield key, value
        end = _SEPARATOR(text, _value(text, value)[1]).end()  # type: ignore[union-attr]


def _items(text: str, at: int | None) -> Iterator[tuple[int, Any]]:
    """Where the items of the JSON array that starts there start, and what they are; of anything else none."""
    if at is None or text[at] != "[":
        return
    start = _BLANK(text, at + 1).end()  # type: ignore[union-attr]
    while text[start] != "]":
        item, end = _value(text, start)
        yield start, item
        start = _SEPARATOR(text, end).end()  # type: ignore[union-attr]


def _value(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that starts there, and where it ends."""
    try:
        return _scan(text, at)  # type: ignore[no-any-return]
    except StopIteration:
        raise ValueError("no JSON value") from None


def _unescaped(text: str, span: Span) -> Chars:
    """The characters of a JSON string, each with its offset in the file."""
    said: list[str] = []
    offsets: list[int] = []
    at, end = span.start + 1, span.end - 1
    while at < end:
        width, one = 1, text[at]
        if one == "\\":
            width, one = 2, _ESCAPED.get(text[at + 1], text[at + 1])
            if one == "u":
                width, one = 6, chr(int(text[at + 2 : at + 6], 16))
                if "\ud800" <= one < "\udc00" and text[at + 6 : at + 8] == "\\u":  # two halves of one character
                    low = int(text[at + 8 : at + 12], 16)
                    width, one = 12, chr(0x10000 + ((ord(one) - 0xD800) << 10) + (low - 0xDC00))
        said.append(one)
        offsets.append(at)
        at += width
    return Chars("".join(said), offsets)


def _joined(parts: list[Chars]) -> Chars:
    return Chars("".join(part.text for part in parts), [at for part in parts for at in part.at])


def _magic(cell: Chars) -> str:
    """The word after `%%` at the start of a cell."""
    head = cell.text.lstrip()
    return head[2:].split(maxsplit=1)[0] if head.startswith("%%") and head[2:].strip() else ""


def _python(cell: Chars) -> Chars | None:
    """The code of a cell with `pass` in the place of every command; None where it is in another language."""
    magic = _magic(cell)
    if magic and magic not in _PYTHON_CELLS:
        return None
    text, offsets, done = [], list[int](), 0
    for start, end in _commands(cell.text):
        indent = len(cell.text[start:end]) - len(cell.text[start:end].lstrip(" \t"))
        text += [cell.text[done : start + indent], _PASS + "\n"]
        offsets += [*cell.at[done : start + indent], *[cell.at[start]] * (len(_PASS) + 1)]
        done = end
    code = "".join([*text, cell.text[done:]])
    if not code.endswith("\n"):
        code += "\n"
    offsets += cell.at[done:]
    offsets += offsets[-1:] * (len(code) - len(offsets))
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Chars(code, offsets)


def _commands(text: str) -> Iterator[tuple[int, int]]:
    """The lines that are no Python, with those that continue them."""
    lines = list(_LINE.finditer(text))
    at = 0
    while at < len(lines):
        first = at
        if _COMMAND.match(lines[at][0]):
            while lines[at][0].rstrip().endswith("\\") and at + 1 < len(lines):
                at += 1
            yield lines[first].start(), lines[at].end()
        at += 1
