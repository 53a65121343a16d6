"""Written by ``python -m benchmarks.memory.card_bands``, from its rows; not to be edited."""

from __future__ import annotations

from zerocfg.memory.spread import Spread

ARCHITECTURES = ("9.0",)
CARDS = "one H200, 25 runs"
RESERVE_ON_CARD = 1.162
ON_CARD = Spread(states=0.011, activations=0.0, reserve=0.041, outside=0.009)
