"""What the formulas cannot tell of a step, and the band of its time that follows.

Steps are grouped by what decides how far the sum of the parts lies from what was measured. The scale of a group says
how many times that sum published steps took: low, expected, high; nine in ten of them are to lie in it, of sources that
it was not made from. ``benchmarks/time/bands.py`` measures the scales and writes them into ``measured_spread.py``.
Where too few sources published times the scale is as wide as all rows together lie, and a sentence says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from zerocfg.memory.time.flops import Kernels

SHORT = 2048
"""Tokens of a micro batch; below, Python and the launches set the pace more than the device."""

Group = Literal["tuned", "ordinary", "compiled", "short", "experts", "elsewhere"]
"""``tuned``: fused kernels, nothing but products and memory; ``ordinary``: Hugging Face models, kernel by kernel;
``compiled``: these, compiled by torch; ``short``: fewer than :data:`SHORT` tokens in a micro batch; ``experts``: a
mixture of them; ``elsewhere``: a device unlike those whose steps were published."""

THIN: dict[Group, str] = {
    "compiled": "no published step of a compiled model was compared",
    "short": f"of micro batches below {SHORT} tokens only one source published times",
    "experts": "no published step of a mixture of experts was compared",
    "elsewhere": "no published step on such a device was compared; its rates follow from those of A100 and H100",
}
"""Why the band of a group is wide."""

OFFLOADED = "of optimizers on the host only one source published times, and does not describe its host"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of a step that its sum of parts does not follow."""

    kernels: Kernels
    tokens: int
    experts: bool
    elsewhere: bool
    offload: bool = False

    @property
    def thin(self) -> tuple[Group, ...]:
        """The groups with few rows that the step belongs to, the one whose scale counts first."""
        found: dict[Group, bool] = {
            "short": self.tokens < SHORT,
            "compiled": self.kernels == "compiled",
            "experts": self.experts,
            "elsewhere": self.elsewhere,
        }
        return tuple(group for group, belongs in found.items() if belongs)

    @property
    def group(self) -> Group:
        """The group whose scale the step has."""
        if self.thin:
            return self.thin[0]
        return "tuned" if self.kernels == "fused" else "ordinary"

    @property
    def why_wide(self) -> str:
        """One sentence; empty where the band is as narrow as that of ordinary code."""
        reasons = [THIN[group] for group in self.thin] + ([OFFLOADED] if self.offload else [])
        return f"the band of the time is wide: {'; '.join(reasons)}" if reasons else ""
