"""DeepSpeed's own reading of the final config: defaults, dropped "auto" values, batch arithmetic, cross-field refusals.

Follows deepspeed/runtime/config.py. Unknown keys, types and ranges of single keys belong to the catalog.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from zerocfg.catalog.check import converted
from zerocfg.catalog.schema import Key, Section, load_schema
from zerocfg.catalog.values import ON_WORDS
from zerocfg.run.config import AUTO, Config, any_unknown, default_of, describe, words
from zerocfg.run.model import UNKNOWN, Failure, Origin, Setting

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"

ABSENT = words(
    "gradient_clipping steps_per_print prescale_gradients gradient_predivide_factor gradient_allreduce_op "
    "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer wall_clock_breakdown bf16.enabled "
    "fp16.enabled zero_optimization.stage zero_optimization.contiguous_gradients "
    "zero_optimization.reduce_scatter zero_optimization.reduce_bucket_size "
    "zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size "
    "zero_optimization.round_robin_gradients zero_optimization.sub_group_size "
    "zero_optimization.stage3_prefetch_bucket_size zero_optimization.stage3_param_persistence_threshold "
    "zero_optimization.stage3_model_persistence_threshold zero_optimization.stage3_max_live_parameters "
    "zero_optimization.stage3_max_reuse_distance zero_optimization.stage3_gather_16bit_weights_on_model_save "
    "zero_optimization.zero_hpz_partition_size zero_optimization.zero_quantized_weights "
    "zero_optimization.zero_quantized_gradients zero_optimization.offload_optimizer.device "
    "zero_optimization.offload_param.device"
)
"""Keys that the engine asks for in any case, by dotted name: an absent one has the schema's default."""

OFFLOADS = {"cpu_offload": "offload_optimizer.device", "cpu_offload_param": "offload_param.device"}
"""Switches of the old format, and the key that each of them sets to "cpu"."""
RENAMED = {"stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save"}
"""Old names in `zero_optimization`, which DeepSpeed still reads, but not beside those of today."""

REMOVED = words(
    "nebula compression_training amp quantize_training sparse_gradients eigenvalue sparse_attention elasticity "
    "graph_harvesting curriculum_learning progressive_layer_drop"
)
REMOVED_ZERO = ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")


def default(name: str, stage: Any = None) -> Any:
    """The engine's value of an absent key; UNKNOWN for one that is not among those it asks for in any case."""
    if name == "zero_optimization.overlap_comm":
        return UNKNOWN if stage is UNKNOWN else stage == 3
    return _defaults().get(name, UNKNOWN)


@cache
def _defaults() -> dict[str, Any]:
    return {name: load_schema("deepspeed").default(name) for name in ABSENT}


def refusals(config: Config) -> list[Failure]:
    """What DeepSpeedConfig refuses whoever brings it: removed keys, and both precisions at once."""
    found: list[Failure] = []
    zero = config.data.get("zero_optimization")
    names = [key for key in REMOVED if key in config.data]
    if isinstance(zero, dict):
        names += [f"zero_optimization.{key}" for key in REMOVED_ZERO if key in zero]
    for name in names:
        message = f"`{name}` has been removed; DeepSpeed refuses a config that holds it"
        found.append(Failure("ds-removed-key", "parse", message, (_origin(config, name),)))
    if "zero_optimization" in config.data and not isinstance(zero, (dict, bool)) and zero is not UNKNOWN:
        message = f"zero_optimization is {describe(zero)}, not a mapping"
        found.append(Failure("ds-section-type", "parse", message, (_origin(config, "zero_optimization"),)))
    if all(truth(enabled(config, section)) for section in ("fp16", "bf16")):
        message = "bfloat16 and fp16 modes cannot be simultaneously enabled"
        places = (_origin(config, "fp16.enabled"), _origin(config, "bf16.enabled"))
        found.append(Failure("ds-fp16-and-bf16", "parse", message, places))
    return found


