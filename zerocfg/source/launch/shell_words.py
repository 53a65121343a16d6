"""The words of a shell text: where they begin and end, and what they expand to.

Texts are :class:`Chars`: every character remembers the offset in the file that it came from, so that a word
that went through a variable, a Makefile or ``bash -c "..."`` still knows its place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zerocfg.source.text import Span

UNKNOWN = "\0"
"""Stands for text that only the running shell knows."""

START = "\1"
"""Stands for the folder in which the text was started, at the beginning of a path."""

SUBSTITUTIONS = ("<(", ">(")
"""How a word begins that stands for the input or output of another command."""


_BARE = re.compile(r"[\w./:=@%,+~^?*\[\]-]+(?=[ \t\n])", re.ASCII)
"""A word that means no more than it says; digits, behind which a redirection may follow, end at a blank too."""
_PLAIN = re.compile(r"[^ \t\r\n\f\v;&|<>()\"'\\$`]+")
_SPECIAL = re.compile(r"[\"'\\$`(){}#]|(?<!<)<<-?(?![<=])")
_BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\r?(?:\n|\Z))+")
_COMMENT = re.compile(r"#[^\n]*")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-?|>>|>\||<>|>&|<&|<|>)|&>>?")
_OPERATOR = re.compile(r"\n|;;&?|;&?|&&|\|\|?&?|&|\(|\)")
_MARK = re.compile(r"[ \t]*(\\?[\w.-]+|'[^'\n]*'|\"[^\"\n]*\")")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\Z")


class Chars(NamedTuple):
    """A text and, for every character, the offset in the file at which its written form begins. ``written``: the range
    of the file that holds the text as one word, quotes and all, where there is one and it is known."""

    text: str
    at: Sequence[int]
    written: Span | None = None

    def part(self, start: int, end: int) -> Chars:
        return Chars(self.text[start:end], self.at[start:end])


class Token(NamedTuple):
    """``kind``: word, operator, redirect and its target, body of a here-document; ``start`` and ``end`` index the
    text."""

    kind: str
    start: int
    end: int
    text: str


def tokens(text: str) -> Iterator[Token]:
    """Words, operators, redirections; bodies of here-documents follow the end of their line. Comments are left out.
    ``((...))`` is one word."""
    at = 0
    size = len(text)
    heredocs: list[tuple[str, bool]] = []
    skip_word = False
    heredoc: str | None = None
    looked_at = 0
    while at < size:
        blank = _BLANK.match(text, at)
        if blank:
            at = blank.end()
            continue
        bare = _BARE.match(text, at)
        if bare and not skip_word:  # most words of most texts
            yield Token("word", at, bare.end(), bare[0])
            at = bare.end()
            continue
        if text[at] == "#":
            at = _COMMENT.match(text, at).end()  # type: ignore[union-attr]
            continue
        if text.startswith(SUBSTITUTIONS, at):
            end = nested_end(text, at + 2, ")")
            yield Token("target" if skip_word else "word", at, end, text[at:end])
            skip_word = False
            at = end
            continue
        redirect = _REDIRECT.match(text, at)
        if redirect:
            yield Token("redirect", at, redirect.end(), redirect[0])
            at = redirect.end()
            skip_word = True
            heredoc = redirect[0] if "<<" in redirect[0] and "<<<" not in redirect[0] else None
            continue
        if text.startswith("((", at) and at >= looked_at:
            looked_at = nested_end(text, at + 1, ")")
            if text.startswith("))", looked_at - 2):
                yield Token("word", at, looked_at, text[at:looked_at])
                at = looked_at
                continue
        operator = _OPERATOR.match(text, at)
        if operator:
            yield Token("operator", at, operator.end(), operator[0])
            at = operator.end()
            skip_word = False
            if operator[0] == "\n" and heredocs:
                for mark, tabs in heredocs:
                    end, after = _heredoc_end(text, at, mark, tabs)
                    yield Token("body", at, end, text[at:end])
                    at = after
                heredocs = []
            continue
        end = word_end(text, at)
        end = max(end, at + 1)
        if skip_word:
            if heredoc is not None:
                heredocs.append((re.sub(r"[\"'\\]", "", text[at:end]), heredoc.endswith("-")))
            skip_word = False
            heredoc = None
            yield Token("target", at, end, text[at:end])
        else:
            yield Token("word", at, end, text[at:end])
        at = end


def _heredoc_end(text: str, at: int, mark: str, tabs: bool) -> tuple[int, int]:
    """The end of the body of a here-document, and that of the line that ends it."""
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].rstrip("\r")
        if (line.lstrip("\t") if tabs else line) == mark:
            return at, min(end + 1, len(text))
        at = min(end + 1, len(text))
    return at, at


def word_end(text: str, at: int) -> int:
    """The end of the word that starts at ``at``."""
    start = at
    size = len(text)
    while at < size:
        plain = _PLAIN.match(text, at)
        if plain:
            at = plain.end()
            continue
        mark = text[at]
        if mark == "(":
            if not _ARRAY.match(text[start:at]):
                return at
            at = nested_end(text, at + 1, ")")
        elif mark == "'":
            at = _single_end(text, at + 1)
        elif mark == '"':
            at = nested_end(text, at + 1, '"')
        elif mark == "`":
            at = nested_end(text, at + 1, "`")
        elif mark == "\\":
            at += 3 if text.startswith("\r\n", at + 1) else 2
        elif mark == "$":
            at = dollar_end(text, at)
        else:
            return at
    return min(at, size)


def dollar_end(text: str, at: int, *, quoted: bool = False) -> int:
    """The end of the ``$...`` at ``at``, with its brackets or quotes; else just behind the dollar. ``quoted``: between
    double quotes."""
    follows = text[at + 1 : at + 2]
    if follows == "(":
        return nested_end(text, at + 2, ")")
    if follows == "{":
        return nested_end(text, at + 2, "}")
    if follows == "'" and not quoted:
        end = at + 2
        while end < len(text) and text[end] != "'":
            end += 2 if text[end] == "\\" else 1
        return min(end + 1, len(text))
    return at + 1


def _single_end(text: str, at: int) -> int:
    end = text.find("'", at)
    return len(text) if end < 0 else end + 1


def nested_end(text: str, at: int, closer: str) -> int:  # noqa: C901
    """Behind the ``closer`` of what was opened before ``at``; the end of the text if it never ends."""
    stack = [closer]
    size = len(text)
    body_behind: tuple[int, int] | None = None
    body_missing = False
    while stack:
        found = _SPECIAL.search(text, at)
        if not found:
            return size
        if body_behind is not None and found.start() > body_behind[0]:
            at, body_behind = body_behind[1], None
            continue
        at = found.end()
        mark, top = found[0], stack[-1]
        if mark == "\\":
            at += 1
        elif mark == top:
            stack.pop()
        elif mark == "'":
            if top != '"':
                at = _single_end(text, at)
        elif mark in '"`':
            stack.append(mark)
        elif mark == "$":
            follows = text[at : at + 1]
            if follows in ("(", "{"):
                stack.append(")" if follows == "(" else "}")
                at += 1
            elif follows == "'" and top != '"':
                at = dollar_end(text, at - 1)
        elif mark == "(" and top == ")":
            stack.append(")")
        elif mark == "#" and top == ")":
            if text[at - 2 : at - 1] in ("", *" \t\r\n(;&|"):
                end = text.find("\n", at)
                at = size if end < 0 else end
        elif mark.startswith("<<") and top == ")":
            body = _body_after(text, at, mark == "<<-") if not body_missing else None
            body_missing = body is None  # each look for a mark may take as long as the text is
            if body is not None:
                body = body if body_behind is None else (body[0], max(body[1], body_behind[1]))
                body_behind = body
    return min(at, size)


def _body_after(text: str, at: int, tabs: bool) -> tuple[int, int] | None:
    """The end of the line of a here-document's mark, and where its body ends; None where it never does."""
    mark = _MARK.match(text, at)
    line = text.find("\n", at)
    if mark is None or line < 0:
        return None
    end, after = _heredoc_end(text, line + 1, re.sub(r"[\"'\\]", "", mark[1]), tabs)
    return (line, end) if after > end else None
