"""ZC6xx: the keys of `fsdp_config`, and sections of an engine that is not the one chosen. See also
:mod:`wrapping` and :mod:`training`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument
from zerocfg.rules.effects import TRAINERS, accelerate_data, accelerate_section, effective_value, recipe_data
from zerocfg.rules.failures import failures, ignored, primary_location, reported
from zerocfg.rules.fixes import edited, rewritten
from zerocfg.rules.release_scope import among
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Path

KEEPS = ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2", "2", "5")
"""Strategies that keep the parameters gathered after the forward pass."""
_BOOL_WORDS = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0")


def fsdp_key(run: Run, name: str) -> tuple[SourceFile, Path, Any] | None:
    """A key of `fsdp_config` of the accelerate config, with or without its prefix: (file, path, value)."""
    written = accelerate_section(run, "fsdp_config")
    for spelling in (f"fsdp_{name}", name):
        if spelling in written and run.accelerate is not None:
            return run.accelerate, ("fsdp_config", spelling), written[spelling]
    return None


def fsdp_argument(run: Run) -> object:
    """The training argument `fsdp`, None where nothing says anything; it makes the plugin anew from `fsdp_config`."""
    if run.consumer not in TRAINERS:
        return None
    found = argument(run, "fsdp")
    return None if found is None else found.held


def fsdp_version(run: Run) -> str | None:
    """ "1" or "2" when the job runs under FSDP as accelerate's launcher is told, else None."""
    if fsdp_argument(run) or fsdp_argument(run) is UNKNOWN:
        return None
    setting = run.effective.environment.get("FSDP_VERSION")
    if only_below(run.versions.get("accelerate"), _FSDP_2):
        return "1" if "ACCELERATE_USE_FSDP" in run.effective.environment else None
    return str(setting.value) if setting is not None and str(setting.value) in ("1", "2") else None


ARGUMENTS = "transformers>=5.10"
"""From then on the training arguments are read as here: FSDP 2 where no version is written, true as a switch, and words
that are not known refused. Of older releases nothing is said."""
_FSDP_2 = "1.6"
"""The release of accelerate that brought FSDP 2."""


def argument_key(run: Run, name: str) -> tuple[SourceFile, Path, object] | None:
    """A key of the recipe's `fsdp_config`, with or without `fsdp_`, when the Trainer reads it; the prefix wins."""
    config = recipe_data(run).get("fsdp_config")
    if run.recipe is None or not isinstance(config, dict):
        return None
    for spelling in (f"fsdp_{name}", name):
        if spelling in config:
            return run.recipe, ("fsdp_config", spelling), config[spelling]
    return None


def argument_version(run: Run) -> str | None:
    """ "1" or "2" when the training arguments switch FSDP on, else None."""
    asked, config = fsdp_argument(run), argument(run, "fsdp_config")
    if not asked or asked is UNKNOWN or among(ARGUMENTS, run) is None:
        return None
    if config is not None and config.held is not None and not (isinstance(config.held, dict) and config.origin.path):
        return None  # a file, or entries that cannot be told apart in their place
    found = argument_key(run, "version")
    version = str(found[2]) if found is not None else "2"
    return version if version in ("1", "2") else None


def fsdp_setting(run: Run, name: str) -> tuple[str, SourceFile, Path, object] | None:
    """A key where it counts, the recipe's `fsdp_config` or else that of accelerate: (version, file, path, value)."""
    version = argument_version(run)
    found = argument_key(run, name) if version is not None else None
    if version is None:
        version, found = fsdp_version(run), fsdp_key(run, name)
    return None if version is None or found is None else (version, *found)


def releases(run: Run) -> str:
    """``Finding.versions`` of what is found in `fsdp_setting`."""
    return ARGUMENTS if argument_version(run) is not None else ""


def on(value: object) -> bool:
    """Whether a value of the accelerate config switches something on."""
    return str(value).lower() in ("y", "yes", "t", "true", "on", "1")


def _is_default(value: object) -> bool:
    """FULL_SHARD in one of its spellings: what applies anyway."""
    return value in (True, 1) or str(value).upper() in ("FULL_SHARD", "1", "TRUE")


