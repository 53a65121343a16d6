"""What a step takes of the host: Python and torch launch every kernel, engines visit modules, gradients and tensors.

All of it is counted in launches, one launch being what Python and torch take for one kernel in a layer of a Hugging
Face model. So one figure describes a host: :data:`.rates.LAUNCH_US`, or what ``zerocfg probe`` measured. The counts
marked as fitted come from one host (16 cores, H200, DeepSpeed 0.19.8; ``benchmarks/time/host.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.options import Options, TorchOptions

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts, Part

VISIT = 18.7  # of a module under ZeRO-3: hooks, looking ahead, fetching and releasing; fitted
VISIT_AGAIN = 4.8  # of a module that is recomputed: its parameters are mostly there already; fitted
HIDDEN = 0.57  # share of the device's time that passes beside the host's under ZeRO-3; fitted
HOOK = 1.1  # of a gradient under ZeRO-1 and 2: its copy into the bucket; counted at the dispatcher
# The same under ZeRO-2 while gradients accumulate. Of these 2.1 are counted (the copy, and the sum with what came
# before); why the rest is needed is not known. Fitted.
ACCUMULATING_HOOK = 7.0
TENSOR_STEP = {0: 10.2, 1: 8.5, 2: 8.5, 3: 2.7}  # of a tensor in the optimizer's step, by ZeRO stage; fitted
# torch's own engines, measured on a processor (one rank over gloo, torch 2.13; benchmarks/time/torch_engines.py):
# a unit of FSDP 2, forward and backward (390 and 590 us; 30 to 41 and 47 to 62 launches in quiet runs); a gradient of
# DDP; a sharded tensor in the optimizer's step. FSDP 1 is taken to be like FSDP 2.
UNIT = {"forward": 32.0, "backward": 49.0}
DDP_HOOK = 1.0
SHARDED_TENSOR_STEP = 1.5
ELSEWHERE = 4  # modules without tensors of a decoder layer that ZeRO-3 visits: layer, attention, MLP, activation


@dataclass(frozen=True, slots=True)
class HostCost:
    """Launches of one micro batch beyond those of the model's kernels, and of the optimizer's step."""

    forward: float = 0.0
    backward: float = 0.0
    recomputed: float = 0.0
    step: float = 0.0
    hidden: float = 1.0
    """Share of the device's time that passes beside the host's."""


def host_cost(facts: ModelFacts, options: Options | TorchOptions) -> HostCost:
    """What an engine adds."""
    tensors = trained_tensors(facts)
    if not isinstance(options, Options):
        return _of_torch(facts, options, tensors)
    if options.stage == 3:
        modules = visited_modules(facts)
        visits = VISIT * modules
        return HostCost(visits, visits, VISIT_AGAIN * modules, TENSOR_STEP[3] * tensors, HIDDEN)
    accumulates = options.stage == 2 and options.gradient_accumulation_steps > 1
    hook = {0: 0.0, 1: HOOK, 2: ACCUMULATING_HOOK if accumulates else HOOK}[options.stage]
    # Of partitioned gradients a rank steps through its own.
    own = tensors / options.world_size if options.stage else tensors
    return HostCost(backward=hook * tensors, step=TENSOR_STEP[options.stage] * own)


def _of_torch(facts: ModelFacts, options: TorchOptions, tensors: int) -> HostCost:
    if options.kind == "ddp":
        return HostCost(backward=DDP_HOOK * tensors)
    if options.kind == "single":
        return HostCost()
    units = sum(part.times for part in _parts(facts) if part.block) + 1
    forward, backward = (units * launches for launches in UNIT.values())
    return HostCost(forward, backward, forward, SHARDED_TENSOR_STEP * tensors)


def visited_modules(facts: ModelFacts) -> int:
    """Modules that DeepSpeed's hooks of ZeRO-3 are entered for in one pass. A leaf is one, whatever it contains."""
    return sum(part.times * (_visited(facts, part) + (ELSEWHERE if part.block else 0)) for part in _parts(facts))


def _visited(facts: ModelFacts, part: Part) -> int:
    if not part.block or not facts.leaf_modules:
        return len(part.modules)
    # The experts of a layer are its largest modules.
    largest = max(map(sum, part.modules), default=0)
    experts = sum(sum(module) == largest for module in part.modules)
    return len(part.modules) - experts + 1


def trained_tensors(facts: ModelFacts) -> int:
    """Tensors that get gradients."""
    trained = sum(part.times * sum(map(len, part.modules)) for part in _parts(facts) if not part.frozen)
    return trained + len(facts.adapters) * (facts.num_hidden_layers or 0)


def _parts(facts: ModelFacts) -> list[Part]:
    """As listed; of a model whose modules are not known those of as many layers of a Llama."""
    from zerocfg.models.model_facts import Part

    return facts.layout or [Part(modules=[[1]] * 9, times=facts.num_hidden_layers or 1, block=True)]
