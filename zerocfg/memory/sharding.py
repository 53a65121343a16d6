"""Memory of a rank without DeepSpeed: one process, DDP, FSDP 1 and FSDP 2, as accelerate sets them up.

FSDP moves whole units (each block, and what is left of the model) between sharded and gathered; how much is gathered
at one time depends on their order, so that order is walked through: :class:`_Walk`. Checked with torch 2.13 and
accelerate 1.15 by ``tests/memory/test_sharding_real.py``. Sizes are bytes of one rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.optimizers import moment_bytes, step_temporaries
from zerocfg.memory.options import BYTES, TorchOptions
from zerocfg.memory.terms import ALWAYS, BACKWARD, TRAINING, WORK, Kind, Moment, Place, Term

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts

HOLDS_FOR = ">=2.13,<2.14"
STEP: frozenset[Moment] = frozenset({"step"})

# What FSDP holds for a while: (kind, source of FSDP 1, source of FSDP 2).
GATHERED, OUTPUT, COPY = "gathered parameters", "all-gather output", "copy of a shard"
UNIT, FLAT, INPUT = "gradients of a unit", "flat gradient of a unit", "reduce-scatter input"
REDUCED, ALL_REDUCED, SHARDS = "reduced shard", "all-reduce inputs", "gradients"
_BUFFERS: dict[str, tuple[Kind, str, str]] = {
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
}


def torch_terms(facts: ModelFacts, options: TorchOptions) -> tuple[Term, ...]:
    """What one rank holds. Raises ValueError when the model's size, or for FSDP that of its blocks, is not known."""
    if facts.parameters is None or facts.trainable is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    road = _sharded if options.kind.startswith("fsdp") else _replicated
    return tuple(term for term in road(facts, options) if term.size > 0)


def _term(
    name: str,
    size: int,
    moments: frozenset[Moment],
    kind: Kind,
    source: str,
    place: Place = "device",
    grows: bool = False,
) -> Term:
    return Term(name, size, place, moments, kind, source, HOLDS_FOR, grows)


def _widths(options: TorchOptions) -> tuple[int, int]:
    """Bytes of a parameter as it is kept and trained, and as it is computed with."""
    low = BYTES[options.precision]
    return (4 if options.master else low), low


def _optimizer(
    facts: ModelFacts, options: TorchOptions, trained: int, largest: int, sizes: list[tuple[int, int]], side: int | None
) -> Iterator[Term]:
    """Moments and step of an optimizer that is given ``trained`` elements in tensors of these sizes."""
    kept, _ = _widths(options)
    # bitsandbytes' Lion, the Trainer's, keeps fp32 whatever the parameter is
    moments = moment_bytes(options.optimizer, trained, 4 if options.optimizer == "lion" else kept, sizes, side)
    place: Place = "host" if options.cpu_offload else "device"
    yield _term("optimizer moments", moments, TRAINING, "optimizer", "the optimizer's first step", place)
    temporaries = step_temporaries(options.optimizer, trained, kept, largest)
    yield _term("temporaries of the optimizer", temporaries, STEP, "temporaries", "torch/optim/adam.py", place)


def _replicated(facts: ModelFacts, options: TorchOptions) -> Iterator[Term]:
    every, trained = facts.parameters or 0, facts.trainable or 0
    kept, low = _widths(options)
    accumulates = options.gradient_accumulation_steps > 1
    # Only what is trained is worth a master copy: peft keeps adapters in fp32 beside a base in 16 bit.
    parameters = kept * trained + (kept if trained == every else low) * (every - trained)
    yield _term("parameters", parameters, ALWAYS, "parameters", "the model")
    held = WORK | STEP if accumulates else BACKWARD | STEP
    bucketed = options.kind == "ddp"
    if bucketed:
        source = "torch/csrc/distributed/c10d/reducer.cpp: initialize_buckets"
        yield _term("gradient buckets", kept * trained, ALWAYS, "gradients", source)
    if not bucketed or not options.gradient_as_bucket_view:
        yield _term("gradients", kept * trained, held, "gradients", "autograd", grows=not accumulates)
    whole = trained == every
    sizes = facts.tensor_sizes if whole else []
    yield from _optimizer(
        facts, options, trained, facts.largest_parameter or trained, sizes, facts.hidden_size if sizes else None
    )


# --- FSDP


@dataclass(frozen=True)
class _Units:
    """Elements of what is sharded as one: an embedding on its own (0: it is part of the tail), blocks, and the tail."""

    embedding: int
    block: int
    blocks: int
    tail: int
    head: int  # of the tail, what has its gradient before the blocks go backward


