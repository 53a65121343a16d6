"""Locates the problems of a build in the files that cause them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.models.spec import RunSpec
from zerocfg.run.hub import find_config
from zerocfg.run.model_source import not_found
from zerocfg.source.text import Span, Where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocfg.resolve.plan import Problem
    from zerocfg.resolve.spec.spec_file import SpecFile
    from zerocfg.run.model import Origin, Run


def locate_problems(problems: Iterable[Problem], spec: SpecFile, run: Run) -> list[Problem]:
    """The problems of a run with their locations: a key of the spec there, a setting in the file that sets it.

    Of several problems of one key only the first is kept, which is closest to the cause, with the first remediation.
    """
    found: dict[tuple[str, Where], Problem] = {}
    for problem in _explained(problems, spec, run):
        place = problem.place or _place(problem, spec, run)
        first = found.setdefault((problem.key, place), replace(problem, place=place))
        if not first.help and problem.help:
            found[(problem.key, place)] = replace(first, help=problem.help)
    return list(found.values())


def _explained(problems: Iterable[Problem], spec: SpecFile, run: Run) -> list[Problem]:
    """Missing files, reported at the key that names them, and missing models as models."""
    origins = {origin.note: origin for origin in run.missing}
    found = []
    for problem in problems:
        origin = origins.get(problem.key)
        if origin is None or origin.file is None:
            found.append(problem)
            continue
        place = _where(origin)
        key = next((key for key in _FILES if _names(spec, run.name, key, problem.key, origin)), None)
        if key == "model" and find_config(problem.key, spec.folder) is None:
            message, help = not_found(problem.key)
            found.append(replace(problem, message=message, help=help, key=key, place=place))
        else:
            key = key or _named_by(origin, run)
            help = problem.help or f"Correct the path, or leave `{key}` out."
            found.append(replace(problem, key=key, help=help, place=place))
    return found


def _named_by(origin: Origin, run: Run) -> str:
    """The key, or the option of the launch line, that names a file."""
    if origin.path:
        return str(origin.path[-1])
    option = run.launch.options_at.get(origin.span) if run.launch is not None and origin.span is not None else None
    return option.name if option is not None else "launch"


_FILES = ("model", "recipe", "deepspeed", "accelerate")


def _names(spec: SpecFile, run: str, key: str, value: str, origin: Origin) -> bool:
    expanded = spec.runs[run]
    return expanded.data.get(key) == value and expanded.where((key,)).path == origin.path


def _place(problem: Problem, spec: SpecFile, run: Run) -> Where:
    first = problem.key.partition(".")[0]
    if first in RunSpec.model_fields and problem.key in (first, *_sub_keys(spec, run.name, first)):
        return spec.place_of(run.name, problem.key)
    refused = problem.failure.places if problem.failure is not None else ()
    origin = next((origin for origin in refused if origin.file is not None), None)
    if origin is not None:
        return _where(origin)
    setting = run.effective.get(problem.key)
    if setting is not None and setting.origin.file is not None:
        return _where(setting.origin)
    if setting is None and run.recipe is not None and run.recipe.document is not None:
        entry = run.recipe.document.entry((problem.key,))
        if entry is not None:
            return Where(run.recipe.name, *run.recipe.source.place(entry.key_span.start))
    return spec.place_of(run.name)


def _sub_keys(spec: SpecFile, run: str, key: str) -> list[str]:
    value = spec.runs[run].data.get(key)
    return [f"{key}.{name}" for name in value] if isinstance(value, dict) else []


def _where(origin: Origin) -> Where:
    """The location of the value; the origin must have a file."""
    assert origin.file is not None
    node = origin.file.document.get(origin.path) if origin.file.document is not None and origin.path else None
    span = origin.span or (node.span if node is not None else Span(0, 0))
    return Where(origin.file.name, *origin.file.source.place(span.start))
