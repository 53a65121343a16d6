"""Host memory of a node: what its ranks hold together, with pinned blocks as large as torch makes them.

torch's allocator of pinned memory rounds every block up to a power of two (torch 2.13,
ATen/core/CachingHostAllocator.h: allocate; both of its limits, ``pinned_max_round_threshold_mb`` and
``pinned_max_cached_size_mb``, are off by default).
DeepSpeed pins through ``tensor.pin_memory()`` unless ``DS_PIN_MEMORY_BACKEND=native`` (deepspeed/utils/pin_memory.py),
which locks blocks of exactly their size. All sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.measured_spread import MEASURED
from zerocfg.memory.options import BYTES, Options
from zerocfg.memory.overhead import Band, around
from zerocfg.memory.tensors import Model, model_of
from zerocfg.memory.terms import ALWAYS, MOMENTS, TRAINING, Estimate, Moment, Term
from zerocfg.memory.zero.allocation_ledger import Ledger
from zerocfg.memory.zero.stage_1_2 import Partitioned
from zerocfg.memory.zero.stage_3 import Sharded

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts

HOLDS_FOR = ">=0.19,<0.20"
INIT: frozenset[Moment] = frozenset({"init"})


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below ``size``: what torch pins for ``size`` bytes."""
    return 1 << max(0, size - 1).bit_length() if size > 0 else 0


@dataclass(frozen=True, slots=True)
class Block:
    """Blocks of ``size`` bytes that DeepSpeed pins one by one, ``times`` of them."""

    name: str
    size: int
    times: int = 1
    moments: frozenset[Moment] = ALWAYS

    @property
    def lost(self) -> int:
        """Bytes that rounding adds."""
        return self.times * (power_of_two(self.size) - self.size)


def pinned_blocks(facts: ModelFacts, options: Options) -> tuple[Block, ...]:
    """The blocks that one rank pins: none without offload. Raises ValueError when parameters are not counted."""
    if options.offload_optimizer == options.offload_param == "none":
        return ()
    model = model_of(facts)
    found = _blocks_3(model, options) if options.stage == 3 else _blocks_1_2(model, options)
    return tuple(block for block in found if block.size > 0)


def _blocks_1_2(model: Model, options: Options) -> Iterator[Block]:
    """stage_1_and_2.py: __init__, initialize_optimizer_states, async_accumulate_grad_in_cpu_via_gpu."""
    if options.offload_optimizer == "none" or not options.pin_optimizer:
        return
    rank = Partitioned(model, options, Ledger())
    yield Block("master weights", 4 * rank.own)
    yield Block("16-bit staging of parameters", rank.width * rank.own)
    yield Block("largest parameter, copied", rank.width * rank.largest)
    yield Block("fp32 gradients", 4 * rank.own)
    if options.gradient_accumulation_steps > 1 and not rank.compact:
        for index in rank.mine:
            yield Block("accumulated gradients", rank.width * model.tensors[index].size, 1, TRAINING)


def _blocks_3(model: Model, options: Options) -> Iterator[Block]:
    """stage3.py: _setup_for_real_optimizer, initialize_optimizer_states, _create_param_groups_fp16_flat_cpu_memory."""
    rank = Sharded(model, options, Ledger())
    if options.offload_optimizer != "none" and options.pin_optimizer:
        yield Block("gradients of the partition", rank.wide * rank.own)
        if options.offload_optimizer == "cpu":
            for group in rank.groups[rank.kept_groups :]:
                yield Block("fp32 gradients", 4 * sum(rank.parts[index] for index in group))
    if options.offload_param == "cpu":
        # Pinned whatever offload_param.pin_memory says; that key is for the shards before they are put together.
        yield Block("parameters", rank.width * rank.own)
    elif options.offload_param == "nvme":
        yield Block("parameters kept on the host", rank.width * min(rank.own, options.nvme_max_in_cpu))


def rounding_terms(facts: ModelFacts, options: Options) -> tuple[Term, ...]:
    """What rounding adds to the host terms of :func:`.zero.replay.zero_terms`: one term for all blocks."""
    blocks = pinned_blocks(facts, options)
    found = []
    for moments in (ALWAYS, TRAINING):
        lost = sum(block.lost for block in blocks if block.moments == moments)
        source = "torch: CachingHostAllocator.h: allocate"
        found.append(Term("pinned blocks, rounded up", lost, "host", moments, "outside", source, HOLDS_FOR))
    return tuple(term for term in found if term.size > 0)


def loading_terms(facts: ModelFacts, options: Options, width: int | None = None) -> tuple[Term, ...]:
    """Host memory to load a checkpoint whose elements take ``width`` bytes (None: those of the precision).

    ``from_pretrained`` of transformers 5 reads tensor by tensor into a model on the host, all of it on every rank.
    Under zero.Init rank 0 alone reads the whole checkpoint and the others get their shards from it
    (transformers/modeling_utils.py: _load_pretrained_model); the term is that of rank 0. Before the engine is built
    the model has left the host or become what is offloaded, so that the term is an alternative to the others.
    """
    model = model_of(facts)
    every = sum(tensor.size for tensor in model.tensors)
    size = (width or BYTES[options.precision]) * every
    alone = options.stage == 3 and options.zero_init
    name = READ if alone else LOADED
    source = "transformers/modeling_utils.py: _load_pretrained_model"
    return (Term(name, size, "host", INIT, "parameters", source, ">=5,<6"),)


def node_band(size: int) -> Band:
    """Around ``size`` bytes of a node's memory. Nobody publishes its peaks: the spread is that of states."""
    return around(size, MEASURED.states * size)


LOADED, READ = "model loaded on the host", "checkpoint read on rank 0"
ONE_RANK_ONLY = frozenset({READ, "16-bit weights to be saved (rank 0)"})


def node_bytes(terms: Iterable[Term], ranks: int) -> int:
    """Host bytes of a node with ``ranks`` ranks, at the worst moment.

    What only rank 0 holds counts once, and loading (:func:`loading_terms`) comes before everything else.
    """
    terms = tuple(term for term in terms if term.place == "host")
    loading = max(
        (term.size * (ranks if term.name == LOADED else 1) for term in terms if term.name in (LOADED, READ)), default=0
    )
    each = Estimate(tuple(term for term in terms if term.name not in {*ONE_RANK_ONLY, LOADED}))
    alone = Estimate(tuple(term for term in terms if term.name in ONE_RANK_ONLY - {READ}))
    training = max(ranks * each.held("host", moment).size + alone.held("host", moment).size for moment in MOMENTS)
    return max(loading, training)
