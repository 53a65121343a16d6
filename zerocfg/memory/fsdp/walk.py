"""What FSDP holds for a while.

It moves whole units (each block, and what is left of the model) between sharded and gathered; how much is gathered at
one time depends on their order, so that order is walked through: :class:`Walk`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from zerocfg.memory.fsdp.units import units_of
from zerocfg.memory.options import TorchOptions
from zerocfg.memory.terms import Kind, Moment, Term
from zerocfg.memory.torch_states import term, widths

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts

# What FSDP holds for a while: (kind, source of FSDP 1, source of FSDP 2).
GATHERED, OUTPUT, COPY = "gathered parameters", "all-gather output", "copy of a shard"
UNIT, FLAT, INPUT = "gradients of a unit", "flat gradient of a unit", "reduce-scatter input"
REDUCED, ALL_REDUCED = "reduced shard", "all-reduce inputs"
WAITING, SHARDS = "gradients not yet reduced", "gradients"
BUFFERS: dict[str, tuple[Kind, str, str]] = {
    GATHERED: (
        "parameters",
        "_flat_param.py: _alloc_padded_unsharded_flat_param",
        "_fsdp_param.py: alloc_all_gather_outputs",
    ),
    OUTPUT: ("buffers", "", "_fsdp_collectives.py: foreach_all_gather"),
    COPY: ("buffers", "_flat_param.py: _use_low_precision_shard", "_fsdp_collectives.py: _get_param_all_gather_inputs"),
    UNIT: ("gradients", "autograd", "autograd"),
    FLAT: ("gradients", "_flat_param.py: backward of _get_unflat_views_aligned", ""),
    INPUT: ("buffers", "", "_fsdp_collectives.py: foreach_reduce"),
    REDUCED: ("buffers", "_runtime_utils.py: _get_reduce_scatter_tensors", "_fsdp_collectives.py: foreach_reduce"),
    ALL_REDUCED: ("buffers", "", "_fsdp_param_group.py: AllReduceState"),
    WAITING: ("gradients", "no_sync: autograd", "set_requires_gradient_sync: autograd"),
    SHARDS: ("gradients", "_runtime_utils.py: _accumulate_sharded_grad", "_fsdp_collectives.py: foreach_reduce"),
}


class Walk:
    """What is held for a while as units come and go in one optimizer step.

    ``worst`` is what is held at the worst point of each moment, ``peak`` the most bytes in each with sharded gradients.
    """

    def __init__(self, facts: ModelFacts, options: TorchOptions) -> None:
        self.units, self.options = units_of(facts, options.kind == "fsdp1"), options
        self.kept, self.low = widths(options)
        self.mixed = self.kept != self.low
        self.ranks = options.shard_ranks or options.world_size
        self.every, self.trained = facts.parameters or 0, facts.trainable or 0
        self.largest = facts.largest_parameter or 0
        self.held: defaultdict[str, int] = defaultdict(int)
        self.worst: dict[Moment, dict[str, int]] = {}
        self.peak: dict[Moment, int] = {}
        self.moment: Moment = "forward"
        self.quiet = self.again = False
        steps = options.gradient_accumulation_steps
        # Micro batches that differ: the first, one between, the last, which alone reduces.
        waiting = [(True, False), (True, True)][: steps - 1]
        for self.quiet, self.again in [*waiting, (False, steps > 1)]:
            self.at("forward")
            self.forward()
            self.at("head backward")
            self.backward()

    def forward(self) -> None:
        raise NotImplementedError

    def backward(self) -> None:
        raise NotImplementedError

    def at(self, moment: Moment) -> None:
        self.moment = moment
        self.hold(GATHERED, 0)

    def hold(self, name: str, size: int) -> None:
        """``size`` bytes more of it; less when negative."""
        self.held[name] += size
        total = sum(self.held.values())
        self.peak[self.moment] = max(total, self.peak.get(self.moment, 0))
        worst = self.worst.get(self.moment)
        if worst is None or total - self.growing(self.held) > sum(worst.values()) - self.growing(worst):
            self.worst[self.moment] = dict(self.held)

    def growing(self, held: Mapping[str, int]) -> int:
        """Sharded gradients that grow with the elements that are through, which an estimate follows by itself."""
        return 0 if self.options.gradient_accumulation_steps > 1 else held.get(SHARDS, 0)

    def rename(self, name: str, other: str, size: int) -> None:
        self.held[name] -= size
        self.held[other] += size

    def share(self, elements: int) -> int:
        return -(-elements // self.ranks)

    @property
    def whole(self) -> bool:
        return self.trained >= self.every

    def gradients(self, unit: int) -> int:
        """Bytes of the gradients of a unit. Of a model trained in part it is the blocks that hold what is trained."""
        if self.whole:
            return self.low * unit
        return self.low * self.trained // len(self.units.blocks) if unit in self.units.blocks else 0

    def copied(self, unit: int) -> int:
        """Bytes of the copy that is gathered in place of the shard: cast, or brought from the host."""
        if self.options.cpu_offload:
            return self.low * self.share(unit)
        # What is frozen has the dtype of the computation; in a flat parameter all follows what is trained.
        gradients = self.gradients(unit) if self.mixed else 0
        return self.share(self.low * unit if gradients and self.options.kind == "fsdp1" else gradients)

    def terms(self) -> Iterator[Term]:
        """One term for each size; gradients that only grow are left to the caller."""
        found: defaultdict[tuple[str, int], set[Moment]] = defaultdict(set)
        for moment, held in self.worst.items():
            for name, size in held.items():
                if name != SHARDS or self.options.gradient_accumulation_steps > 1:
                    found[name, size].add(moment)
        for (name, size), moments in found.items():
            kind, *sources = BUFFERS[name]
            yield term(name, size, frozenset(moments), kind, sources[self.options.kind == "fsdp2"])
