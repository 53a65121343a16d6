"""What the variable of a `for` loop holds: the word, or what all of its words have in common at both ends."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zerocfg.source.launch.shell_words import UNKNOWN, Chars

_GLOB = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")


def any_of(words: Sequence[Chars]) -> Chars | None:
    """The value of a variable that takes one of these words after the other, `UNKNOWN` where they differ; None where
    nothing is known of it. Quotes are gone from the words, so that what may be a pattern counts as one."""
    if not words or any(_BRACES.search(word.text) for word in words):
        return None
    first = words[0]
    if len(words) == 1 and not _GLOB.search(first.text):
        return first
    texts = [word.text for word in words]
    start = min(_shared(texts), *(_fixed_start(text) for text in texts))
    end = min(_shared([text[::-1] for text in texts]), *(_fixed_end(text) for text in texts))
    end = min(end, *(len(text) - start for text in texts))
    whole = len(first.text)
    place = first.at[min(start, whole - 1)] if whole else 0
    return Chars(
        first.text[:start] + UNKNOWN + first.text[whole - end :],
        [*first.at[:start], place, *first.at[whole - end :]],
    )


def _shared(texts: Sequence[str]) -> int:
    """How many characters all of them begin with."""
    columns = zip(*texts, strict=False)
    return next((at for at, column in enumerate(columns) if len(set(column)) > 1), min(map(len, texts)))


def _fixed_start(text: str) -> int:
    """How much of a word stands before its first pattern."""
    found = _GLOB.search(text)
    return found.start() if found else len(text)


def _fixed_end(text: str) -> int:
    """How much of a word stands behind its last pattern."""
    last = max(text.rfind("*"), text.rfind("?"), text.rfind("]") if "[" in text else -1)
    return len(text) - 1 - last
