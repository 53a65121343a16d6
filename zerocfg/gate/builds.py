"""Whether the builds on disk match their sources: the same check as ``zerocfg build --check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.compare.check_outputs import FileState, OutputCheck, check_run, differences, gone_runs
from zerocfg.emit import lock as lockfile
from zerocfg.emit.emit_run import emit_run
from zerocfg.emit.problems import problems as emit_problems
from zerocfg.gate.model import Reason, Target
from zerocfg.gate.outputs import unreadable
from zerocfg.gate.positions import dotted_position
from zerocfg.resolve.build import build_plans
from zerocfg.resolve.explain.refused_values import refused_value
from zerocfg.resolve.spec.locate_problems import locate_problems
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.run.discover import display_name
from zerocfg.source.load import load, read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.text import Where

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from zerocfg.emit.files import Emitted
    from zerocfg.resolve import plan

SHOWN = 3
"""Changed values, and differences of a file, that one message names."""

_FILES = {
    "missing": ("build-missing", "is missing"),
    "edited": ("build-edited", "was edited since it was built"),
    "outdated": ("build-outdated", "is out of date"),
    "stale": ("build-outdated", "is no longer emitted"),
    "unreadable": ("build-edited", "cannot be read"),
    "unknown": ("build-edited", "differs from the build, and no lockfile says how it was built"),
}


def check_builds(
    spec: Path, outs: list[Path], versions: Mapping[str, str] | None = None
) -> tuple[list[Target], list[Reason]]:
    """The runs of a spec in each of its output folders, and how the files there differ. Nothing is written.

    ``versions``: the releases that zerocfg's settings state.
    """
    name = display_name(spec)
    read = read_spec(spec, name)
    if read.spec is None:
        return [], [
            Reason(
                "build",
                "spec-unreadable",
                item.place.file if item.place else name,
                item.message,
                _lower(item.help) or "correct the spec",
                line=item.place.line if item.place else 0,
                column=item.place.column if item.place else 0,
            )
            for item in read.problems
        ]
    if not outs:
        message = f"it has no build ({', '.join(list(read.runs)[:SHOWN])})"
        help = f"zerocfg build {name} -o {display_name(spec.parent / 'built')}, or leave it out with `exclude`"
        return [], [Reason("build", "not-built", name, message, help)]
    targets: list[Target] = []
    reasons: list[Reason] = []
    built = build_plans(read, versions=versions)
    for build_result in built:
        if build_result.plan is not None:
            build_result.problems += locate_problems(emit_problems(build_result.plan), read, build_result.run)
        if not build_result.problems and (refused := refused_value(build_result)) is not None:
            build_result.problems.append(refused.problem)
        reasons += [_impossible(problem, build_result.name, name) for problem in build_result.problems]
    whole = not any(build_result.problems for build_result in built)
    for out in outs:
        again = f"zerocfg build {name} -o {display_name(out)}"
        for build_result in built:
            if build_result.plan is None or build_result.problems:
                continue
            emitted = emit_run(build_result, out)
            if emitted is None:
                reasons += [_impossible(problem, build_result.name, name) for problem in build_result.problems]
                continue
            targets.append(Target(read, build_result, emitted, emitted.folder))
            try:
                reasons += _reasons(check_run(emitted), emitted, again)
            except lockfile.LockError as error:
                reasons.append(unreadable(emitted.folder / lockfile.NAME, error))
        for gone in (
            gone_runs(out, read.folder, spec.name, {build_result.name for build_result in built}) if whole else []
        ):
            message = f"it is a build of run {gone.name}, which {name} no longer has"
            reasons.append(Reason("build", "build-gone", display_name(gone.folder), message, "delete the folder"))
    return targets, reasons


def _impossible(problem: plan.Problem, run: str, spec: str) -> Reason:
    file, line, column = problem.place or Where(spec)
    message = f"run {run} cannot be built: {problem.key}: {problem.message}"
    help = _lower(problem.help) or f"see zerocfg build {spec}"
    return Reason("build", "build-impossible", file, message, help, run, line, column)


def _reasons(found: OutputCheck, emitted: Emitted, again: str) -> list[Reason]:
    if found.state == "up to date":
        return []
    folder = display_name(found.folder)
    if found.state == "not built":
        return [Reason("build", "not-built", folder, f"run {found.name} is not built there", again, found.name)]
    reasons = []
    changes = [change for change in found.changes if change.said] or found.changes
    if changes:
        message = _some([str(change) for change in changes], "; ")
        at = found.folder / lockfile.NAME
        line, column = _place(at, changes[0].row.name, in_lock=True)
        message = f"run {found.name} does not match its sources: {message}"
        reasons.append(Reason("build", "build-outdated", display_name(at), message, again, found.name, line, column))
    for state in found.files:
        if state.name == lockfile.NAME and state.state == "outdated":
            reasons.append(_lock(found, emitted, again))
        elif not (changes and state.state == "outdated"):
            reasons.append(_file(found, state, again))
    return reasons


def _lock(found: OutputCheck, emitted: Emitted, again: str) -> Reason:
    """A lockfile in which every value is right and something else differs."""
    path = found.folder / lockfile.NAME
    there = read_bytes(path)
    if found.sources or isinstance(there, Problem):
        message = f"{_some(found.sources, ', ')} changed since it was built, though no value changed"
        return Reason("build", "build-outdated", display_name(path), message, again, found.name)
    details = differences("lock.json", there, emitted.files[lockfile.NAME], {})
    line, column = dotted_position(load(path, path.name, "json"), details[0].split(" ", 1)[0])
    message = f"it was edited since it was built: {_some(details, '; ')}"
    return Reason("build", "build-edited", display_name(path), message, f"{again} --force", found.name, line, column)


def _file(found: OutputCheck, state: FileState, again: str) -> Reason:
    kind, words = _FILES[state.state]
    message = f"{state.name} {words}"
    if state.details:
        message += f": {_some(state.details, '; ')}"
    elif found.sources and kind == "build-outdated":
        message += f": {_some(found.sources, ', ')} changed since it was built"
    help = again
    if state.state == "edited":
        help = f"move the edit into the sources, or undo it with {again} --force"
    elif state.state == "stale":
        help = "delete it"
    path = found.folder / state.name
    line, column = _place(path, state.details[0].split(" ", 1)[0]) if state.details else (0, 0)
    return Reason("build", kind, display_name(path), message, help, found.name, line, column)


def _lower(sentences: str) -> str:
    """A remediation as the end of a sentence."""
    return sentences[:1].lower() + sentences[1:].rstrip(".")


def _some(texts: list[str], separator: str) -> str:
    more = len(texts) - SHOWN
    lines = [" ".join(text.split()) for text in texts[:SHOWN]]
    return separator.join(lines) + (f"{separator}and {more} more" if more > 0 else "")


def _place(path: Path, name: str, *, in_lock: bool = False) -> tuple[int, int]:
    """Line and column of a value in a file of a build; (0, 0) where the file does not have it."""
    if path.suffix not in (".json", ".yaml") and not in_lock:
        return 0, 0
    document = load(path, path.name, "json" if in_lock else None)
    if in_lock:
        for part in ("settings", "changes", "accelerate", "recipe"):
            node = document.get((part, name))
            if node is not None:
                entry = document.entry((part, name))
                place = document.source.place(entry.key_span.start if entry else node.span.start)
                return place.line, place.column
        return 0, 0
    return dotted_position(document, name)
