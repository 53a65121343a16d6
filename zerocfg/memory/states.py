"""Memory of model states and of DeepSpeed's own buffers, for each rank.

Counted: parameters, gradients, master weights, Adam's moments, reduce buckets, gathered parameters, and
what the optimizer step needs for a moment. Not counted: activations, logits, the CUDA context, NCCL's
buffers and fragmentation. So a state that does not fit will not run, while one that fits still needs room
for the rest.

The formulas hold for one parameter group and an Adam-like optimizer (two fp32 moments), without tensor,
pipeline or expert parallelism. Checked against DeepSpeed 0.19.8 (``tests/memory/test_states.py``); each
term names the place in its source. Sizes are bytes of one rank; bucket sizes are elements, as in
DeepSpeed's config.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.models.model_facts import ModelFacts

Device = Literal["none", "cpu", "nvme"]
Place = Literal["device", "host", "nvme"]
Moment = Literal["always", "gradients", "backward", "step"]
Precision = Literal["fp32", "bf16", "fp16"]

BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
STAGE_0_BUCKET = 500_000_000  # fixed in deepspeed/runtime/engine.py (buffered_allreduce_fallback)


@dataclass(frozen=True)
class Term:
    """``size`` bytes of one rank, at ``place``, held at ``moment``.

    Moments: ``always`` (from the first optimizer step on), ``gradients`` (from backward to the step),
    ``backward`` and ``step`` (only then). The peak of a place is always + gradients + the larger of
    backward and step.
    """

    name: str
    size: int
    place: Place
    moment: Moment
    source: str = ""


@dataclass(frozen=True)
class Options:
    """What decides the memory; defaults are those of DeepSpeed 0.19.8. Raises ValueError for what it
    refuses."""

    stage: int
    world_size: int
    precision: Precision = "bf16"
    accumulation: Precision | None = None  # data_types.grad_accum_dtype
    gradient_accumulation_steps: int = 1
    offload_optimizer: Device = "none"
    offload_param: Device = "none"
    overlap_comm: bool | None = None
    contiguous_gradients: bool = True
    reduce_bucket_size: int = 500_000_000  # elements
    prefetch_bucket_size: int = 50_000_000  # elements
    param_persistence_threshold: int = 100_000  # elements
    model_persistence_threshold: int | None = None  # elements
    max_live_parameters: int = 1_000_000_000  # elements
    sub_group_size: int = 1_000_000_000  # elements
    nvme_optimizer_buffers: int = 4  # offload_optimizer.buffer_count
    nvme_param_buffers: int = 5  # offload_param.buffer_count
    nvme_param_buffer_size: int = 100_000_000  # offload_param.buffer_size, elements
    nvme_max_in_cpu: int = 1_000_000_000  # offload_param.max_in_cpu, elements

    def __post_init__(self) -> None:
        if self.stage not in (0, 1, 2, 3):
            raise ValueError(f"ZeRO stage {self.stage} does not exist")
        if self.world_size < 1:
            raise ValueError("a job has at least one rank")
        if self.stage == 0 and self.offload_optimizer != "none":
            raise ValueError("the optimizer is offloaded only with ZeRO 1 to 3")
        if self.stage < 3 and (self.offload_param != "none" or self.offload_optimizer == "nvme"):
            raise ValueError("parameters, and anything to NVMe, are offloaded only with ZeRO-3")

    @property
    def overlaps(self) -> bool:
        """``overlap_comm`` with its default, which depends on the stage
        (deepspeed/runtime/zero/config.py)."""
        return self.stage == 3 if self.overlap_comm is None else self.overlap_comm


@dataclass(frozen=True)
class States:
    """The terms of one rank."""

    options: Options
    terms: tuple[Term, ...]

    def peak(self, place: Place) -> int:
        """Most bytes at ``place`` at any moment of a training step."""
        held = self.at(place, "always") + self.at(place, "gradients")
        return held + max(self.at(place, "backward"), self.at(place, "step"))

    def at(self, place: Place, moment: Moment) -> int:
        """Bytes of the terms of one place and moment."""
        return sum(term.size for term in self.terms if term.place == place and term.moment == moment)


def model_states(facts: ModelFacts, options: Options) -> States:
    """The memory of one rank. Raises ValueError when the number of parameters is not known."""
    if facts.parameters is None or facts.trainable is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    road = _zero_3 if options.stage == 3 else _zero_0_to_2
    return States(options, tuple(term for term in road(facts, options) if term.size > 0))


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
    file = "deepspeed/runtime/zero/stage_1_and_2.py" if options.stage else "deepspeed/runtime/engine.py"
    offloaded = options.offload_optimizer == "cpu"

    yield Term("parameters", width * every, "device", "always")
    if options.stage == 2:
        # Offloaded gradients leave for the host as they are reduced.
        yield Term("gradients", 0 if offloaded else wide * own, "device", "gradients", file)
    elif wide == width:
        yield Term("gradients", width * trained, "device", "gradients", file)
    elif options.precision == "bf16":
        source = "deepspeed/runtime/bf16_optimizer.py"
        yield Term("fp32 gradients", wide * trained, "device", "always", source)
        yield Term("gradients", width * trained, "device", "backward", source)
    else:
        yield Term("gradient accumulator", wide * trained, "device", "gradients", file)
        yield Term("gradients", width * trained, "device", "backward", file)

    place: Place = "host" if offloaded else "device"
    # ZeRO 1 and 2 clone the parameters to fp32 even where they are fp32 already.
    yield Term("master weights", 4 * own if width == 2 or options.stage else 0, place, "always", file)
    yield Term("optimizer moments", 8 * own, place, "always", "Adam: two fp32 values for each parameter")
    if offloaded:
        yield Term("fp32 gradients", 4 * own, "host", "always", file)
        yield Term("16-bit staging of parameters", width * own, "host", "always", file)
        yield Term("largest parameter, copied", width * largest, "host", "always", file)
        yield Term("largest parameter, copied", width * largest, "device", "always", file)
        if options.gradient_accumulation_steps > 1:
            # Kept whole for each parameter that touches the partition, so beyond both of its ends.
            touched = min(trained, own + 2 * largest)
            yield Term("accumulated gradients", width * touched, "host", "always", file)
    else:
        # The partition's gradients are flattened, then converted; nothing to convert in fp32 training.
        flat = wide * own if options.stage else 0
        yield Term("gradients of the step", flat + (4 * own if wide == 2 else 0), "device", "step", file)

    if options.stage == 0:
        bucket = min(trained, STAGE_0_BUCKET + largest)
        yield Term("reduce bucket", width * bucket, "device", "backward", file)
    elif options.contiguous_gradients or offloaded:
        element = wide if options.stage == 1 and wide != width else width
        copies = 2 if options.overlaps else 1
        yield Term("reduce bucket", copies * element * options.reduce_bucket_size, "device", "backward", file)
    if options.stage == 2:
        yield Term("gradient before its bucket", width * largest, "device", "backward", file)


def _zero_3(facts: ModelFacts, options: Options) -> Iterator[Term]:
    every, trained = facts.parameters or 0, facts.trainable or 0
    width, wide = BYTES[options.precision], BYTES[options.accumulation or options.precision]
    own, file = _share(trained, options), "deepspeed/runtime/zero/stage3.py"
    group = min(own, options.sub_group_size + -(-(facts.largest_parameter or 0) // options.world_size))

    yield from _zero_3_parameters(facts, options, width * _share(every, options))
    place: Place = "device" if options.offload_optimizer == "none" else "host"
    yield Term("gradients", wide * own, place, "always", file)
    rest: Place = "nvme" if options.offload_optimizer == "nvme" else place
    yield Term("master weights", 4 * own, rest, "always", file)
    yield Term("optimizer moments", 8 * own, rest, "always", "Adam: two fp32 values for each parameter")
    if options.offload_optimizer != "none":
        yield Term("fp32 gradients", 4 * own, rest, "always", file)
    if options.offload_optimizer == "nvme":
        size = 4 * options.nvme_optimizer_buffers * group
        yield Term("swap buffers", size, "host", "always", "deepspeed/runtime/swap_tensor/optimizer_utils.py")
    if place == "device":
        # One sub group at a time; it ends after the parameter that crosses the limit.
        step = (wide if wide == 2 else 0) * group + 4 * group
        yield Term("gradients of the step", step, "device", "step", file)
    if options.contiguous_gradients:
        # Allocated once, and not doubled by overlap_comm.
        yield Term("reduce bucket", width * options.reduce_bucket_size, "device", "always", file)


def _zero_3_parameters(facts: ModelFacts, options: Options, shard: int) -> Iterator[Term]:
    """The shard of the 16-bit parameters (``shard`` bytes), and the parameters that are whole for a while.

    Gathered at one time are about the largest module, the block at work and what is prefetched;
    max_live_parameters ends prefetching but never splits a module. With unknown module sizes it is the bound.
    """
    every, width = facts.parameters or 0, BYTES[options.precision]
    file = "deepspeed/runtime/zero/partitioned_param_coordinator.py"
    if options.offload_param == "none":
        yield Term("parameters", shard, "device", "always")
    elif options.offload_param == "cpu":
        yield Term("parameters", shard, "host", "always")
    else:
        source = "deepspeed/runtime/swap_tensor/partitioned_param_swapper.py"
        buffers = width * options.nvme_param_buffers * options.nvme_param_buffer_size
        yield Term("parameters", shard, "nvme", "always", source)
        yield Term("swap buffers of parameters", buffers, "host", "always", source)
        yield Term("parameters kept", min(shard, width * options.nvme_max_in_cpu), "host", "always", source)

    small = facts.elements_up_to(options.param_persistence_threshold, options.model_persistence_threshold) or 0
    yield Term("persistent small parameters", width * small, "device", "always", file)
    module, block = facts.largest_module or 0, facts.largest_block or 0
    working = module + block + options.prefetch_bucket_size
    live = max(module, min(options.max_live_parameters, working if block else every))
    yield Term("gathered parameters", width * min(every, live), "device", "backward", file)
