"""One thing that was planned, and what was seen instead."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Check:
    """``planned`` and ``seen`` as shown; ``ok`` None for what is only noted.

    ``further``: "" for what has a row of its own in the table. Of the others only those that differ are shown, the rest
    is counted: "acting" was read where it acts, "parsed" from the config that the engine holds, "unseen" not at all.
    """

    name: str
    planned: str
    seen: str
    ok: bool | None
    further: str = ""

    def data(self) -> dict[str, object]:
        return asdict(self)


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
