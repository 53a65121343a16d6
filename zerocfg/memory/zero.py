"""Memory of a rank under DeepSpeed ZeRO 0 to 3: states, buffers and the temporaries of the step.

For one parameter group and an optimizer of torch or DeepSpeed, without tensor, pipeline or expert parallelism.
Checked against DeepSpeed 0.19.8; each term names the place in its source. Sizes are bytes of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zerocfg.memory.options import BYTES, Options
from zerocfg.memory.terms import ALWAYS, BACKWARD, TRAINING, WORK, Kind, Moment, Place, Term

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts

HOLDS_FOR = ">=0.19,<0.20"
STAGE_0_BUCKET = 500_000_000  # elements; fixed in deepspeed/runtime/engine.py (buffered_allreduce_fallback)
GRADIENTS: frozenset[Moment] = BACKWARD | {"step"}
STEP: frozenset[Moment] = frozenset({"step"})


def zero_terms(facts: ModelFacts, options: Options) -> tuple[Term, ...]:
    """What one rank holds. Raises ValueError when the number of parameters is not known."""
    if facts.parameters is None or facts.trainable is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    road = _zero_3 if options.stage == 3 else _zero_0_to_2
    return tuple(term for term in road(facts, options) if term.size > 0)


def _term(
    name: str, size: int, place: Place, moments: frozenset[Moment], kind: Kind, source: str, grows: bool = False
) -> Term:
    return Term(name, size, place, moments, kind, source, HOLDS_FOR, grows)


def _share(elements: int, options: Options) -> int:
    """Elements of one rank's partition: flat buffers are padded to a multiple of twice the ranks."""
    if options.stage == 0:
        return elements
    padding = 2 * options.world_size
    return -(-elements // padding) * padding // options.world_size


def _zero_0_to_2(facts: ModelFacts, options: Options) -> Iterator[Term]:
    every, trained = facts.parameters or 0, facts.trainable or 0
    width, wide = BYTES[options.precision], BYTES[options.accumulation or options.precision]
    own, largest = _share(trained, options), facts.largest_parameter or 0
    file = "stage_1_and_2.py" if options.stage else "engine.py"
    offloaded = options.offload_optimizer == "cpu"
    accumulates = options.gradient_accumulation_steps > 1

    yield _term("parameters", width * every, "device", ALWAYS, "parameters", "the model")
    kept = GRADIENTS if not accumulates else WORK | STEP
    if options.stage == 2:
        # Offloaded gradients leave for the host as they are reduced.
        size = 0 if offloaded else wide * own
        yield _term("gradients", size, "device", kept, "gradients", f"{file}: copy_grads_in_partition")
    elif wide == width:
        yield _term("gradients", width * trained, "device", kept, "gradients", "autograd", grows=not accumulates)
    elif options.precision == "bf16":
        source = "bf16_optimizer.py: _setup_for_real_optimizer"
        yield _term("fp32 gradients", wide * trained, "device", ALWAYS, "gradients", source)
        yield _term("gradients", width * trained, "device", BACKWARD, "gradients", "autograd", grows=True)
    else:
        source = f"{file}: _fill_param_grad_accum_attribute"
        yield _term("gradient accumulator", wide * trained, "device", kept, "gradients", source)
        yield _term("gradients", width * largest, "device", BACKWARD, "gradients", "autograd")

    place: Place = "host" if offloaded else "device"
    # ZeRO 1 and 2 clone the parameters to fp32 even where they are fp32 already.
    master = 4 * own if width == 2 or options.stage else 0
    yield _term("master weights", master, place, ALWAYS, "optimizer", f"{file}: __init__")
    yield _term("optimizer moments", 8 * own, place, TRAINING, "optimizer", "the optimizer's first step")
    if offloaded:
        source = f"{file}: initialize_optimizer_states"
        yield _term("fp32 gradients", 4 * own, "host", ALWAYS, "gradients", source)
        source = f"{file}: __init__"
        yield _term("16-bit staging of parameters", width * own, "host", ALWAYS, "buffers", source)
        yield _term("largest parameter, copied", width * largest, "host", ALWAYS, "buffers", source)
        yield _term("largest parameter, copied", width * largest, "device", ALWAYS, "buffers", source)
        if accumulates:
            # Kept whole for each parameter that touches the partition, so beyond both of its ends.
            touched = min(trained, own + 2 * largest)
            source = f"{file}: async_accumulate_grad_in_cpu_via_gpu"
            yield _term("accumulated gradients", width * touched, "host", TRAINING, "gradients", source)
    else:
        # The partition's gradients are flattened, then converted; nothing to convert in fp32 training.
        flat = wide * own if options.stage else 0
        size = flat + (4 * own if wide == 2 else 0)
        yield _term("gradients of the step", size, "device", STEP, "temporaries", f"{file}: step")

    if options.stage == 0:
        bucket = min(trained, STAGE_0_BUCKET + largest) if options.world_size > 1 else 0
        source = f"{file}: buffered_allreduce_fallback"
        yield _term("reduce bucket", width * bucket, "device", STEP, "buffers", source)
    elif options.contiguous_gradients or offloaded:
        element = wide if options.stage == 1 and wide != width else width
        copies = 2 if options.overlaps else 1
        size = copies * element * options.reduce_bucket_size
        yield _term("reduce bucket", size, "device", BACKWARD, "buffers", f"{file}: setup_buckets")


def _zero_3(facts: ModelFacts, options: Options) -> Iterator[Term]:
    trained = facts.trainable or 0
    width, wide = BYTES[options.precision], BYTES[options.accumulation or options.precision]
    own, file = _share(trained, options), "stage3.py"
    group = min(own, options.sub_group_size + -(-(facts.largest_parameter or 0) // options.world_size))

    yield from _zero_3_parameters(facts, options, width * _share(facts.parameters or 0, options))
    place: Place = "device" if options.offload_optimizer == "none" else "host"
    source = f"{file}: _setup_for_real_optimizer"
    yield _term("gradients", wide * own, place, ALWAYS, "gradients", source)
    rest: Place = "nvme" if options.offload_optimizer == "nvme" else place
    source = f"{file}: _create_fp32_partitions"
    yield _term("master weights", 4 * own, rest, ALWAYS, "optimizer", source)
    yield _term("optimizer moments", 8 * own, rest, ALWAYS, "optimizer", f"{file}: initialize_optimizer_states")
    if options.offload_optimizer != "none":
        yield _term("fp32 gradients", 4 * own, rest, ALWAYS, "gradients", f"{file}: initialize_optimizer_states")
    if options.offload_optimizer == "nvme":
        size = 4 * options.nvme_optimizer_buffers * group
        yield _term("swap buffers", size, "host", ALWAYS, "buffers", "optimizer_utils.py: OptimizerSwapper")
    if place == "device":
        # One sub group at a time; it ends after the parameter that crosses the limit.
        step = (wide if wide == 2 else 0) * group + 4 * group
        yield _term("gradients of the step", step, "device", STEP, "temporaries", f"{file}: _prepare_sub_group")
    if options.contiguous_gradients:
        # Allocated once, and not doubled by overlap_comm.
        size = width * options.reduce_bucket_size
        yield _term("reduce bucket", size, "device", ALWAYS, "buffers", f"{file}: _setup_for_real_optimizer")


def _zero_3_parameters(facts: ModelFacts, options: Options, shard: int) -> Iterator[Term]:
    """The shard of the 16-bit parameters (``shard`` bytes), and the parameters that are whole for a while.

    Gathered at one time are about the largest module, the block at work and what is prefetched;
    max_live_parameters ends prefetching but never splits a module. With unknown module sizes it is the bound.
    """
    every, width = facts.parameters or 0, BYTES[options.precision]
    if options.offload_param == "none":
        yield _term("parameters", shard, "device", ALWAYS, "parameters", "partition_parameters.py: _partition_param")
    elif options.offload_param == "cpu":
        yield _term("parameters", shard, "host", ALWAYS, "parameters", "partition_parameters.py: _partition_param")
    else:
        source = "partitioned_param_swapper.py"
        buffers = width * options.nvme_param_buffers * options.nvme_param_buffer_size
        yield _term("parameters", shard, "nvme", ALWAYS, "parameters", source)
        yield _term("swap buffers of parameters", buffers, "host", ALWAYS, "buffers", source)
        kept = min(shard, width * options.nvme_max_in_cpu)
        yield _term("parameters kept", kept, "host", ALWAYS, "parameters", source)

    small = facts.elements_up_to(options.param_persistence_threshold, options.model_persistence_threshold) or 0
    if options.world_size > 1:
        source = "parameter_offload.py: mark_persistent_parameters"
        yield _term("persistent small parameters", width * small, "device", ALWAYS, "parameters", source)
    source = "partitioned_param_coordinator.py: fetch_sub_module"
    module, block = facts.largest_module or 0, facts.largest_block or 0
    working = module + block + options.prefetch_bucket_size
    live = max(module, min(options.max_live_parameters, working if block else every))
    yield _term("gathered parameters", width * min(every, live), "device", WORK, "parameters", source)
