"""ZC6xx: keys of `fsdp_config` that do nothing, or not what they say."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import effective_value
from zerocfg.rules.fixes import edited
from zerocfg.rules.fsdp.plugin import (
    efficient_loading,
    fsdp_key,
    fsdp_setting,
    fsdp_version,
    launcher_key,
    on,
    releases,
)
from zerocfg.rules.key import Key, accelerate
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry

_ONLY_1 = ("sharding_strategy", "forward_prefetch", "backward_prefetch", "use_orig_params", "sync_module_states")


@rule("ZC608", "fsdp-version-not-written", Severity.NOTE, WHOLE_RUN, versions="accelerate>=1.6")
def fsdp_version_not_written(run: Run) -> Iterator[Finding]:
    section = accelerate(run, "fsdp_config")
    if not section.section or fsdp_version(run) != "1":
        return
    if fsdp_key(run, "version") is not None or "fsdp_version" in run.flags:
        return
    plain = not any(fsdp_key(run, name) for name in _ONLY_1) and fsdp_key(run, "state_dict_type") is not None
    yield section.finding(
        "`fsdp_config` names no fsdp_version: accelerate takes FSDP 1",
        "write `fsdp_version: 2` (or 1, to say that it is meant)",
        fix=section["fsdp_version"].set("2", "write fsdp_version: 2", safe=False) if plain else None,
        where="key",
    )


def _nothing_lost(name: str, value: object) -> bool:
    """Whether FSDP 2 does by itself what an FSDP 1 key asks for."""
    if name in ("use_orig_params", "sync_module_states", "limit_all_gathers"):
        return on(value)
    return str(value).upper() in ("FALSE", "NO_PREFETCH", "NONE", "0", "NO")


@rule("ZC609", "fsdp1-key-under-fsdp2", Severity.WARNING, WHOLE_RUN)
def fsdp1_key_under_fsdp2(run: Run) -> Iterator[Finding]:
    for name in ("forward_prefetch", "backward_prefetch", "use_orig_params", "sync_module_states", "limit_all_gathers"):
        found = fsdp_setting(run, name)
        if found is None or found[0] != "2" or found[1].value is None:
            continue
        key = found[1]
        if name == "limit_all_gathers" and key.file is run.accelerate:
            continue  # no key of accelerate's: ZC103
        lost = not _nothing_lost(name, key.value)
        yield key.finding(
            f"`{key.name}: {show(key.value)}` is a setting of FSDP 1, FSDP 2 does not look at it"
            + ("" if lost else " (and does so anyway)"),
            "remove the key",
            fix=key.delete("remove a key that has no effect"),
            severity=None if lost else Severity.NOTE,
            versions=releases(run),
        )


@rule("ZC610", "fsdp-without-sharding", Severity.WARNING, launcher_key("sharding_strategy", "1"))
def fsdp_without_sharding(key: Key) -> Iterator[Finding]:
    if str(key.value).upper() in ("NO_SHARD", "3") and effective_value(key.run, "num_processes") != 1:
        yield key.finding(
            "with NO_SHARD every process holds the whole model, gradients and optimizer: nothing is sharded",
            "write FULL_SHARD, or choose MULTI_GPU",
            fix=key.replace("FULL_SHARD", "write FULL_SHARD", safe=False),
            where="value",
        )


@rule(
    "ZC611",
    "fsdp-offloaded-activations",
    Severity.ERROR,
    launcher_key("activation_checkpointing_offload"),
    versions="accelerate>=1.15",
)
def fsdp_offloaded_activations(key: Key) -> Iterator[Finding]:
    if not on(key.value):
        return
    checkpointing = fsdp_key(key.run, "activation_checkpointing")
    if fsdp_version(key.run) == "1":
        yield key.finding(
            f"`{key.name}` needs FSDP 2, and FSDP 1 is chosen: every process stops",
            "write `fsdp_version: 2`, or remove the key",
            fix=key.delete("remove the key", safe=False),
        )
    elif checkpointing is None or str(checkpointing.value).lower() in ("n", "no", "f", "false", "off", "0"):
        new, why = "fsdp_activation_checkpointing", "switch fsdp_activation_checkpointing on"
        yield key.finding(
            f"`{key.name}` needs `{new}: true`: every process stops",
            why,
            fix=checkpointing.replace("true", why, safe=False)
            if checkpointing is not None
            else edited(insert_entry, key.file, key.path[:-1], new, "true", why=why, safe=False, after=key.name),
        )


@rule("ZC612", "fsdp-ignored-modules-as-list", Severity.ERROR, launcher_key("ignored_modules"))
def fsdp_ignored_modules_as_list(key: Key) -> Iterator[Finding]:
    if not isinstance(key.value, list) or not key.value:
        return
    names = "|".join(str(part) for part in key.value)
    quoted = "'" + names.replace("'", "''") + "'"
    yield key.finding(
        f"`{key.name}` is one regular expression, not a list: {show(str(key.value))} fits no module, so none is "
        "ignored",
        f"write {quoted}",
        fix=key.replace(quoted, "join the names by |"),
    )


@rule(
    "ZC613",
    "fsdp2-ignored-modules-lost",
    Severity.ERROR,
    launcher_key("ignored_modules", "2"),
    versions="accelerate>=1.8",
)
def fsdp2_ignored_modules_lost(key: Key) -> Iterator[Finding]:
    efficient = key.run.effective.environment.get("FSDP_CPU_RAM_EFFICIENT_LOADING")
    if not isinstance(key.value, str) or not key.value:
        return
    if efficient is None or not on(efficient.value):
        return
    why, loading = "write fsdp_cpu_ram_efficient_loading: false", efficient_loading(key.run)
    yield key.finding(
        f"`{key.name}` is lost: with fsdp_cpu_ram_efficient_loading (on by default) these modules are sharded as well",
        why,
        [loading] if loading else [],
        loading.set("false", why, safe=False),
    )