def late_refusals(config: Config) -> list[Failure]:
    """What DeepSpeedConfig refuses after the batch arithmetic."""
    return summing(config) + _low_precision_masters(config, config.data.get("zero_optimization"))


def summing(config: Config) -> list[Failure]:
    """Gradients are averaged where ZeRO 3, ZenFlow or DeepCompile reduces them; nothing there sums."""
    zero = config.data.get("zero_optimization")
    operation, compiled = config.data.get("gradient_allreduce_op"), config.data.get("compile")
    if not isinstance(operation, str) or operation.lower() != "sum":
        return []
    reducers = {
        "ZeRO stage 3": isinstance(zero, dict) and number(zero.get("stage")) == 3,
        "ZenFlow": isinstance(zero, dict) and isinstance(zero.get("zenflow"), dict),
        "DeepCompile": isinstance(compiled, dict) and truth(compiled.get("deepcompile")),
    }
    for reducer, present in reducers.items():
        if present:
            message = f"gradient_allreduce_op='sum' is not supported with {reducer}"
            return [Failure("ds-allreduce-sum", "parse", message, (_origin(config, "gradient_allreduce_op"),))]
    return []


def _low_precision_masters(config: Config, zero: Any) -> list[Failure]:
    """16-bit master weights need a ZeRO stage; 16-bit optimizer states need 16-bit masters."""
    written = zero.get("stage", 0) if isinstance(zero, dict) else 0
    stage = 0 if written == AUTO else number(written)
    found: list[Failure] = []
    for section, key in (
        ("fp16", "fp16_master_weights_and_grads"),
        ("bf16", "bf16_master_weights_and_grads"),
        ("bf16", "bf16_optimizer_states"),
    ):
        values = of_section(config, section)
        if not isinstance(values, dict) or not truth(values.get(key)):
            continue
        name = f"{section}.{key}"
        if stage == 0:
            message = f"{key} is only supported with ZeRO Stage 1, 2, or 3."
            found.append(Failure("ds-master-weights-stage", "parse", message, (_origin(config, name),)))
        elif key == "bf16_optimizer_states" and not truth(values.get("bf16_master_weights_and_grads")):
            message = "bf16_optimizer_states requires bf16_master_weights_and_grads to be enabled."
            found.append(Failure("ds-bf16-states", "parse", message, (_origin(config, name),)))
    return found


def of_section(config: Config, name: str) -> Any:
    """What stands under a section's name; `bfloat16` is read where there is no `bf16`."""
    values = config.data.get(name)
    return config.data.get("bfloat16") if name == "bf16" and values is None else values


def enabled(config: Config, section: str) -> Any:
    values = of_section(config, section)
    return values.get("enabled") if isinstance(values, dict) else None


def truth(value: Any) -> bool:
    """Whether a strict bool key is on: True, 1, or one of the words that pydantic takes for true."""
    return value is True or value == 1 or (isinstance(value, str) and value.lower() in ON_WORDS)


def number(value: Any) -> Any:
    """An int key as pydantic's lax mode reads it; None when it refuses; UNKNOWN stays."""
    if value is UNKNOWN:
        return UNKNOWN
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            return None
    return None


def _origin(config: Config, name: str) -> Origin:
    setting = config.setting(name)
    return setting.origin if setting else default_of("deepspeed")


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
        return settings, [Failure("ds-batch-type", "parse", message, (settings[texts[0]].origin,))]
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


def read(config: Config, world_size: Setting) -> tuple[dict[str, Setting], list[Failure]]:
    """All settings of the engine and, in the order in which they strike, what DeepSpeedConfig refuses."""
    batches, refused = batch(config, world_of(config, world_size))
    failures = [*refusals(config), *_sequence_parallel(config), *refused, *late_refusals(config)]
    return {**settings(config, final=True), **batches}, failures


def _sequence_parallel(config: Config) -> list[Failure]:
    share = config.data.get("sequence_parallel_size")
    if not isinstance(share, (int, float)) or share:
        return []
    message = "sequence_parallel_size is 0; DeepSpeed divides the number of processes by it"
    return [Failure("ds-batch-zero", "parse", message, (_origin(config, "sequence_parallel_size"),))]


