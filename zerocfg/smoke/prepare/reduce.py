"""What a smoke-run changes of a run to fit the device at hand.

Kept as planned: stage, precision, offload, micro batch, accumulation, clipping, optimizer and scheduler. The
configs are copies; the user's files are not touched.
"""

from __future__ import annotations

import copy
import ctypes.util
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.catalog.counterparts import paths
from zerocfg.models.model_facts import from_config
from zerocfg.smoke.model.reduction import SEQUENCE, Kind, Reduced, Reduction
from zerocfg.smoke.model.size import Room, Size, Work
from zerocfg.smoke.prepare import memory_files, trl_trainers
from zerocfg.smoke.prepare.fit import SEQUENCE as ASSUMED
from zerocfg.smoke.prepare.fit import TRL_CHECKPOINTS, fit_of, most_layers, room_here, sequence_of, spec_of
from zerocfg.smoke.prepare.shrink import LAYERS, LLAMA, fewer_layers, layers_of, least_layers, shrink

if TYPE_CHECKING:
    from collections.abc import Collection

    from zerocfg.smoke.prepare.device import Device
    from zerocfg.smoke.prepare.folder import RunFolder
    from zerocfg.smoke.prepare.nodes import Nodes

BYTES_PER_PARAMETER = 20  # weights, gradients and Adam's states in mixed precision, and room for work
CPU_PARAMETERS = 20_000_000  # more than this takes minutes on a processor
CPU_BUCKET = 10_000_000  # elements; DeepSpeed allocates buckets in full, whatever the model needs
# What of a recipe shapes the engine; the rest (data, logging, saving, evaluation) has no part in a smoke-run.
ARGUMENTS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "max_grad_norm", "learning_rate", "weight_decay",
    "adam_beta1", "adam_beta2", "adam_epsilon", "optim", "optim_args", "lr_scheduler_type", "lr_scheduler_kwargs",
    "warmup_steps", "max_steps", "bf16", "fp16", "gradient_checkpointing", "gradient_checkpointing_kwargs",
    "activation_checkpointing", "activation_checkpointing_kwargs", "label_smoothing_factor",
    "average_tokens_across_devices", "seed", "ddp_find_unused_parameters", "ddp_bucket_cap_mb",
    "ddp_broadcast_buffers", "ddp_static_graph",
)  # fmt: skip
_OF_BOTH = (
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "bf16.enabled",
    "fp16.enabled",
)
"""Settings that the engine's config and the arguments of the Trainer have to say alike."""


PARTS = ("train", "resume", "reference")
"""All that is done with a model, where the caller does not say it."""
UNSAVED = "unsaved"
"""Among the parts: memory and throughput are measured, and nothing is saved."""


def reduce(
    run: RunFolder,
    device: Device,
    ranks: int,
    scratch: Path,
    limit: float = 300,
    nodes: Nodes | None = None,
    parts: Collection[str] = PARTS,
) -> Reduced:
    """The run on ``ranks`` processes of ``device`` within ``limit`` seconds; temporary NVMe folders below ``scratch``.

    ``parts``: what is done (`zerocfg.smoke.smoke.Options`), by which the seconds are reckoned.
    On a card the model keeps its widths and loses layers as far as memory and time ask for it; a processor, where
    minutes matter, gets a small one of the same kind.
    """
    plan = dict(run.plan)
    recipe = run.lock.recipe
    arguments = {key: recipe[key] for key in ARGUMENTS if key in recipe}
    reduced = Reduced(ranks, {}, copy.deepcopy(run.accelerate), copy.deepcopy(run.deepspeed), arguments, plan)
    if UNSAVED in parts:
        reduced.changes.append(Reduction(Kind.SAVING, why="left out: memory and throughput are measured"))
    _checkpointing(run, arguments)
    _trainer(run, reduced)
    _world(reduced, nodes)
    if reduced.deepspeed is not None:
        _offload(reduced, scratch)
    if run.pinned is not None:
        _take(reduced, run.pinned)
    else:
        _sequence(run, reduced, device)
        _model(run, reduced, device, scratch, limit, parts)
        _copy(reduced, parts)
    if reduced.deepspeed is not None:
        _buckets(reduced, device, reduced.narrow)
    if device.kind == "cpu":
        _processor_only(reduced)
    if reduced.trainer is not None:
        trl_trainers.fit(reduced, run.plan.get("num_processes"), recipe)
    if run.handwritten is None:
        _arguments(reduced)
    else:
        run.handwritten.fit(reduced, device)
    reduced.in_memory = _in_memory(reduced, device, scratch, limit, parts)
    return reduced


