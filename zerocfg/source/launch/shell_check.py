"""Whether edits of a file with launch lines change nothing but the words that they mean.

The text is read again after the edits: every word that was not to change has to be there as before, in the same
commands, and only commands that start a training may have other words than before.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.launch.files import shell_texts
from zerocfg.source.launch.launchers import program
from zerocfg.source.launch.programs import NONE, Programs
from zerocfg.source.launch.shell_places import words_in_text
from zerocfg.source.launch.shell_started import Started, read_started
from zerocfg.source.launch.shell_words import Chars, tokens
from zerocfg.source.text import SourceText, Span

if TYPE_CHECKING:
    from zerocfg.source.launch.line import Word

_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")
_NAME = re.compile(r"([A-Za-z_]\w*\+?=)?", re.ASCII)
_PRINTS = frozenset(("echo", "printf", ":", "true"))
"""Programs that only show the words that they are given."""


def only_comments(source: SourceText, edits: Sequence[Edit], programs: Programs = NONE) -> bool:
    """Whether edits of a file with launch lines change comments and nothing else, so no text that looks like one."""
    return intact(source, edits, frozenset(), words=False, programs=programs)


def intact(
    source: SourceText,
    edits: Sequence[Edit],
    lines: Set[Span] | None = None,
    *,
    words: bool = True,
    programs: Programs = NONE,
) -> bool:
    """Whether edits of a file with launch lines change nothing but the words that they replace, take out or put in.

    ``programs``: those that start a training in addition to the launchers.
    ``lines``: the launch lines that may get other words, by their places; None: any. Commands that only print what they
    are given may, too. ``words``: whether the edits are of words at all.
    """
    after = SourceText(source.name, apply_edits(source.text, edits))
    changes = _Changes(edits)
    name = source.name.lower()
    if name.endswith(".ipynb") and not _same_notebook(source.text, after.text):
        return False
    if name.endswith(".py") and not _parses(after.text):
        return False
    old, new = list(shell_texts(source)), list(shell_texts(after))
    if len(old) != len(new):
        return False
    return all(
        _same_pieces(list(_pieces(item, changes.old)), list(_pieces(other, changes.new)), changes, words)
        and _same_commands(read_started(source, item, programs), read_started(after, other, programs), changes, lines)
        for item, other in zip(old, new, strict=True)
    )


class _Changes:
    """The ranges that edits take out of the old text, and those that they put into the new one."""

    def __init__(self, edits: Iterable[Edit]) -> None:
        self.old: list[Span] = []
        self.new: list[Span] = []
        moved = 0
        for edit in sorted(edits, key=lambda edit: edit.span):
            start, end = edit.span
            self.old.append(edit.span)
            self.new.append(Span(start + moved, start + moved + len(edit.replacement)))
            moved += len(edit.replacement) - (end - start)


def _within(ranges: Sequence[Span], span: Span) -> bool:
    """Whether one of the ranges, which are sorted, holds a span."""
    at = bisect_right(ranges, Span(span.start, max(span.end, ranges[-1].end) if ranges else span.end)) - 1
    return at >= 0 and span.end <= ranges[at].end and span.start < span.end


def _touches_inside(ranges: Sequence[Span], span: Span) -> bool:
    """Whether a change is made within a span: behind its start and before its end."""
    at = bisect_left(ranges, span.start, key=lambda item: item.end)
    while at < len(ranges) and ranges[at].start < span.end:
        one = ranges[at]
        if one.end > span.start and (one.start < one.end or span.start < one.start):
            return True
        at += 1
    return False


class _Piece(NamedTuple):
    """A word, operator, or body of a here-document, with its place in the file."""

    kind: str
    text: str
    span: Span


def _pieces(chars: Chars, changes: Sequence[Span]) -> Iterator[_Piece]:
    """What a shell text is made of; an array, or a quoted text, in parts where a change is made inside."""
    newline = True
    for token in tokens(chars.text):
        if token.kind == "operator" and token.text == "\n":
            if not newline:
                yield _Piece("operator", "\n", _span(chars, token.start, token.end))
            newline = True
            continue
        newline = False
        span = _span(chars, token.start, token.end)
        if token.kind != "word" or not _touches_inside(changes, span) or _within(changes, span):
            yield _Piece(token.kind, token.text, span)
            continue
        word = chars.part(token.start, token.end)
        opened = _ARRAY.match(word.text)
        name = _NAME.match(word.text)
        if opened:
            yield _Piece("array", opened[0], _span(word, 0, opened.end()))
            inside = word.part(opened.end(), len(word.text) - 1)
            yield from (piece for piece in _pieces(inside, changes) if piece.text != "\n")
            yield _Piece("array", ")", _span(word, len(word.text) - 1, len(word.text)))
        else:
            start = name.end() if name else 0
            value = word.part(start, len(word.text))
            yield _Piece("text", word.text[: start + 1], _span(word, 0, max(start, 1)))
            for begin, end in words_in_text(value):
                yield _Piece("word", value.text[begin:end], _span(value, begin, end))


def _span(chars: Chars, start: int, end: int) -> Span:
    at = chars.at
    last = at[end - 1] + 1
    following = at[end] if end < len(at) else last
    return Span(at[start], following if last <= following <= last + 1 else max(last, at[start]))


def _same_pieces(old: Sequence[_Piece], new: Sequence[_Piece], changes: _Changes, words: bool) -> bool:
    kept = [piece for piece in old if not _within(changes.old, piece.span)]
    left = [piece for piece in new if not _within(changes.new, piece.span)]
    added = [piece for piece in new if _within(changes.new, piece.span)]
    if not words and any(
        piece.text != "\n" for piece in (*added, *(item for item in old if _within(changes.old, item.span)))
    ):
        return False
    return [piece[:2] for piece in kept] == [piece[:2] for piece in left] and all(
        piece.kind == "word" or piece.text == "\n" for piece in added
    )


def _same_commands(old: Sequence[Started], new: Sequence[Started], changes: _Changes, lines: Set[Span] | None) -> bool:
    """Whether the same commands are started, with the same words but for those that are edited."""
    if len(old) != len(new):
        return False
    for item, other in zip(old, new, strict=True):
        if program(item.words[0]) in _PRINTS and program(other.words[0]) in _PRINTS:
            continue
        kept = [word for word in item.words if not _within(changes.old, word.span)]
        left = [word for word in other.words if not _within(changes.new, word.span)]
        if [_meaning(word) for word in kept] != [_meaning(word) for word in left]:
            return False
        changed = len(kept) < len(item.words) or len(left) < len(other.words)
        if changed and (item.launch is None if lines is None else item.launch not in lines):
            return False
    return True


def _meaning(word: Word) -> str:
    return word.text if word.value is None else word.value


def _same_notebook(old: str, new: str) -> bool:
    try:
        one, other = json.loads(old), json.loads(new)
        return _without_sources(one) == _without_sources(other)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False


def _without_sources(notebook: dict[str, object]) -> object:
    cells = notebook.get("cells")
    assert isinstance(cells, list)
    return {**notebook, "cells": [{**cell, "source": len(cell.get("source", ()))} for cell in cells]}


def _parses(text: str) -> bool:
    import ast

    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
