"""ZC6xx: values that one version of FSDP, or one of the two places that configure it, cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import argument, set_argument
from zerocfg.rules.effects import TRAINERS
from zerocfg.rules.fixes import edited
from zerocfg.rules.fsdp.plugin import (
    ARGUMENTS,
    argument_key,
    argument_version,
    fsdp_key,
    fsdp_version,
    releases,
)
from zerocfg.run.model import Run
from zerocfg.source.edit import replace_value

_NUMBERS = {
    "1": "FULL_SHARD",
    "2": "SHARD_GRAD_OP",
    "3": "NO_SHARD",
    "4": "HYBRID_SHARD",
    "5": "HYBRID_SHARD_ZERO2",
}
_FIRST_ONLY = (
    "forward_prefetch",
    "backward_prefetch",
    "use_orig_params",
    "sync_module_states",
    "reshard_after_forward",
)


@rule("ZC642", "adafactor-with-fsdp2", Severity.ERROR, consumers=TRAINERS, versions="transformers>=5")
def adafactor_with_fsdp2(run: Run) -> Iterator[Finding]:
    version = argument_version(run) or fsdp_version(run)
    asked = argument(run, "optim")
    if version != "2" or asked is None or asked.held != "adafactor":
        return
    yield Finding(
        asked.at("entry"),
        "adafactor cannot step on the distributed tensors of FSDP 2: the job stops in its first step",
        "write adamw_torch",
        fix=set_argument(run, "optim", "adamw_torch", "write adamw_torch"),
    )


@rule("ZC643", "fsdp-offload-as-text", Severity.ERROR, consumers=TRAINERS, versions=ARGUMENTS)
def fsdp_offload_as_text(run: Run) -> Iterator[Finding]:
    found = argument_key(run, "cpu_offload")
    if argument_version(run) is None or found is None or not isinstance(found[2], str):
        return
    if found[2].lower() not in ("false", "no", "off", "0", "n", "f", "none"):
        return
    file, path, value = found
    yield Finding(
        Location(file, path, "value"),
        f"`{path[-1]}: {show(value)}` is a text and counts as true: parameters are offloaded",
        "write false",
        fix=edited(replace_value, file, path, "false", why="write false"),
    )


@rule("ZC644", "fsdp1-strategy-as-boolean", Severity.ERROR)
def fsdp1_strategy_as_boolean(run: Run) -> Iterator[Finding]:
    if argument_version(run) == "1":
        found = argument_key(run, "reshard_after_forward")
    elif fsdp_version(run) == "1":
        found = fsdp_key(run, "sharding_strategy")
    else:
        return
    if found is None or str(found[2]).lower() not in ("true", "false"):
        return
    file, path, value = found
    word = "FULL_SHARD" if str(value).lower() == "true" else "SHARD_GRAD_OP"
    yield Finding(
        Location(file, path, "value"),
        f"FSDP 1 knows no strategy {show(value)}: every process stops",
        f"write {word}",
        fix=edited(replace_value, file, path, word, why=f"write {word}"),
        versions=releases(run),
    )


@rule("ZC645", "fsdp-strategy-by-number", Severity.NOTE)
def fsdp_strategy_by_number(run: Run) -> Iterator[Finding]:
    found = fsdp_key(run, "sharding_strategy")
    name = _NUMBERS.get(str(found[2])) if found is not None and not isinstance(found[2], bool) else None
    if fsdp_version(run) != "1" or found is None or name is None or name == "NO_SHARD":
        return
    yield Finding(
        Location(found[0], found[1], "value"),
        f"`{found[1][-1]}: {found[2]}` is {name}; the names are safer to read, and to convert",
        f"write {name}",
        fix=edited(replace_value, found[0], found[1], name, why=f"write {name}"),
    )


@rule("ZC646", "fsdp1-of-the-trainer", Severity.NOTE, consumers=TRAINERS, versions=ARGUMENTS)
def fsdp1_of_the_trainer(run: Run) -> Iterator[Finding]:
    found = argument_key(run, "version")
    if argument_version(run) != "1" or found is None:
        return
    plain = not any(argument_key(run, name) for name in _FIRST_ONLY)
    yield Finding(
        Location(found[0], found[1]),
        "FSDP 1 is on its way out of transformers",
        "write `version: 2`",
        fix=edited(replace_value, found[0], found[1], "2", why="write 2", safe=False) if plain else None,
    )
