"""DeepSpeed's own reading of the final config: defaults, dropped "auto" values, cross-field refusals.

Follows deepspeed/runtime/config.py, as the releases that the run admits have it; the batch arithmetic is in
:mod:`zerocfg.run.stages.batches`. Unknown keys, types and ranges of single keys belong to the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.schema import Key, Section, load_schema
from zerocfg.catalog.values import ON_WORDS, RefusedError, as_int
from zerocfg.run.config import AUTO, Config, describe, origin_of, words
from zerocfg.run.model import UNKNOWN, Failure, Setting
from zerocfg.run.stages.batches import batch, sequence_parallel, sharing, world_of
from zerocfg.run.stages.parser import TODAY, Parser

OVERLAP = "zero_optimization.overlap_comm"

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

MASTERS_SINCE = "0.18.3"
"""The release that allows 16-bit master weights at every stage, and has them for bf16."""


def unset(name: str, stage: Any = None, parser: Parser = TODAY) -> Setting | None:
    """The engine's value of an absent key: UNKNOWN for one that is not among those it asks for in any case, None where
    an admitted release has no such key."""
    if name == OVERLAP:
        return Setting(UNKNOWN if stage is UNKNOWN else stage == 3, parser.releases.origin)
    return parser.unset(name) if name in ABSENT else Setting(UNKNOWN, parser.releases.origin)


def refusals(config: Config, parser: Parser = TODAY, *, final: bool = True) -> list[Failure]:
    """What DeepSpeedConfig refuses whoever brings it: removed keys, and both precisions at once. ``final`` False: who
    brings it may still fill in what is "auto"."""
    found: list[Failure] = []
    zero = config.data.get("zero_optimization")
    names = [key for key in REMOVED if key in config.data]
    if isinstance(zero, dict):
        names += [f"zero_optimization.{key}" for key in REMOVED_ZERO if key in zero]
    for name in filter(parser.removed, names):
        message = f"`{name}` has been removed; DeepSpeed refuses a config that holds it"
        found.append(Failure("ds-removed-key", "parse", message, (origin_of(config, name),)))
    if "zero_optimization" in config.data and not isinstance(zero, (dict, bool)) and zero is not UNKNOWN:
        message = f"zero_optimization is {describe(zero)}, not a mapping"
        found.append(Failure("ds-section-type", "parse", message, (origin_of(config, "zero_optimization"),)))
    precisions = ("fp16", "bf16")
    filled = final or all(enabled(config, section) != "auto" for section in precisions)
    if filled and all(switched_on(config, section, parser) for section in precisions):
        message = "bfloat16 and fp16 modes cannot be simultaneously enabled"
        places = (origin_of(config, "fp16.enabled"), origin_of(config, "bf16.enabled"))
        found.append(Failure("ds-fp16-and-bf16", "parse", message, places))
    return found + (_scale_power(config, parser) if filled else [])


def _scale_power(config: Config, parser: Parser) -> list[Failure]:
    """Where nothing checks the type of the loss scale's power, the parser calculates with what is written."""
    name, values = "fp16.initial_scale_power", config.data.get("fp16")
    power = values.get("initial_scale_power", 0) if isinstance(values, dict) else 0
    if isinstance(power, (int, float)) or power is UNKNOWN or not parser.untyped("fp16"):
        return []
    if not switched_on(config, "fp16", parser):
        return []
    message = f"{name} is {describe(power)}; DeepSpeed calculates 2 to the power of it"
    return [Failure("ds-scale-power-type", "parse", message, (origin_of(config, name),))]


def late_refusals(config: Config, parser: Parser = TODAY) -> list[Failure]:
    """What DeepSpeedConfig refuses after the batch arithmetic."""
    return summing(config, parser) + _low_precision_masters(config, config.data.get("zero_optimization"), parser)


