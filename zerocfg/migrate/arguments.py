"""Training arguments that the new releases do not have, in recipes and on launch lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zerocfg.catalog.values import RefusedError
from zerocfg.catalog.versions import Release
from zerocfg.migrate.argument_history import Absent, absent_argument, has_argument
from zerocfg.migrate.plan import Plan
from zerocfg.migrate.steps import Drop, Left, Put, Rename, Step, editable
from zerocfg.migrate.successors import SAME, Becomes, Gone, Outcome, Unclear, successor
from zerocfg.rules import line
from zerocfg.rules.argument_reader import guessed, methods, reader
from zerocfg.rules.arguments import Argument, arguments, own_option
from zerocfg.rules.effects import recipe_data
from zerocfg.rules.taken import dropped_silently, names_recipe
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.stages.arguments import converted


def steps(run: Run, plan: Plan) -> Iterator[Step | Left]:
    """What becomes of the arguments that are written, each where it stands; those in code are looked at elsewhere."""
    if reader(run) is None or not {"transformers", "trl"} & plan.target.keys():
        return
    written = [argument for argument in arguments(run) if argument.on_line or argument.origin.path]
    values = {argument.name: _value(argument, None) for argument in written}
    for argument in written:
        absent = lacking(run, argument, plan.target)
        if absent is None:
            continue
        others = {name: value for name, value in values.items() if name != argument.name}
        outcome = possible(successor(argument.name, _value(argument, absent), others, absent), plan)
        if isinstance(outcome, Unclear) and _unread(run, argument, plan):
            outcome = Gone(f"TRL {plan.old['trl']} has none either, and TrlParser drops it without a word")
        yield _placed(run, argument, outcome, said(argument.name, absent, plan))


def _unread(run: Run, argument: Argument, plan: Plan) -> bool:
    """Whether the old release passes over the argument, so that nothing is lost without it."""
    known = "trl" in plan.source and lacking(run, argument, plan.source) is not None
    return known and dropped_silently(run, argument)


def lacking(run: Run, argument: Argument, at: Mapping[str, Release]) -> Absent | None:
    """What is known of an argument of a library that its releases lack; None for one that they have, and for one that
    is the script's own, as far as that can be told."""
    if names_recipe(argument):
        return None
    absent = absent_argument(argument.name, at, methods(run))
    if absent is None or own_option(run, argument.name) or (absent.library == "trl" and reader(run) != "trl"):
        return None
    return absent


def said(name: str, absent: Absent, plan: Plan) -> str:
    """``transformers 5.23.0 has no `warmup_ratio` (gone since 5.15.0)``."""
    gone = f" (gone since {absent.since})" if absent.since and absent.since != plan.new[absent.library] else ""
    return f"{plan.called(absent.library)} has no `{name}`{gone}"


def possible(outcome: Outcome, plan: Plan) -> Outcome:
    """The outcome, if the new releases have the argument that it writes."""
    if isinstance(outcome, Becomes) and not has_argument(str(outcome.path[0]), plan.target):
        return Unclear(f"nor has it `{outcome.path[0]}`, which takes its place")
    return outcome


def _value(argument: Argument, absent: Absent | None) -> Any:
    """What the argument says; a word of a launch line as its parser converted it."""
    if not argument.on_line or argument.held is UNKNOWN:
        return argument.held
    if argument.held is None:
        return True  # a switch by itself
    word = str(argument.held)
    kind = type(absent.default).__name__ if absent is not None and absent.defaulted else ""
    for item in (kind, "int", "float") if kind != "str" else ():
        try:
            found = converted(item, word) if item in ("bool", "int", "float") else word
        except RefusedError:
            continue
        if not isinstance(found, str):
            return found
    return word


def _placed(run: Run, argument: Argument, outcome: Outcome, why: str) -> Step | Left:
    if isinstance(outcome, Unclear):
        return Left(argument.at(), f"{why}: {outcome.why}")
    if argument.on_line:
        return _on_line(run, argument, outcome, why)
    assert run.recipe is not None
    if not editable(run.recipe):
        return Left(argument.at(), f"{why}: {_advice(outcome)}, where the recipe is made")
    name = argument.name
    if isinstance(outcome, Gone):
        return Step(argument.at(), f"{why}; {outcome.why}", (Drop((name,)),))
    target, value = outcome.path, argument.held if outcome.value is SAME else outcome.value
    why = f"{why}; `{'.'.join(map(str, target))}` takes its place"
    if len(target) > 1:
        holder = recipe_data(run).get(str(target[0]))
        if holder is not None and (not isinstance(holder, dict) or target[1] in holder):
            return Left(argument.at(), f"{why}, and `{target[0]}` is written already")
        return Step(argument.at(), why, (Put(target, value), Drop((name,))))
    if target[0] in recipe_data(run):
        return Step(argument.at(), why, (Put(target, value), Drop((name,))))
    renaming = Rename((name,), str(target[0]))
    return Step(argument.at(), why, (renaming,) if outcome.value is SAME else (renaming, Put(target, value)))


def _advice(outcome: Becomes | Gone) -> str:
    if isinstance(outcome, Gone):
        return f"leave it out ({outcome.why})"
    value = "" if outcome.value is SAME else f": {outcome.value}"
    return f"write `{'.'.join(map(str, outcome.path))}{value}`"


def _on_line(run: Run, argument: Argument, outcome: Becomes | Gone, why: str) -> Step | Left:
    option = line.option_at(run, argument.origin)
    if guessed(run):
        return Left(argument.at(), f"{why}: {_advice(outcome)}, if the script gives its options to the Trainer")
    if option.words is None:
        return Left(argument.at(), f"{why}: {_advice(outcome)}; the option is put together elsewhere")
    if isinstance(outcome, Gone):
        return Step(argument.at(), f"{why}; {outcome.why}", edits=tuple(option.removed() or ()))
    text = _reworded(run, option, outcome)
    if text is None:
        return Left(argument.at(), f"{why}: {_advice(outcome)}")
    why = f"{why}; `{'.'.join(map(str, outcome.path))}` takes its place"
    return Step(argument.at(), why, edits=tuple(option.reworded(text) or ()))


def _reworded(run: Run, option: line.LineOption, outcome: Becomes) -> str | None:
    """The option as the new releases read it; None for what stands within another one, or beside it."""
    if len(outcome.path) > 1 or outcome.path[0] in run.arguments:
        return None
    rest = (option.words or "").removeprefix(option.name)
    if outcome.value is SAME:
        return f"--{outcome.path[0]}{rest}"
    words = outcome.value if isinstance(outcome.value, list) else [outcome.value]
    between = "=" if len(words) == 1 and option.raw and rest.startswith("=") else " "
    return f"--{outcome.path[0]}{between}{' '.join(map(str, words))}"