def _checkpointing(run: RunFolder, arguments: dict[str, object]) -> None:
    """Recompute activations as in the planned run, also where no recipe states it."""
    if run.consumer == "trl":
        arguments.setdefault("gradient_checkpointing", TRL_CHECKPOINTS)
    elif run.consumer in ("accelerate", "deepspeed") and spec_of(run).gradient_checkpointing:
        arguments.setdefault("gradient_checkpointing", True)


def _trainer(run: RunFolder, reduced: Reduced) -> None:
    """The trainer of TRL that is run, with its own arguments."""
    reduced.trainer, reduced.no_trainer = trl_trainers.choose(run)
    if reduced.trainer is not None:
        own = trl_trainers.own_arguments(reduced.trainer, run.lock.recipe)
        reduced.arguments.update(own)
        reduced.own = tuple(own)


def _take(reduced: Reduced, pinned: Reduced) -> None:
    """Take model and samples of another launch."""
    reduced.model, reduced.sequence = copy.deepcopy(pinned.model), pinned.sequence
    reduced.layers, reduced.narrow, reduced.size = pinned.layers, pinned.narrow, pinned.size
    reduced.changes += [change for change in pinned.changes if change.kind in (Kind.MODEL, Kind.LAYERS, Kind.SEQUENCE)]


def _sequence(run: RunFolder, reduced: Reduced, device: Device) -> None:
    """Samples of the planned length; short ones on a processor."""
    length, _ = sequence_of(run)
    longest = SEQUENCE if device.kind == "cpu" else length or ASSUMED
    if length is None:
        reduced.sequence = min(longest, _positions(run) or longest)
        reduced.changes.append(Reduction(Kind.SEQUENCE, None, reduced.sequence))
        return
    reduced.sequence = min(length, longest)
    if reduced.sequence != length:
        reduced.changes.append(Reduction(Kind.SEQUENCE, length, reduced.sequence))


def _positions(run: RunFolder) -> int | None:
    """The longest sequence that the model takes."""
    longest = (run.lock.model_config or {}).get("max_position_embeddings")
    return longest if isinstance(longest, int) and longest > 0 else None


def _model(
    run: RunFolder, reduced: Reduced, device: Device, scratch: Path, limit: float, parts: Collection[str]
) -> None:
    """Choose the largest model that fits."""
    config, parameters = run.lock.model_config, run.lock.parameters
    if config is None or not config.get("model_type"):
        reduced.model, reduced.narrow = dict(LLAMA), True
        who = "the files" if run.handwritten is not None else "the build"
        why = f"its config is not known to {who}"
        reduced.changes.append(Reduction(Kind.MODEL, None, f"a Llama of {LAYERS} layers", why=why))
        return
    reason = "do not fit here"
    if device.kind == "cpu":
        fits = parameters is not None and parameters <= CPU_PARAMETERS
        reduced.model = config
    else:
        fits, why = _fewer_layers(run, reduced, config, device, room_here(device, reduced.ranks, limit, scratch), parts)
        reason = why or reason
    if fits:
        return
    reduced.model, cuts = shrink(config)
    reduced.layers = _layers(config, reduced.model)
    reduced.narrow = True
    keys = tuple(item.key for item in cuts)
    reduced.changes.append(Reduction(Kind.MODEL, parameters, keys=keys, cuts=tuple(cuts), why=reason))


