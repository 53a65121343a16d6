"""Did you mean ...?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache


def closest(word: str, known: Iterable[str]) -> str | None:
    """The closest known spelling of ``word``; None when nothing is near."""
    return _closest(word, tuple(known)) if word and len(word) <= 80 else None


def _letters(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())


@lru_cache(maxsize=64)  # a word is asked for several times in a row, and each entry holds all names
def _closest(word: str, names: tuple[str, ...]) -> str | None:
    from difflib import get_close_matches

    folded = {name.replace("-", "_").lower(): name for name in names}
    plain = word.replace("-", "_").lower()
    if plain in folded:
        return folded[plain]
    near = [name for name in folded if abs(len(name) - len(plain)) <= max(3, len(plain) // 2)]
    found = get_close_matches(plain, near, n=1, cutoff=0.8)
    if found:
        # zero2_init_flag is no slip for zero3_init_flag
        other = len(found[0]) == len(plain) and _letters(found[0]) == _letters(plain)
        return None if other else folded[found[0]]
    inside = [name for name in folded if len(plain) >= 8 and (plain in name or (len(name) >= 8 and name in plain))]
    return folded[inside[0]] if len(inside) == 1 else None
