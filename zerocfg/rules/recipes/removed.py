"""ZC8xx: training arguments that a release of transformers or TRL removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zerocfg.catalog.fields import in_trl
from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.versions import admits, library_name
from zerocfg.record import replace
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, rule
from zerocfg.rules.argument_reader import guessed, reader, reads_recipe
from zerocfg.rules.arguments import Argument, arguments, dropped, own_option, renamed
from zerocfg.rules.fields_twice import newest_refuses_fields
from zerocfg.rules.fixes import rewritten
from zerocfg.rules.recipes.trainer_types import number_in
from zerocfg.rules.taken import as_installed, in_call, lets_through, newer, removed, said_for, what_happens
from zerocfg.run.model import Run

_SCHEMAS = {"transformers": "training-arguments", "trl": "trl"}


@rule("ZC801", "argument-removed", Severity.WARNING, WHOLE_RUN, histories="arguments")
def argument_removed(run: Run) -> Iterator[Finding]:
    known = reader(run) is not None
    read = known or reads_recipe(run)
    asked = (argument for argument in arguments(run) if in_call(argument) or (known if argument.on_line else read))
    yield from _removed(run, "transformers", asked, _modernized)


@rule("ZC840", "trl-argument-removed", Severity.WARNING, WHOLE_RUN, histories="arguments")
def trl_argument_removed(run: Run) -> Iterator[Finding]:
    if reader(run) == "trl":
        inherited = load_schema("training-arguments").root.names
        asked = (
            argument
            for argument in arguments(run)
            if argument.name not in inherited
            and (run.consumer is not None or in_call(argument) or not _may_be_experimental(argument.name))
        )
        yield from _removed(run, "trl", asked, _modernized_for_trl)


def _may_be_experimental(name: str) -> bool:
    """Whether a config of TRL that moved to `trl.experimental` has, or had, an argument of this name."""
    known = histories("trl")
    return any(known.today(field.rpartition(".")[0]) is None for field in in_trl(name))


def _removed(
    run: Run, library: str, asked: Iterable[Argument], modernized: Callable[[Run, Argument, str, bool], Fix | None]
) -> Iterator[Finding]:
    """The arguments that no admitted release of a library has, or only some; a note where nothing declares releases and
    who reads the arguments is a guess. ``modernized``: a fix by what the catalog says instead, and whether that may be
    safe."""
    names, said_name = load_schema(_SCHEMAS[library]).root.names, library_name(library)
    installed = as_installed(run, library)
    if installed is None or newest_refuses_fields(run):
        return
    judged, severity = installed
    declared = severity is Severity.ERROR
    if not declared and (run.consumer is None or (run.script is None and guessed(run))):
        severity = Severity.NOTE
    for argument in asked:
        if own_option(run, argument.name) or lets_through(run, argument):
            continue
        lack = removed(judged, argument)
        if lack is None or lack.library != library:
            continue
        key = names.get(argument.name)
        instead = str(key.facts.get("removed", "")) if key is not None else ""
        sentence = f"{said_name} {lack.edge} removed" if lack.edge else f"{said_name} no longer has"
        finding = Finding(
            argument.at(),
            f"{sentence} the argument `{argument.name}`; {what_happens(judged, argument, lack)}",
            _instead(judged, argument, instead, library) or "leave it out",
            fix=modernized(judged, argument, instead, declared),
            severity=severity,
        )
        yield said_for(judged, finding, lack)


def _instead(run: Run, argument: Argument, instead: str, library: str) -> str:
    """What to write, with the release that it takes where the project admits older ones, which refuse it."""
    new = _new_name(run, instead)
    if new == "warmup_steps" and library == "transformers" and admits(run.declared(library), below=_FRACTIONS):
        return f"{instead}, and require transformers>={_FRACTIONS}: older releases take whole numbers there"
    lack = newer(run, replace(argument, name=new)) if new else None
    if lack is None or lack.edge is None or lack.library != library:
        return instead
    return f"{instead}, and require {library}>={lack.edge}: older releases have no `{new}`"


_FRACTIONS = "5.0.0"
"""The release from which on `warmup_steps` takes a share of all steps."""
_TURNED: dict[str, tuple[str, str]] = {
    "group_by_length": ("train_sampling_strategy", "group_by_length"),
    "adafactor": ("optim", "adafactor"),
    "include_inputs_for_metrics": ("include_for_metrics", "[inputs]"),
}
"""Switches that became a word of another argument when they are on."""


def _modernized(run: Run, argument: Argument, instead: str, safe: bool) -> Fix | None:
    """The argument as today's release wants it; None where that takes more than one line."""
    safe = safe and not (argument.on_line and run.script is None)
    name, said, new = argument.name, argument.held, _new_name(run, instead)
    names = {other.name for other in arguments(run)}
    if name == "warmup_ratio":
        # a ratio of 1 would become one step
        ratio = number_in(said) if argument.on_line else said
        fits = isinstance(ratio, float) and 0 <= ratio < 1 and "warmup_steps" not in names
        return renamed(run, argument, "warmup_steps", "write warmup_steps", safe=safe) if fits else None
    if name in _TURNED and isinstance(said, bool) and not argument.on_line:
        other, text = _TURNED[name]
        if not said:
            return dropped(run, argument, "remove the line", safe=safe)
        if other in names:
            return None
        return rewritten(run.recipe, (name,), other, text, why=f"write {other}: {text}", safe=safe)
    if new and name not in ("sharded_ddp", "torchdynamo"):
        return renamed(run, argument, new, f"write {new}", safe=safe)
    return _left_out(run, argument, instead, safe)


def _modernized_for_trl(run: Run, argument: Argument, instead: str, safe: bool) -> Fix | None:
    """The argument as today's release of TRL wants it."""
    new = _new_name(run, instead)
    if new and newer(run, replace(argument, name=new)) is None:
        return renamed(run, argument, new, f"write {new}", safe=safe)
    return _left_out(run, argument, instead, safe=False)


def _new_name(run: Run, instead: str) -> str:
    """The name that the catalog gives instead of a removed one; "" where it gives none, or somebody writes it."""
    new = instead.removeprefix("write ") if instead.startswith("write ") else ""
    return new if new.isidentifier() and all(other.name != new for other in arguments(run)) else ""


def _left_out(run: Run, argument: Argument, instead: str, safe: bool) -> Fix | None:
    if not instead.endswith("delete the line"):
        return None
    return dropped(run, argument, "remove the option" if argument.on_line else "remove the line", safe=safe)
