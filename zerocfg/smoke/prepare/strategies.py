"""Training strategies that are compared: the same run under another ZeRO stage, or without DeepSpeed."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.worker.values import mapping

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder

DDP = "ddp"
STRATEGIES = ("0", "1", "2", "3", DDP)
ZERO = "zero_optimization."


def parse(text: str) -> list[str]:
    """The strategies of a text as ``0,1,2,3,ddp``, in this order, each once. Raises SmokeError."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if word not in STRATEGIES]
    if wrong or not words:
        named = f"'{wrong[0]}' is not a strategy" if wrong else "no stage is named"
        raise SmokeError(f"--compare: {named}; it takes {', '.join(STRATEGIES)}, with commas between them")
    return list(dict.fromkeys(words))


def label(strategy: str) -> str:
    """The name of a setup on the screen."""
    return "DDP" if strategy == DDP else f"ZeRO-{strategy}"


def with_strategy(run: RunFolder, strategy: str) -> tuple[RunFolder, list[str]]:
    """The run under another stage, or without DeepSpeed, and the settings that were dropped. The files stay."""
    lock = copy.deepcopy(run.lock)
    accelerate, deepspeed = copy.deepcopy(run.accelerate), copy.deepcopy(run.deepspeed)
    changed = replace(run, lock=lock, accelerate=accelerate, deepspeed=deepspeed, changed={})
    if strategy == DDP:
        return changed, _without_deepspeed(changed)
    words = _stage(changed, int(strategy))
    _agree(changed)
    return changed, words


def _stage(run: RunFolder, stage: int) -> list[str]:
    plan, words = run.plan, []
    if run.deepspeed is None:
        run.deepspeed = _config_of(plan, run)
        plan["engine"] = "deepspeed"
        words.append("DeepSpeed instead of DDP, with its own defaults")
    zero = _section(run.deepspeed, "zero_optimization")
    zero["stage"] = stage
    plan[f"{ZERO}stage"] = stage
    offloads = [("offload_param", 3), ("offload_optimizer", 1)]
    for name, least in offloads:
        section = mapping(zero.get(name))
        device = section.get("device")
        if device in (None, "none"):
            continue
        if stage < least:
            del zero[name]
            plan[f"{ZERO}{name}.device"] = "none"
            words.append(f"{name} ({device}) is dropped: it needs stage {least} at least")
        elif device == "nvme" and stage < 3:
            section["device"] = "cpu"
            section.pop("nvme_path", None)
            plan[f"{ZERO}{name}.device"] = "cpu"
            words.append(f"{name}: nvme to cpu, because drives need stage 3")
    if stage == 3:
        # Else there is nothing to look at in the end; what is measured before that does not change.
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    accelerate = run.accelerate
    if accelerate is not None:
        accelerate["distributed_type"] = "DEEPSPEED"
        section = _section(accelerate, "deepspeed_config")
        section["zero3_init_flag"] = stage == 3
        section.pop("zero_stage", None)
        section["deepspeed_config_file"] = "ds_config.json"
        accelerate.pop("mixed_precision", None)  # the config's own; both together are refused
    return words


def _section(config: dict[str, object], name: str) -> dict[str, object]:
    """A section of a config, created where there is none."""
    found = config.get(name)
    if not isinstance(found, dict):
        found = config[name] = {}
    return found


def _config_of(plan: dict[str, object], run: RunFolder) -> dict[str, object]:
    """A DeepSpeed config with the settings of a plan without DeepSpeed."""
    config: dict[str, object] = {"zero_optimization": {}}
    for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"):
        if plan.get(key) is not None:
            config[key] = plan[key]
    for name in ("bf16", "fp16"):
        recipe = run.lock.recipe
        if plan.get(f"{name}.enabled") or recipe.get(name) or (run.accelerate or {}).get("mixed_precision") == name:
            config[name] = {"enabled": True}
            plan[f"{name}.enabled"] = True
    return config


def _without_deepspeed(run: RunFolder) -> list[str]:
    if run.deepspeed is None:
        return []
    if run.consumer == "deepspeed" or run.accelerate is None:
        raise SmokeError("--compare ddp: a loop of DeepSpeed's own engine has no run without DeepSpeed")
    plan, words = run.plan, []
    config, run.deepspeed = run.deepspeed, None
    for section in ("optimizer", "scheduler"):
        if section in config:
            words.append(f"{section} of the DeepSpeed config is dropped: the trainer makes its own")
    zero = mapping(config.get("zero_optimization"))
    for name in ("offload_optimizer", "offload_param"):
        device = mapping(zero.get(name)).get("device")
        if device not in (None, "none"):
            words.append(f"{name} ({device}) is dropped: DDP keeps everything on the device")
    half = next((name for name in ("bf16", "fp16") if mapping(config.get(name)).get("enabled") is True), "no")
    words.append("parameters stay in fp32 and are computed with in 16 bit" if half != "no" else "DeepSpeed is dropped")
    run.accelerate.pop("deepspeed_config", None)
    run.accelerate.update(distributed_type="MULTI_GPU", mixed_precision=half)
    plan = {key: value for key, value in plan.items() if not key.startswith(("zero", "optimizer", "sched"))}
    plan["engine"] = DDP
    settings = {name: setting for name, setting in run.lock.settings.items() if name in plan}
    run.lock = replace(run.lock, plan=plan, settings=settings)
    _agree(run)
    return words


def _agree(run: RunFolder) -> None:
    """Write the plan's values into the settings of the lockfile."""
    settings = {
        name: replace(setting, value=run.plan[name]) if name in run.plan else setting
        for name, setting in run.lock.settings.items()
    }
    run.lock = replace(run.lock, settings=settings)