@rule("ZC601", "fsdp-loading-without-sync", Severity.ERROR)
def fsdp_loading_without_sync(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC601"):
        found = reported(run, failure, "write true, or switch fsdp_cpu_ram_efficient_loading off as well")
        key = fsdp_key(run, "sync_module_states")
        written = fsdp_key(run, "version")
        if key is not None and written is not None and str(written[2]) == "2":
            found.fix = edited(delete_entry, key[0], key[1], why="remove the key, which FSDP 2 does not need")
        elif key is not None:
            found.fix = edited(replace_value, key[0], key[1], "true", why="write true", safe=False)
        yield found


@rule("ZC602", "fsdp-key-of-other-version", Severity.ERROR)
def fsdp_key_of_other_version(run: Run) -> Iterator[Finding]:
    version = fsdp_version(run)
    dead, alive = {
        "1": ("reshard_after_forward", "sharding_strategy"),
        "2": ("sharding_strategy", "reshard_after_forward"),
    }.get(version or "", ("", ""))
    found = fsdp_key(run, dead) if dead else None
    if found is None or _is_default(found[2]) or fsdp_key(run, alive) is not None:
        return
    file, path, value = found
    yield Finding(
        Location(file, path),
        f"FSDP {version} never reads `{path[-1]}`: {show(value)} is dropped and everything is sharded as in FULL_SHARD",
        f"write `fsdp_{alive}`",
        fix=_moved(file, path, f"fsdp_{alive}", _other_word(value, version)),
    )


def _other_word(value: object, version: str | None) -> str | None:
    """The value in the words of the other key, None where it has none."""
    text = str(value).upper()
    if version == "2":
        return "false" if text in ("SHARD_GRAD_OP", "2") else None
    if value is False or text == "FALSE":
        return "SHARD_GRAD_OP"
    known = ("SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
    return str(value) if text in known else None


def _moved(file: SourceFile, path: Path, key: str, value: str | None) -> Fix | None:
    return None if value is None else rewritten(file, path, key, value, why=f"write {key}: {value}")


@rule("ZC603", "fsdp2-strategy-name", Severity.ERROR)
def fsdp2_strategy_name(run: Run) -> Iterator[Finding]:
    found = fsdp_setting(run, "reshard_after_forward")
    if found is None or found[0] != "2" or str(found[3]).lower() in _BOOL_WORDS:
        return
    _, file, path, value = found
    keeps = str(value).upper() in (*KEEPS, "NO_SHARD")
    word = "false" if keeps else "true"
    same = str(value).upper() in ("FULL_SHARD", "SHARD_GRAD_OP")
    yield Finding(
        Location(file, path, "value"),
        f"FSDP 2 reads `{path[-1]}` as true or false; {show(value)} stops every process",
        f"write {word}",
        fix=edited(replace_value, file, path, word, why=f"write {word}", safe=same),
        versions=releases(run),
    )


_NAMES = {
    "deepspeed_config": "DEEPSPEED",
    "fsdp_config": "FSDP",
    "megatron_lm_config": "MEGATRON_LM",
}


@rule("ZC604", "section-of-another-engine", Severity.ERROR)
def section_of_another_engine(run: Run) -> Iterator[Finding]:
    for item in ignored(run, "ZC604"):
        engine = effective_value(run, "engine")
        used = {"ddp": "plain data parallelism", "single": "one plain process"}.get(str(engine), "")
        location, related = primary_location(run, [item.place], "key")
        yield Finding(
            location,
            f"{item.message}: the job runs" + (f" with {used}" if used else " without it"),
            "correct `distributed_type`, or remove the section",
            related + ([Location(run.accelerate, ("distributed_type",))] if run.accelerate else []),
            fix=_right_engine(run, str(location.path[0]) if location.path else ""),
        )


def _right_engine(run: Run, unused: str) -> Fix | None:
    data = accelerate_data(run)
    kind = data.get("distributed_type")
    if unused not in _NAMES or not isinstance(data.get(unused), dict):
        return None
    own = next((section for section, name in _NAMES.items() if name == kind), None)
    if own is not None and data.get(own):
        return edited(delete_entry, run.accelerate, (unused,), why="remove the section that is not used")
    others = [name for name in _NAMES if name != unused and data.get(name)]
    if others or not isinstance(kind, str):
        return None
    name = _NAMES[unused]
    return edited(replace_value, run.accelerate, ("distributed_type",), name, why=f"choose {name}", safe=False)


@rule("ZC606", "fsdp-local-state", Severity.ERROR)
def fsdp_local_state(run: Run) -> Iterator[Finding]:
    found = fsdp_setting(run, "state_dict_type")
    if found is None or found[0] != "2" or str(found[3]).upper() != "LOCAL_STATE_DICT":
        return
    _, file, path, _ = found
    word = "FULL_STATE_DICT" if run.consumer in TRAINERS else "SHARDED_STATE_DICT"
    yield Finding(
        Location(file, path, "value"),
        "FSDP 2 knows no LOCAL_STATE_DICT; every process stops",
        "write SHARDED_STATE_DICT or FULL_STATE_DICT",
        fix=edited(replace_value, file, path, word, why=f"write {word}", safe=False),
        versions=releases(run),
    )
