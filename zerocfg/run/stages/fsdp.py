"""accelerate's FSDP plugin: what it makes of the variables that the launcher exported.

Follows accelerate/utils/dataclasses.py (`FullyShardedDataParallelPlugin.__post_init__`, `set_state_dict_type`). Only
keys that the version at hand reads are settings; what stops the plugin is told by the rules of family ZC6xx.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from zerocfg.catalog.values import RefusedError, env_bool, whole_number
from zerocfg.run.config import default_of, words
from zerocfg.run.model import UNKNOWN, Origin, Setting
from zerocfg.run.stages.exports import variables

Keys = dict[str, tuple[Callable[[str], Any], Any]]

SECTION = "fsdp_config."
VERSION, POLICY = SECTION + "fsdp_version", SECTION + "fsdp_auto_wrap_policy"

STRATEGIES = words("FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD HYBRID_SHARD_ZERO2")
STATE_DICTS = words("FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT")
PREFETCHES = words("BACKWARD_PRE BACKWARD_POST")
POLICIES = words("TRANSFORMER_BASED_WRAP SIZE_BASED_WRAP NO_WRAP")


def _bool(text: str) -> Any:
    try:
        return env_bool(text)
    except RefusedError:
        return UNKNOWN


def _int(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return UNKNOWN


def _name_of(names: tuple[str, ...]) -> Callable[[str], Any]:
    """A name in any case, or its number from 1 on."""

    def read(text: str) -> Any:
        number = whole_number(text)
        if number is not None:
            return names[number - 1] if 0 < number <= len(names) else UNKNOWN
        return text.upper() if text.upper() in names else UNKNOWN

    return read


def _policy(text: str) -> Any:
    return text.upper() if text.upper() in POLICIES else UNKNOWN


def _prefetch(text: str) -> Any:
    return None if text.upper() == "NO_PREFETCH" else _name_of(PREFETCHES)(text)


# Key of fsdp_config -> (how the text of its variable is read, value where nothing is exported), by version.
_BOTH: Keys = {
    "fsdp_offload_params": (_bool, False),
    "fsdp_auto_wrap_policy": (_policy, "NO_WRAP"),
    "fsdp_cpu_ram_efficient_loading": (_bool, False),
    "fsdp_activation_checkpointing": (_bool, False),
    "fsdp_ignored_modules": (str, None),
}
_FIRST: Keys = {
    "fsdp_sharding_strategy": (_name_of(STRATEGIES), "FULL_SHARD"),
    "fsdp_state_dict_type": (_name_of(STATE_DICTS), "FULL_STATE_DICT"),
    "fsdp_backward_prefetch": (_prefetch, None),
    "fsdp_forward_prefetch": (_bool, False),
    "fsdp_use_orig_params": (_bool, False),
    "fsdp_sync_module_states": (_bool, False),
}
_SECOND: Keys = {
    "fsdp_reshard_after_forward": (_bool, True),
    "fsdp_state_dict_type": (_name_of(STATE_DICTS), "SHARDED_STATE_DICT"),
    "fsdp_activation_checkpointing_offload": (_bool, False),
}
_BY_POLICY: dict[str, Keys] = {
    "TRANSFORMER_BASED_WRAP": {"fsdp_transformer_layer_cls_to_wrap": (str, None)},
    "SIZE_BASED_WRAP": {"fsdp_min_num_params": (_int, 0)},
}
ONLY_FIRST = frozenset(_FIRST) - frozenset(_SECOND)
"""Keys that version 1 alone reads."""
PARALLEL = "parallelism_config.parallelism_config_"
SIZES = words("dp_replicate_size dp_shard_size tp_size cp_size sp_size")


def plugin_settings(environment: dict[str, Setting]) -> dict[str, Setting]:
    """The settings of the plugin by dotted name; UNKNOWN where it would not understand the text."""
    variable_of = _variable_of("fsdp_config")
    version = _read(environment, variable_of["fsdp_version"], _int, 1)
    found = {VERSION: version}
    own: Keys = {1: _FIRST, 2: _SECOND}.get(version.value, {}) if version.known else {}
    for name, (read, default) in {**_BOTH, **own}.items():
        found[SECTION + name] = _read(environment, variable_of[name], read, default)
    _synchronise(found)
    for name, (read, default) in _BY_POLICY.get(str(found[POLICY].value), {}).items():
        found[SECTION + name] = _read(environment, variable_of[name], read, default)
    return found


def parallel_sizes(environment: dict[str, Setting]) -> dict[str, Setting]:
    """The sizes of a parallelism_config by dotted name, whichever engine runs; none without one."""
    if "ACCELERATE_USE_PARALLELISM_CONFIG" not in environment:
        return {}
    variable_of = _variable_of("parallelism_config")
    names = {name: variable_of[f"parallelism_config_{name}"] for name in SIZES}
    return {PARALLEL + name: _read(environment, variable, _int, 1) for name, variable in names.items()}


@cache
def _variable_of(section: str) -> dict[str, str]:
    """The variable that carries each key of a section of accelerate's config."""
    return {key: str(exported["name"]) for key, exported in variables(section)}


def _synchronise(found: dict[str, Setting]) -> None:
    """Version 1 broadcasts the weights where only one rank loads them, whatever the setting."""
    sync, loading = found.get(SECTION + "fsdp_sync_module_states"), found[SECTION + "fsdp_cpu_ram_efficient_loading"]
    if sync is not None and sync.value is False and loading.value is True:
        origin = Origin("computed", "cpu_ram_efficient_loading needs it")
        found[SECTION + "fsdp_sync_module_states"] = Setting(True, origin, (sync, *sync.overridden))


def _read(environment: dict[str, Setting], variable: str, read: Callable[[str], Any], default: Any) -> Setting:
    setting = environment.get(variable)
    if setting is None:
        return Setting(default, default_of("accelerate"))
    value = UNKNOWN if setting.value is UNKNOWN else read(str(setting.value))
    return Setting(value, setting.origin, setting.overridden)
