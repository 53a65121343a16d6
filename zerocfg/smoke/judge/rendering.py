"""Values of settings as the rows of a smoke-run show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def together(values: Sequence[object]) -> str:
    """One value when all ranks agree, else each rank's own."""
    shown = [show(value) for value in values]
    if len(set(shown)) == 1:
        return shown[0]
    return ", ".join(f"rank {rank}: {value}" for rank, value in enumerate(shown))


def show(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) and value.is_integer():
        return str(int(value)) if abs(value) < 1e15 else f"{value:g}"
    return str(value)
