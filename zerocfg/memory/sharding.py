"""Memory of a rank without DeepSpeed: one process, DDP, FSDP 1 and FSDP 2, as accelerate sets them up.

FSDP moves whole units (each block, and what is left of the model) between sharded and gathered; how much is gathered
at one time depends on their order, so that order is walked through: :class:`_Walk`. Checked with torch 2.13 and
accelerate 1.15 by ``tests/memory/test_sharding_real.py``. Sizes are bytes of one rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.optimizers import moment_bytes, step_temporaries
from zerocfg.memory.options import BYTES, TorchOptions
from zerocfg.memory.terms import ALWAYS, BACKWARD, TRAINING, WORK, Kind, Moment, Place, Term

if TYPE_CHECKING:
    from zerocfg.memory.lora import Base
    from zerocfg.models.model_facts import ModelFacts

HOLDS_FOR = ">=2.13,<2.14"
STEP: frozenset[Moment] = frozenset({"step"})

# What FSDP holds for a while: (kind, source of FSDP 1, source of FSDP 2).
GATHERED, OUTPUT, COPY = "gathered parameters", "all-gather output", "copy of a shard"
UNIT, FLAT, INPUT = "gradients of a unit", "flat gradient of a unit", "reduce-scatter input"
REDUCED, ALL_REDUCED = "reduced shard", "all-reduce inputs"
WAITING, SHARDS = "gradients not yet reduced", "gradients"
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
    WAITING: ("gradients", "no_sync: autograd", "set_requires_gradient_sync: autograd"),
    SHARDS: ("gradients", "_runtime_utils.py: _accumulate_sharded_grad", "_fsdp_collectives.py: foreach_reduce"),
}


def torch_terms(facts: ModelFacts, options: TorchOptions, base: Base | None = None) -> tuple[Term, ...]:
    """What one rank holds; ``base``: what is not trained is quantised. Raises ValueError when the model's size, or for
    FSDP that of its blocks, is not known, and for a quantised base under FSDP."""
    if facts.parameters is None or facts.trainable is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    if options.kind.startswith("fsdp") and base is not None:
        raise ValueError("a quantised base model under FSDP is not modelled")
    terms = _sharded(facts, options) if options.kind.startswith("fsdp") else _replicated(facts, options, base)
    return tuple(term for term in terms if term.size > 0)


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


def _replicated(facts: ModelFacts, options: TorchOptions, base: Base | None) -> Iterator[Term]:
    every, trained = facts.parameters or 0, facts.trainable or 0
    kept, low = _widths(options)
    accumulates = options.gradient_accumulation_steps > 1
    # Only what is trained is worth a master copy: peft keeps adapters in fp32 beside a base in 16 bit.
    frozen = base.size if base is not None else (kept if trained == every else low) * (every - trained)
    yield _term("parameters", kept * trained + frozen, ALWAYS, "parameters", "the model")
    if base is not None:
        source = "bitsandbytes/autograd/_functions.py: backward"
        yield _term("unpacked weight", base.unpacked, frozenset({"backward"}), "temporaries", source)
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
class Units:
    """Elements of what is sharded as one: an embedding on its own (0: it is part of the tail), blocks, and the tail."""

    embedding: int
    blocks: tuple[int, ...]
    tail: int
    head: int  # of the tail, what has its gradient before the blocks go backward


def units_of(facts: ModelFacts, fsdp1: bool) -> Units:
    """FSDP 1 keeps all that is outside of blocks in its root; accelerate gives FSDP 2 an embedding that is not tied on
    its own, and final norm and head as one (accelerate/utils/fsdp_utils.py: fsdp2_prepare_model)."""
    blocks = tuple(sum(map(sum, part.modules)) for part in facts.layout if part.block for _ in range(part.times))
    if not blocks and facts.largest_block and facts.num_hidden_layers:
        blocks = (facts.largest_block,) * facts.num_hidden_layers
    if not blocks:
        raise ValueError("FSDP wraps block by block, and the size of this model's blocks is not known")
    every, trained = facts.parameters or 0, facts.trainable or 0
    if fsdp1:
        every -= len(blocks) * sum(facts.adapters)  # units of their own
    in_layout = sum(sum(map(sum, part.modules)) * part.times for part in facts.layout)
    if in_layout and trained < every:  # adapters, which the layout of the base model does not have
        blocks = tuple(block + max(every - in_layout, 0) // len(blocks) for block in blocks)
    outside = max(every - sum(blocks), 0)
    table = min((facts.vocab_size or 0) * (facts.hidden_size or 0), outside)
    embedding = 0 if fsdp1 or facts.tied_embeddings else table
    tail = outside - embedding
    head = tail - table if fsdp1 and not facts.tied_embeddings else tail
    return Units(embedding, blocks, tail, head)


class _Walk:
    """What is held for a while as units come and go in one optimizer step.

    ``worst`` is what is held at the worst point of each moment, ``peak`` the most bytes in each with sharded gradients.
    """

    def __init__(self, facts: ModelFacts, options: TorchOptions) -> None:
        self.units, self.options = units_of(facts, options.kind == "fsdp1"), options
        self.kept, self.low = _widths(options)
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
            kind, *sources = _BUFFERS[name]
            yield _term(name, size, frozenset(moments), kind, sources[self.options.kind == "fsdp2"])


class _Walk1(_Walk):
    """FSDP 1 (torch/distributed/fsdp/_runtime_utils.py). One rank to a group is NO_SHARD."""

    @property
    def reshards(self) -> bool:
        return self.options.reshard_after_forward or self.ranks == 1

    def gather(self, unit: int) -> None:
        if self.ranks == 1:
            self.hold(GATHERED, self.low * unit if self.mixed else 0)
            return
        self.hold(COPY, self.copied(unit))
        self.hold(GATHERED, self.low * unit)
        self.hold(COPY, -self.copied(unit))

    def release(self, unit: int) -> None:
        if self.reshards or not self.quiet:
            self.hold(GATHERED, -self.low * unit if self.ranks > 1 or self.mixed else 0)

    def finish(self, unit: int) -> None:
        """The gradients of a flat parameter's views are joined, only then freed; the parameter goes; they are reduced
        and cast."""
        flat, own = (self.low * unit, self.share(unit)) if self.gradients(unit) else (0, 0)
        self.hold(FLAT, flat)
        self.hold(UNIT, -flat)
        if self.again:
            self.hold(FLAT, -flat)  # added to what waited
        else:
            self.rename(FLAT, WAITING, flat)
        self.release(unit)
        if self.quiet:
            return
        if self.ranks == 1 and not self.mixed:
            self.rename(WAITING, SHARDS, flat)
            return
        reduced = self.low * own if self.ranks > 1 and self.mixed else 0
        self.hold(REDUCED, reduced)
        self.hold(SHARDS, self.kept * own)
        self.hold(REDUCED, -reduced)
        self.hold(WAITING, -flat)

    def forward(self) -> None:
        units = self.units
        if self.reshards or not self.again:
            self.gather(units.tail)
            ahead = self.options.forward_prefetch and self.ranks > 1
            coming = list(units.blocks)
            if ahead:
                self.gather(coming.pop(0))
            for block in units.blocks:
                if coming:
                    self.gather(coming.pop(0))
                if self.reshards:
                    self.release(block)
        self.at("loss")

    def backward(self) -> None:
        units, gathers = self.units, self.reshards
        early = gathers and self.options.backward_prefetch == "pre" and self.ranks > 1
        # Views that were made ahead of time are also older for autograd: it turns to them one block later.
        late = [0] if self.options.forward_prefetch and self.ranks > 1 else []
        coming = list(units.blocks[::-1])
        if early:
            self.gather(coming.pop(0))
        head = units.head if self.whole else 0
        self.hold(UNIT, self.low * head)
        self.at("backward")
        for block in reversed(units.blocks):
            if gathers and coming:
                self.gather(coming.pop(0))
            self.hold(UNIT, self.low * block)  # of frozen parameters too: zeros
            late.append(block)
            self.finish(late.pop(0))
        # With tied weights the gradient of the head waits for that of the embedding.
        rest = (units.tail - units.head or units.tail) if self.whole else 0
        self.hold(UNIT, self.low * rest)
        if rest == units.tail:
            self.hold(UNIT, -self.low * rest)
        for block in late:
            self.finish(block)
        self.finish(units.tail)


class _WalkAdapters(_Walk1):
    """FSDP 1 of a model with PEFT's adapters, as the Trainer wraps it (transformers/distributed/fsdp.py:
    update_fsdp_plugin_peft): each matrix of an adapter is a unit, gathered within its layer; the layers are frozen and
    have no gradient."""

    def __init__(self, facts: ModelFacts, options: TorchOptions) -> None:
        self.adapters = tuple(facts.adapters)
        super().__init__(facts, options)

    def gradients(self, unit: int) -> int:
        return self.low * unit if unit in self.adapters else 0

    def gather(self, unit: int) -> None:
        if self.ranks > 1 or unit in self.adapters:  # what is frozen is computed with as it is kept
            super().gather(unit)

    def release(self, unit: int) -> None:
        if self.ranks > 1 or unit in self.adapters:
            super().release(unit)

    def forward(self) -> None:
        units = self.units
        if self.reshards or not self.again:
            self.gather(units.tail)
            coming = [unit for block in units.blocks for unit in (block, *self.adapters)]
            if self.options.forward_prefetch and self.ranks > 1:
                self.gather(coming.pop(0))
            for block in units.blocks:
                for unit in (block, *self.adapters):
                    if coming:
                        self.gather(coming.pop(0))
                    if self.reshards and unit != block:
                        self.release(unit)
                if self.reshards:
                    self.release(block)
        self.at("loss")

    def backward(self) -> None:
        units, gathers = self.units, self.reshards
        inner = self.adapters[::-1]
        coming = [unit for block in reversed(units.blocks) for unit in (block, *inner)] if gathers else []
        if coming and self.options.backward_prefetch == "pre" and self.ranks > 1:
            self.gather(coming.pop(0))
        self.at("backward")
        before = 0
        for block in reversed(units.blocks):
            if coming:
                self.gather(coming.pop(0))
            if before:  # it goes when its input has its gradient: the output of this one, which is gathered first
                self.finish(before)
            before = block
            for unit in inner:
                if coming:
                    self.gather(coming.pop(0))
                self.hold(UNIT, self.gradients(unit))
                self.finish(unit)
        self.finish(before)
        self.finish(units.tail)


class _Walk2(_Walk):
    """FSDP 2 (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py)."""

    def send(self, unit: int) -> None:
        """The all-gather, into a buffer of its own."""
        if self.ranks > 1:
            self.hold(COPY, self.copied(unit))
            self.hold(OUTPUT, self.low * unit)
            self.hold(COPY, -self.copied(unit))

    def receive(self, unit: int) -> None:
        self.hold(GATHERED, self.low * unit)
        if self.ranks == 1:  # no all-gather: parameter by parameter
            copy = min(self.copied(unit), self.low * self.largest)
            self.hold(COPY, copy)
            self.hold(COPY, -copy)

    def drop(self, unit: int) -> None:
        if self.ranks > 1:
            self.hold(OUTPUT, -self.low * unit)

    def finish(self, unit: int) -> None:
        """The parameter goes; the input of the reduce-scatter before this one is freed, and this one's is filled."""
        gradient = self.gradients(unit)
        self.hold(GATHERED, -self.low * unit)
        if not self.again:
            self.rename(UNIT, WAITING, gradient)
        if self.quiet:
            return
        own = -(-gradient // self.ranks)
        self.held[INPUT] = 0
        self.hold(INPUT, gradient)
        self.hold(WAITING, -gradient)
        if not self.mixed:
            self.hold(SHARDS, own)
            return
        self.hold(REDUCED, own)
        self.hold(SHARDS, own // self.low * self.kept)
        # Of a hybrid group every shard is all-reduced, and what was reduced is kept until backward is over.
        hybrid = self.ranks < self.options.world_size
        self.rename(REDUCED, ALL_REDUCED if hybrid else COPY, own)
        self.hold(COPY, 0 if hybrid else -own)

    def produce(self, unit: int) -> None:
        if not self.again:
            self.hold(UNIT, self.gradients(unit))

    def forward(self) -> None:
        units, before = self.units, 0
        order = [units.embedding, *units.blocks, units.tail] if units.embedding else [units.tail, *units.blocks]
        last = len(order) - 1 if units.embedding else 0  # the tail, which stays
        for place, unit in enumerate(order):
            # The output of an all-gather is kept until that of the next one has been copied out.
            self.send(unit)
            self.receive(unit)
            self.drop(before)
            before = unit
            if self.options.reshard_after_forward and place != last:
                self.hold(GATHERED, -self.low * unit)
        self.at("loss")
        self.drop(before)

    def backward(self) -> None:
        units, gathers = self.units, self.options.reshard_after_forward
        order = [*reversed(units.blocks), *filter(None, [units.embedding])]
        # Backward never comes to an embedding that is frozen; it is gathered for it all the same.
        passed = order if self.whole else order[: len(units.blocks)]
        if gathers:
            self.send(order[0])
        self.produce(units.tail)
        if units.embedding:
            self.finish(units.tail)
        self.at("backward")
        for place, unit in enumerate(passed):
            if gathers:
                self.receive(unit)
                self.drop(unit)
                for following in order[place + 1 : place + 2]:
                    self.send(following)
            self.produce(unit)
            self.finish(unit)
        if not units.embedding:
            # The tied weight's gradient as an embedding, beside that as a head.
            more = 0 if self.again else self.gradients(units.tail)
            self.hold(UNIT, more)
            self.hold(UNIT, -more)
            self.finish(units.tail)
        self.held[INPUT] = self.held[ALL_REDUCED] = self.held[OUTPUT] = 0


def _sharded(facts: ModelFacts, options: TorchOptions) -> Iterator[Term]:
    every, trained = facts.parameters or 0, facts.trainable or 0
    kept, low = _widths(options)
    first = options.kind == "fsdp1"
    accumulates = options.gradient_accumulation_steps > 1
    apart = first and bool(facts.adapters)
    walk = (_WalkAdapters if apart else _Walk1 if first else _Walk2)(facts, options)
    place: Place = "host" if options.cpu_offload else "device"
    file = "_flat_param.py: shard" if first else "_fsdp_param.py: _init_sharded_param"
    # A flat parameter has one dtype and one gradient, whatever part of it is trained.
    wide = trained if not first or walk.whole or apart else sum(walk.units.blocks)
    parameters = kept * walk.share(wide) + low * walk.share(every - wide)
    yield _term("parameters", parameters, ALWAYS, "parameters", file, place)
    yield from walk.terms()
    shards = kept * walk.share(wide)
    source = _BUFFERS[SHARDS][1 if first else 2]
    # FSDP 1 keeps on the card what it has copied to the host until backward is over.
    on_card = STEP if accumulates else BACKWARD | STEP
    if options.cpu_offload:
        on_card = BACKWARD if first else frozenset()
        yield _term(SHARDS, shards, ALWAYS if first else BACKWARD | STEP, "gradients", source, "host")
    yield _term(SHARDS, shards, on_card, "gradients", source, grows=not accumulates)
    # Which rank holds the trained part of a flat parameter depends on where it lies: at worst one holds all.
    share = min(trained, walk.share(wide)) if first else walk.share(trained)
    sizes = [] if first or trained < every else [(walk.share(size), count) for size, count in facts.tensor_sizes]
    if apart:
        share, sizes = walk.share(trained), [(walk.share(size), len(walk.units.blocks)) for size in facts.adapters]
    largest = max(facts.adapters) if apart else min(facts.largest_parameter or trained, trained)
    yield from _optimizer(facts, options, share, largest if first and not apart else walk.share(largest), sizes, None)
