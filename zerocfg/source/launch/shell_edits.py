"""Edits of launch lines: where words may be put, taken out or replaced.

A word stands in a command, in an array, or in a text that the shell splits later. Edits are made at the bounds of words
whose range in the file is exact, and what they put in reads the same in each of these places. Whether a text is still
what it was afterwards: :mod:`zerocfg.source.launch.shell_check`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.source.edit import Edit
from zerocfg.source.text import SourceText, Span

if TYPE_CHECKING:
    from zerocfg.source.launch.line import Option, Word

_PLAIN = re.compile(r"(?:[\w@%+=:,./ -]|\$\w+|\$\{\w+\})*\Z", re.ASCII)
_BETWEEN = re.compile(r"=|[ \t]+")
_REST_OF_LINE = re.compile(r"[ \t]*\\\r?\n")


def written_option(source: SourceText, option: Option) -> str | None:
    """An option with its value as it stands in one line of the file; None where it is put together of several parts."""
    text = source.text[option.span.start : option.span.end]
    value = option.value
    if not option.exact or not text.startswith(option.name):
        return None
    rest = text[len(option.name) :]
    if value is None:
        return text if not rest else None
    between = source.text[option.span.start + len(option.name) : value.span.start]
    whole = value.exact and rest == between + value.text and _BETWEEN.fullmatch(between) is not None
    return text if whole and "\n" not in text else None


def replaced(source: SourceText, option: Option, text: str) -> Edit | None:
    """An edit that writes other words in the place of an option and its value."""
    return Edit(option.span, text) if written_option(source, option) is not None else None


def with_value(source: SourceText, option: Option, text: str) -> Edit | None:
    """An edit that gives an option another value."""
    written = written_option(source, option)
    if option.value is None or written is None or not _PLAIN.match(text):
        return None
    return Edit(option.span, written[: len(written) - len(option.value.text)] + text)


def removed(source: SourceText, option: Option) -> Edit | None:
    """An edit that takes out an option with the blanks before it; with its line where that is all that the line
    holds."""
    if written_option(source, option) is None:
        return None
    text, (start, end) = source.text, option.span
    while start and text[start - 1] in " \t":
        start -= 1
    rest = _REST_OF_LINE.match(text, end)
    if text[:start].endswith(("\\\n", "\\\r\n")):
        if rest is not None:
            return Edit(Span(start, rest.end()), "")
        if text[end : end + 1] in ("", "\r", "\n"):
            return Edit(Span(text[:start].rindex("\\"), end), "")
    return Edit(Span(start, end), "")


def behind(source: SourceText, option: Option, words: str) -> Edit | None:
    """An edit that puts plain words behind an option."""
    end = option.span.end
    if written_option(source, option) is None or not _PLAIN.match(words) or source.text[end - 1 : end] == "\\":
        return None
    return Edit(Span(end, end), f" {words}")


def before(word: Word, words: str) -> Edit | None:
    """An edit that puts plain words before a word."""
    return Edit(Span(word.span.start, word.span.start), f"{words} ") if word.exact and _PLAIN.match(words) else None
