"""Words of a shell command that keep the place of each of their characters, through variables and quotes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from zerocfg.source.launch.line import Word
from zerocfg.source.launch.shell_expand import Expander
from zerocfg.source.launch.shell_places import exact_span
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
    value_of: Callable[[str], str | None],
) -> list[Word]:
    """The words that one written word expands to. ``named`` puts the names of files in the place of paths that only the
    shell knows; ``value_of`` gives a word as the program sees it."""
    written = chars.part(token.start, token.end)
    exact = exact_span(text, chars, token.start, token.end) or _in_text(text, written, expander)
    whole = exact or span_of(chars.at[token.start : token.end], outer)
    if token.text.startswith(SUBSTITUTIONS):
        return [Word(text[whole.start : whole.end], None, whole, exact is not None)]
    fields = expander.fields(written)
    words: list[Word] = []
    for field in fields:
        place, span = exact, whole
        if len(fields) > 1:
            place = field.written or _in_text(text, field, expander)
            span = place or (span_of(field.at, whole) if field.at else whole)
        if UNKNOWN in field.text:
            field = named(field)
        parts = tuple(field.text.split(UNKNOWN)) if UNKNOWN in field.text else ()
        value = None if parts else value_of(field.text)
        word = Placed(text[span.start : span.end], value, span, place is not None, parts)
        object.__setattr__(word, "chars", field)
        words.append(word)
    return words


def _in_text(text: str, field: Chars, expander: Expander) -> Span | None:
    """The range of a word that an assigned text holds as a whole."""
    known = expander.in_texts.get(field.at[0]) if field.at else None
    return known if known is not None and exact_span(text, field, 0, len(field.at)) == known else None


def span_of(at: object, fallback: Span) -> Span:
    """The range that characters come from; ``fallback`` when they come from several places."""
    offsets = at if isinstance(at, (list, range, tuple)) else ()
    if not offsets:
        return fallback
    low, high = offsets[0], offsets[-1]
    if not isinstance(offsets, range):
        ascending = all(item <= two for item, two in pairwise(offsets))
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
            at.append(word.span.end)
    return Chars("".join(parts), at)
