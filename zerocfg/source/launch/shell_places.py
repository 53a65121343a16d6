"""Which range of a file holds a word of a shell text, quotes and all, so that edits can be made at its bounds.

Every character of a text knows where its written form begins (:class:`~zerocfg.source.launch.shell_words.Chars`).
That form may be longer than the character: an escape of a notebook, ``$NAME``, a variable of make. It ends where the
form of the next character begins; a range is exact where that holds for each character in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.source.launch.shell_words import Chars, dollar_end, nested_end
from zerocfg.source.text import Span

_NAME = re.compile(r"\$\$?(?:[A-Za-z_]\w*|[0-9@*#?$!-])", re.ASCII)
_OF_MAKE = re.compile(r"\$\$?(?:\([\w.-]+\)|\{[\w.-]+\})", re.ASCII)
_UNICODE = re.compile(r"\\u[0-9a-fA-F]{4}")
_BARE = re.compile(r"[^\s\"'\\`$(){}]+\Z")
_BLANK = " \t\r\n"


def exact_span(text: str, chars: Chars, start: int, end: int) -> Span | None:
    """The range of the file that holds a part of a shell text and nothing else; None where there is none."""
    at = chars.at
    if end <= start:
        return None
    if isinstance(at, range):
        return Span(at[start], at[end - 1] + 1)
    first = before = at[start]
    ends: tuple[int, ...] = (first,)
    for index in range(start, end):
        here = at[index]
        if index > start and here == before:
            continue  # several characters of one form
        if here not in ends:
            return None
        before, ends = here, _form_ends(text, here)
    if end < len(at):
        return Span(first, at[end]) if at[end] in ends else None
    written_as_itself = chars.text[end - 1] == text[before : before + 1]
    return Span(first, ends[0] if written_as_itself else ends[-1])


def _form_ends(text: str, at: int) -> tuple[int, ...]:
    """Where the written form of a character may end: as a character by itself, or as what stands for one."""
    mark = text[at : at + 1]
    if mark == "\\":
        return (at + 1, at + 6 if _UNICODE.match(text, at) else at + 2)
    if mark == "`":
        return (at + 1, nested_end(text, at + 1, "`"))
    if mark != "$":
        return (at + 1,)
    named = _OF_MAKE.match(text, at) or _NAME.match(text, at)
    ends = {dollar_end(text, at), named.end() if named else at + 1}
    return (at + 1, *sorted(ends - {at + 1}))


def bare(word: Chars) -> bool:
    """Whether a written word is what it means: no quotes, no variables."""
    return _BARE.match(word.text) is not None


def words_in_text(word: Chars) -> Iterator[tuple[int, int]]:
    """Where the words of a quoted text begin and end, as the shell splits it where the text is used without quotes:
    `"--lr 1e-5 --name $NAME"` holds four. Indices into the written word; none where it is put together of several
    parts."""
    text = word.text
    quote = text[:1]
    if quote == "'" and text.find("'", 1) == len(text) - 1 > 0:
        yield from ((1 + found.start(), 1 + found.end()) for found in re.finditer(r"[^ \t\r\n]+", text[1:-1]))
    elif quote == '"' and nested_end(text, 1, '"') == len(text) > 1 and text.endswith('"'):
        yield from _in_double_quotes(text, 1, len(text) - 1)
    elif bare(word):
        yield 0, len(text)


def _in_double_quotes(text: str, at: int, end: int) -> Iterator[tuple[int, int]]:
    start = None
    while at < end:
        mark = text[at]
        if mark in _BLANK:
            if start is not None:
                yield start, at
            start = None
            at += 1
            continue
        start = at if start is None else start
        if mark == "\\":
            at += 2
        elif mark == "`":
            at = nested_end(text, at + 1, "`")
        elif mark == "$":
            at = _expansion_end(text, at)
        else:
            at += 1
    if start is not None:
        yield start, end


def _expansion_end(text: str, at: int) -> int:
    named = _NAME.match(text, at)
    return named.end() if named and named[0] != "$$" else dollar_end(text, at, quoted=True)