def summing(config: Config, parser: Parser = TODAY) -> list[Failure]:
    """Gradients are averaged where ZeRO 3, ZenFlow or DeepCompile reduces them; nothing there sums."""
    zero = config.data.get("zero_optimization")
    operation, compiled = config.data.get("gradient_allreduce_op"), config.data.get("compile")
    if not isinstance(operation, str) or operation.lower() != "sum":
        return []
    if not parser.releases.knows("gradient_allreduce_op"):
        return []
    reducers = {
        "ZeRO stage 3": isinstance(zero, dict) and number(zero.get("stage")) == 3,
        "ZenFlow": isinstance(zero, dict) and isinstance(zero.get("zenflow"), dict),
        "DeepCompile": isinstance(compiled, dict) and truth(compiled.get("deepcompile")),
    }
    for reducer, present in reducers.items():
        if present:
            message = f"gradient_allreduce_op='sum' is not supported with {reducer}"
            return [Failure("ds-allreduce-sum", "parse", message, (origin_of(config, "gradient_allreduce_op"),))]
    return []


def _low_precision_masters(config: Config, zero: Any, parser: Parser) -> list[Failure]:
    """16-bit master weights need a ZeRO stage, once stage 2; 16-bit optimizer states need 16-bit masters."""
    written = zero.get("stage", 0) if isinstance(zero, dict) else 0
    stage = 0 if written == AUTO else number(written)
    found: list[Failure] = []
    if not parser.releases.any_from(MASTERS_SINCE):
        values = config.data.get("fp16")
        asked = isinstance(values, dict) and truth(values.get("fp16_master_weights_and_grads"))
        if asked and switched_on(config, "fp16", parser) and stage in (0, 1, 3):
            message = "Fp16_master_weights_and_grads is only supported with ZeRO Stage 2 for now."
            place = origin_of(config, "fp16.fp16_master_weights_and_grads")
            found.append(Failure("ds-master-weights-stage", "parse", message, (place,)))
        return found
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
            found.append(Failure("ds-master-weights-stage", "parse", message, (origin_of(config, name),)))
        elif key == "bf16_optimizer_states" and not truth(values.get("bf16_master_weights_and_grads")):
            message = "bf16_optimizer_states requires bf16_master_weights_and_grads to be enabled."
            found.append(Failure("ds-bf16-states", "parse", message, (origin_of(config, name),)))
    return found


def of_section(config: Config, name: str) -> Any:
    """What stands under a section's name; `bfloat16` is read where there is no `bf16`."""
    values = config.data.get(name)
    return config.data.get("bfloat16") if name == "bf16" and values is None else values


def enabled(config: Config, section: str) -> Any:
    values = of_section(config, section)
    return values.get("enabled") if isinstance(values, dict) else None


def switched_on(config: Config, section: str, parser: Parser = TODAY) -> bool:
    """Whether a precision is on. Where the section is not typed yet, every value counts that Python takes for true."""
    value = enabled(config, section)
    return bool(value) if parser.untyped(section) else truth(value)


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
            return as_int(value)
        except RefusedError:
            return None
    return None


def read(config: Config, world_size: Setting, parser: Parser = TODAY) -> tuple[dict[str, Setting], list[Failure]]:
    """All settings of the engine and, in the order in which they strike, what DeepSpeedConfig refuses."""
    share = sharing(config, parser.releases)
    batches, refused = batch(config, world_of(share, world_size))
    refused = [*sequence_parallel(config, share, parser.releases), *refused]
    failures = [*refusals(config, parser), *refused, *late_refusals(config, parser)]
    return {**settings(config, final=True, parser=parser), **batches}, failures


def settings(config: Config, *, final: bool, parser: Parser = TODAY) -> dict[str, Setting]:
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
        found[known] = setting if key is None else parser.read(known, key, setting)
    _moved(found)
    for name in (*ABSENT, OVERLAP):
        within = config.setting(name) if config.hidden(name) is not None and name not in found else None
        if within is not None:
            found[name] = within
    stage = found.get("zero_optimization.stage")
    stage_value = stage.value if stage else 0
    sections = {above for name in found for above in _sections(name)}
    for name in (*ABSENT, OVERLAP):
        current = found.get(name)
        if current is None and name in sections:
            continue  # a mapping in the place of a value
        if current is None or (name == OVERLAP and current.value is None):
            default = unset(name, stage_value, parser)
            if default is not None:
                found[name] = Setting(default.value, default.origin, (current,) if current else ())
    return found


def _sections(name: str) -> Iterator[str]:
    """The names of the sections around a key."""
    above = name.rpartition(".")[0]
    while above:
        yield above
        above = above.rpartition(".")[0]


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
