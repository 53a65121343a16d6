"""Literal arguments of calls in training scripts: the names of keywords, and values that a new name takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.versions import release
from zerocfg.migrate.arguments import possible, said
from zerocfg.migrate.known import absent_argument
from zerocfg.migrate.plan import Plan
from zerocfg.migrate.steps import Left, Step
from zerocfg.migrate.successors import SAME, Becomes, Unclear, successor
from zerocfg.rules.api import Location
from zerocfg.rules.calls import Given, given_in_calls
from zerocfg.run.model import UNKNOWN, FromLine, Run, SourceFile
from zerocfg.run.script.arguments import is_arguments
from zerocfg.source.edit import Edit
from zerocfg.source.text import Span

_PROCESSING = {"transformers": "5.0.0", "trl": "0.19.1"}
"""Releases from which on trainers take no `tokenizer`, as their signatures say; of TRL the oldest one
that was looked at."""


def steps(run: Run, plan: Plan) -> Iterator[Step | Left]:
    """The arguments of every call of TrainingArguments or of a config of TRL that the script reaches."""
    given = [one for one in given_in_calls(run) if is_arguments(one.call.name) and one.origin.span is not None]
    for one in given:
        classes = frozenset((one.of,)) if one.call.name.startswith("trl.") else frozenset[str]()
        absent = absent_argument(one.name, plan.target, classes)
        if absent is None:
            continue
        others = {other.name: _value(other.value) for other in given if other.call is one.call and other is not one}
        outcome = possible(successor(one.name, _value(one.value), others, absent), plan)
        at, why = Location(one.call.file, span=one.origin.span), said(one.name, absent, plan)
        if isinstance(outcome, Unclear):
            yield Left(at, f"{why}: {outcome.why}")
            continue
        if isinstance(outcome, Becomes):
            why = f"{why}; `{'.'.join(map(str, outcome.path))}` takes its place"
        else:
            why = f"{why}; {outcome.why}"
        edits = _edits(one, outcome if isinstance(outcome, Becomes) else None, others)
        yield Step(at, why, edits=edits) if edits else Left(at, why)
    yield from _of_trainers(run, plan)


def _of_trainers(run: Run, plan: Plan) -> Iterator[Step | Left]:
    """What trainers themselves are given, but for classes of the repository, which may take what they like."""
    for call in run.script.calls if run.script is not None else ():
        library, _, name = call.name.partition(".")
        edge = _PROCESSING.get(library)
        if edge is None or call.derived or not name.endswith("Trainer") or not _from(plan, library, edge):
            continue
        for argument, setting in call.arguments.items():
            if setting.origin.span is None:
                continue
            at = Location(call.file, span=setting.origin.span)
            if argument == "tokenizer" and "processing_class" not in call.arguments:
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


def _from(plan: Plan, library: str, edge: str) -> bool:
    return library in plan.target and plan.target[library] >= release(edge)


def _value(value: Any) -> Any:
    return UNKNOWN if isinstance(value, FromLine) else value


def _edits(one: Given, outcome: Becomes | None, others: dict[str, Any]) -> tuple[Edit, ...]:
    """Edits of the call; none where it stands in a notebook, is one of several things on its lines, or would need a
    value inside another one."""
    file = one.call.file
    if file.path is None or file.path.suffix != ".py" or one.origin.span is None:
        return ()
    found = _keyword(file, one.name, one.origin.span)
    if found is None:
        return ()
    name, whole = found
    if outcome is None:
        return (Edit(whole, ""),)
    if len(outcome.path) > 1 or outcome.path[0] in others:
        return ()
    renaming = Edit(name, str(outcome.path[0]))
    if outcome.value is SAME:
        return (renaming,)
    return renaming, Edit(one.origin.span, _literal(outcome.value))


def _literal(value: object) -> str:
    """As Python writes it, with the quotes that most formatters ask for."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return f'"{value}"' if isinstance(value, str) and '"' not in value else repr(value)


def _keyword(file: SourceFile, name: str, value: Span) -> tuple[Span, Span] | None:
    """Where the keyword of a call is named, and what to take out to be rid of it: its comma, and the line that it has
    for itself."""
    for node in _keywords(file):
        if node.arg != name:
            continue
        start, end = _offset(file, node.lineno, node.col_offset), _end(file, node.value)
        if not start < value.start <= end or value.end > end:
            continue
        return Span(start, start + len(name)), _whole(file.source.text, start, end)
    return None


@lru_cache(maxsize=16)
def _keywords(file: SourceFile) -> tuple[ast.keyword, ...]:
    try:
        tree = ast.parse(file.source.text.lstrip("\ufeff"))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(word for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords)


def _whole(text: str, start: int, end: int) -> Span:
    after = end
    while after < len(text) and text[after] in " \t\r\n":
        after += 1
    comma = text[after : after + 1] == ","
    if comma:
        end = after + 1
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    alone = not text[line:start].strip() and stop >= 0 and not text[end:stop].strip()
    if alone:
        return Span(line, stop + 1)
    while comma and text[end : end + 1] in (" ", "\t"):
        end += 1
    if not comma:  # the last one: the comma before it goes too
        before = text[:start].rstrip()
        if before.endswith(","):
            start = len(before) - 1
    elif not text[end:stop].strip() or text[end : end + 1] == ")":
        start = len(text[:start].rstrip(" \t"))  # nothing stands behind it on its line
    return Span(start, end)


def _offset(file: SourceFile, line: int, column: int) -> int:
    """Python counts columns in bytes of UTF-8."""
    start = file.source.offset(line - 1, 0)
    text = file.source.text[start : start + column]
    if text.isascii():
        return start + column
    return start + len(file.source.text[start:].encode()[:column].decode("utf-8", "ignore"))


def _end(file: SourceFile, node: ast.expr) -> int:
    return _offset(file, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
