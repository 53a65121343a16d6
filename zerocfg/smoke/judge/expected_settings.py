"""The expected settings of a launch, the single source for all checks: those of the lockfile, as reduced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from zerocfg.catalog.counterparts import settings
from zerocfg.run.stages.arguments import mapping_of
from zerocfg.smoke.worker.report_schema import REFERENCE
from zerocfg.smoke.worker.values import flat, whole

if TYPE_CHECKING:
    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.folder import RunFolder

ZERO = "zero_optimization."
WRAPPED = "fsdp_config.fsdp_transformer_layer_cls_to_wrap"
LAUNCHER = frozenset({"engine", "num_processes", "num_machines", "mixed_precision"})
"""Settings of the launcher, covered by the rows of engine, world size and precision."""

# TrainingArguments that an engine or an optimizer answers by another name. The others have the same name there.
ANSWERED = ("learning_rate", "weight_decay", "adam_epsilon")
OF_DDP = ("ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_broadcast_buffers", "ddp_static_graph")
WITHOUT_TOTAL = ("constant", "constant_with_warmup", "inverse_sqrt")
"""Schedules that do not depend on the total number of steps."""
BETAS = ("adam_beta1", "adam_beta2")
TRAINERS = ("transformers", "trl")
# What a key of the optimizer's section does to its class, not to its groups.
CLASS_ONLY = ("torch_adam", "adam_w_mode")
CLASSES = {"adamw_torch": "AdamW", "adamw_torch_fused": "AdamW", "adafactor": "Adafactor", "sgd": "SGD",
           "adagrad": "Adagrad", "rmsprop": "RMSprop"}  # fmt: skip
"""Class of the optimizer that the Trainer makes, by its argument ``optim``."""


def expected(run: RunFolder, reduced: Reduced) -> dict[str, object]:
    """Planned values by name, of this launch: as the lock has them, but for what was reduced."""
    planned = {name: setting.value for name, setting in run.lock.settings.items()}
    before, after = flat(run.deepspeed or {}), flat(reduced.deepspeed or {})
    for name in before.keys() - after.keys():
        planned.pop(name, None)
    planned.update({name: item for name, item in after.items() if name not in before or before[name] != item})
    planned.update(reduced.plan)
    for name in ("fp16", "bf16"):
        if not planned.get(f"{name}.enabled"):  # nothing else of the section acts
            for key in [key for key in planned if key.startswith(f"{name}.") and key != f"{name}.enabled"]:
                del planned[key]
    micro = planned.get("train_micro_batch_size_per_gpu")
    if isinstance(micro, int):
        planned["train_batch_size"] = micro * whole(planned.get("gradient_accumulation_steps"), 1) * reduced.ranks
    if reduced.ranks == 1 and "fsdp_config.fsdp_sharding_strategy" in planned:
        planned["fsdp_config.fsdp_sharding_strategy"] = "NO_SHARD"  # torch makes that of all others on one rank
    classes = planned.pop(WRAPPED, None)
    if classes:  # None: accelerate asks the model
        planned[WRAPPED] = ",".join(sorted(part.strip() for part in str(classes).split(",")))
    _offload(planned)
    for name in CLASS_ONLY:
        planned.pop(f"optimizer.params.{name}", None)
    if run.consumer in TRAINERS:
        _arguments(planned, reduced.arguments)
    if reduced.trainer is not None:
        planned.update(_of_trainer(reduced))
    return {name: item for name, item in planned.items() if name not in LAUNCHER}


def _of_trainer(reduced: Reduced) -> dict[str, object]:
    """The arguments that only TRL's trainer has, as it keeps them, and whether it loads a reference model."""
    found = {name: reduced.arguments[name] for name in reduced.own if reduced.arguments[name] is not None}
    if isinstance(found.get("scale_rewards"), bool):
        found["scale_rewards"] = "group" if found["scale_rewards"] else "none"
    if reduced.trainer == "DPOTrainer":
        if isinstance(found.get("loss_type"), str):
            found["loss_type"] = [found["loss_type"]]
        return found | {REFERENCE: "loaded"}
    return found | {REFERENCE: "loaded" if found.get("beta") else "none"}


