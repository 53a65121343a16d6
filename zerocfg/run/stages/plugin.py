"""accelerate's DeepSpeedPlugin: what it makes of the exported variables and of a DeepSpeed config.

Follows accelerate/utils/dataclasses.py (`DeepSpeedPlugin.__post_init__`, `set_mixed_precision`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import OFF_WORDS, ON_WORDS, whole_number
from zerocfg.record import record
from zerocfg.run.config import AUTO, Config, any_unknown, default_of, words
from zerocfg.run.model import UNKNOWN, Failure, Origin, Setting

if TYPE_CHECKING:
    from zerocfg.source.node import Path

Environment = dict[str, Setting]

CONFLICTS = words(
    "gradient_accumulation_steps gradient_clipping zero_stage offload_optimizer_device offload_param_device "
    "offload_param_nvme_path offload_optimizer_nvme_path zero3_save_16bit_model mixed_precision"
)
"""Fields of `deepspeed_config` that may not stand beside a DeepSpeed config file, whatever their value."""

STAGE = "zero_optimization.stage"
GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"


@record(slots=True)
class Plugin:
    """The plugin after it was built. ``zero_stage`` as accelerate compares it (a quoted "3" is no 3)."""

    config: Config
    failures: list[Failure]
    zero_stage: Any = None

    def fail(self, kind: str, message: str, *places: Origin, about: tuple[str, ...] = ()) -> None:
        self.failures.append(Failure(kind, "arguments", message, places, about))


def build(environment: Environment, config: Config | None, failures: list[Failure]) -> Plugin:
    """The plugin that starts from ``config`` (a DeepSpeed file or the Trainer's), or from the variables alone.

    Predicted failures are added to ``failures``. Raises NotAMappingError where the library would look up a key in
    something else than a mapping.
    """
    plugin = Plugin(config if config is not None else _empty(), failures)
    values = {name: _variable(name, *from_, environment, plugin) for name, from_ in _variables().items()}
    if config is None:
        _from_variables(plugin, values)
    else:
        _from_file(plugin, values, environment)
    if plugin.config.get(STAGE) is UNKNOWN:
        plugin.zero_stage = UNKNOWN
    plugin.config.set("steps_per_print", float("inf"), Origin("computed", "accelerate silences DeepSpeed's log"))
    _check_init_flag(plugin, environment)
    _msamp(plugin, environment)
    return plugin


def _empty() -> Config:
    def origin(path: Path) -> Origin:
        return default_of("accelerate")

    return Config({}, origin)


@cache
def _variables() -> dict[str, tuple[str, object]]:
    """By DeepSpeed key: the variable that decides what its "auto" becomes, and the plugin's default."""
    schema, found = load_schema("accelerate"), {}
    section = schema.root.keys["deepspeed_config"].section(schema)
    for key in section.keys.values() if section is not None else ():
        if "conflicts" in key.facts:
            variable = next(iter(key.variables), str(key.facts.get("variable")))
            found[str(key.facts["setting"])] = variable, "none" if key.default is None else key.default
    return found


def _variable(name: str, variable: str, default: object, environment: Environment, plugin: Plugin) -> Setting:
    """The plugin's own value for a DeepSpeed key, converted as the plugin converts the variable."""
    setting = environment.get(variable)
    if setting is None:
        return Setting(default, default_of("accelerate"))
    text = setting.value
    if text is UNKNOWN:
        return setting
    value = text
    if name == "gradient_accumulation_steps":
        number = whole_number(text)
        value = text if number is None else number
    elif name == GATHER:
        value = text.lower() == "true"
    elif name == STAGE or (name == "gradient_clipping" and text != AUTO):
        convert, kind = (int, "zero-stage-type") if name == STAGE else (float, "gradient-clipping-type")
        try:
            value = convert(text)
        except ValueError:
            plugin.fail(kind, f"accelerate calls {convert.__name__}({text!r})", setting.origin)
            value = UNKNOWN
    return Setting(value, setting.origin, setting.overridden)


def _from_variables(plugin: Plugin, values: dict[str, Setting]) -> None:
    """No DeepSpeed config: the plugin writes one."""
    config = plugin.config
    for name in ("train_batch_size", "train_micro_batch_size_per_gpu"):
        config.set(name, AUTO, default_of("accelerate"))

    def put(name: str, setting: Setting) -> None:
        config.set(name, setting.value, setting.origin)
        config.remember(name, setting.overridden)

    put("gradient_accumulation_steps", values["gradient_accumulation_steps"])
    put(STAGE, values[STAGE])
    for part in ("offload_optimizer", "offload_param"):
        device = values[f"zero_optimization.{part}.device"]
        put(f"zero_optimization.{part}.device", device)
        path = values[f"zero_optimization.{part}.nvme_path"]
        if device.value is UNKNOWN:
            path = Setting(UNKNOWN, path.origin)
        elif device.value != "nvme":
            path = Setting(None, default_of("accelerate"))
        put(f"zero_optimization.{part}.nvme_path", path)
    put(GATHER, values[GATHER])
    clipping = values["gradient_clipping"]
    if clipping.value is UNKNOWN or clipping.value:
        put("gradient_clipping", clipping)
    plugin.zero_stage = values[STAGE].value


def _from_file(plugin: Plugin, values: dict[str, Setting], environment: Environment) -> None:
    """A DeepSpeed config: the plugin fills its "auto" values and refuses certain fields beside it."""
    config = plugin.config
    look_at_stage(config)
    if "gradient_accumulation_steps" not in config.data:
        config.set("gradient_accumulation_steps", 1, Origin("computed", "accelerate adds 1 to a file without it"))
    if "zero_optimization" not in config.data:
        plugin.fail("ds-zero-missing", "Please specify the ZeRO optimization config in the DeepSpeed config.")
    fields = environment.get("ACCELERATE_CONFIG_DS_FIELDS")
    if fields is not None and isinstance(fields.value, str):
        both = [name for name in fields.value.split(",") if name in CONFLICTS]
        if both:
            places = [_origin_of_field(name, environment) for name in both]
            plugin.fail(
                "ds-conflict-fields",
                "When using `deepspeed_config_file`, the following accelerate config variables will be ignored: "
                f"{', '.join(both)} (accelerate raises ValueError)",
                *[place for place in places if place is not None],
                about=tuple(both),
            )
    for name, setting in values.items():
        config.fill(name, setting)
    stage = config.get(STAGE)
    plugin.zero_stage = values[STAGE].value if stage is None or stage == AUTO else stage


def look_at_stage(config: Config) -> None:
    """What HfDeepSpeedConfig looks up as soon as it has read a config; raises NotAMappingError."""
    if config.get(STAGE) in (2, 3):
        config.get("zero_optimization.offload_optimizer.device")
        config.get("zero_optimization.offload_param.device")


def _origin_of_field(name: str, environment: Environment) -> Origin | None:
    for variable in (
        f"ACCELERATE_{name.upper()}",
        f"ACCELERATE_DEEPSPEED_{name.upper()}",
    ):
        if variable in environment:
            return environment[variable].origin
    return None


def _check_init_flag(plugin: Plugin, environment: Environment) -> None:
    flag = environment.get("ACCELERATE_DEEPSPEED_ZERO3_INIT")
    if flag is None or not isinstance(flag.value, str):
        return
    if flag.value.lower() not in (*ON_WORDS, *OFF_WORDS):
        plugin.fail("zero3-init-flag-type", f"invalid truth value {flag.value}", flag.origin)


def _msamp(plugin: Plugin, environment: Environment) -> None:
    backend = environment.get("ACCELERATE_FP8_BACKEND")
    if backend is None or backend.value != "MSAMP" or "msamp" in plugin.config.data:
        return
    if plugin.zero_stage == 3:
        plugin.fail("msamp-zero3", "MS-AMP is not supported for ZeRO Stage 3", backend.origin)
    level = environment.get("ACCELERATE_FP8_OPT_LEVEL")
    plugin.config.set("msamp.enabled", True, backend.origin)
    plugin.config.set("msamp.opt_level", level.value if level else "O1", level.origin if level else backend.origin)


def set_mixed_precision(plugin: Plugin, precision: Setting) -> None:
    """`set_mixed_precision`: add missing fp16 and bf16 sections, fill their "auto", refuse the other dtype.

    Raises NotAMappingError like :func:`build`.
    """
    config, word = plugin.config, precision.value
    if any_unknown(word):
        for section in ("fp16", "bf16"):
            if section not in config.data:
                config.set(f"{section}.enabled", UNKNOWN, precision.origin)
            config.fill(f"{section}.enabled", Setting(UNKNOWN, precision.origin))
        return
    bfloat = word in ("bf16", "fp8")
    if word == "fp16" and "fp16" not in config.data:
        config.set("fp16.enabled", True, precision.origin)
        config.set("fp16.auto_cast", True, Origin("computed", "accelerate adds it with mixed_precision fp16"))
    elif bfloat and "bf16" not in config.data:
        config.set("bf16.enabled", True, precision.origin)
    if word != "no":
        other = "bf16" if word == "fp16" else "fp16"
        if other in config.data and config.data[other] is None:
            config.require_mapping(other)
        enabled = config.setting(f"{other}.enabled")
        if enabled is not None and str(enabled.value).lower() == "true":
            plugin.fail(
                "ds-precision-conflict",
                f"`--mixed_precision` arg cannot be set to `{word}` when `{other}` is set in the DeepSpeed config file",
                enabled.origin,
                precision.origin,
                about=(word, other),
            )
    for section in ("fp16", "bf16"):
        if section not in config.data:
            config.set(f"{section}.enabled", False, precision.origin)
    config.fill("fp16.enabled", Setting(word == "fp16", precision.origin))
    config.fill("bf16.enabled", Setting(bfloat, precision.origin))
