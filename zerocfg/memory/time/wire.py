"""Bytes on the wire: the collectives that each rank takes part in during one optimizer step.

Sizes are payloads: the whole buffer that is reduced, the gathered result, the input that is scattered. Of a payload
of B bytes in a group of n ranks a ring sends from each rank B(n-1)/n for a gather or a scatter and twice that for an
all-reduce; what is received is the same. ``benchmarks/time/wire`` counts every collective that DeepSpeed 0.19.8, DDP
and FSDP of torch 2.13 issue and compares; each formula names where the library decides.

Not counted: scalars (norm, overflow flag), what the loss of a divided vocabulary sends (three numbers a token), buffers
that DDP broadcasts, expert and pipeline parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

from zerocfg.memory.activations.formula import gated
from zerocfg.memory.options import BYTES, Options, Precision, TorchOptions
from zerocfg.memory.tensor_parallel import head_ranks

if TYPE_CHECKING:
    from zerocfg.memory.options import Workload
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "reduce", "all_to_all"]
MIB = 1 << 20
STAGE_0_BUCKET = 500_000_000  # elements; fixed in deepspeed/runtime/engine.py: buffered_allreduce_fallback
DDP_FIRST_BUCKET = MIB  # bytes; torch/nn/parallel/distributed.py: dist._DEFAULT_FIRST_BUCKET_BYTES
QUANTIZED_GROUP = 8000  # weights that share one fp32 scale; partition_parameters.py: CUDAQuantizer.target_group_size


@dataclass(frozen=True, slots=True)
class WireOptions:
    """Settings that only the wire notices.

    ``communication``: ``communication_data_type``. ``multi_rank_allreduce``: ``use_multi_rank_bucket_allreduce``;
    without it ZeRO 1 and 2 reduce each partition to its rank. ``quantized_weights`` and ``quantized_gradients`` are qwZ
    and qgZ of ZeRO++. ``sync_every_micro_step``: DDP or FSDP without ``no_sync`` (``sync_each_batch`` of accelerate).
    """

    communication: Precision | None = None
    multi_rank_allreduce: bool = True
    reduce_scatter: bool = True
    quantized_weights: bool = False
    quantized_gradients: bool = False
    sync_every_micro_step: bool = False


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of collective: ``elements`` of ``width`` bytes, ``times`` in each optimizer step, in ``messages`` calls.

    ``ranks`` is the size of the group, ``per_node`` how many of them share a node. ``phase`` is when it is issued.
    """

    name: str
    operation: Operation
    elements: int
    width: float
    times: int
    ranks: int
    per_node: int
    messages: int
    phase: Literal["forward", "backward", "step"]
    source: str = ""

    @property
    def payload(self) -> float:
        """Bytes of the whole buffers in one optimizer step."""
        return self.elements * self.width * self.times

    @property
    def sent(self) -> float:
        """Bytes that one rank sends in one optimizer step, in a ring over the group."""
        once = self.payload * (self.ranks - 1) / self.ranks
        return 2 * once if self.operation == "all_reduce" else once

    @property
    def between(self) -> float:
        """Bytes of :attr:`sent` that leave a node, for each of its ranks.

        Rings go through a node from its first rank to its last, so that one of the ``per_node`` hops leaves it; with
        one ring for each rank the network adapters share them.
        """
        return self.sent / self.per_node if self.ranks > self.per_node else 0.0

    @property
    def within(self) -> float:
        """Bytes that one rank sends to a neighbour in its node."""
        return self.sent if self.per_node > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """All collectives of one optimizer step, as one rank sees them."""

    collectives: tuple[Collective, ...]

    @property
    def payload(self) -> float:
        """Bytes of all buffers."""
        return sum(one.payload for one in self.collectives)

    @property
    def sent(self) -> float:
        """Bytes that one rank sends; it receives as many."""
        return sum(one.sent for one in self.collectives)

    @property
    def between(self) -> float:
        """Bytes that leave a node for each of its ranks."""
        return sum(one.between for one in self.collectives)

    @property
    def messages(self) -> int:
        """Calls of collectives."""
        return sum(one.messages for one in self.collectives)


