"""Memory of a rank without DeepSpeed, as accelerate sets it up. Sizes are bytes of one rank.

Checked with torch 2.13 and accelerate 1.15 by ``tests/memory/test_sharding_real.py``, and of split models by
``tests/memory/test_tensor_parallel_real.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.fsdp.terms import fsdp_terms
from zerocfg.memory.options import TorchOptions
from zerocfg.memory.replicated import replicated_terms

if TYPE_CHECKING:
    from zerocfg.memory.lora import Base
    from zerocfg.memory.terms import Term
    from zerocfg.models.model_facts import ModelFacts


def torch_terms(facts: ModelFacts, options: TorchOptions, base: Base | None = None) -> tuple[Term, ...]:
    """What one rank holds; ``base``: what is not trained is quantised. Raises ValueError when the model's size, or for
    FSDP that of its blocks, is not known, and for a quantised base under FSDP."""
    if facts.parameters is None or facts.trainable is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    if options.kind.startswith("fsdp") and base is not None:
        raise ValueError("a quantised base model under FSDP is not modelled")
    terms = fsdp_terms(facts, options) if options.kind.startswith("fsdp") else replicated_terms(facts, options, base)
    return tuple(term for term in terms if term.size > 0)
