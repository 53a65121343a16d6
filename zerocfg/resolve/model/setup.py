"""What decides the memory and the time of a run, read off its resolved settings: the engine's options and the workload.

Nothing is guessed silently: what no file says is assumed as its reader would, and listed in ``assumed``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from zerocfg.budgets import LARGEST_NUMBER
from zerocfg.catalog.versions import bounds, release
from zerocfg.memory.activations.tracing import Adapters
from zerocfg.memory.lora import Quantisation
from zerocfg.memory.options import (
    Attention,
    Images,
    OptimizerName,
    Options,
    Precision,
    Rollouts,
    TorchOptions,
    Workload,
)
from zerocfg.models.towers import Tower
from zerocfg.models.vision import Vision
from zerocfg.resolve.model import grpo, trainer_defaults
from zerocfg.resolve.model.reader import Reader, is_size
from zerocfg.resolve.model.sharing import (
    parts_of_sequence,
    require_whole,
    shard_ranks,
    split_by_deepspeed,
    split_by_transformers,
)
from zerocfg.resolve.model.trl_trainer import GRPO, SFT, trainer_of, trainer_of_arguments

if TYPE_CHECKING:
    from zerocfg.memory.time.flops import Kernels
    from zerocfg.models.spec import RunSpec
    from zerocfg.run.model import Run

ZERO = "zero_optimization."
FSDP = "fsdp_config."
PREFETCH: dict[str, Literal["pre", "post"]] = {"BACKWARD_PRE": "pre", "BACKWARD_POST": "post"}

# The option and the key of DeepSpeed's config that sets it (below zero_optimization); sizes count elements.
SIZES = {
    "reduce_bucket_size": "reduce_bucket_size",
    "allgather_bucket_size": "allgather_bucket_size",
    "prefetch_bucket_size": "stage3_prefetch_bucket_size",
    "param_persistence_threshold": "stage3_param_persistence_threshold",
    "max_live_parameters": "stage3_max_live_parameters",
    "max_reuse_distance": "stage3_max_reuse_distance",
    "sub_group_size": "sub_group_size",
    "secondary_partition_size": "zero_hpz_partition_size",
    "nvme_optimizer_buffers": "offload_optimizer.buffer_count",
    "nvme_param_buffers": "offload_param.buffer_count",
    "nvme_param_buffer_size": "offload_param.buffer_size",
    "nvme_max_in_cpu": "offload_param.max_in_cpu",
}
SWITCHES = {
    "overlap_comm": "overlap_comm",
    "contiguous_gradients": "contiguous_gradients",
    "pin_optimizer": "offload_optimizer.pin_memory",
    "pin_param": "offload_param.pin_memory",
    "gather_on_save": "stage3_gather_16bit_weights_on_model_save",
}
# `optim` of TrainingArguments, and the types of DeepSpeed's own optimizers, as this model knows them.
OPTIMIZERS: dict[str, OptimizerName] = {
    "adamw_torch": "adamw_foreach",
    "adamw_torch_fused": "adamw_fused",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "paged_adamw_8bit": "adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "lion_32bit": "lion",
    "adam": "fused_adam",
    "adamw": "fused_adam",
    "lion": "lion",
}
CHECKPOINTING = ("activation_checkpointing", "gradient_checkpointing")
"""Names of one argument; transformers takes the newer one where both are written."""
DTYPES = {"float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16"}
HALVES: dict[Precision, str] = {"bf16": "bfloat16", "fp16": "float16"}
BITS: tuple[Literal[4, 8], ...] = (4, 8)


@dataclass(frozen=True, slots=True)
class Setup:
    """``workload`` None: the activations of this run are not known, and ``unknown`` says why.

    ``lora``: adapters are trained instead of the model; ``quantised``: how the model is then kept, where not in the
    dtype of the computation. ``rollouts``: how it samples what it is trained on. ``kernels``: what computes.
    """

    options: Options | TorchOptions
    workload: Workload | None
    precision: Precision
    assumed: tuple[str, ...] = ()
    unknown: str = ""
    lora: Adapters | None = None
    quantised: Quantisation | None = None
    rollouts: Rollouts | None = None
    kernels: Kernels = "eager"


def arguments_written(run: Run) -> dict[str, Any]:
    """The trainer's arguments: the recipe's, and over them those of the command line and zerocfg's own choices."""
    recipe = run.recipe.data() if run.recipe else None
    written = {name: setting.value for name, setting in run.arguments.items()}
    return {**(recipe if isinstance(recipe, dict) else {}), **written}


