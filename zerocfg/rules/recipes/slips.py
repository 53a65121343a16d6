"""ZC841: names of arguments that are slips, or another program's names of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial

from zerocfg.catalog.check import refusal
from zerocfg.catalog.counterparts import Counterpart
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.argument_reader import methods, reader, trainer_configs
from zerocfg.rules.arguments import Argument, arguments, own_option, renamed
from zerocfg.rules.calls import ever_taken, given_in_calls, taken_by
from zerocfg.rules.effects import admitted
from zerocfg.rules.key import Key, from_origin
from zerocfg.rules.moving import as_json, moved, text_at
from zerocfg.rules.renaming import said_in
from zerocfg.rules.taken import OF_TRL_PARSER, dropped_silently, former, lets_through, named
from zerocfg.run.model import Run
from zerocfg.run.script.arguments import is_arguments
from zerocfg.run.stages.arguments import parsed
from zerocfg.source.node import dotted

_KINDS: dict[type, str] = {list: "list", dict: "mapping"}


@rule("ZC841", "argument-misspelled", Severity.WARNING, WHOLE_RUN, histories="arguments")
def argument_misspelled(run: Run) -> Iterator[Finding]:
    yield from _slips_in_calls(run)
    if reader(run) is None:
        return
    known = load_schema("training-arguments").root.names
    others = load_schema("trl").root.names
    present = {argument.name for argument in arguments(run)}
    taken = cache(partial(_taken, run))  # the same for all arguments that are as sure
    for argument in arguments(run):
        name, key = argument.name, from_origin(run, argument.origin, argument.held)
        if name in known or name in others or own_option(run, name):
            continue
        if argument.on_line and (not _spells(run, name) or lets_through(run, argument)):
            continue
        said = said_in(key, "training-arguments") if key.file is run.recipe and key.path else None
        if said is not None and said.places and not said.lost:
            yield _called_otherwise(key, said.places, consequence(run, argument))
            continue
        strict = _in_call(run, argument) or certainly_unknown(run, argument)
        numbers = (name.removesuffix("s"), f"{name}s")  # singular and plural
        if not strict and (len(name) < 9 or any(other in known or other in others for other in numbers)):
            continue
        near = closest(name, taken(strict))
        # short words are near each other by chance: lora_rank is no local_rank
        plain = name.replace("-", "_")
        if near is None or _distance(plain, near) > _furthest(name, strict):
            continue
        if near in present and (plain.startswith(near) or any(letter.isdigit() for letter in plain)):
            continue  # learning_rate_2 beside learning_rate is no slip
        if former(name):
            continue  # ZC801, ZC840 and ZC865 know which releases have it
        meant = known.get(near) or others.get(near)
        takes = meant is None or argument.on_line or refusal(meant, argument.held) is None  # a list is no name
        yield Finding(
            argument.at(),
            f"there is no argument `{name}`; `{near}` is one, and {consequence(run, argument)}",
            f"remove it: `{near}` is written too"
            if near in present
            else f"write {near}"
            + ("" if takes else f", which takes no {_KINDS.get(type(argument.held), 'such value')}"),
            fix=renamed(run, argument, near, f"write {near}") if near not in present and takes else None,
        )


def _slips_in_calls(run: Run) -> Iterator[Finding]:
    """Arguments of calls in the script that no release of the class takes, and that are near one that it takes."""
    for given in given_in_calls(run):
        if ever_taken(given.call.name, given.name):
            continue
        known = taken_by(given.call.name)
        near = closest(given.name, sorted(known)) if known else None
        if near is None or _distance(given.name, near) > _furthest(given.name, strict=False):
            continue
        both = near in given.call.arguments
        if both and any(letter.isdigit() for letter in given.name):
            continue
        yield given.finding(
            f"there is no argument `{given.name}`; `{near}` is one, and {given.of} stops at the other",
            f"remove it: `{near}` is written too" if both else f"write {near}",
        )


def _furthest(name: str, strict: bool) -> int:
    """How many letters apart a slip and the name that was meant may be."""
    return 2 if len(name) > (7 if strict else 11) else 1


def consequence(run: Run, argument: Argument) -> str:
    if _in_call(run, argument):
        return "the class stops at the other"
    if dropped_silently(run, argument):
        return f"TrlParser drops the other without a word ({admitted(run, 'trl')})"
    if lets_through(run, argument):
        return "the script's parser lets the other through"
    if run.recipe_reader == "trl" and not argument.on_line and "trl" in run.undetermined:
        return "TrlParser stops at the other, or drops it without a word in TRL 0.13 to 0.18"
    return "the parser stops at the other"


def certainly_unknown(run: Run, argument: Argument) -> bool:
    """Whether the parser of the script is known, with all that it takes, and this is none of it."""
    script = run.script
    if script is None or script.options is None or script.lenient or not _all_known(parsed(run)):
        return False
    if argument.on_line:
        return _spells(run, argument.name)
    return argument.origin.file is run.recipe and run.recipe_reader is not None and argument.name not in OF_TRL_PARSER


def _all_known(classes: frozenset[str]) -> bool:
    """Whether the catalog knows the fields of all these dataclasses: TRL has had others."""
    keys = load_schema("trl").root.names.values()
    known = {f"trl.{name}" for key in keys for name in key.facts.get("in", ())}
    return bool(classes) and all(name.startswith("transformers.") or name in known for name in classes)


def _in_call(run: Run, argument: Argument) -> bool:
    """Whether an argument stands in a call of the library's own class, which takes no other."""
    calls = run.script.calls if run.script is not None else ()
    here = [call for call in calls if is_arguments(call.name) and argument.origin.file is call.file]
    return (
        argument.origin.kind == "file" and len(here) == 1 and not here[0].derived and argument.name in here[0].arguments
    )


