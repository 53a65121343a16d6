"""Which releases a declared version admits: enough of PEP 440 for `0.19.8`, `>=0.18`, `>=0.18,<0.20`, `==0.19.*`.

Pre-releases and local parts are read as the release that they belong to. `packaging` is not used here: importing its
`version`, `specifiers` and `requirements` takes 16 ms of CPU time (26.3, Python 3.11), three times what pins may add to
a lint; and it answers whether a release matches, not which range a declaration admits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from zerocfg.budgets import DIGITS
from zerocfg.patterns import pattern

Release = tuple[int, ...]
Bounds = tuple[Release, Release, bool]
"""The lowest and the highest release that a declaration admits, and whether the highest belongs to it."""
_CLAUSE = pattern(r"\s*(===|==|~=|!=|>=|<=|>|<|)\s*v?(\d+(?:\.\d+)*)(\.\*)?[^,]*")
TOP: Release = (1 << 30,)
LIBRARY_NAMES = {"deepspeed": "DeepSpeed", "accelerate": "accelerate", "transformers": "transformers", "trl": "TRL"}
"""The libraries whose releases make a difference, as people write them."""
OLDEST = {"accelerate": "0.23.0", "transformers": "4.36.0", "deepspeed": "0.10.0", "trl": "0.7.0"}
"""The oldest releases of which anything is known: those with which the histories begin."""


def library_name(library: str) -> str:
    return LIBRARY_NAMES.get(library, library)


@lru_cache(maxsize=1024)
def release(text: str) -> Release:
    """``0.19.8`` as (0, 19, 8), trailing zeros dropped."""
    plain = text.replace(".", "").isdecimal()
    numbers = [_number(part) for part in (text.split(".") if plain else re.findall(r"\d+", text)) if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _number(digits: str) -> int:
    """A part of a release. Python refuses to read thousands of digits; those of a budget already exceed any release."""
    return int(digits[:DIGITS])


def text(at: Release) -> str:
    """A release as people write it, with three numbers: (0, 17) is 0.17.0."""
    return ".".join(map(str, (*at, 0, 0)[: max(3, len(at))]))


@lru_cache(maxsize=1024)
def bounds(declared: str) -> Bounds | None:
    """The lowest and the highest release that a declaration admits, and whether the highest belongs to it.

    None when it is not understood, or when its clauses leave no release.
    """
    low: Release = ()
    high, closed = TOP, True
    for part in declared.split(","):
        match = _CLAUSE.fullmatch(part)
        limits = _clause(match) if match else None
        if limits is None:
            return None
        low = max(low, limits[0])
        if limits[1] < high or (limits[1] == high and not limits[2]):
            high, closed = limits[1:]
    return (low, high, closed) if low < high or (closed and low == high) else None


def _clause(match: re.Match[str]) -> tuple[Release, Release, bool] | None:
    """The bounds of one clause; ``!=`` leaves out single releases, which no rule asks about."""
    sign, at = match[1], release(match[2])
    if sign in ("", "==", "===") and not match[3]:
        return at, at, True
    if sign in ("", "==", "===", "~="):
        parts = [_number(part) for part in match[2].split(".")]
        parts = parts if sign != "~=" else parts[:-1]
        return (at, (*parts[:-1], parts[-1] + 1), False) if parts else None
    if sign in ("<", "<="):
        return (), at, sign == "<="
    return at if sign in (">=", ">") else (), TOP, True


def exact(declared: str) -> bool:
    """Whether a declaration admits one release."""
    found = bounds(declared)
    return found is not None and found[0] == found[1]


def admits(declared: str | None, *, below: str | None = None, at_least: str | None = None) -> bool:
    """Whether a declaration admits a release below one, or one from another on. False when nothing is declared."""
    found = bounds(declared) if declared else None
    if found is None:
        return False
    low, high, closed = found
    if below is not None and low >= release(below):
        return False
    if at_least is None:
        return True
    edge = release(at_least)
    return high > edge or (closed and high == edge)


def only_from(declared: str | None, edge: str) -> bool:
    """Whether every release that a declaration admits is at least ``edge``. False when nothing is known."""
    found = bounds(declared) if declared else None
    return found is not None and found[0] >= release(edge)


def only_below(declared: str | None, edge: str) -> bool:
    """Whether every release that a declaration admits is below ``edge``. False when nothing is known."""
    return declared is not None and bounds(declared) is not None and not admits(declared, at_least=edge)


def both(declared: Iterable[str]) -> str | None:
    """Clauses that hold together; None where they leave no release, or one of them is not understood."""
    joined = ",".join(dict.fromkeys(part.strip() for item in declared for part in item.split(",") if part.strip()))
    return joined if not joined or bounds(joined) else None


def either(declared: Iterable[str]) -> str | None:
    """The range from the lowest to the highest release that one of several declarations admits; None where one of them
    is not understood. "" admits every release."""
    texts = list(dict.fromkeys(declared))
    if len(texts) == 1:
        return texts[0]
    known = [bounds(item) if item else ((), TOP, True) for item in texts]
    found = [item for item in known if item is not None]
    if not found or len(found) < len(known):
        return None
    low = min(item[0] for item in found)
    high, closed = max((item[1], item[2]) for item in found)
    parts = [f">={text(low)}"] if low else []
    parts += [f"<{'=' if closed else ''}{text(high)}"] if high != TOP else []
    return ",".join(parts)
