"""Written by ``python benchmarks/time/bands.py``, from its rows; not to be edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.time.rates import Band

if TYPE_CHECKING:
    from zerocfg.memory.time.spread import Group

# Times the seconds of tuned code that published steps took.
MEASURED: dict[Group, Band] = {
    "tuned": Band(0.9, 1.0, 1.111),
    "ordinary": Band(0.799, 1.18, 1.741),
    "compiled": Band(0.271, 1.086, 5.043),
    "short": Band(0.294, 1.18, 5.477),
    "experts": Band(0.294, 1.18, 5.477),
    "elsewhere": Band(0.294, 1.18, 5.477),
}
# One thread, one parameter, the step of an optimizer on the host: from what we measured to what was published.
HOST_STEP_NS = Band(1.0, 5.847, 27.21)