def setup_of(
    value: Callable[[str], Any],
    recipe: Mapping[str, Any],
    spec: RunSpec,
    world_size: int,
    model_dtype: str | None = None,
    versions: Mapping[str, str] | None = None,
    trainer: str | None = None,
    vision: Vision | Tower | None = None,
) -> Setup:
    """The options of a run from ``value`` (effective settings by dotted name, None where there is none).

    ``recipe`` holds the trainer's arguments as they are written, ``model_dtype`` the dtype of the model's config.json,
    ``versions`` the releases that the run admits, by library, ``trainer`` the class of TRL that trains, where one is
    known (:func:`.trl_trainer.trainer_of`), ``vision`` the model's vision part.
    Raises ValueError with one line for an engine that cannot be built so.
    """
    read = Reader(value, recipe, spec, versions or {})
    if spec.consumer == "trl":
        # TRL's ModelConfig loads the model in the dtype that it is given, whatever config.json says.
        model_dtype = DTYPES.get(str(read.argument("dtype") or read.argument("torch_dtype")), model_dtype)
    precision = _precision(read)
    if value("engine") == "deepspeed":
        options: Options | TorchOptions = _deepspeed(read, world_size, precision)
        autocast = False
    elif value("engine") == "fsdp":
        options, precision = _fsdp(read, world_size, precision, model_dtype)
        autocast = False  # what is gathered has 16 bits already
    else:
        half, shared = model_dtype in ("bfloat16", "float16"), split_by_transformers(read, world_size)
        if precision != "fp32" and model_dtype is None:
            read.assumed.append("parameters are loaded in fp32 (the model's config.json names no dtype)")
        options = TorchOptions(
            "single" if world_size == 1 or shared > 1 else "ddp",
            world_size,
            precision,
            master=not half,
            optimizer=_optimizer(read),
            gradient_accumulation_steps=read.count("gradient_accumulation_steps", 1),
            ddp_bucket_mib=_bucket(read),
            tensor_parallel=shared,
        )
        autocast = precision != "fp32" and not half
    trains = trainer or trainer_of_arguments(recipe) if spec.consumer == "trl" else None
    require_whole(read, options, trains)
    workload, unknown = _workload(read, autocast, trains, vision)
    if workload is not None and read.assumed:
        workload = replace(workload, assumed=True)
    lora = _lora(read, precision)
    quantised = _quantised(read, options, precision, model_dtype)
    rollouts = grpo.rollouts(read, model_dtype, lora is not None) if trains == GRPO else None
    return Setup(options, workload, precision, tuple(read.assumed), unknown, lora, quantised, rollouts, _kernels(read))


def setup_of_run(
    run: Run, value: Callable[[str], Any], spec: RunSpec, world_size: int, recipe: Mapping[str, Any] | None = None
) -> Setup:
    """:func:`setup_of` with what the run says; ``recipe`` where the trainer's arguments are others than its own."""
    written = arguments_written(run) if recipe is None else recipe
    stated = written.get("dtype") or written.get("torch_dtype")
    dtype = run.model.dtype if run.model else None
    if not stated and trainer_defaults.loads_in_fp32(run):
        dtype = "float32"
    known = run.model.vision if run.model else None
    vision = known if isinstance(known, (Vision, Tower)) else None
    return setup_of(value, written, spec, world_size, dtype, run.versions, trainer_of(run, written), vision)


def _lora(read: Reader, precision: Precision) -> Adapters | None:
    """Adapters as TRL's ModelConfig asks for them (trl 1.16, trainer/model_config.py)."""
    if read.spec.consumer != "trl" or not read.flag("use_peft", False):
        return None
    rank, targets, dropout = (read.argument(f"lora_{name}") for name in ("r", "target_modules", "dropout"))
    names = (targets,) if isinstance(targets, str) else tuple(map(str, targets)) if isinstance(targets, list) else ()
    return Adapters(
        rank if is_size(rank) else 16,
        names,
        dropout if isinstance(dropout, (int, float)) and 0 <= dropout < 1 else 0.05,
        precision,
    )


def _quantised(
    read: Reader, options: Options | TorchOptions, precision: Precision, model_dtype: str | None
) -> Quantisation | None:
    """The base model as TRL has bitsandbytes load it (trl 1.16, trainer/utils.py: get_quantization_config), which casts
    the adapters to bf16 then. Raises ValueError with one line for what is not modelled."""
    bits = next((bits for bits in BITS if read.flag(f"load_in_{bits}bit", False)), None)
    if read.spec.consumer != "trl" or bits is None:
        return None
    said = f"the base model is quantised (load_in_{bits}bit), which is modelled"
    if not read.flag("use_peft", False):
        raise ValueError(f"{said} with adapters only (use_peft)")
    if not isinstance(options, TorchOptions) or options.kind not in ("single", "ddp"):
        raise ValueError(f"{said} in one process and under DDP only")
    named = read.argument("dtype") or read.argument("torch_dtype")
    dtype = model_dtype if named == "auto" else DTYPES.get(str(named), "float32")  # that of TRL's ModelConfig
    if dtype != HALVES.get(precision):
        raise ValueError(
            f"{said} where it is loaded in the 16 bit that it computes in, and `dtype` is {dtype} beside {precision}"
        )
    return Quantisation(bits, bits == 4 and read.flag("use_bnb_nested_quant", False))