def _offload(planned: dict[str, object]) -> None:
    for name in ("offload_optimizer", "offload_param"):
        if (planned.get(f"{ZERO}{name}.device") or "none") == "none":
            for key in [key for key in planned if key.startswith(f"{ZERO}{name}.") and not key.endswith(".device")]:
                del planned[key]
        elif planned[f"{ZERO}{name}.device"] != "nvme":
            planned.pop(f"{ZERO}{name}.nvme_path", None)
    # Offload works on one buffer of gradients, whatever the config says (rule contiguous-gradients-forced).
    if planned.get(f"{ZERO}stage") in (1, 2) and planned.get(f"{ZERO}offload_optimizer.device") in ("cpu", "nvme"):
        planned[f"{ZERO}contiguous_gradients"] = True


def _arguments(planned: dict[str, object], arguments: dict[str, object]) -> None:
    """Settings that the Trainer derives from its arguments, where the DeepSpeed config does not state them."""
    if "optimizer.type" not in planned:
        for argument in ANSWERED:
            if arguments.get(argument) is not None:
                planned[settings("training-arguments")[argument]] = arguments[argument]
        if any(arguments.get(name) is not None for name in BETAS):
            planned["optimizer.params.betas"] = [
                arguments.get(name, default) for name, default in zip(BETAS, (0.9, 0.999), strict=True)
            ]
    names = ("gradient_checkpointing", *(OF_DDP if planned.get("engine") == "ddp" else ()))
    planned.update({name: arguments[name] for name in names if arguments.get(name) is not None})
    if "scheduler.type" not in planned:
        _schedule(planned, arguments)


def _schedule(planned: dict[str, object], arguments: dict[str, object]) -> None:
    kind = str(arguments.get("lr_scheduler_type") or "linear")
    total, warmup = arguments.get("max_steps"), arguments.get("warmup_steps")
    planned["lr_scheduler_type"] = kind
    steps = total if isinstance(total, int) and total > 0 else None
    if steps and kind not in WITHOUT_TOTAL:
        planned["max_steps"] = steps
    planned.update(_parameters(arguments))
    if kind != "constant" and isinstance(warmup, (int, float)) and not isinstance(warmup, bool):
        if warmup >= 1:
            planned["warmup_steps"] = int(warmup)
        elif steps:  # a share of them
            planned["warmup_steps"] = math.ceil(steps * warmup)


def _parameters(arguments: dict[str, object]) -> dict[str, object]:
    """`lr_scheduler_kwargs` as the schedule keeps them: a smallest rate as a share of the learning rate."""
    given = mapping_of(arguments.get("lr_scheduler_kwargs")) or {}
    rate, least = arguments.get("learning_rate"), given.pop("min_lr", None)
    if isinstance(rate, (int, float)) and isinstance(least, (int, float)) and rate:
        given["min_lr_rate"] = least / rate
    return {f"lr_scheduler_kwargs.{name}": value for name, value in given.items()}


def optimizer_class(planned: dict[str, object], run: RunFolder, reduced: Reduced) -> str | None:
    """Class of the optimizer; None where the plan does not determine it (a script's own optimizer)."""
    if any(name.startswith(f"{ZERO}zenflow") and value is not None for name, value in planned.items()):
        # ZenFlow has optimizers of its own (runtime/engine.py).
        return None
    on_host = planned.get(f"{ZERO}offload_optimizer.device") in ("cpu", "nvme")
    section = (reduced.deepspeed or {}).get("optimizer")
    if isinstance(section, dict) and section.get("type"):
        kind, params = str(section["type"]).lower(), section.get("params") or {}
        if kind not in ("adam", "adamw"):
            return None
        if params.get("torch_adam"):
            return "AdamW" if kind == "adamw" or params.get("adam_w_mode", True) else "Adam"
        return "DeepSpeedCPUAdam" if on_host else "FusedAdam"
    if run.consumer not in TRAINERS:
        return None
    name = CLASSES.get(str(reduced.arguments.get("optim") or "adamw_torch"))
    # accelerate takes DeepSpeed's own for the host (utils/deepspeed.py, map_pytorch_optim_to_deepspeed).
    forced = on_host and planned.get("zero_force_ds_cpu_optimizer", True)
    return "DeepSpeedCPUAdam" if forced and name == "AdamW" else name
