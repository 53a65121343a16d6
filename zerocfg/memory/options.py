"""What decides how much memory a rank takes. Bucket sizes are elements, as in DeepSpeed's config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from zerocfg.models.vision import Vision

Device = Literal["none", "cpu", "nvme"]
Precision = Literal["fp32", "bf16", "fp16"]
Attention = Literal["eager", "sdpa", "flash_attention_2"]
OptimizerName = Literal[
    "adamw",
    "adamw_fused",
    "adamw_foreach",
    "adamw_for_loop",
    "adamw_8bit",
    "adafactor",
    "sgd",
    "sgd_momentum",
    "lion",
    "fused_adam",
]
"""`fused_adam` is DeepSpeed's own (`optimizer.type` Adam or AdamW), `adamw_fused` torch's."""

BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, slots=True)
class Images:
    """What a model that reads images gets beside text: ``per_sample`` images of ``pixels`` as it takes them (None: it
    takes one size only), and its vision part."""

    vision: Vision
    per_sample: int
    pixels: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens of a sample that are images. Raises ValueError where their size is not known."""
        return self.per_sample * self.vision.tokens(self.pixels) if self.per_sample else 0

    def __post_init__(self) -> None:
        if self.per_sample < 0 or (self.pixels is not None and self.pixels < 1):
            raise ValueError("a sample has no images or some, of at least one pixel")


@dataclass(frozen=True, slots=True)
class Workload:
    """One micro batch of one rank, and how its activations are kept.

    ``micro_batch`` samples of ``sequence_length`` tokens. ``fused_loss``: logits never exist as a whole (Liger kernels,
    cut cross entropy). ``autocast``: parameters are fp32 and computed with in 16 bit by torch.autocast (accelerate and
    the Trainer without DeepSpeed); else the parameters have the dtype of the computation. ``images``: what a model that
    sees gets beside text; the tokens that they become are among those of the sequence. ``completion``: the tokens at
    its end whose log-probabilities are trained on (GRPO), behind a prompt that is padded to the longest one; logits
    then exist a tile at a time, so that ``fused_loss`` is true. ``assumed``: one of these is what nothing says.
    """

    micro_batch: int
    sequence_length: int
    gradient_checkpointing: bool = False
    attention: Attention = "sdpa"
    fused_loss: bool = False
    autocast: bool = False
    images: Images | None = None
    completion: int | None = None
    assumed: bool = False

    def __post_init__(self) -> None:
        if self.micro_batch < 1 or self.sequence_length < 1:
            raise ValueError("a micro batch has at least one sample of one token")
        if self.completion is not None and not (self.fused_loss and 0 < self.completion <= self.sequence_length):
            raise ValueError("a completion is the end of a sequence, and its logits are never whole")


@dataclass(frozen=True, slots=True)
class Rollouts:
    """How a trainer samples the completions that it trains on (GRPO of TRL).

    ``by``: what generates them; ``share`` of each card is vLLM's where it is colocated, except while it ``sleeps``.
    ``steps``: micro batches that are generated together; None: those of an optimizer step. They are trained on
    ``iterations`` times. ``gathers``: ZeRO-3 gathers the whole model to generate (``ds3_gather_for_generation``).
    ``per_logit``: bytes of a logit while transformers samples from it. ``reference``: a frozen copy of the model beside
    it, ``reference_width`` bytes an element as it is loaded.
    """

    by: Literal["transformers", "colocated vLLM", "vLLM server"] = "transformers"
    share: float = 0.0
    sleeps: bool = False
    steps: int | None = None
    iterations: int = 1
    gathers: bool = True
    per_logit: int = 18
    reference: bool = False
    reference_width: int = 2