def world_of(config: Config, world_size: Setting) -> Setting:
    """The world size of the batch arithmetic: sequence parallel ranks share a batch."""
    share = config.data.get("sequence_parallel_size")
    if share is None or world_size.value is UNKNOWN:
        return world_size
    if isinstance(share, (int, float)) and share:
        return Setting(world_size.value / share, Origin("computed", "processes / sequence_parallel_size"))
    return Setting(UNKNOWN, world_size.origin)


def settings(config: Config, *, final: bool) -> dict[str, Setting]:
    """Every value of the config as the engine sees it.

    ``final``: nobody fills an "auto" any more and DeepSpeed itself reads: its typed sections convert values, replace
    "auto" by their default and take a key under any of its names; absent keys that matter get their default.
    """
    if not final:
        return config.settings()
    found: dict[str, Setting] = {}
    for name, setting in config.settings().items():
        if name.startswith("bfloat16.") and config.data.get("bf16") is not None:
            continue  # not looked at beside `bf16`
        known, key = _known(name)
        found[known] = setting if key is None else _read(key, setting)
    _moved(found)
    for name in (*ABSENT, "zero_optimization.overlap_comm"):
        within = config.setting(name) if config.hidden(name) is not None and name not in found else None
        if within is not None:
            found[name] = within
    stage = found.get("zero_optimization.stage")
    stage_value = stage.value if stage else 0
    origin = default_of("deepspeed")
    for name in (*ABSENT, "zero_optimization.overlap_comm"):
        current = found.get(name)
        if current is None and any(written.startswith(f"{name}.") for written in found):
            continue  # a mapping in the place of a value
        if current is None or (name.endswith("overlap_comm") and current.value is None):
            found[name] = Setting(default(name, stage_value), origin, (current,) if current else ())
    return found


def _known(name: str) -> tuple[str, Key | None]:
    """The name under which DeepSpeed keeps a key, and the key; the name as it is for one that it does not know."""
    schema = load_schema("deepspeed")
    section: Section | None = schema.root
    parts: list[str] = []
    key: Key | None = None
    for part in name.split("."):
        key = section.key(part) if section is not None else None
        if key is None:
            return name, None
        parts.append(key.name)
        section = key.section(schema)
    return ".".join(parts), key


def current_name(name: str) -> str:
    """The name of today of a key that may be written under another one, or in the old format."""
    known, _ = _known(name)
    section, _, key = known.rpartition(".")
    today = OFFLOADS.get(key) or RENAMED.get(key)
    return f"{section}.{today}" if section == "zero_optimization" and today else known


def _moved(found: dict[str, Setting]) -> None:
    """Keys of the old format that DeepSpeed turns into those of today."""
    switch = found.get("zero_optimization")
    if switch is not None and isinstance(switch.value, bool):
        found["zero_optimization.stage"] = Setting(int(switch.value), switch.origin, (switch,))
    for name, device in OFFLOADS.items():
        old = found.get(f"zero_optimization.{name}")
        if old is not None and old.value is True:
            found[f"zero_optimization.{device}"] = Setting("cpu", old.origin, (old,))
    for name, today in RENAMED.items():
        old = found.get(f"zero_optimization.{name}")
        if old is not None:
            found[f"zero_optimization.{today}"] = Setting(old.value, old.origin, old.overridden)


def _read(key: Key, setting: Setting) -> Setting:
    """A value as a typed section of DeepSpeed reads it; refused values and those of untyped sections stay."""
    value = setting.value
    if value is UNKNOWN or key.facts.get("reads") != "lax":
        return setting
    if isinstance(value, str) and value == AUTO:
        return Setting(key.default, default_of("deepspeed"), (setting, *setting.overridden))
    read = converted(key, value)
    if read is value or (type(read) is type(value) and read == value):
        return setting
    return Setting(read, setting.origin, (setting, *setting.overridden))
