"""What a run may know besides its files: model, hardware, and the memory that is predicted of both."""

from __future__ import annotations

from zerocfg.record import field, record


@record(frozen=True, slots=True)
class ModelSummary:
    """What rules and effective settings need of a model. Counts are elements.

    ``width_known`` False: a hidden size that is None may only stand somewhere else, in a class that nobody knows.
    ``vision``: the vision part that is among the parameters, a ``Vision`` or ``Tower`` of ``zerocfg.models``, which
    linting does not import.
    ``too_large``: it has more tensors than the memory of a model is predicted with.
    """

    name: str
    model_type: str | None = None
    parameters: int | None = None
    hidden_size: int | None = None
    text_hidden_size: int | None = None
    max_hidden_sizes: int | None = None
    width_known: bool = True
    largest_parameter: int | None = None
    dtype: str | None = None
    all_trained: bool = True
    layer_class: str | None = None
    foreign_classes: frozenset[str] = frozenset()
    largest_block: int | None = None
    vocab_size: int | None = None
    vision: object | None = None
    too_large: bool = False


@record(frozen=True, slots=True)
class HardwareSummary:
    """What rules need of the hardware. ``memory_gib`` is that of one accelerator, ``host_gib`` that of one node.

    ``memlock`` is how many bytes a process may lock, None where it is not known or not limited. ``nvme_free_gib`` tells
    how much is free on the NVMe file systems of a node, by where they are mounted.
    """

    name: str
    nodes: int
    accelerators_per_node: int
    memory_gib: float | None
    bf16: bool | None = None
    host_gib: float | None = None
    memlock: int | None = None
    vendor: str | None = None
    nvme_free_gib: dict[str, float] = field(default_factory=dict)

    @property
    def accelerators(self) -> int:
        return self.nodes * self.accelerators_per_node


@record(frozen=True, slots=True)
class MemorySummary:
    """What is predicted of the memory of a run, in GiB. None, or a missing stage: not known.

    Of one accelerator, model states and DeepSpeed's buffers only:
    ``states_gib``         by ZeRO stage, the most with that stage and nothing offloaded
    ``resting_gib``        as the run is configured, between two steps
    ``step_gib``           the same during the optimizer step, with what it needs for a moment

    ``vllm_gib`` is what vLLM keeps of one accelerator while the run trains (GRPO with vLLM in the same processes).

    Of one accelerator, as its driver will show it (activations, context, communication and the allocator's reserve
    included), the least and the most:
    ``peak_gib``           as the run is configured
    ``stage_peaks_gib``    by ZeRO stage, with that stage and nothing offloaded
    ``doubled_peak_gib``   with twice the micro batch

    ``logits_gib`` is what logits and loss of a micro batch of ``micro_batch`` samples of ``sequence_length`` tokens
    take at most at one time; 0 where the loss is computed without all logits.

    Of one node, for all its ranks:
    ``host_states_gib``    host memory for what is offloaded, as torch allocates it
    ``pinned_rounding_gib``  what of it is lost because torch rounds pinned blocks up to powers of two
    ``nvme_gib``           files on the drive
    """

    states_gib: dict[int, float] = field(default_factory=dict)
    resting_gib: float | None = None
    step_gib: float | None = None
    peak_gib: tuple[float, float] | None = None
    stage_peaks_gib: dict[int, tuple[float, float]] = field(default_factory=dict)
    doubled_peak_gib: tuple[float, float] | None = None
    logits_gib: float | None = None
    micro_batch: int | None = None
    sequence_length: int | None = None
    host_states_gib: float | None = None
    pinned_rounding_gib: float = 0.0
    nvme_gib: float | None = None
    vllm_gib: float = 0.0