@dataclass(frozen=True)
class Options:
    """A DeepSpeed engine; defaults are those of DeepSpeed 0.19.8. Raises ValueError for what it refuses.

    ``tensor_parallel`` ranks share each layer and read the same samples (AutoTP).
    """

    stage: int
    world_size: int
    precision: Precision = "bf16"
    accumulation: Precision | None = None  # data_types.grad_accum_dtype
    optimizer: OptimizerName = "adamw"
    gradient_accumulation_steps: int = 1
    offload_optimizer: Device = "none"
    offload_param: Device = "none"
    offload_ratio: float = 1.0  # offload_optimizer.ratio: share of the sub groups that leave the device (stage 3)
    pin_optimizer: bool = True  # offload_optimizer.pin_memory
    pin_param: bool = True  # offload_param.pin_memory
    overlap_comm: bool | None = None
    contiguous_gradients: bool = True
    reduce_bucket_size: int = 500_000_000  # elements
    allgather_bucket_size: int = 500_000_000  # elements
    prefetch_bucket_size: int = 50_000_000  # elements
    param_persistence_threshold: int = 100_000  # elements
    model_persistence_threshold: int | None = None  # elements
    max_live_parameters: int = 1_000_000_000  # elements
    max_reuse_distance: int = 1_000_000_000  # elements
    sub_group_size: int = 1_000_000_000  # elements
    secondary_partition_size: int = 1  # zero_hpz_partition_size; 1: no hpZ
    zero_init: bool = True  # the model is built under deepspeed.zero.Init (stage 3)
    gather_on_save: bool = False  # stage3_gather_16bit_weights_on_model_save
    nvme_optimizer_buffers: int = 4  # offload_optimizer.buffer_count
    nvme_param_buffers: int = 5  # offload_param.buffer_count
    nvme_param_buffer_size: int = 100_000_000  # offload_param.buffer_size, elements
    nvme_max_in_cpu: int = 1_000_000_000  # offload_param.max_in_cpu, elements
    tensor_parallel: int = 1
    early_bucket: bool = False  # DeepSpeed before 0.18.3: the bucket of ZeRO 1 and 2 is allocated before backward

    def __post_init__(self) -> None:
        if self.stage not in (0, 1, 2, 3):
            raise ValueError(f"ZeRO stage {self.stage} does not exist")
        if self.world_size < 1:
            raise ValueError("a job has at least one rank")
        if self.stage == 0 and self.offload_optimizer != "none":
            raise ValueError("the optimizer is offloaded only with ZeRO 1 to 3")
        if not 0 <= self.offload_ratio <= 1:
            raise ValueError(f"a share of {self.offload_ratio:g} of the optimizer cannot be offloaded")
        if self.stage < 3 and (self.offload_param != "none" or self.offload_optimizer == "nvme"):
            raise ValueError("parameters, and anything to NVMe, are offloaded only with ZeRO-3")
        _require_groups(self.world_size, self.tensor_parallel)

    @property
    def data_parallel(self) -> int:
        """Ranks that read different samples, and that ZeRO divides among."""
        return self.world_size // self.tensor_parallel

    @property
    def overlaps(self) -> bool:
        """``overlap_comm`` with its default, which depends on the stage (deepspeed/runtime/zero/config.py)."""
        return self.stage == 3 if self.overlap_comm is None else self.overlap_comm


@dataclass(frozen=True)
class TorchOptions:
    """Training without DeepSpeed: one process, DDP, FSDP 1 or FSDP 2.

    ``precision`` is that of the computation. ``master``: whether parameters and moments are kept in fp32 (what
    accelerate and the Trainer do with mixed precision) or in the dtype of the computation (a model loaded in bf16 and
    trained so). ``reshard_after_forward`` false is SHARD_GRAD_OP / ZeRO-2 of FSDP; ``hybrid`` shards over
    ``shard_ranks`` of ``world_size`` ranks and replicates over the rest. ``tensor_parallel`` ranks share each layer of
    a model that transformers has split, and read the same samples.
    """

    kind: Literal["single", "ddp", "fsdp1", "fsdp2"]
    world_size: int
    precision: Precision = "bf16"
    master: bool = True
    optimizer: OptimizerName = "adamw"
    gradient_accumulation_steps: int = 1
    reshard_after_forward: bool = True
    shard_ranks: int | None = None
    cpu_offload: bool = False
    backward_prefetch: Literal["pre", "post", "none"] = "pre"
    forward_prefetch: bool = False
    ddp_bucket_mib: float = 25.0
    gradient_as_bucket_view: bool = False
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise ValueError("a job has at least one rank")
        if self.shard_ranks is not None and self.world_size % self.shard_ranks:
            raise ValueError(f"{self.world_size} ranks cannot be divided into groups of {self.shard_ranks}")
        _require_groups(self.world_size, self.tensor_parallel)
        if self.tensor_parallel > 1 and (self.kind != "single" or self.tensor_parallel != self.world_size):
            raise ValueError("without DeepSpeed a model is split among all ranks or among none")

    @property
    def data_parallel(self) -> int:
        """Ranks that read different samples."""
        return self.world_size // self.tensor_parallel


def _require_groups(ranks: int, group: int) -> None:
    if group < 1 or ranks % group:
        raise ValueError(f"{ranks} ranks cannot be divided into groups of {group} that share each layer")
