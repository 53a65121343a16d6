"""Written by ``python -m benchmarks.memory.cross_validation``, from its rows; not to be edited."""

from __future__ import annotations

from zerocfg.memory.spread import Spread

MEASURED = Spread(states=0.025, activations=0.103, reserve=0.037, outside=0.641)