def _taken(run: Run, strict: bool) -> list[str]:
    """The arguments that the run's reader takes: those of TrainingArguments, and those of the TRL configs it is for.
    ``strict``: nothing else can be meant, so those of the script count, too, and, where the project does not say which
    releases it admits, those that older ones have."""
    then = named(run)
    inherited = load_schema("training-arguments").root.names
    today = [name for name, key in inherited.items() if strict or "removed" not in key.facts]
    names = then if then is not None else today
    others = load_schema("trl").root.names
    if strict and run.script is not None and run.script.options is not None:
        names += sorted(name for name in run.script.options if name not in inherited and name not in others)
    if reader(run) != "trl" or then is not None:
        return names
    configs = methods(run)
    trainers = trainer_configs()
    for name, key in others.items():
        inside = frozenset(key.facts.get("in", ()))
        if "removed" not in key.facts and inside and (inside & configs or not inside & trainers):
            names.append(name)
    return names


def _spells(run: Run, name: str) -> bool:
    """Whether an unknown option is certainly one that the script's parser stops at: all that it takes is known, and
    none begins like it, which argparse would take for an abbreviation."""
    if run.script is None or run.script.options is None or not parsed(run):
        return False
    every = {*load_schema("training-arguments").root.names, *load_schema("trl").root.names, *run.script.options}
    return not any(other.startswith((name, f"no_{name}")) or f"no_{other}" == name for other in every)


def _called_otherwise(key: Key, own: Sequence[Counterpart], effect: str) -> Finding:
    """A setting as DeepSpeed or accelerate calls it."""
    assert key.file is not None
    names = " and ".join(f"`{dotted(place.path)}`" for place in own)
    first = own[0]
    text = as_json(first.value) if first.value != key.value else text_at(key.file, key.path)
    fix = None
    if len(own) == 1 and first.fits and text is not None:
        fix = moved(key.file, key.path, key.file, first.path, text, f"write {dotted(first.path)}")
    return key.finding(
        f"there is no argument `{key.name}`; the Trainer calls it {names}, and {effect}",
        f"write {names}",
        fix=fix,
        where="key",
    )


def _distance(a: str, b: str) -> int:
    """Letters to insert, delete or replace on the way from one word to the other."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (letter != other))
    return row[-1]
