"""Which releases a declared version admits: enough of PEP 440 for `0.19.8`, `>=0.18`, `>=0.18,<0.20`, `==0.19.*`.

Pre-releases and local parts are read as the release that they belong to.
"""

from __future__ import annotations

import re

Release = tuple[int, ...]
_CLAUSE = re.compile(r"\s*(===|==|~=|!=|>=|<=|>|<|)\s*v?(\d+(?:\.\d+)*)(\.\*)?[^,]*")
TOP: Release = (1 << 30,)


def release(text: str) -> Release:
    """``0.19.8`` as (0, 19, 8), trailing zeros dropped."""
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def bounds(declared: str) -> tuple[Release, Release, bool] | None:
    """The lowest and the highest release that a declaration admits, and whether the highest belongs to it.

    None when it is not understood.
    """
    low: Release = ()
    high, closed = TOP, True
    for part in declared.split(","):
        match = _CLAUSE.fullmatch(part)
        if match is None:
            return None
        sign, at = match[1], release(match[2])
        if sign in ("", "==", "===") and not match[3]:
            low, high, closed = max(low, at), at, True
        elif sign in ("", "==", "===", "~="):
            parts = [int(number) for number in match[2].split(".")]
            parts = parts if sign != "~=" else parts[:-1]
            if not parts:
                return None
            low, high, closed = max(low, at), (*parts[:-1], parts[-1] + 1), False
        elif sign in (">=", ">"):
            low = max(low, at)
        elif sign in ("<", "<=") and at < high:
            high, closed = at, sign == "<="
    return low, high, closed


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
