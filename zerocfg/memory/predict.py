"""From what a run is to what it takes: the terms of one rank, three figures for the device, host memory and NVMe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.memory.band_tier import BandTier, tier_of, wide
from zerocfg.memory.host import rounding_terms
from zerocfg.memory.options import Options, TorchOptions
from zerocfg.memory.overhead import Band, figures, workspaces
from zerocfg.memory.replicated import remainder_terms
from zerocfg.memory.rollouts import Sampling, sampling_terms
from zerocfg.memory.sharding import torch_terms
from zerocfg.memory.terms import Estimate, Held, Term
from zerocfg.memory.zero.replay import zero_terms

if TYPE_CHECKING:
    from zerocfg.memory.lora import Base
    from zerocfg.memory.terms import Timeline
    from zerocfg.models.hardware import Accelerator
    from zerocfg.models.model_facts import ModelFacts


@dataclass(frozen=True, slots=True)
class Prediction:
    """The memory of one rank, in bytes.

    ``worst``      the moment of the device's peak with its parts
    ``allocated``  ``torch.cuda.max_memory_allocated``; ends of bands as in `zerocfg.memory.spread`
    ``reserved``   ``torch.cuda.max_memory_reserved``
    ``device``     what the driver shows for the process
    ``complete``   False: activations are not known, so everything is a lower bound
    ``tier``       how wide the bands are, and why
    """

    estimate: Estimate
    worst: Held
    allocated: Band
    reserved: Band
    device: Band
    complete: bool
    tier: BandTier = field(default_factory=lambda: wide("the card is not known"))


def terms_of(
    facts: ModelFacts,
    options: Options | TorchOptions,
    accelerator: Accelerator | None = None,
    base: Base | None = None,
) -> tuple[Term, ...]:
    """All that does not depend on the micro batch. ``base``: what is not trained is quantised.

    Raises ValueError when the number of parameters is not known, and for a quantised base with DeepSpeed or FSDP.
    """
    if isinstance(options, Options):
        if base is not None:
            raise ValueError("a quantised base model with DeepSpeed is not modelled")
        terms = (*zero_terms(facts, options), *rounding_terms(facts, options))
    else:
        terms = torch_terms(facts, options, base)
        if accelerator is not None and accelerator.vendor != "cpu":
            terms = (*terms, *remainder_terms(facts, options))
    return (*terms, *workspaces(accelerator))


def predict(
    facts: ModelFacts,
    options: Options | TorchOptions,
    timeline: Timeline | None,
    accelerator: Accelerator | None = None,
    terms: tuple[Term, ...] | None = None,
    sampling: Sampling | None = None,
) -> Prediction:
    """The memory of one rank. Raises ValueError when the number of parameters is not known, or what sampling takes.

    ``terms``: those of :func:`terms_of`, where a caller compares many micro batches and has them already.
    ``sampling``: how the completions are sampled that it trains on.
    """
    terms = terms_of(facts, options, accelerator) if terms is None else terms
    if sampling is not None:
        terms = (*terms, *sampling_terms(facts, options, terms, accelerator, sampling))
    estimate = Estimate(terms, timeline)
    worst = estimate.peak("device")
    error = timeline.error if timeline else 0.0
    tier = wide("no sampling was measured") if sampling else tier_of(facts, options, timeline, accelerator)
    found = figures(worst, error, accelerator, options, tier)
    return Prediction(estimate, worst, *found, timeline is not None, tier)