def _units(facts: ModelFacts, fsdp1: bool) -> _Units:
    """FSDP 1 keeps all that is outside of blocks in its root; accelerate gives FSDP 2 an embedding that is not tied on
    its own, and final norm and head as one (accelerate/utils/fsdp_utils.py: fsdp2_prepare_model)."""
    if not facts.largest_block or not facts.num_hidden_layers:
        raise ValueError("FSDP wraps block by block, and the size of this model's blocks is not known")
    every = facts.parameters or 0
    table = (facts.vocab_size or 0) * (facts.hidden_size or 0)
    tables = table if facts.tied_embeddings else 2 * table
    outside = max(every - facts.largest_block * facts.num_hidden_layers, min(tables, every))
    embedding = 0 if fsdp1 or facts.tied_embeddings else min(table, outside)
    tail = outside - embedding
    head = tail if facts.tied_embeddings else max(tail - table, 0) if fsdp1 else tail
    return _Units(embedding, facts.largest_block, facts.num_hidden_layers, tail, head)


class _Walk:
    """What is held for a while as units come and go, and the worst point of each moment of it."""

    def __init__(self, units: _Units, options: TorchOptions, trained: int) -> None:
        self.units, self.options = units, options
        self.kept, self.low = _widths(options)
        self.mixed = self.kept != self.low
        self.ranks = options.shard_ranks or options.world_size
        self.trained = trained
        self.accumulates = options.gradient_accumulation_steps > 1
        self.held: defaultdict[str, int] = defaultdict(int)
        self.worst: dict[Moment, dict[str, int]] = {}
        self.moment: Moment = "forward"

    def at(self, moment: Moment) -> None:
        self.moment = moment
        self.hold("", 0)

    def hold(self, name: str, size: int) -> None:
        """``size`` bytes more of it; less when negative."""
        self.held[name] += size
        worst = self.worst.get(self.moment)
        if worst is None or sum(self.held.values()) > sum(worst.values()):
            self.worst[self.moment] = dict(self.held)

    def share(self, elements: int) -> int:
        return -(-elements // self.ranks)

    def copied(self, unit: int) -> int:
        """Bytes of the copy that is gathered in place of the shard: cast, or brought from the host."""
        return self.low * self.share(unit) if self.mixed or self.options.cpu_offload else 0

    def terms(self) -> Iterator[Term]:
        found: defaultdict[tuple[str, int], set[Moment]] = defaultdict(set)
        for moment, held in self.worst.items():
            for name, size in held.items():
                if name in _BUFFERS:
                    found[name, size].add(moment)
        second = self.options.kind == "fsdp2"
        for (name, size), moments in found.items():
            kind, *sources = _BUFFERS[name]
            yield _term(name, size, frozenset(moments), kind, sources[second])


class _Walk1(_Walk):
    """FSDP 1 (torch/distributed/fsdp/_runtime_utils.py). One rank to a group is NO_SHARD."""

    def gather(self, unit: int) -> None:
        if self.ranks == 1:
            self.hold(GATHERED, self.low * unit if self.mixed else 0)
            return
        self.hold(COPY, self.copied(unit))
        self.hold(GATHERED, self.low * unit)
        self.hold(COPY, -self.copied(unit))

    def release(self, unit: int) -> None:
        self.hold(GATHERED, -self.low * unit if self.ranks > 1 or self.mixed else 0)

    def flatten(self, unit: int) -> None:
        """The gradients of a flat parameter's views are joined, and only then freed."""
        self.hold(FLAT, self.low * unit)
        self.hold(UNIT, -self.low * unit)

    def reduce(self, unit: int) -> None:
        own = self.share(unit)
        if self.ranks > 1 and self.mixed:
            self.hold(REDUCED, self.low * own)
        if self.ranks > 1 or self.mixed:
            self.hold(SHARDS, self.kept * own)
        else:
            self.held[SHARDS] += self.kept * own  # the flat gradient stays as it is
        self.held[REDUCED] = 0
        self.hold(FLAT, -self.low * unit)

    def walk(self) -> None:
        units, options = self.units, self.options
        reshard = options.reshard_after_forward or self.ranks == 1
        self.at("forward")
        self.gather(units.tail)
        for index in range(units.blocks):
            ahead = options.forward_prefetch and self.ranks > 1
            if not ahead or not index:
                self.gather(units.block)
            if ahead and index < units.blocks - 1:
                self.gather(units.block)
            if reshard:
                self.release(units.block)
        self.at("loss")
        self.at("head backward")
        early = reshard and options.backward_prefetch == "pre" and self.ranks > 1
        if early:
            self.gather(units.block)
        self.hold(UNIT, self.low * units.head)
        self.at("backward")
        for index in reversed(range(units.blocks)):
            if reshard and not early:
                self.gather(units.block)
            if early and index:
                self.gather(units.block)
            self.hold(UNIT, self.low * units.block)
            self.flatten(units.block)
            self.release(units.block)
            self.reduce(units.block)
        # With tied weights the gradient of the head waits for that of the embedding.
        rest = units.tail - units.head or units.tail
        self.hold(UNIT, self.low * rest)
        if rest == units.tail:
            self.hold(UNIT, -self.low * rest)
        self.flatten(units.tail)
        self.release(units.tail)
        self.reduce(units.tail)


class _Walk2(_Walk):
    """FSDP 2 (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py)."""

    def gradients(self, unit: int) -> int:
        """Bytes of the gradients of a unit. Of a model trained in part it is the blocks that hold what is trained."""
        units = self.units
        whole = units.embedding + units.block * units.blocks + units.tail
        if self.trained >= whole:
            return self.low * unit
        return self.low * self.trained // units.blocks if unit == units.block else 0

    def send(self, unit: int) -> None:
        """The all-gather, into a buffer of its own."""
        self.hold(COPY, self.copied(unit) if self.ranks > 1 else 0)
        self.hold(OUTPUT, self.low * unit if self.ranks > 1 else 0)
        self.held[COPY] = 0

    def receive(self, unit: int) -> None:
        self.hold(GATHERED, self.low * unit)

    def drop(self, unit: int) -> None:
        self.hold(OUTPUT, -self.low * unit if self.ranks > 1 else 0)

    def release(self, unit: int) -> None:
        self.hold(GATHERED, -self.low * unit)

    def produce(self, unit: int) -> None:
        if not self.accumulates:
            self.hold(UNIT, self.gradients(unit))

    def reduce(self, unit: int) -> None:
        gradient = self.gradients(unit)
        own = -(-gradient // self.ranks)
        self.held[INPUT] = 0
        self.hold(INPUT, gradient)
        if not self.accumulates:
            self.hold(UNIT, -gradient)
        if not self.mixed:
            self.hold(SHARDS, own)
            return
        self.hold(REDUCED, own)
        self.hold(SHARDS, own // self.low * self.kept)
        self.held[REDUCED] = 0
        if self.ranks < self.options.world_size:
            self.held[ALL_REDUCED] += own

    def walk(self) -> None:
        units, reshard = self.units, self.options.reshard_after_forward
        tied = not units.embedding
        self.at("forward")
        order = [units.tail] if tied else [units.embedding]
        order += [units.block] * units.blocks + ([] if tied else [units.tail])
        before = 0
        for place, unit in enumerate(order):
            if not tied and place == len(order) - 1:
                self.moment = "loss"
            # The output of an all-gather is kept until the next one has begun.
            self.send(unit)
            self.drop(before)
            self.receive(unit)
            if reshard and unit is not units.tail:
                self.release(unit)
            before = unit
        self.at("loss")
        self.drop(before)
        self.at("head backward")
        if reshard:
            self.send(units.block)
        self.produce(units.tail)
        if not tied:
            self.release(units.tail)
            self.reduce(units.tail)
        self.at("backward")
        following = [units.block] * (units.blocks - 1) + ([units.embedding] if units.embedding else [])
        backward = [units.block, *following]
        for place, unit in enumerate(backward):
            if reshard:
                self.receive(unit)
                self.drop(unit)
                if place < len(following):
                    self.send(following[place])
            self.produce(unit)
            self.release(unit)
            self.reduce(unit)
        if tied:
            if not self.accumulates:  # the embedding's own, beside that of the head
                self.hold(UNIT, self.gradients(units.tail))
                self.hold(UNIT, -self.gradients(units.tail))
            self.release(units.tail)
            self.reduce(units.tail)


def _sharded(facts: ModelFacts, options: TorchOptions) -> Iterator[Term]:
    every, trained = facts.parameters or 0, facts.trainable or 0
    kept, low = _widths(options)
    first = options.kind == "fsdp1"
    accumulates = options.gradient_accumulation_steps > 1
    units = _units(facts, first)
    walk = _Walk1(units, options, trained) if first else _Walk2(units, options, trained)
    walk.walk()
    place: Place = "host" if options.cpu_offload else "device"
    file = "_flat_param.py: shard" if first else "_fsdp_param.py: _init_sharded_param"
    # A flat parameter has one dtype and one gradient, whatever part of it is trained.
    wide = every if first else trained
    parameters = kept * walk.share(wide) + low * walk.share(every - wide)
    yield _term("parameters", parameters, ALWAYS, "parameters", file, place)
    yield from walk.terms()
    shards = kept * walk.share(wide)
    source = "_runtime_utils.py: _accumulate_sharded_grad" if first else "_fsdp_collectives.py: foreach_reduce"
    if accumulates and not (first and options.cpu_offload):
        yield _term("gradients not yet reduced", low * wide, WORK, "gradients", "no_sync: autograd")
        yield _term("gradients", shards, STEP, "gradients", source, place)
    else:
        # FSDP 1 keeps on the card what it has copied to the host until backward is over.
        on_card = BACKWARD if options.cpu_offload else BACKWARD | STEP
        if first or not options.cpu_offload:
            yield _term("gradients", shards, on_card, "gradients", source, grows=True)
        if options.cpu_offload:
            moments = ALWAYS if first else BACKWARD | STEP
            yield _term("gradients on the host", shards, moments, "gradients", source, "host")
    share = walk.share(trained)
    sizes = [] if first or trained < every else [(walk.share(size), count) for size, count in facts.tensor_sizes]
    largest = min(facts.largest_parameter or trained, trained)
    yield from _optimizer(facts, options, share, largest if first else walk.share(largest), sizes, None)
