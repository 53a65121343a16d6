"""What a smoke-run changes of a run to fit the device at hand, each change in words.

Kept as planned: stage, precision, offload, micro batch, accumulation, clipping, optimizer and scheduler. The
configs are copies; the user's files are not touched.
"""

from __future__ import annotations

import copy
import ctypes.util
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocfg.smoke.shrink import LLAMA, shrink

if TYPE_CHECKING:
    from zerocfg.smoke.device import Device
    from zerocfg.smoke.folder import RunFolder

BYTES_PER_PARAMETER = 20  # weights, gradients and Adam's states in mixed precision, and room for work
CPU_PARAMETERS = 20_000_000  # more than this takes minutes on a processor
CPU_BUCKET = 10_000_000  # elements; DeepSpeed allocates buckets in full, whatever the model needs
SEQUENCE = 32
# What of a recipe shapes the engine; the rest (data, logging, saving, evaluation) has no part in a smoke-run.
ARGUMENTS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "max_grad_norm", "learning_rate", "weight_decay",
    "adam_beta1", "adam_beta2", "adam_epsilon", "optim", "optim_args", "lr_scheduler_type", "lr_scheduler_kwargs",
    "warmup_steps", "max_steps", "bf16", "fp16", "gradient_checkpointing", "gradient_checkpointing_kwargs",
    "activation_checkpointing", "activation_checkpointing_kwargs", "label_smoothing_factor",
    "average_tokens_across_devices", "seed", "ddp_find_unused_parameters", "ddp_bucket_cap_mb",
    "ddp_broadcast_buffers", "ddp_static_graph",
)  # fmt: skip


@dataclass
class Reduced:
    """``model``, ``accelerate``, ``deepspeed``, ``arguments``: what is run; ``plan``: what must be seen then."""

    ranks: int
    model: dict[str, Any]
    accelerate: dict[str, Any] | None
    deepspeed: dict[str, Any] | None
    arguments: dict[str, Any]
    plan: dict[str, Any]
    sequence: int = SEQUENCE
    words: list[str] = field(default_factory=list)


def reduce(run: RunFolder, device: Device, ranks: int, scratch: Path) -> Reduced:
    """The run on ``ranks`` processes of ``device``; temporary NVMe folders go below ``scratch``."""
    plan = dict(run.plan)
    recipe = run.lock.get("recipe") or {}
    arguments = {key: recipe[key] for key in ARGUMENTS if key in recipe}
    reduced = Reduced(ranks, {}, copy.deepcopy(run.accelerate), copy.deepcopy(run.deepspeed), arguments, plan, words=[])
    shrunk = _model(run, reduced, device)
    _world(reduced)
    if reduced.deepspeed is not None:
        _buckets(reduced, device, shrunk)
        _offload(reduced, scratch)
    if device.kind == "cpu":
        _processor_only(reduced)
    if run.handwritten is None:
        _arguments(reduced)
    else:
        run.handwritten.fit(reduced, device)
    reduced.words.append(f"sequence length: {reduced.sequence} tokens of one batch that repeats")
    return reduced


def _model(run: RunFolder, reduced: Reduced, device: Device) -> bool:
    """Put the model in; True when its sizes were cut."""
    model = run.lock.get("model") or {}
    config = model.get("config")
    if not isinstance(config, dict) or not config.get("model_type"):
        reduced.model = dict(LLAMA)
        who = "the files" if run.handwritten is not None else "the build"
        reduced.words.append(f"model: its config is not known to {who}; a Llama of 2 layers stands in")
        return True
    parameters = (model.get("facts") or {}).get("parameters")
    room = device.memory * reduced.ranks // 2 // BYTES_PER_PARAMETER if device.memory else CPU_PARAMETERS
    if device.kind == "cpu":
        room = CPU_PARAMETERS
    if isinstance(parameters, int) and parameters <= room:
        reduced.model = config
        return False
    reduced.model, changes = shrink(config)
    size = f"{parameters:,} parameters" if isinstance(parameters, int) else "a size that is not known"
    reduced.words.append(f"model: {size} is too much here; {', '.join(changes) or 'nothing could be cut'}")
    return True


def _world(reduced: Reduced) -> None:
    planned = reduced.plan.get("num_processes")
    if planned is None:
        reduced.words.append(f"world size: the files do not tell; {reduced.ranks}")
    elif planned != reduced.ranks:
        reduced.words.append(f"world size: {planned} to {reduced.ranks}")
    reduced.plan["num_processes"] = reduced.ranks
    if reduced.accelerate is not None:
        for name in ("main_process_ip", "machine_rank", "gpu_ids"):
            reduced.accelerate.pop(name, None)
        reduced.accelerate.update(num_processes=reduced.ranks, num_machines=1)
    config = reduced.deepspeed
    if config is not None and isinstance(config.get("train_batch_size"), int) and planned != reduced.ranks:
        before = config["train_batch_size"]
        after = _scaled(config, before, planned, reduced)
        if before != after:
            config["train_batch_size"] = after
            reduced.words.append(f"train_batch_size: {before} to {after}, with the world size")
    zero = _zero(config)
    split = zero.get("zero_hpz_partition_size")
    if isinstance(split, int) and split > reduced.ranks:
        zero["zero_hpz_partition_size"] = reduced.ranks
        reduced.words.append(f"zero_hpz_partition_size: {split} to {reduced.ranks}, with the world size")


