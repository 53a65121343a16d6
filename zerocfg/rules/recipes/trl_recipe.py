"""ZC8xx: TRL's recipes: names and words that TRL does not take. See also :mod:`trl_options`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.versions import only_from
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import (
    Argument,
    arguments,
    dropped,
    given,
    methods,
    own_option,
    reader,
    renamed,
    set_argument,
    value,
    written,
)
from zerocfg.rules.taken import declares, lets_through, newer, removed, said_for, what_happens
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit


@rule("ZC840", "trl-argument-removed", Severity.NOTE)
def trl_argument_removed(run: Run) -> Iterator[Finding]:
    if reader(run) != "trl":
        return
    inherited = load_schema("training-arguments").root.names
    names = load_schema("trl").root.names
    present = {held.name for held in arguments(run)}
    for held in arguments(run):
        if held.name in inherited or own_option(run, held.name) or lets_through(run, held):
            continue
        key = names.get(held.name)
        instead = str(key.facts.get("removed", "")) if key is not None else ""
        if not declares(run, "trl"):
            if instead:
                yield _gone_today(run, held, instead, present)
            continue
        lack = removed(run, held)
        if lack is None or lack.library != "trl":
            continue
        finding = Finding(
            held.at(),
            f"TRL {lack.edge} removed the argument `{held.name}`; {what_happens(run, held, lack)}",
            instead or "leave it out",
            fix=_modernized(run, held, instead, present, safe=True),
            severity=Severity.ERROR,
        )
        yield said_for(run, finding, lack)


def _gone_today(run: Run, held: Argument, instead: str, present: Collection[str]) -> Finding:
    """Where the project does not say which releases it is for."""
    return Finding(
        held.at(),
        f"TRL {VERSIONS['trl']} has no argument `{held.name}`; an older release is needed",
        instead,
        fix=_modernized(run, held, instead, present, safe=False),
    )


def _modernized(run: Run, held: Argument, instead: str, present: Collection[str], *, safe: bool) -> Fix | None:
    """The argument as today's release wants it."""
    new = instead.removeprefix("write ") if instead.startswith("write ") else ""
    if new.isidentifier() and new not in present and newer(run, replace(held, name=new)) is None:
        return renamed(run, held, new, f"write {new}", safe=safe)
    if instead.endswith("delete the line"):
        return dropped(run, held, "remove the option" if held.on_line else "remove the line")
    return None


@rule("ZC842", "config-with-equals-sign", Severity.ERROR)
def config_with_equals_sign(run: Run) -> Iterator[Finding]:
    option = run.arguments.get("config")
    file = run.launch_file
    if option is None or file is None or option.origin.span is None or option.origin.file is not file:
        return
    if run.recipe_reader != "trl" or not methods(run) or len(methods(run)) > 4:
        return
    span = option.origin.span
    text = file.source.text[span.start : span.end]
    if not text.startswith("--config="):
        return
    replaced = Edit(span, "--config " + text.removeprefix("--config="))
    yield Finding(
        Location(file, span=span),
        "TrlParser does not know `--config` with an equals sign: the recipe is not read, and the parser stops",
        "write a space instead of the equals sign",
        fix=Fix("write a space", ((file, replaced),)),
    )


DPO_LOSSES = (
    "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_unpaired apo_zero apo_down discopop sft "
    "sigmoid_norm".split()
)
_TRL_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "SFTConfig": {"loss_type": ("nll", "dft", "chunked_nll"), "packing_strategy": ("bfd", "bfd_split", "wrapped")},
    "DPOConfig": {"loss_type": tuple(DPO_LOSSES)},
}
_FORMER = {"ffd": "bfd"}
"""Words of older releases, and what they are called today."""


@rule("ZC843", "trl-word-unknown", Severity.ERROR)
def trl_word_unknown(run: Run) -> Iterator[Finding]:
    certain = only_from(run.versions.get("trl"), VERSIONS["trl"])
    for name, known in _only(run, _TRL_WORDS).items():
        held = value(run, name)
        for at, item in enumerate(held if isinstance(held, list) else [held]):
            if not isinstance(item, str) or item in known or given(run, name) is None:
                continue
            near = _FORMER.get(item) or closest(item, known)
            parts = [near if at == index else str(one) for index, one in enumerate(held)] if near else []
            text = near if isinstance(held, str) else "[" + ", ".join(str(part) for part in parts) + "]"
            location, related = written(run, name, where="value")
            yield Finding(
                location,
                f"`{name}` knows no `{item}`; the training stops at it",
                f"write {near}" if near else "write one of " + ", ".join(known),
                related,
                set_argument(run, name, str(text), f"write {near}") if near else None,
                Severity.NOTE if item in _FORMER and not certain else None,
                versions="trl>=0.23" if name == "loss_type" and methods(run) == {"SFTConfig"} else "",
            )


def _only(run: Run, table: dict[str, dict[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """What a table by config says for the one config that the recipe is for."""
    found = methods(run)
    return table.get(next(iter(found)), {}) if len(found) == 1 else {}


@rule("ZC847", "two-quantizations", Severity.ERROR)
def two_quantizations(run: Run) -> Iterator[Finding]:
    if reader(run) != "trl" or value(run, "load_in_4bit") is not True or value(run, "load_in_8bit") is not True:
        return
    location, related = written(run, "load_in_8bit", "load_in_4bit")
    yield Finding(
        location,
        "`load_in_4bit` and `load_in_8bit` exclude each other; TRL stops at it",
        "keep one of the two",
        related,
        set_argument(run, "load_in_8bit", "false", "load in 4 bit"),
    )
