"""Written by ``python -m benchmarks.memory.cross_validation``, from its rows; not to be edited."""

from __future__ import annotations

from zerocfg.memory.spread import Spread

MEASURED = Spread(states=0.051, activations=0.175, reserve=0.025, outside=0.58)