def _kernels(read: Reader) -> Kernels:
    """The Trainer compiles where it is told to, or told how (TrainingArguments.__post_init__)."""
    compiles = read.flag("torch_compile", False) or read.argument("torch_compile_mode") is not None
    return "compiled" if compiles and read.spec.consumer in ("transformers", "trl") else "eager"


def _precision(read: Reader) -> Precision:
    if read.setting("bf16.enabled") is True or read.setting("mixed_precision") == "bf16":
        return "bf16"
    if read.setting("fp16.enabled") is True or read.setting("mixed_precision") == "fp16":
        return "fp16"
    return "fp32"


def _deepspeed(read: Reader, world_size: int, precision: Precision) -> Options:
    given: dict[str, Any] = {}
    for name, key in SIZES.items():
        value = read.setting(ZERO + key)
        if is_size(value):
            given[name] = value
    for name, key in SWITCHES.items():
        value = read.setting(ZERO + key)
        if isinstance(value, bool):
            given[name] = value
    for part in ("offload_optimizer", "offload_param"):
        device = read.setting(f"{ZERO}{part}.device")
        given[part] = device if device in ("cpu", "nvme") else "none"
    cap = read.setting(ZERO + "stage3_model_persistence_threshold")
    if is_size(cap):
        given["model_persistence_threshold"] = cap
    accumulation = read.setting("data_types.grad_accum_dtype")
    if accumulation in get_args(Precision):
        given["accumulation"] = accumulation
    ratio = read.setting(ZERO + "offload_optimizer.ratio")
    if isinstance(ratio, (int, float)) and not isinstance(ratio, bool) and 0 <= ratio <= 1:
        given["offload_ratio"] = float(ratio)
    stage = read.setting(ZERO + "stage")
    return Options(
        stage if isinstance(stage, int) else 0,
        world_size,
        precision,
        optimizer=_optimizer(read),
        gradient_accumulation_steps=read.count("gradient_accumulation_steps", 1),
        tensor_parallel=split_by_deepspeed(read),
        early_bucket=_allocates_early_bucket(read),
        **given,
    )


_BUCKET_IN_HOOK = release("0.18.3")
"""stage_1_and_2.py: process_gradients calls setup_buckets; 0.18.2 and before allocate in `backward` or its prologue."""


def _allocates_early_bucket(read: Reader) -> bool:
    """Whether a supported release of DeepSpeed allocates the reduce bucket before backward begins."""
    limits = bounds(read.versions.get("deepspeed") or "")
    return limits is not None and limits[0] < _BUCKET_IN_HOOK


def _fsdp(
    read: Reader, world_size: int, precision: Precision, model_dtype: str | None
) -> tuple[TorchOptions, Precision]:
    """FSDP by accelerate, and the precision that it computes in.

    With mixed precision accelerate makes the trained parameters fp32, in whatever dtype they were loaded; without it
    they stay as they are, and so do the computation and the optimizer.
    """
    mixed = precision != "fp32"
    if not mixed and model_dtype in ("bfloat16", "float16"):
        precision = "bf16" if model_dtype == "bfloat16" else "fp16"
    first = read.setting(FSDP + "fsdp_version") == 1
    strategy = read.setting(FSDP + "fsdp_sharding_strategy")
    policy = read.setting(FSDP + "fsdp_auto_wrap_policy")
    if policy == "NO_WRAP":
        raise ValueError("FSDP without a wrap policy gathers the whole model at once, which is not modelled")
    offload = read.setting(FSDP + "fsdp_offload_params") is True
    prefetch = read.setting(FSDP + "fsdp_backward_prefetch")
    return TorchOptions(
        "fsdp1" if first else "fsdp2",
        world_size,
        precision,
        master=mixed or precision == "fp32",
        optimizer=_optimizer(read),
        gradient_accumulation_steps=read.count("gradient_accumulation_steps", 1),
        reshard_after_forward=strategy not in ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2")
        if first
        else read.setting(FSDP + "fsdp_reshard_after_forward") is not False,
        shard_ranks=shard_ranks(read, world_size, strategy),
        cpu_offload=offload,
        backward_prefetch=PREFETCH.get(str(prefetch), "none") if first else "pre",
        forward_prefetch=read.setting(FSDP + "fsdp_forward_prefetch") is True,
    ), precision