def _scaled(config: dict[str, Any], before: int, planned: Any, reduced: Reduced) -> int:
    """The samples of a step on fewer ranks. One that did not fit the other sizes does not fit them then."""
    if not isinstance(planned, int) or planned < 1:
        return before
    after = before * reduced.ranks / planned
    if after.is_integer():
        return int(after)
    sizes = [config.get("train_micro_batch_size_per_gpu"), config.get("gradient_accumulation_steps", 1)]
    fitting = math.prod(size for size in sizes if isinstance(size, int)) * reduced.ranks
    return math.ceil(after) if math.floor(after) == fitting else max(1, math.floor(after))


def _buckets(reduced: Reduced, device: Device, shrunk: bool) -> None:
    """Sizes that only make sense beside the model as it is."""
    zero = _zero(reduced.deepspeed)
    if zero.get("stage") == 3 and shrunk:
        name = "stage3_param_persistence_threshold"
        before, after = zero.get(name, 100_000), 64
        if isinstance(before, int) and before > after:
            zero[name] = after
            reduced.words.append(f"{name}: {before} to {after} elements, so that the small model is partitioned")
    if device.kind != "cpu":
        return
    names = ("reduce_bucket_size",) if zero.get("stage") == 3 else ("reduce_bucket_size", "allgather_bucket_size")
    for name in names:
        before = zero.get(name, 500_000_000)
        if zero and isinstance(before, (int, float)) and before > CPU_BUCKET:
            zero[name] = CPU_BUCKET
            reduced.words.append(f"{name}: {before:.0f} to {CPU_BUCKET} elements, allocated in full")


def _offload(reduced: Reduced, scratch: Path) -> None:
    zero = _zero(reduced.deepspeed)
    for name in ("offload_optimizer", "offload_param"):
        section = zero.get(name)
        if not isinstance(section, dict) or section.get("device") != "nvme":
            continue
        if ctypes.util.find_library("aio") is None:
            section["device"] = "cpu"
            section.pop("nvme_path", None)
            reduced.plan[f"zero_optimization.{name}.device"] = "cpu"
            reduced.words.append(f"{name}: nvme to cpu, because libaio, which NVMe offload needs, is not installed")
        elif not Path(str(section.get("nvme_path") or "")).is_dir():
            folder = scratch / "nvme"
            folder.mkdir(exist_ok=True)
            reduced.words.append(f"{name}.nvme_path: {section.get('nvme_path')} is not here; a temporary folder")
            section["nvme_path"] = str(folder)


def _processor_only(reduced: Reduced) -> None:
    """What libraries refuse to do on a processor."""
    optim = reduced.arguments.get("optim")
    if isinstance(optim, str) and any(word in optim for word in ("8bit", "paged", "bnb", "apex", "npu")):
        del reduced.arguments["optim"]
        reduced.words.append(f"optim: {optim} to the default, because it needs a card")
    if not reduced.plan.get("fp16.enabled") or reduced.deepspeed is None:
        return
    reduced.words.append("precision: fp16 to bf16, because DeepSpeed refuses fp16 on a processor")
    reduced.plan.update({"fp16.enabled": False, "bf16.enabled": True})
    reduced.deepspeed.pop("fp16", None)
    reduced.deepspeed["bf16"] = {"enabled": True}
    reduced.arguments.update(fp16=False, bf16=True)
    if reduced.accelerate is not None and reduced.accelerate.get("mixed_precision") == "fp16":
        reduced.accelerate["mixed_precision"] = "bf16"


def _arguments(reduced: Reduced) -> None:
    """TrainingArguments must say what the plan says, or the libraries refuse the pair."""
    plan, arguments = reduced.plan, reduced.arguments
    names = {
        "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "gradient_clipping": "max_grad_norm",
        "bf16.enabled": "bf16",
        "fp16.enabled": "fp16",
    }
    for key, name in names.items():
        if plan.get(key) is not None:
            arguments.setdefault(name, plan[key])
    if reduced.deepspeed is None:
        return
    scheduler = reduced.deepspeed.get("scheduler")
    total = (scheduler.get("params") or {}).get("total_num_steps") if isinstance(scheduler, dict) else None
    if isinstance(total, int) and arguments.get("max_steps", -1) <= 0:
        arguments["max_steps"] = total


def _zero(config: dict[str, Any] | None) -> dict[str, Any]:
    """The ZeRO section of a DeepSpeed config; an empty one of its own when there is none."""
    zero = (config or {}).get("zero_optimization")
    return zero if isinstance(zero, dict) else {}