def traffic(
    facts: ModelFacts,
    options: Options | TorchOptions,
    workload: Workload,
    profile: HardwareProfile,
    wire: WireOptions | None = None,
) -> Traffic:
    """The collectives of one optimizer step. Raises ValueError when the number of parameters is not known."""
    if facts.parameters is None or facts.trainable is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    chosen = wire or WireOptions()
    if isinstance(options, TorchOptions):
        collectives = _torch(facts, options, profile.accelerators_per_node, chosen)
    elif options.stage == 3:
        collectives = _zero_3(facts, options, workload, profile.accelerators_per_node, chosen)
    else:
        collectives = _zero_0_to_2(facts, options, profile.accelerators_per_node, chosen)
    collectives = chain(collectives, _within_layers(facts, options, workload, profile.accelerators_per_node))
    return Traffic(tuple(one for one in collectives if one.ranks > 1 and one.elements > 0 and one.times > 0))


def _within_layers(
    facts: ModelFacts, options: Options | TorchOptions, workload: Workload, per_node: int
) -> Iterator[Collective]:
    """What ranks send that share each layer (tensor parallelism): sums of the residual stream, and the logits.

    Forward sums the results of attention and feed-forward part, and of an embedding that is divided; backward the
    gradient of what enters each projection, the head among them. Layers that are recomputed sum again what attention
    gives; they stop before the last product (torch/utils/checkpoint.py, early stop).
    ``tests/memory/test_tensor_parallel_real.py`` counts them.
    """
    ranks, layers, micro = options.tensor_parallel, facts.num_hidden_layers or 0, options.gradient_accumulation_steps
    tokens, near = workload.micro_batch * workload.sequence_length, min(options.tensor_parallel, per_node)
    torch, width = isinstance(options, TorchOptions), BYTES[options.precision]
    source = "distributed/tensor_parallel.py" if torch else "module_inject/layers.py"
    size, projections = tokens * (facts.hidden_size or 0), 5 if gated(facts) else 4
    forward = 2 * layers + (1 if torch or facts.tied_embeddings else 0)
    backward = projections * layers + 1 + (layers if workload.gradient_checkpointing else 0)
    phase: Literal["forward", "backward"]
    for phase, count in (("forward", forward), ("backward", backward)):
        times = count * micro
        yield Collective("residual stream", "all_reduce", size, width, times, ranks, near, times, phase, source)
    if head_ranks(facts, options) > 1:
        logits = tokens * (facts.vocab_size or 0)
        yield Collective("logits", "all_gather", logits, width, micro, ranks, near, micro, "forward", source)


