"""ZC6xx: keys of `fsdp_config` that do nothing, or not what they say."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_section
from zerocfg.rules.fixes import edited
from zerocfg.rules.fsdp.plugin import (
    fsdp_key,
    fsdp_setting,
    fsdp_version,
    on,
    releases,
)
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

_ONLY_1 = (
    "sharding_strategy",
    "forward_prefetch",
    "backward_prefetch",
    "use_orig_params",
    "sync_module_states",
)


@rule("ZC608", "fsdp-version-not-written", Severity.NOTE, versions="accelerate>=1.6")
def fsdp_version_not_written(run: Run) -> Iterator[Finding]:
    section = accelerate_section(run, "fsdp_config")
    if run.accelerate is None or not section or fsdp_version(run) != "1":
        return
    if fsdp_key(run, "version") is not None or "fsdp_version" in run.flags:
        return
    plain = not any(fsdp_key(run, name) for name in _ONLY_1) and fsdp_key(run, "state_dict_type") is not None
    yield Finding(
        Location(run.accelerate, ("fsdp_config",), "key"),
        "`fsdp_config` names no fsdp_version: accelerate takes FSDP 1",
        "write `fsdp_version: 2` (or 1, to say that it is meant)",
        fix=edited(
            insert_entry, run.accelerate, ("fsdp_config",), "fsdp_version", "2", why="write fsdp_version: 2", safe=False
        )
        if plain
        else None,
    )


def _nothing_lost(name: str, value: object) -> bool:
    """Whether FSDP 2 does by itself what an FSDP 1 key asks for."""
    if name in ("use_orig_params", "sync_module_states", "limit_all_gathers"):
        return on(value)
    return str(value).upper() in ("FALSE", "NO_PREFETCH", "NONE", "0", "NO")


@rule("ZC609", "fsdp1-key-under-fsdp2", Severity.WARNING)
def fsdp1_key_under_fsdp2(run: Run) -> Iterator[Finding]:
    for name in ("forward_prefetch", "backward_prefetch", "use_orig_params", "sync_module_states", "limit_all_gathers"):
        found = fsdp_setting(run, name)
        if found is None or found[0] != "2" or found[3] is None:
            continue
        if name == "limit_all_gathers" and found[1] is run.accelerate:
            continue  # no key of accelerate's: ZC103
        _, file, path, value = found
        lost = not _nothing_lost(name, value)
        yield Finding(
            Location(file, path),
            f"`{path[-1]}: {show(value)}` is a setting of FSDP 1, FSDP 2 does not look at it"
            + ("" if lost else " (and does so anyway)"),
            "remove the key",
            fix=edited(delete_entry, file, path, why="remove a key that has no effect"),
            severity=None if lost else Severity.NOTE,
            versions=releases(run),
        )


@rule("ZC610", "fsdp-without-sharding", Severity.WARNING)
def fsdp_without_sharding(run: Run) -> Iterator[Finding]:
    found = fsdp_key(run, "sharding_strategy")
    if fsdp_version(run) != "1" or found is None or str(found[2]).upper() not in ("NO_SHARD", "3"):
        return
    yield Finding(
        Location(found[0], found[1], "value"),
        "with NO_SHARD every process holds the whole model, gradients and optimizer: nothing is sharded",
        "write FULL_SHARD, or choose MULTI_GPU",
        fix=edited(replace_value, found[0], found[1], "FULL_SHARD", why="write FULL_SHARD", safe=False),
    )


@rule("ZC611", "fsdp-offloaded-activations", Severity.ERROR, versions="accelerate>=1.15")
def fsdp_offloaded_activations(run: Run) -> Iterator[Finding]:
    version, offload = fsdp_version(run), fsdp_key(run, "activation_checkpointing_offload")
    if version is None or offload is None or not on(offload[2]):
        return
    file, path, _ = offload
    checkpointing = fsdp_key(run, "activation_checkpointing")
    if version == "1":
        yield Finding(
            Location(file, path),
            f"`{path[-1]}` needs FSDP 2, and FSDP 1 is chosen: every process stops",
            "write `fsdp_version: 2`, or remove the key",
            fix=edited(delete_entry, file, path, why="remove the key", safe=False),
        )
    elif checkpointing is None or str(checkpointing[2]).lower() in ("n", "no", "f", "false", "off", "0"):
        why = "switch fsdp_activation_checkpointing on"
        yield Finding(
            Location(file, path),
            f"`{path[-1]}` needs `fsdp_activation_checkpointing: true`: every process stops",
            why,
            fix=edited(replace_value, file, checkpointing[1], "true", why=why, safe=False)
            if checkpointing is not None
            else edited(
                insert_entry,
                file,
                ("fsdp_config",),
                "fsdp_activation_checkpointing",
                "true",
                why=why,
                safe=False,
                after=str(path[-1]),
            ),
        )


@rule("ZC612", "fsdp-ignored-modules-as-list", Severity.ERROR)
def fsdp_ignored_modules_as_list(run: Run) -> Iterator[Finding]:
    found = fsdp_key(run, "ignored_modules")
    if found is None or fsdp_version(run) is None or not isinstance(found[2], list) or not found[2]:
        return
    file, path, value = found
    names = "|".join(str(part) for part in value)
    quoted = "'" + names.replace("'", "''") + "'"
    yield Finding(
        Location(file, path),
        f"`{path[-1]}` is one regular expression, not a list: {show(str(value))} fits no module, so none is ignored",
        f"write {quoted}",
        fix=edited(replace_value, file, path, quoted, why="join the names by |"),
    )


@rule("ZC613", "fsdp2-ignored-modules-lost", Severity.ERROR, versions="accelerate>=1.15")
def fsdp2_ignored_modules_lost(run: Run) -> Iterator[Finding]:
    found = fsdp_key(run, "ignored_modules")
    efficient = run.effective.environment.get("FSDP_CPU_RAM_EFFICIENT_LOADING")
    if fsdp_version(run) != "2" or found is None or not isinstance(found[2], str) or not found[2]:
        return
    if efficient is None or not on(efficient.value):
        return
    file, path, _ = found
    loading = fsdp_key(run, "cpu_ram_efficient_loading")
    why = "write fsdp_cpu_ram_efficient_loading: false"
    yield Finding(
        Location(file, path),
        f"`{path[-1]}` is lost: with fsdp_cpu_ram_efficient_loading (on by default) these modules are sharded as well",
        why,
        [Location(file, loading[1])] if loading else [],
        fix=edited(replace_value, file, loading[1], "false", why=why, safe=False)
        if loading
        else edited(
            insert_entry, file, ("fsdp_config",), "fsdp_cpu_ram_efficient_loading", "false", why=why, safe=False
        ),
    )
