"""DeepSpeed's arithmetic of the three batch sizes, and what it refuses of them.

Follows deepspeed/runtime/config.py (`_configure_train_batch_size`), which is the same in every known release but for
the processes that it counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.run.config import Config, any_unknown, origin_of
from zerocfg.run.model import UNKNOWN, Failure, Origin, Setting

if TYPE_CHECKING:
    from zerocfg.run.stages.admitted import AdmittedKeys

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
SHARED_SINCE = "0.17.0"
"""The release that divides the number of processes by `sequence_parallel_size`."""
BY_ZERO_SINCE = "0.19.3"
"""The release that stops where it is 0; those before count one process then."""


def batch(config: Config, world_size: Setting) -> tuple[dict[str, Setting], list[Failure]]:
    """The three batch sizes of the engine and what its arithmetic refuses.

    train_batch_size counts samples per optimizer step over all ranks; micro batches are per rank.
    """
    found = {name: config.setting(name) for name in (TRAIN, MICRO, STEPS)}
    values = {name: setting.value if setting else None for name, setting in found.items()}
    settings = {name: setting for name, setting in found.items() if setting is not None and setting.value is not None}
    places = tuple(setting.origin for setting in settings.values())
    if values[TRAIN] is None and values[MICRO] is None:
        message = "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"
        return settings, [Failure("ds-batch-missing", "parse", message, places)]
    texts = [name for name, value in values.items() if isinstance(value, (str, list, dict))]
    if texts:
        message = f"{texts[0]} is {values[texts[0]]!r}; DeepSpeed calculates with it"
        place = (settings[texts[0]].origin,)
        if values[texts[0]] == "auto":
            return settings, [Failure("ds-batch-auto", "parse", message, place)]
        return settings, [Failure("ds-batch-type", "parse", message, place)]
    try:
        filled = _fill_batch(values, world_size.value)
    except ZeroDivisionError:
        message = "DeepSpeed divides by a batch size or accumulation of 0"
        return settings, [Failure("ds-batch-zero", "parse", message, places)]
    except OverflowError:
        return settings, [Failure("ds-batch-type", "parse", "int too large to convert to float", places)]
    for name, value in filled.items():
        if name not in settings:
            settings[name] = Setting(value, Origin("computed", "DeepSpeed's batch arithmetic"))
    try:
        return settings, _check_batch(filled, world_size.value, places)
    except OverflowError:
        return settings, [Failure("ds-batch-type", "parse", "int too large to convert to float", places)]


def _fill_batch(values: dict[str, Any], world: Any) -> dict[str, Any]:
    train, micro, steps = values[TRAIN], values[MICRO], values[STEPS]

    def known(calculate: Any, *parts: Any) -> Any:
        return UNKNOWN if any_unknown(*parts) else calculate()

    if train is not None and micro is not None and steps is None:
        steps = known(lambda: train // micro // world, train, micro, world)
    elif train is not None and micro is None and steps is not None:
        micro = known(lambda: train // world // steps, train, world, steps)
    elif train is None and steps is not None:
        train = known(lambda: micro * steps * world, micro, steps, world)
    elif train is not None and micro is None:
        steps, micro = 1, known(lambda: train // world, train, world)
    elif train is None:
        steps, train = 1, known(lambda: micro * world, micro, world)
    return {TRAIN: train, MICRO: micro, STEPS: steps}


def _check_batch(values: dict[str, Any], world: Any, places: tuple[Origin, ...]) -> list[Failure]:
    labels = {
        TRAIN: "Train batch size",
        MICRO: "Micro batch size per gpu",
        STEPS: "Gradient accumulation steps",
    }
    for name, label in labels.items():
        value = values[name]
        if value is not UNKNOWN and not value > 0:
            return [Failure("ds-batch-zero", "parse", f"{label}: {value} has to be greater than 0", places)]
    train, micro, steps = values[TRAIN], values[MICRO], values[STEPS]
    if any_unknown(train, micro, steps, world) or train == micro * steps * world:
        return []
    message = (
        "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
        f"world_size {train} != {micro} * {steps} * {world}"
    )
    sizes = tuple(map(str, (train, micro, steps, world)))
    return [Failure("ds-batch-mismatch", "parse", message, places, about=sizes)]


def sharing(config: Config, releases: AdmittedKeys) -> Any:
    """How many processes share a batch; None where none do, UNKNOWN where only some of the releases look at the key."""
    share = config.data.get("sequence_parallel_size")
    if share is None or not releases.any_from(SHARED_SINCE):
        return None
    return share if releases.all_from(SHARED_SINCE) else UNKNOWN


def sequence_parallel(config: Config, share: Any, releases: AdmittedKeys) -> list[Failure]:
    if not isinstance(share, (int, float)) or share or not releases.all_from(BY_ZERO_SINCE):
        return []
    message = "sequence_parallel_size is 0; DeepSpeed divides the number of processes by it"
    return [Failure("ds-batch-zero", "parse", message, (origin_of(config, "sequence_parallel_size"),))]


def world_of(share: Any, world_size: Setting) -> Setting:
    """The world size of the batch arithmetic: sequence parallel ranks share a batch."""
    if share is None or world_size.value is UNKNOWN:
        return world_size
    if isinstance(share, (int, float)) and share:
        return Setting(world_size.value / share, Origin("computed", "processes / sequence_parallel_size"))
    return Setting(UNKNOWN, world_size.origin)
