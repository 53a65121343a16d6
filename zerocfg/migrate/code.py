"""Literal arguments of calls in scripts and notebooks: the names of keywords, and values that a new name takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.signatures import accepts, is_known
from zerocfg.migrate.argument_history import absent_argument
from zerocfg.migrate.arguments import possible, said
from zerocfg.migrate.plan import Plan
from zerocfg.migrate.program import literal, program_of
from zerocfg.migrate.steps import Left, Step
from zerocfg.migrate.successors import SAME, Becomes, Unclear, successor
from zerocfg.rules.api import Location
from zerocfg.rules.calls import Given, given_in_calls
from zerocfg.run.model import UNKNOWN, FromLine, Run
from zerocfg.run.script.arguments import is_arguments
from zerocfg.source.edit import Edit
from zerocfg.source.text import Span


def steps(run: Run, plan: Plan) -> Iterator[Step | Left]:
    """The arguments of every call of TrainingArguments or of a config of TRL that the script reaches."""
    given = [item for item in given_in_calls(run) if is_arguments(item.call.name) and item.origin.span is not None]
    for item in given:
        classes = frozenset((item.of,)) if item.call.name.startswith("trl.") else frozenset[str]()
        absent = absent_argument(item.name, plan.target, classes)
        if absent is None:
            continue
        others = {other.name: _value(other.value) for other in given if other.call is item.call and other is not item}
        outcome = possible(successor(item.name, _value(item.value), others, absent), plan)
        at, why = Location(item.call.file, span=item.origin.span), said(item.name, absent, plan)
        if isinstance(outcome, Unclear):
            yield Left(at, f"{why}: {outcome.why}")
            continue
        if isinstance(outcome, Becomes):
            why = f"{why}; `{'.'.join(map(str, outcome.path))}` takes its place"
        else:
            why = f"{why}; {outcome.why}"
        edits = _edits(item, outcome if isinstance(outcome, Becomes) else None, others)
        yield Step(at, why, edits=edits) if edits else Left(at, why)
    yield from _of_trainers(run, plan)


def _of_trainers(run: Run, plan: Plan) -> Iterator[Step | Left]:
    """What trainers themselves are given, but for classes of the repository, which may take what they like."""
    for call in run.script.calls if run.script is not None else ():
        library, _, name = call.name.partition(".")
        target = plan.target.get(library)
        if target is None or call.derived or not name.endswith("Trainer") or not is_known(library, name):
            continue
        for argument, setting in call.arguments.items():
            if setting.origin.span is None or accepts(library, name, argument, target) is not False:
                continue
            at = Location(call.file, span=setting.origin.span)
            renamed = argument == "tokenizer" and accepts(library, name, "processing_class", target)
            if renamed and "processing_class" not in call.arguments:
                why = f"{plan.called(library)} has no `tokenizer` of {name}; `processing_class` takes its place"
                given = Given(call, argument, UNKNOWN, setting.origin)
                edits = _edits(given, Becomes(("processing_class",)), {})
                yield Step(at, why, edits=edits) if edits else Left(at, why)
                continue
            config = f"{name.removesuffix('Trainer')}Config"
            if library == "trl" and _is_field(config, argument):
                yield Left(at, f"{plan.called(library)} has no `{argument}` of {name}: it belongs to {config}")


def _is_field(config: str, name: str) -> bool:
    """Whether some release of TRL has, or had, a field of this name in a config."""
    key = load_schema("trl").root.names.get(name)
    return f"{config}.{name}" in histories("trl").raw or (key is not None and config in key.facts.get("in", ()))


def _value(value: Any) -> Any:
    return UNKNOWN if isinstance(value, FromLine) else value


def _edits(item: Given, outcome: Becomes | None, others: dict[str, Any]) -> tuple[Edit, ...]:
    """Edits of the call; none where its text could not be found, and where it would need a value inside another one."""
    program = program_of(item.call.file)
    word = program.keyword(item.name, item.origin.span.start) if program is not None and item.origin.span else None
    if program is None or word is None:
        return ()
    if outcome is None:
        return program.removed(*program.span(word))
    if len(outcome.path) > 1 or outcome.path[0] in others:
        return ()
    start = program.span(word).start
    renaming = program.replaced(Span(start, start + len(item.name)), str(outcome.path[0]))
    if outcome.value is SAME:
        return renaming
    return *renaming, *program.replaced(program.span(word.value), literal(outcome.value))
