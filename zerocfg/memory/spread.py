"""How far measured memory lies from what is predicted, and the chance that follows from it.

The logarithm of measured over predicted is taken for a Student's t with two degrees of freedom: most runs lie close to
the prediction, a few far off. Its distribution function has a closed form. The scales are measured on published runs
(``benchmarks/memory/cross_validation.py``, which writes them into ``measured_spread.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

COVERED = 0.9
"""Share of the runs that a band is to hold; one in twenty lies above it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Scales of what a figure is made of, as shares of it; they add up as the legs of a right angle do.

    ``states``       everything that formulas give: parameters, gradients, optimizer, buffers
    ``activations``  what is traced
    ``reserve``      what the caching allocator keeps, as a share of what it keeps in all
    ``outside``      CUDA's context and NCCL
    """

    states: float
    activations: float
    reserve: float
    outside: float


def below(deviation: float) -> float:
    """The chance of a smaller deviation than this one, in scales: the distribution function of t with 2 degrees."""
    return 0.5 + deviation / (2 * sqrt(2 + deviation * deviation))


def deviation_below(chance: float) -> float:
    """The deviation below which one lies with this chance (between 0 and 1): the inverse of :func:`below`."""
    return (2 * chance - 1) / sqrt(2 * chance * (1 - chance))


ENDS = deviation_below((1 + COVERED) / 2)
"""Scales from the middle of a band to its ends."""


def chance_below(limit: float, expected: float, high: float) -> float:
    """The chance that a figure stays at or below ``limit``; ``high`` is the upper end of its band."""
    if limit <= 0 or expected <= 0:
        return float(expected <= limit)
    if high <= expected:
        return float(expected <= limit)
    return below(ENDS * log(limit / expected) / log(high / expected))
