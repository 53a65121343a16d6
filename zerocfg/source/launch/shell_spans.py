"""Words of a shell command that keep the place of each of their characters, through variables and quotes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from zerocfg.source.launch.line import Word
from zerocfg.source.launch.shell_expand import Expander
from zerocfg.source.launch.shell_words import SUBSTITUTIONS, UNKNOWN, Chars, Token
from zerocfg.source.text import Span


class Placed(Word):
    """A word that still has the place of each of its characters."""

    __slots__ = ("chars",)
    chars: Chars


def words_of(
    text: str,
    chars: Chars,
    token: Token,
    expander: Expander,
    outer: Span,
    named: Callable[[Chars], Chars],
    told: Callable[[str], str | None],
) -> list[Word]:
    """The words that one written word expands to. ``named`` puts the names of files in the place of paths that only the
    shell knows; ``told`` gives a word as the program sees it."""
    whole = span_of(chars.at[token.start : token.end], outer)
    if text[whole.end - 1 : whole.end] == "\\" != token.text[-1:]:  # the last quote, as a notebook escapes it
        whole = Span(whole.start, whole.end + 1)
    if token.text.startswith(SUBSTITUTIONS):
        return [Word(text[whole.start : whole.end], None, whole)]
    fields = expander.fields(chars.part(token.start, token.end))
    words: list[Word] = []
    for field in fields:
        span = whole
        if len(fields) > 1 and field.at:
            span = span_of(field.at, whole)
        if UNKNOWN in field.text:
            field = named(field)
        word = Placed(text[span.start : span.end], None if UNKNOWN in field.text else told(field.text), span)
        object.__setattr__(word, "chars", field)
        words.append(word)
    return words


def span_of(at: object, fallback: Span) -> Span:
    """The range that characters come from; ``fallback`` when they come from several places."""
    offsets = at if isinstance(at, (list, range, tuple)) else ()
    if not offsets:
        return fallback
    low, high = offsets[0], offsets[-1]
    if not isinstance(offsets, range):
        ascending = all(one <= two for one, two in pairwise(offsets))
        if not ascending or high - low > 2 * len(offsets) + 80:
            return fallback
    return Span(low, high + 1)


def joined(words: list[Word]) -> Chars:
    parts: list[str] = []
    at: list[int] = []
    for word in words:
        if isinstance(word, Placed):
            parts.append(word.chars.text + " ")
            at.extend(word.chars.at)
            at.append(max(word.span.end - 1, 0))
    return Chars("".join(parts), at)
