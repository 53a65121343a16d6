"""An answer of the tracer, as it comes out of its JSON (`zerocfg.tracer.__main__` writes it)."""

from __future__ import annotations

from typing import TypedDict

Stretch = tuple[str, int, int, int]
"""Moment, block or -1, bytes, trainable elements whose gradients end it, as ``zerocfg.tracer.record`` writes it."""

Facts = TypedDict(
    "Facts",
    {
        "class": str,
        "parameters": int,
        "trainable": int,
        "tensors": list[tuple[int, int]],
        "largest_module": int,
        "largest_block": int,
        "tied": bool,
        "buffers": int,
        "hidden": int | None,
        "layers": int | None,
        "vocabulary": int | None,
    },
)
"""Counts of the model as built, in elements (buffers in bytes)."""


class Trace(TypedDict):
    """One run of stretches for each of ``depths``, which are fewer than ``layers`` where blocks repeat."""

    format: int
    facts: Facts
    layers: int
    prefix: int
    period: int
    depths: list[int]
    runs: list[list[Stretch]]
    logits: int
    attention: str
    versions: dict[str, str]
