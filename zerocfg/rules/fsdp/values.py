"""ZC6xx: values that one version of FSDP, or one of the two places that configure it, cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import argument, set_argument
from zerocfg.rules.effects import TRAINERS
from zerocfg.rules.fsdp.plugin import (
    ARGUMENTS,
    argument_key,
    argument_key_of,
    argument_version,
    fsdp_key,
    fsdp_version,
    launcher_key,
    releases,
)
from zerocfg.rules.key import Key
from zerocfg.run.model import Run

_NUMBERS = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}
_FIRST_ONLY = (
    "forward_prefetch",
    "backward_prefetch",
    "use_orig_params",
    "sync_module_states",
    "reshard_after_forward",
)


_ON_PROCESSORS = "accelerate>=1.8"
"""Those whose FSDP 2 trains without an accelerator too: of earlier ones nothing was seen."""


@rule("ZC642", "adafactor-with-fsdp2", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
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
        versions=releases(run) or _ON_PROCESSORS,
    )


@rule(
    "ZC643",
    "fsdp-offload-as-text",
    Severity.ERROR,
    argument_key_of("cpu_offload"),
    consumers=TRAINERS,
    versions=ARGUMENTS,
)
def fsdp_offload_as_text(key: Key) -> Iterator[Finding]:
    if not isinstance(key.value, str):
        return
    if key.value.lower() in ("false", "no", "off", "0", "n", "f", "none"):
        yield key.finding(
            f"`{key.name}: {show(key.value)}` is a text and counts as true: parameters are offloaded",
            "write false",
            fix=key.replace("false", "write false"),
            where="value",
        )


@rule("ZC644", "fsdp1-strategy-as-boolean", Severity.ERROR, WHOLE_RUN)
def fsdp1_strategy_as_boolean(run: Run) -> Iterator[Finding]:
    if argument_version(run) == "1":
        key = argument_key(run, "reshard_after_forward")
    elif fsdp_version(run) == "1":
        key = fsdp_key(run, "sharding_strategy")
    else:
        return
    if key is None or str(key.value).lower() not in ("true", "false"):
        return
    word = "FULL_SHARD" if str(key.value).lower() == "true" else "SHARD_GRAD_OP"
    yield key.finding(
        f"FSDP 1 knows no strategy {show(key.value)}: every process stops",
        f"write {word}",
        fix=key.replace(word, f"write {word}"),
        where="value",
        versions=releases(run),
    )


@rule("ZC645", "fsdp-strategy-by-number", Severity.NOTE, launcher_key("sharding_strategy", "1"))
def fsdp_strategy_by_number(key: Key) -> Iterator[Finding]:
    name = _NUMBERS.get(str(key.value)) if not isinstance(key.value, bool) else None
    if name is None or name == "NO_SHARD":
        return
    yield key.finding(
        f"`{key.name}: {key.value}` is {name}; the names are safer to read, and to convert",
        f"write {name}",
        fix=key.replace(name, f"write {name}"),
        where="value",
    )


@rule(
    "ZC646",
    "fsdp1-of-the-trainer",
    Severity.NOTE,
    argument_key_of("version", "1"),
    consumers=TRAINERS,
    versions=ARGUMENTS,
)
def fsdp1_of_the_trainer(key: Key) -> Iterator[Finding]:
    plain = not any(argument_key(key.run, name) for name in _FIRST_ONLY)
    yield key.finding(
        "FSDP 1 is on its way out of transformers",
        "write `version: 2`",
        fix=key.replace("2", "write 2", safe=False) if plain else None,
    )
