"""Lenient reading of JSON that may have been edited: a value of the wrong type counts as absent."""

from __future__ import annotations


def mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[dict[str, object]]:
    return [item for item in items(value) if isinstance(item, dict)]


def items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, items(value)))


def number(value: object) -> float | None:
    """A finite number; JSON as Python reads it also has others."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e18 else None


def integer(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def numbers(value: object) -> tuple[float, ...]:
    return tuple(found for item in items(value) if (found := number(item)) is not None)
