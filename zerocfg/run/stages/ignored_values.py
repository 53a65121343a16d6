"""Values of an accelerate config file, and options beside it, that have no effect on the launched job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from zerocfg.run.config import describe
from zerocfg.run.model import UNKNOWN, Ignored, Origin, Setting
from zerocfg.run.stages.options import OPTIONS, SECTIONS, TOP_LEVEL
from zerocfg.run.stages.sections import BY_ITSELF_SINCE, file_wins, flag_wins, target

if TYPE_CHECKING:
    from zerocfg.run.stages.namespace import Namespace

Ignore = Callable[[str, str, tuple[str, ...], "Setting | None"], None]

SHADOWED = ("rdzv_backend", "same_network", "enable_cpu_affinity", "downcast_bf16", "tpu_use_sudo")
"""Top-level keys whose launcher option has a default other than None, which always wins over the file."""

SECTION_OF = {
    "deepspeed_config": "use_deepspeed",
    "fsdp_config": "use_fsdp",
    "megatron_lm_config": "use_megatron_lm",
}
ENGINE_OPTIONS = (*SECTION_OF.values(), "multi_gpu", "tpu", "tpu_use_cluster")
"""Options beside which the launcher does not look at the file's ``distributed_type``."""
EXTRA = ("fsdp_ignored_modules",)
"""Read by the launcher although it has no option of that name."""

NVME = ("offload_optimizer_nvme_path", "offload_param_nvme_path")
FP8_MISSPELT = {
    "fp8_amax_history_length": "amax_history_len",
    "fp8_amax_compute_algorithm": "amax_compute_algo",
    "fp8_optimization_level": "opt_level",
}


def report_ignored(data: dict[str, Any], arguments: Namespace, ignore: Ignore) -> None:
    """Calls ``ignore(kind, message, path, used)`` for every value that has no effect."""
    for name in SHADOWED:
        if name in data and data[name] not in (None, TOP_LEVEL[name]) and name not in arguments.flags:
            used = arguments.setting(name)
            message = f"accelerate's launcher never takes `{name}` from a config file; {used.value!r} is used"
            ignore("dead-top-key", message, (name,), used)
    said = next((name for name in ENGINE_OPTIONS if name in arguments.flags and arguments.get(name) is True), None)
    for section, chosen in SECTION_OF.items():
        keys = data.get(section)
        if isinstance(keys, dict) and keys and not arguments.get(chosen):
            kind = data.get("distributed_type")
            message = f"`{section}` has no effect with distributed_type: {kind!r}"
            if said is not None:
                message = (
                    f"`{section}` has no effect, as --{said} on the launch line wins over distributed_type: {kind!r}"
                )
            ignore("section-not-used", message, (section,), arguments.setting(said) if said is not None else None)
        elif keys is not None and not isinstance(keys, dict):
            ignore("section-type", f"`{section}` is {describe(keys)}, not a mapping", (section,), None)
    for section, keys in data.items():
        if section in TOP_LEVEL and section.endswith("_config") and isinstance(keys, dict):
            for key, value in keys.items():
                _report_key(section, str(key), value, arguments, ignore)
    _report_unused(data, arguments, ignore)


def beaten_options(data: dict[str, Any], arguments: Namespace, place: Callable[..., Origin]) -> Iterator[Ignored]:
    """The options of the launch line that keys of the file's sections beat in an admitted release."""
    for section, keys in data.items():
        unused = section in SECTION_OF and not arguments.get(SECTION_OF[section])
        if section not in SECTIONS or unused or not isinstance(keys, dict):
            continue
        if not file_wins(section, arguments.releases):
            continue
        for key, value in keys.items():
            name = target(section, str(key), arguments.releases)
            setting = arguments.setting(name)
            given = next((item for item in (setting, *setting.overridden) if item.origin.kind == "flag"), None)
            if name in arguments.flags and given is not None and given.value not in (UNKNOWN, value):
                message = f"the file wins over --{name} before accelerate {BY_ITSELF_SINCE}"
                yield Ignored("file-wins", message, given.origin, Setting(value, place(section, str(key))))


def _report_key(section: str, key: str, value: Any, arguments: Namespace, ignore: Ignore) -> None:
    name = target(section, key, arguments.releases)
    if name in NVME:
        message = f'accelerate\'s launcher exports no variable for `{key}`; the job sees the path "none"'
        ignore("nvme-path-dead", message, (section, key), None)
    elif name in FP8_MISSPELT:
        ignore(
            "dead-sub-key",
            f"`{key}` is read by nobody; the name is `{FP8_MISSPELT[name]}`",
            (section, key),
            None,
        )
    elif name not in OPTIONS and name not in EXTRA and not name.startswith("fp8_") and name not in TOP_LEVEL:
        if arguments.releases.had(f"option.{name}"):
            return
        ignore(
            "dead-sub-key",
            f"accelerate's launcher reads no `{name}`; the value is dropped",
            (section, key),
            None,
        )
    elif name in arguments.flags and flag_wins(arguments.releases):
        ignore("flag-wins", f"--{name} on the launch line wins", (section, key), arguments.setting(name))


def _report_unused(data: dict[str, Any], arguments: Namespace, ignore: Ignore) -> None:
    distributed = any(arguments.get(name) for name in (*SECTION_OF.values(), "multi_gpu"))
    if data.get("use_cpu") is True and distributed and arguments.get("cpu") is not True:
        kind = data.get("distributed_type")
        ignore("use-cpu-ignored", f"`use_cpu` has no effect with distributed_type: {kind!r}", ("use_cpu",), None)
    dynamo = data.get("dynamo_config")
    if isinstance(dynamo, dict) and dynamo and arguments.get("use_deepspeed") and not arguments.get("cpu"):
        ignore("dynamo-ignored", "the DeepSpeed launcher exports no dynamo setting", ("dynamo_config",), None)
    precision = arguments.get("mixed_precision")
    fp8 = data.get("fp8_config")
    if isinstance(fp8, dict) and fp8 and precision is not UNKNOWN and str(precision).lower() != "fp8":
        ignore("fp8-ignored", "`fp8_config` has no effect without mixed_precision: fp8", ("fp8_config",), None)
