"""Memory of a rank under DeepSpeed ZeRO 0 to 3: states, buffers and temporaries, at the worst point of each moment.

DeepSpeed's own sequence of allocations is replayed on the sizes of the model's tensors (``stage_0``, ``stage_1_2``,
``stage_3``); the terms hold the worst point of each moment. For one parameter group and an optimizer of torch or
DeepSpeed, without tensor, pipeline or expert parallelism. Checked to the byte against DeepSpeed 0.19.8:
``benchmarks/memory/cpu``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from zerocfg.memory.tensors import Model, model_of
from zerocfg.memory.zero.allocation_ledger import Ledger
from zerocfg.memory.zero.stage_0 import Replicated
from zerocfg.memory.zero.stage_1_2 import Partitioned
from zerocfg.memory.zero.stage_3 import Sharded

if TYPE_CHECKING:
    from zerocfg.memory.options import Options
    from zerocfg.memory.terms import Term
    from zerocfg.models.model_facts import ModelFacts

HOLDS_FOR = ">=0.19,<0.20"


def zero_terms(facts: ModelFacts, options: Options) -> tuple[Term, ...]:
    """What one rank holds, in bytes: the rank that holds most. Raises ValueError when parameters are not counted."""
    return _terms(model_of(facts), options)


@lru_cache(maxsize=64)  # one command asks the same for each micro batch, for its rules, its plan and the alternatives
def _terms(model: Model, options: Options) -> tuple[Term, ...]:
    return replay(model, options).terms(HOLDS_FOR)


def replay(model: Model, options: Options, rank: int | None = None, cpu: bool = False) -> Ledger:
    """The ledger after a second step. ``together``: host and device are one memory, as on the CPU accelerator."""
    ledger = Ledger(cpu)
    if options.stage == 3:
        Sharded(model, options, ledger).play()
    elif options.stage == 0 or _is_bf16_optimizer(options):
        Replicated(model, options, ledger).play()
    else:
        Partitioned(model, options, ledger, rank).play()
    return ledger


def _is_bf16_optimizer(options: Options) -> bool:
    """engine.py: _do_optimizer_sanity_check."""
    wide = options.accumulation == "fp32" and options.precision == "bf16"
    return wide and options.stage == 1 and options.offload_optimizer == "none"
