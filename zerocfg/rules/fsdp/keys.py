"""ZC6xx: keys of `fsdp_config` that do nothing, or not what they say."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_section, edited
from zerocfg.rules.fsdp.plugin import (
    WRAPPED,
    accelerate_example,
    fsdp_key,
    fsdp_setting,
    fsdp_version,
    on,
    recipe_example,
    releases,
)
from zerocfg.rules.proof import ABSENT, crashes, logged, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

_UNVERSIONED = WRAPPED.replace("  fsdp_version: %s\n", "")
_ONLY_1 = (
    "sharding_strategy",
    "forward_prefetch",
    "backward_prefetch",
    "use_orig_params",
    "sync_module_states",
)


@rule(
    "ZC608",
    "fsdp-version-not-written",
    Severity.NOTE,
    bad=Example(
        {"accelerate.yaml": _UNVERSIONED + "  fsdp_state_dict_type: FULL_STATE_DICT\n"}, consumer="accelerate"
    ).finds("note", "accelerate.yaml: fsdp_config", 1, 2, 1),
    good=accelerate_example(2, "  fsdp_state_dict_type: FULL_STATE_DICT\n"),
    proof=shows(
        "arguments", {"plugin.fsdp_version": (1, 2)}, extent="the version in the plugin of the live Accelerator."
    ),
    fixable=True,
    references=("accelerate/commands/launch.py@1.15.0", "accelerate/commands/config/cluster.py@1.15.0"),
    versions="accelerate>=1.6",
)
def fsdp_version_not_written(run: Run) -> Iterator[Finding]:
    """An `fsdp_config` without `fsdp_version` trains with FSDP 1.

    The two versions read different keys and shard in different ways, so whoever reads the file has to know which
    one is meant. `accelerate config` proposes 2 and the training arguments default to 2, the launcher alone to 1,
    which transformers announces to remove.

    What happens: the launcher exports `FSDP_VERSION=1`, and the keys of FSDP 2 are not read.

    Fix: `fsdp_version: 2` is written where the section holds no key that only FSDP 1 knows; that is a choice.

    When to ignore: FSDP 1 is what you want; then write `fsdp_version: 1`.
    """
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


@rule(
    "ZC609",
    "fsdp1-key-under-fsdp2",
    Severity.WARNING,
    bad=(
        accelerate_example(2, "  fsdp_forward_prefetch: true\n").finds(
            "warning", "accelerate.yaml: fsdp_forward_prefetch: true", 1, 2
        ),
        accelerate_example(
            2,
            "  fsdp_backward_prefetch: BACKWARD_PRE\n",
            proof=shows("arguments", {"log": logged("backward_prefetch is not supported in FSDP2")}),
        ).finds("warning", "accelerate.yaml: fsdp_backward_prefetch: BACKWARD_PRE", 1, 2),
        recipe_example(
            "fsdp: true\nfsdp_config:\n  forward_prefetch: true\n",
            proof=shows(
                "arguments",
                {"read.fsdp_config.forward_prefetch": (True, ABSENT), "plugin.forward_prefetch": (None, None)},
                extent="that the plugin of FSDP 2 holds no prefetching whether the key is written or not.",
            ),
        ).finds("warning", "recipe.yaml: forward_prefetch: true", 1, 2),
    ),
    good=accelerate_example(2, ""),
    proof=shows(
        "arguments",
        {"env.FSDP_FORWARD_PREFETCH": ("true", "false"), "plugin.forward_prefetch": (None, None)},
        extent="that the plugin of FSDP 2 holds no prefetching whether the key is written or not.",
    ),
    fixable=True,
    references=("accelerate/utils/dataclasses.py@1.15.0",),
)
def fsdp1_key_under_fsdp2(run: Run) -> Iterator[Finding]:
    """A key of FSDP 1 (prefetching, original parameters, synchronisation) under FSDP 2.

    The setting was chosen for a reason, and that reason is not served: no prefetching happens, and no parameter is
    flattened or left unsynchronised.

    What happens: `fsdp_forward_prefetch`, `fsdp_use_orig_params` and `fsdp_sync_module_states` are exported and not
    read. For `fsdp_backward_prefetch` accelerate warns: `backward_prefetch is not supported in FSDP2. Setting backward
    prefetch to None.` A note where FSDP 2 does anyway what the key says.

    Fix: the key is removed; nothing changes by that.

    When to ignore: one file serves both versions.
    """
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


@rule(
    "ZC610",
    "fsdp-without-sharding",
    Severity.WARNING,
    bad=accelerate_example(1, "  fsdp_sharding_strategy: NO_SHARD\n").finds("warning", "accelerate.yaml: NO_SHARD"),
    good=accelerate_example(1, "  fsdp_sharding_strategy: FULL_SHARD\n"),
    proof=shows("init", {"engine.share": (1.0, 0.5)}, ranks=2),
    fixable=True,
    references=("torch/distributed/fsdp/_init_utils.py@2.13.0",),
)
def fsdp_without_sharding(run: Run) -> Iterator[Finding]:
    """`NO_SHARD`: FSDP that shards nothing.

    Every process holds all parameters, gradients and optimizer states, as with plain data parallelism, and pays for
    FSDP's flattening on top. torch has declared the strategy deprecated.

    What happens: each of two ranks holds all elements of the model instead of half of them.

    Instead: `distributed_type: MULTI_GPU` is the same training with less around it.

    Fix: FULL_SHARD is written; that is a choice.

    When to ignore: you compare strategies and change only this key.
    """
    found = fsdp_key(run, "sharding_strategy")
    if fsdp_version(run) != "1" or found is None or str(found[2]).upper() not in ("NO_SHARD", "3"):
        return
    yield Finding(
        Location(found[0], found[1], "value"),
        "with NO_SHARD every process holds the whole model, gradients and optimizer: nothing is sharded",
        "write FULL_SHARD, or choose MULTI_GPU",
        fix=edited(replace_value, found[0], found[1], "FULL_SHARD", why="write FULL_SHARD", safe=False),
    )


@rule(
    "ZC611",
    "fsdp-offloaded-activations",
    Severity.ERROR,
    bad=(
        accelerate_example(2, "  fsdp_activation_checkpointing_offload: true\n").finds(
            "error", "accelerate.yaml: fsdp_activation_checkpointing_offload: true"
        ),
        accelerate_example(
            1,
            "  fsdp_activation_checkpointing: true\n  fsdp_activation_checkpointing_offload: true\n",
            proof=crashes("arguments", "requires `fsdp_version=2`"),
        ).finds("error", "accelerate.yaml: fsdp_activation_checkpointing_offload: true", 2, 1, 2),
    ),
    good=accelerate_example(
        2, "  fsdp_activation_checkpointing: true\n  fsdp_activation_checkpointing_offload: true\n"
    ),
    proof=crashes("arguments", "requires `activation_checkpointing=True`"),
    fixable=True,
    references=("accelerate/utils/dataclasses.py@1.15.0",),
    versions="accelerate>=1.15",
)
def fsdp_offloaded_activations(run: Run) -> Iterator[Finding]:
    """Activations are to be offloaded without being checkpointed, or under FSDP 1.

    What is offloaded are the inputs of checkpointed layers: without checkpointing there are none, and only FSDP 2
    can do it.

    What happens: the Accelerator stops with `ValueError: activation_checkpointing_offload=True requires
    activation_checkpointing=True`, or `... requires fsdp_version=2`, in every process.

    Fix: under FSDP 2 `fsdp_activation_checkpointing: true` is written, which offloading needs; that is a choice, for
    the layers are then computed twice. Under FSDP 1 the key is removed, as it can never work there.
    """
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


@rule(
    "ZC612",
    "fsdp-ignored-modules-as-list",
    Severity.ERROR,
    bad=accelerate_example(2, "  fsdp_cpu_ram_efficient_loading: false\n  fsdp_ignored_modules: [lm_head]\n").finds(
        "error", "accelerate.yaml: fsdp_ignored_modules: [lm_head]"
    ),
    good=accelerate_example(2, "  fsdp_cpu_ram_efficient_loading: false\n  fsdp_ignored_modules: lm_head\n"),
    proof=shows("init", {"engine.share": (0.5, 0.56)}, ranks=2),
    fixable=True,
    references=("accelerate/utils/other.py@1.15.0",),
)
def fsdp_ignored_modules_as_list(run: Run) -> Iterator[Finding]:
    """`fsdp_ignored_modules` is written as a list of names.

    The modules that should stay whole on every process (an output layer, adapters) are sharded like the others.

    What happens: the value becomes one text, which is used as a regular expression for whole module names. A list
    turns into a text in square brackets, a set of characters that fits no module; nothing is said about it.

    Fix: the names are joined by `|`.

    When to ignore: never; the list has no effect.
    """
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


@rule(
    "ZC613",
    "fsdp2-ignored-modules-lost",
    Severity.ERROR,
    bad=accelerate_example(2, "  fsdp_ignored_modules: lm_head\n").finds(
        "error", "accelerate.yaml: fsdp_ignored_modules: lm_head"
    ),
    good=accelerate_example(2, "  fsdp_cpu_ram_efficient_loading: false\n  fsdp_ignored_modules: lm_head\n"),
    proof=shows("init", {"engine.share": (0.5, 0.56)}, ranks=2),
    fixable=True,
    references=("accelerate/utils/fsdp_utils.py@1.15.0",),
    versions="accelerate>=1.15",
)
def fsdp2_ignored_modules_lost(run: Run) -> Iterator[Finding]:
    """`fsdp_ignored_modules` together with `fsdp_cpu_ram_efficient_loading` under FSDP 2.

    The modules that should stay whole on every process are sharded like the others.

    What happens: accelerate collects the parameters to ignore and then moves the model to the meta device, which
    makes new parameters; none of those is on the list. Efficient loading is on unless it is switched off, so that
    naming the modules alone has no effect.

    Fix: `fsdp_cpu_ram_efficient_loading: false` is written; that is a choice, for every process then loads the whole
    model into host memory.

    When to ignore: never; without that switch the key has no effect.
    """
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


RULES = (
    fsdp_version_not_written,
    fsdp1_key_under_fsdp2,
    fsdp_without_sharding,
    fsdp_offloaded_activations,
    fsdp_ignored_modules_as_list,
    fsdp2_ignored_modules_lost,
)