def _near(options: Options, per_node: int) -> int:
    """Ranks of a node among those that read different samples; those that share each layer lie beside each other."""
    return min(options.data_parallel, max(1, per_node // options.tensor_parallel))


def _messages(elements: int, bucket: int, times: int) -> int:
    return -(-elements // max(1, bucket)) * times


def _zero_0_to_2(facts: ModelFacts, options: Options, per_node: int, wire: WireOptions) -> Iterator[Collective]:
    """Stages 0 to 2: gradients are all-reduced, whole, whatever the stage.

    ``reduce_scatter`` of the config does not name the collective: average_tensor all-reduces each bucket and every rank
    copies its part (unless ``use_multi_rank_bucket_allreduce`` is off: then one ``reduce`` for each rank's part). Stage
    2 does so in each micro step; the others at the boundary of accumulation.
    """
    trained, ranks = facts.trainable or 0, options.data_parallel
    near = _near(options, per_node)
    width = BYTES[wire.communication or options.precision]
    times = options.gradient_accumulation_steps if options.stage == 2 else 1
    if options.stage == 0:
        bucket, source = STAGE_0_BUCKET, "engine.py: buffered_allreduce_fallback"
    else:
        bucket, source = options.reduce_bucket_size, "stage_1_and_2.py: average_tensor"
    whole = options.stage == 0 or wire.multi_rank_allreduce or not wire.reduce_scatter
    yield Collective(
        "gradients",
        "all_reduce" if whole else "reduce",
        trained,
        width,
        times,
        ranks,
        near,
        _messages(trained, bucket, times) * (1 if whole else ranks),
        "backward" if options.stage == 2 else "step",
        source,
    )
    if options.stage:
        # flat groups are padded to a multiple of twice the ranks (nccl_start_alignment_factor); all in one call
        padded = -(-trained // (2 * ranks)) * 2 * ranks
        source = "runtime/utils.py: all_gather_into_tensor_dp_groups"
        yield Collective(
            "parameters", "all_gather", padded, BYTES[options.precision], 1, ranks, near, 1, "step", source
        )


def _padded(facts: ModelFacts, ranks: int, threshold: int, cap: int | None) -> tuple[int, int]:
    """Elements of the tensors above ``threshold`` and of the others (``cap`` at most), padded to a multiple of ranks.

    Tensors up to the threshold persist: every rank keeps them (parameter_offload.py: mark_persistent_parameters).
    """
    sizes = facts.tensor_sizes or [(facts.parameters or 0, 1)]
    padded = [(size, -(-size // ranks) * ranks * count) for size, count in sizes]
    large = sum(whole for size, whole in padded if size > threshold)
    small = sum(whole for _, whole in padded) - large
    kept = small if cap is None else min(small, cap)
    return large + small - kept, kept


def _zero_3(
    facts: ModelFacts, options: Options, workload: Workload, per_node: int, wire: WireOptions
) -> Iterator[Collective]:
    """Stage 3: parameters are gathered for forward and for backward, gradients reduce-scattered, in each micro step.

    Not gathered again is what the coordinator still holds when backward comes to it. With prefetching on it runs ahead
    until ``max_live_parameters`` are there and never releases what it saw coming; without, it keeps what is used again
    within ``max_reuse_distance``, which from the end of forward reaches half as far back. Measured to within two blocks
    (``benchmarks/time/wire``). What a checkpointed block recomputes with is still there, unless both are off.
    """
    ranks, micro = options.data_parallel, options.gradient_accumulation_steps
    near, width = _near(options, per_node), BYTES[options.precision]
    large, small = _padded(facts, ranks, options.param_persistence_threshold, options.model_persistence_threshold)
    prefetches = options.prefetch_bucket_size > 0
    kept = min(large, max(options.max_live_parameters if prefetches else 0, options.max_reuse_distance // 2))
    again, block = large - kept, facts.largest_block or 0
    recomputed = 0
    if workload.gradient_checkpointing and not prefetches and options.max_reuse_distance < block:
        recomputed = min(large, block * (facts.num_hidden_layers or 0))

    carried: float = 1 + 4 / QUANTIZED_GROUP if wire.quantized_weights else width
    bucket = max(options.prefetch_bucket_size, facts.largest_parameter or 1)
    file = "partitioned_param_coordinator.py: fetch_sub_module"

    def gather(name: str, elements: int, times: int, group: int, phase: Literal["forward", "backward"]) -> Collective:
        calls = _messages(elements, bucket, times)
        return Collective(name, "all_gather", elements, carried, times, group, min(group, near), calls, phase, file)

    group = options.secondary_partition_size
    if group > 1:
        # hpZ: the first gather after a step leaves a copy in the smaller group, which serves until the next step
        yield gather("parameters, forward, all ranks", large, 1, ranks, "forward")
        yield gather("parameters, forward, secondary copy", large, micro - 1, group, "forward")
    else:
        group = ranks
        yield gather("parameters, forward", large, micro, ranks, "forward")
    yield gather("parameters, backward", again, micro, group, "backward")
    yield gather("parameters, recomputation", recomputed, micro, group, "backward")
    yield Collective(
        "persistent parameters", "all_gather", small, width, 1, ranks, near, 1, "step", "stage3.py: _post_step"
    )

    share = (facts.trainable or 0) / max(1, facts.parameters or 0)
    trained = int((large + small) * share)
    reduced = BYTES[wire.communication or options.precision]
    calls = _messages(trained, options.reduce_bucket_size, micro)
    if wire.quantized_gradients and ranks > per_node:
        # qgZ: 4 bits to all ranks of the node, then 4 bits of the sums between nodes
        # (coalesced_collectives.py: all_to_all_quant_reduce); on one node it reduce-scatters as usual
        source = "coalesced_collectives.py: all_to_all_quant_reduce"
        yield Collective(
            "gradients, int4 in the node", "all_to_all", trained, 0.5, micro, near, near, calls, "backward", source
        )
        yield Collective(
            "gradients, int4 between nodes",
            "all_to_all",
            trained // near,
            0.5,
            micro,
            ranks // near,
            1,
            calls,
            "backward",
            source,
        )
    elif wire.reduce_scatter:
        source = "stage3.py: __avg_scatter_grads"
        yield Collective("gradients", "reduce_scatter", trained, reduced, micro, ranks, near, calls, "backward", source)
    else:
        source = "stage3.py: __avg_scatter_contiguous_grads"
        bare = facts.trainable or 0
        yield Collective("gradients", "all_reduce", bare, reduced, micro, ranks, near, calls, "backward", source)


def _torch(facts: ModelFacts, options: TorchOptions, per_node: int, wire: WireOptions) -> Iterator[Collective]:
    """DDP and FSDP as accelerate and the Trainer run them: gradients are reduced at the boundary (``no_sync``).

    Padding is not counted: FSDP 2 pads the rows of each tensor; FSDP 1 each tensor to 16 bytes, each unit to the ranks.
    """
    trained, every, ranks = facts.trainable or 0, facts.parameters or 0, options.world_size
    micro = options.gradient_accumulation_steps
    synced = micro if wire.sync_every_micro_step else 1
    near = min(ranks, per_node)
    half = BYTES[options.precision]
    first = options.kind == "fsdp1"
    if options.kind == "ddp":
        width = 4 if options.master else half  # gradients have the dtype of the parameters
        size = trained * width
        calls = 1 + _messages(max(0, size - DDP_FIRST_BUCKET), int(options.ddp_bucket_mib * MIB), 1)
        source = "torch/nn/parallel/distributed.py"
        yield Collective(
            "gradients", "all_reduce", trained, width, synced, ranks, near, calls * synced, "backward", source
        )
    if options.kind not in ("fsdp1", "fsdp2"):
        return

    group = options.shard_ranks or ranks
    inside = min(group, near)
    layers = max(1, facts.num_hidden_layers or 1)
    blocks = min(every, (facts.largest_block or 0) * layers) or every
    units, reduced_units = layers, layers + 1
    if first and facts.adapters:
        # each matrix of an adapter is a unit of its own (peft/utils/other.py: fsdp_auto_wrap_policy)
        reduced_units = layers * len(facts.adapters)
        units, blocks = layers + reduced_units, min(every, blocks + trained)
    source = "torch/distributed/fsdp/_runtime_utils.py"
    if options.kind == "fsdp2":
        source = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"
    # FSDP 1 without resharding keeps the parameters through no_sync, from the first micro step to the boundary
    times = synced if first and not options.reshard_after_forward else micro
    calls = (units + 1) * times
    yield Collective("parameters, forward", "all_gather", every, half, times, group, inside, calls, "forward", source)
    if options.reshard_after_forward:
        # the root of FSDP 1 stays gathered from forward to backward
        again, calls = (blocks, units * micro) if first else (every, (layers + 1) * micro)
        yield Collective(
            "parameters, backward", "all_gather", again, half, micro, group, inside, calls, "backward", source
        )
    if first and trained < every and not facts.adapters:
        trained = blocks  # a unit's flat gradient is reduced whole when any of its parameters is trained
    reduced = BYTES[wire.communication or options.precision]
    calls = reduced_units * synced
    yield Collective("gradients", "reduce_scatter", trained, reduced, synced, group, inside, calls, "backward", source)
    if group < ranks:
        copies = ranks // group
        beside = min(copies, max(1, per_node // group))
        shard = -(-trained // group)
        yield Collective(
            "gradients between copies", "all_reduce", shard, reduced, synced, copies, beside, calls, "backward", source
        )