def _copy(reduced: Reduced, parts: Collection[str]) -> None:
    """A narrow copy of a large model, for the parts that only compare. The layers were chosen for one."""
    work = _work(reduced, parts)
    parameters = reduced.size.parameters if reduced.size is not None else from_config(reduced.model).parameters
    if parameters is not None and work.needs_copy(parameters):
        reduced.copy, _ = shrink(reduced.model)
    if reduced.size is not None:
        copied = reduced.copy is not None
        reduced.size = replace(reduced.size, work=replace(reduced.size.work, copied=copied))


def _fewer_layers(
    run: RunFolder, reduced: Reduced, config: dict[str, object], device: Device, room: Room, parts: Collection[str]
) -> tuple[bool, str]:
    """Put the model in with as many layers as fit, all widths as planned; False, and why, where not even few do."""
    fit = fit_of(
        run, reduced.plan, reduced.ranks, device, reduced.sequence, replace(_work(reduced, parts), copied=True)
    )
    if reduced.trainer is not None:
        # The reference model and its forward pass are no part of the prediction; they take as much again at most.
        room = replace(room, device=room.device // 2 if room.device is not None else None)
    count = layers_of(config)
    if count is None or fit.size(config) is None:
        parameters = run.lock.parameters
        if room.device is None:
            return False, "may not fit: neither their sizes nor the memory of the card are known"
        fits = parameters is not None and parameters * BYTES_PER_PARAMETER <= room.device * reduced.ranks // 2
        if fits:
            reduced.model = config
        return fits, ""
    layers, size, lacking = most_layers(fit, config, room)
    if not layers:
        return False, f"do not fit even with {least_layers(config)} layers ({lacking})"
    reduced.model, reduced.size = config, size
    if lacking:
        reduced.model = fewer_layers(config, layers)
        reduced.layers = _layers(config, reduced.model)
        reduced.changes.append(Reduction(Kind.LAYERS, count, layers, why=lacking))
    return True, ""


def _work(reduced: Reduced, parts: Collection[str]) -> Work:
    """What the launch does with its model. Without saved weights there is no checkpoint (`job_folder.prepare`)."""
    saves = not reduced.has(Kind.SAVING)
    work = Work.of(parts, saves=saves)
    return work if saves else replace(work, resumes=False)


def _in_memory(reduced: Reduced, device: Device, scratch: Path, limit: float, parts: Collection[str]) -> bool:
    """Whether checkpoint and saved weights go into the host's memory: they are worth it, and there is clearly room."""
    size, work = reduced.size, replace(_work(reduced, parts), copied=reduced.copy is not None)
    if size is None:  # a processor, or a model whose tensors are not known
        parameters = from_config(reduced.model).parameters
        if parameters is None:
            return False
        size = Size(parameters, 0, parameters * BYTES_PER_PARAMETER * reduced.ranks)
    size = replace(size, work=replace(work, on_host=size.work.on_host))
    if reduced.nodes > 1 or size.parameters * work.file_bytes < memory_files.LEAST:
        return False
    return size.fits_memory_files(room_here(device, reduced.ranks, limit, scratch))


def _layers(config: dict[str, object], less: dict[str, object]) -> tuple[int, int] | None:
    before, after = layers_of(config), layers_of(less)
    return (before, after) if before and after else None


def _world(reduced: Reduced, nodes: Nodes | None) -> None:
    planned = reduced.plan.get("num_processes")
    if planned != reduced.ranks:
        reduced.changes.append(Reduction(Kind.WORLD_SIZE, planned, reduced.ranks, ("num_processes",)))
    reduced.plan["num_processes"] = reduced.ranks
    if nodes is not None:
        reduced.nodes = nodes.count
        reduced.changes.append(Reduction(Kind.NODES, run=asdict(nodes)))
    if reduced.accelerate is not None:
        for name in ("main_process_ip", "machine_rank", "gpu_ids"):
            reduced.accelerate.pop(name, None)
        reduced.accelerate.update(num_processes=reduced.ranks, num_machines=reduced.nodes)
    config = reduced.deepspeed
    before = config.get("train_batch_size") if config is not None else None
    if config is not None and isinstance(before, int) and planned != reduced.ranks:
        after = _scaled(config, before, planned, reduced)
        if before != after:
            config["train_batch_size"] = after
            reduced.changes.append(Reduction(Kind.TRAIN_BATCH, before, after, ("train_batch_size",)))
    zero = _zero(config)
    split = zero.get("zero_hpz_partition_size")
    if isinstance(split, int) and split > reduced.ranks:
        zero["zero_hpz_partition_size"] = reduced.ranks
        keys = ("zero_optimization.zero_hpz_partition_size",)
        reduced.changes.append(Reduction(Kind.HPZ_PARTITION, split, reduced.ranks, keys))


def _scaled(config: dict[str, object], before: int, planned: object, reduced: Reduced) -> int:
    """The samples of a step on fewer ranks. One that did not fit the other sizes does not fit them then."""
    if not isinstance(planned, int) or planned < 1:
        return before
    after = before * reduced.ranks / planned
    if after.is_integer():
        return int(after)
    sizes = [config.get("train_micro_batch_size_per_gpu"), config.get("gradient_accumulation_steps", 1)]
    fitting = math.prod(size for size in sizes if isinstance(size, int)) * reduced.ranks
    least = math.floor(after)
    return next(size for size in (least, least + 1, least + 2) if size > 0 and size != fitting)


def _buckets(reduced: Reduced, device: Device, shrunk: bool) -> None:
    """Reduce sizes that only make sense for the planned model."""
    zero = _zero(reduced.deepspeed)
    if zero.get("stage") == 3 and shrunk:
        name = Kind.PERSISTENCE.value
        before, after = zero.get(name, 100_000), 64
        if isinstance(before, int) and before > after:
            zero[name] = after
            reduced.changes.append(Reduction(Kind.PERSISTENCE, before, after, (f"zero_optimization.{name}",)))
    if device.kind != "cpu":
        return
    kinds = (Kind.REDUCE_BUCKET,) if zero.get("stage") == 3 else (Kind.REDUCE_BUCKET, Kind.ALLGATHER_BUCKET)
    for kind in kinds:
        name = kind.value
        before = zero.get(name, 500_000_000)
        if zero and isinstance(before, (int, float)) and before > CPU_BUCKET:
            zero[name] = CPU_BUCKET
            keys = (f"zero_optimization.{name}",)
            reduced.changes.append(Reduction(kind, before, CPU_BUCKET, keys))


def _offload(reduced: Reduced, scratch: Path) -> None:
    zero = _zero(reduced.deepspeed)
    for kind, drive in ((Kind.OFFLOAD_OPTIMIZER, Kind.OPTIMIZER_DRIVE), (Kind.OFFLOAD_PARAM, Kind.PARAM_DRIVE)):
        name = kind.value
        section = zero.get(name)
        if not isinstance(section, dict) or section.get("device") != "nvme":
            continue
        path = section.get("nvme_path")
        if path is None and zero.get("stage") == 3:
            continue  # it stops there, wherever it is started
        if ctypes.util.find_library("aio") is None:
            section["device"] = "cpu"
            section.pop("nvme_path", None)
            reduced.plan[f"zero_optimization.{name}.device"] = "cpu"
            reduced.changes.append(Reduction(kind, "nvme", "cpu", (f"zero_optimization.{name}.device",)))
        elif path is not None and not (Path(str(path)).is_absolute() and Path(str(path)).is_dir()):
            folder = scratch / "nvme"
            folder.mkdir(exist_ok=True)
            keys = (f"zero_optimization.{name}.nvme_path",)
            reduced.changes.append(Reduction(drive, path, str(folder), keys))
            section["nvme_path"] = str(folder)


def _fsdp_on_processor(reduced: Reduced) -> None:
    """Nothing is offloaded where host and device are one memory. FSDP 1 sends no weights between ranks on a processor,
    and torch ends with a segmentation fault where it saves."""
    accelerate = reduced.accelerate or {}
    section = accelerate.get("fsdp_config")
    if accelerate.get("distributed_type") != "FSDP" or not isinstance(section, dict):
        return
    if str(section.get("fsdp_offload_params")).lower() == "true":
        section["fsdp_offload_params"] = reduced.plan["fsdp_config.fsdp_offload_params"] = False
        reduced.changes.append(Reduction(Kind.FSDP_OFFLOAD, True, False, ("fsdp_config.fsdp_offload_params",)))
    if str(section.get("fsdp_version", 1)) != "1":
        return
    names = ("fsdp_sync_module_states", "fsdp_cpu_ram_efficient_loading")
    keys = tuple(f"fsdp_config.{name}" for name in names)
    for name, key in zip(names, keys, strict=True):
        section[name] = False
        reduced.plan[key] = False
    reduced.changes.append(Reduction(Kind.FSDP_LOADING, True, False, keys))
    why = "left out: torch ends with a segmentation fault where FSDP 1 saves on a processor"
    if not reduced.has(Kind.SAVING):
        reduced.changes.append(Reduction(Kind.SAVING, why=why))


def _processor_only(reduced: Reduced) -> None:
    """Replace what the libraries refuse to do on a processor."""
    _fsdp_on_processor(reduced)
    optim = reduced.arguments.get("optim")
    if isinstance(optim, str) and any(word in optim for word in ("8bit", "paged", "bnb", "apex", "npu")):
        del reduced.arguments["optim"]
        reduced.changes.append(Reduction(Kind.OPTIM, optim, "the default", ("optim",)))
    if not reduced.plan.get("fp16.enabled") or reduced.deepspeed is None:
        return
    why = "because DeepSpeed refuses fp16 on a processor"
    reduced.changes.append(Reduction(Kind.PRECISION, "fp16", "bf16", ("fp16.enabled", "bf16.enabled"), why=why))
    reduced.plan.update({"fp16.enabled": False, "bf16.enabled": True})
    reduced.deepspeed.pop("fp16", None)
    reduced.deepspeed["bf16"] = {"enabled": True}
    reduced.arguments.update(fp16=False, bf16=True)
    if reduced.accelerate is not None and reduced.accelerate.get("mixed_precision") == "fp16":
        reduced.accelerate["mixed_precision"] = "bf16"


def _arguments(reduced: Reduced) -> None:
    """TrainingArguments must say what the plan says, or the libraries refuse the pair."""
    plan, arguments = reduced.plan, reduced.arguments
    names = paths("training-arguments")
    for setting in _OF_BOTH:
        if plan.get(setting) is not None:
            arguments.setdefault(names[setting][-1], plan[setting])
    if reduced.deepspeed is None:
        return
    scheduler = reduced.deepspeed.get("scheduler")
    total = (scheduler.get("params") or {}).get("total_num_steps") if isinstance(scheduler, dict) else None
    if isinstance(total, int) and not _above_zero(arguments.get("max_steps")):
        arguments["max_steps"] = total


def _above_zero(value: object) -> bool:
    return isinstance(value, (int, float)) and value > 0


def _zero(config: dict[str, object] | None) -> dict[str, object]:
    """The ZeRO section of a DeepSpeed config; an empty one of its own when there is none."""
    zero = (config or {}).get("zero_optimization")
    return zero if isinstance(zero, dict) else {}
