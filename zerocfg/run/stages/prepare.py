"""What `accelerator.prepare` writes into the DeepSpeed config just before the engine is built.

Follows accelerate/accelerator.py (`_prepare_deepspeed`) and `DeepSpeedPlugin.deepspeed_config_process`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.record import record
from zerocfg.run.config import AUTO, Config, default_of, product, words
from zerocfg.run.model import UNKNOWN, Failure, Origin, Setting
from zerocfg.run.script.accelerator import IN_SCRIPT
from zerocfg.run.stages.plugin import GATHER
from zerocfg.run.stages.trainer import HIDDEN_SIZE_KEYS, bucket_settings, hidden_size, missing_hidden_size

if TYPE_CHECKING:
    from zerocfg.run.facts import ModelSummary

MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"
FROM_SCRIPT = words(
    "optimizer.params.lr optimizer.params.weight_decay scheduler.params.warmup_min_lr scheduler.params.warmup_max_lr "
    "scheduler.params.warmup_num_steps scheduler.params.total_num_steps"
)
"""Keys that a script's DummyOptim and DummyScheduler may fill."""


@record(slots=True)
class Prepared:
    """``accumulation`` is accelerate's own gradient_accumulation_steps (what Accelerator() was given)."""

    config: Config
    world_size: Setting
    accumulation: Setting
    model: ModelSummary | None


def prepare(state: Prepared, *, trainer: bool) -> list[Failure]:
    """Fill what is left; ``trainer``: the Trainer called, so nothing depends on a script any more."""
    config = state.config
    failures: list[Failure] = [] if trainer else text_batches(config)
    if config.is_auto(MICRO):
        config.fill(
            MICRO,
            Setting(UNKNOWN, Origin("computed", "the batch size of the data loaders passed to prepare()")),
        )
    config.fill(STEPS, state.accumulation)
    fills: dict[str, Setting] = {
        "gradient_clipping": Setting(1.0, default_of("accelerate")),
        GATHER: Setting(False, default_of("accelerate")),
    }
    micro, steps = config.get(MICRO), config.get(STEPS)
    if micro is not None:
        fills[MICRO] = Setting(micro, IN_SCRIPT)
        batch = product(micro, steps, state.world_size.value)
        note = f"{MICRO} * {STEPS} * processes"
        fills["train_batch_size"] = Setting(batch, Origin("computed", note))
    autos = [name for name in HIDDEN_SIZE_KEYS if config.is_auto(name)]
    if autos:
        size = hidden_size(state.model, text=False)
        if size is None:
            if not trainer or hidden_size(state.model, text=True) is not None:  # else the Trainer has stopped before
                failures.append(missing_hidden_size(autos, config, "accelerate"))
            size = UNKNOWN
        fills.update(bucket_settings(size))
    if not trainer:
        fills.update({name: Setting(UNKNOWN, IN_SCRIPT) for name in FROM_SCRIPT})
    failures.extend(_fill_all(config, fills))
    if "optimizer" not in config.data:
        failures.extend(_null_offload(config))
        note = "accelerate allows the optimizer that the script brings"
        if config.get("zero_allow_untested_optimizer") is not True:
            config.set("zero_allow_untested_optimizer", True, Origin("computed", note))
    return failures


def _null_offload(config: Config) -> list[Failure]:
    """With an optimizer of the script's own accelerate asks the offload section for its device; null has none."""
    zero = config.data.get("zero_optimization")
    if isinstance(zero, dict):
        name, null = "zero_optimization.offload_optimizer", zero.get("offload_optimizer", {}) is None
    else:
        name, null = "zero_optimization", "zero_optimization" in config.data and zero is None
    setting = config.setting(name)
    if not null or setting is None:
        return []
    message = f"`{name}` is null; accelerate looks up keys in it. Leave it out instead"
    return [Failure("offload-optimizer-null", "init", message, (setting.origin,))]


def text_batches(config: Config) -> list[Failure]:
    """Batch values that are texts. The Trainer meets them when it prepares its data loader, before anything else."""
    micro, steps = config.get(MICRO), config.get(STEPS)
    if micro is None:
        return []
    for name, value in ((MICRO, micro), (STEPS, steps)):
        if isinstance(value, str) and value != AUTO:
            setting = config.setting(name)
            message = f"{name} is the text {value!r}; accelerate multiplies and divides it"
            return [Failure("batch-type", "init", message, (setting.origin,) if setting else ())]
    return []


def _fill_all(config: Config, fills: dict[str, Setting]) -> list[Failure]:
    """Replace every "auto"; the first one that nobody fills ends `prepare()`."""
    for name, value in list(config.leaves()):
        if not (isinstance(value, str) and value == AUTO):
            continue
        if name in fills:
            config.fill(name, fills[name])
        else:
            setting = config.setting(name)
            message = f"`{name}` not found in kwargs. Please specify `{name}` without `auto` (set to correct value)"
            return [Failure("auto-unfilled", "init", message, (setting.origin,) if setting else (), about=(name,))]
    return []