def _bucket(read: Reader) -> float:
    """MiB of a bucket of DDP."""
    given = read.argument("ddp_bucket_cap_mb")
    return (
        float(given) if isinstance(given, (int, float)) and 0 < given < LARGEST_NUMBER else TorchOptions.ddp_bucket_mib
    )


def _optimizer(read: Reader) -> OptimizerName:
    named = read.setting("optimizer.type")
    if named is None:
        named = read.argument("optim")
    if named is None and read.spec.consumer in ("transformers", "trl"):
        return trainer_defaults.optimizer(read.versions)
    if named is None:
        read.assumed.append("the optimizer of the script is counted as torch's AdamW")
    if not isinstance(named, str):
        return "adamw"
    if read.setting("optimizer.params.torch_adam") is True and named.lower() in ("adam", "adamw"):
        return "adamw_foreach"
    if read.setting("optimizer.params.momentum") and named.lower() == "sgd":
        return "sgd_momentum"
    return OPTIMIZERS.get(named.lower(), "adamw")


def _checkpointing(read: Reader) -> bool:
    """Whether activations are computed again: by the recipe, else by the spec; FSDP does it by itself."""
    spec = read.spec
    trains = spec.consumer in ("transformers", "trl")
    switch = next((name for name in CHECKPOINTING if read.argument(name) is not None), CHECKPOINTING[-1])
    default = trainer_defaults.recomputes(spec.consumer, read.versions)
    checkpointing = read.flag(switch, default) if trains else None
    if spec.gradient_checkpointing is not None and not (trains and switch in read.recipe):
        checkpointing = spec.gradient_checkpointing
    if read.setting(FSDP + "fsdp_activation_checkpointing") is True:
        checkpointing = True
    if checkpointing is None:
        read.assumed.append("no gradient checkpointing (the script decides; say `gradient_checkpointing:` in the spec)")
    return bool(checkpointing)


def _workload(
    read: Reader, autocast: bool, trainer: str | None, vision: Vision | Tower | None
) -> tuple[Workload | None, str]:
    spec = read.spec
    micro = read.count("train_micro_batch_size_per_gpu", 0)
    if not micro:
        return None, "nothing says how large the micro batch is"
    if trainer not in (None, SFT, GRPO):
        return None, f"only supervised fine-tuning and GRPO are modelled, and {trainer} of TRL trains"
    sequence = spec.sequence_length
    completion = grpo.completion(read) if trainer == GRPO else None
    if completion is not None:
        lacking = grpo.lacking(read, completion, autocast=autocast, sees=vision is not None)
        if lacking:
            return None, lacking
    elif sequence is None and spec.consumer == "trl":
        length = read.argument("max_length" if "max_length" in read.recipe else "max_seq_length")
        sequence = length if is_size(length) else 1024
        if not isinstance(length, int):
            read.assumed.append("sequences of 1024 tokens, the default of SFTConfig's max_length")
    if sequence is not None and not is_size(sequence):
        return None, "no machine could hold sequences that long"
    if sequence is None:
        return None, "nothing says how long the sequences are; add `sequence_length:` to the run in the spec"
    if vision is not None and spec.images is None:
        return None, (
            "nothing says how many images a sample has, and how large; add `images: {per_sample: 1, pixels: 1003520}` "
            "to the run in the spec"
        )
    images = None
    if spec.images is not None and spec.images.per_sample and isinstance(vision, Tower):
        return None, (
            f"what images take in the tower of {vision.name} is not modelled; `images: {{per_sample: 0}}` of the run "
            "in the spec plans text alone"
        )
    if spec.images is not None and isinstance(vision, Vision):
        images = Images(vision, spec.images.per_sample, spec.images.pixels)
    checkpointing = _checkpointing(read)
    attention = read.argument("attn_implementation") or spec.attention or "sdpa"
    known: Attention = attention if attention in get_args(Attention) else "sdpa"
    if known != attention:
        read.assumed.append(f"attention {attention} is counted as sdpa")
    smoothed = bool(read.argument("label_smoothing_factor"))
    pieces = spec.consumer == "trl" and trainer_defaults.loss_in_pieces(
        read.argument("loss_type"), smoothed, read.versions
    )
    fused = read.flag("use_liger_kernel", bool(spec.fused_loss)) or pieces or completion is not None
    sequence = -(-sequence // parts_of_sequence(read))
    return Workload(micro, sequence, checkpointing, known, fused, autocast, images, completion), ""
