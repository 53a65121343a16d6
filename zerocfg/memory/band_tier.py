"""How wide bands are: narrow where a card of this architecture was measured and every setting is known, else wide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.activations.formula import ERROR
from zerocfg.memory.card_spread import ARCHITECTURES, CARDS, ON_CARD, RESERVE_ON_CARD
from zerocfg.memory.measured_spread import MEASURED
from zerocfg.memory.options import Options, TorchOptions

if TYPE_CHECKING:
    from zerocfg.memory.spread import Spread
    from zerocfg.memory.terms import Timeline
    from zerocfg.models.hardware import Accelerator
    from zerocfg.models.model_facts import ModelFacts

RESERVE = 1.12  # reserved over allocated: the allocator keeps what it once took, in blocks of at least 2 MiB


@dataclass(frozen=True, slots=True)
class BandTier:
    """``spread`` of the figures; ``reserve``: reserved over allocated, as expected; ``reason``: for people."""

    spread: Spread
    reserve: float
    reason: str

    @property
    def narrow(self) -> bool:
        return self.spread is ON_CARD


def wide(reason: str) -> BandTier:
    """The tier of published runs, with why it is not the narrow one."""
    return BandTier(MEASURED, RESERVE, reason)


def tier_of(
    facts: ModelFacts, options: Options | TorchOptions, timeline: Timeline | None, accelerator: Accelerator | None
) -> BandTier:
    """The tier of a run that samples nothing."""
    architecture = accelerator.architecture if accelerator is not None else None
    if accelerator is None or accelerator.vendor != "nvidia" or architecture not in ARCHITECTURES:
        return wide(f"no card like {accelerator.name} was measured" if accelerator else "the card is not known")
    if timeline is None:
        return wide("activations are not known")
    if timeline.assumed or options.optimizer == "adamw":
        return wide("a setting is assumed")
    if facts.trainable != facts.parameters:
        return wide("no training of a part of the weights was measured")
    if timeline.error > ERROR or facts.parameters is None or not facts.layout:
        return wide("no model of this family was measured")
    if not _was_measured(options):
        return wide("this engine was not measured on a card")
    return BandTier(ON_CARD, RESERVE_ON_CARD, f"measured on {CARDS}")


def _was_measured(options: Options | TorchOptions) -> bool:
    """Engines of ``benchmarks/memory/cases.py`` that ran. More ranks hold less of the same states; what NCCL takes for
    them is no part of this (:func:`.overhead.doubts`)."""
    if options.tensor_parallel > 1:
        return False
    if isinstance(options, TorchOptions):
        return options.kind == "single"
    return options.offload_param == "none" and options.offload_optimizer != "nvme"
