"""Files that a lint could not check, each with the reason, so that no unread file counts as passed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from zerocfg.record import record, replace
from zerocfg.run.consulted import Consulted, may_be_consulted, may_be_included, states_releases
from zerocfg.run.discover import Files, display_name, is_launch_file, launch_lines, launches
from zerocfg.run.model import Kind, Run, SourceFile, files_of, original
from zerocfg.run.origins import place_of
from zerocfg.run.templates import stops_at_placeholder
from zerocfg.source import disk
from zerocfg.source.load import OUTSIDE
from zerocfg.source.node import Problem
from zerocfg.source.text import Where

Why = Literal[
    "not-read",
    "not-recognised",
    "no-launch-line",
    "not-started",
    "not-checked-kind",
    "missing",
    "other-program",
    "nothing-known",
]

_UNCHECKED: dict[Kind, str] = {
    "model": "it is the config of a model, which lint does not check",
    "hardware": "it is a profile of hardware, which lint does not check",
}
_NOTHING_KNOWN = "what its launch lines start is not seen to read a config or arguments that zerocfg knows"
_NO_RELEASES = "no run that was found has its releases from it"
_NOT_RECOGNISED = "it is no config, recipe, spec or launch script that zerocfg knows, and no launch line names it"


@record(frozen=True, slots=True)
class UncheckedFile:
    """A file that was not checked. ``reason`` is a clause; ``named``: the user asked for this very file.

    ``place``: where a file is named that is missing.
    """

    file: str
    why: Why
    reason: str
    named: bool = False
    place: Where | None = None


def unchecked_files(
    files: Files, runs: Sequence[Run], named: Collection[Path], folders: Collection[Path], reported: Iterable[Where]
) -> tuple[UncheckedFile, ...]:
    """What was met of the files that are ``named``, lie below ``folders`` or are read by the runs, and is not checked.

    ``reported``: the places of findings; a file with a finding is reported already.
    """
    places = set(reported)
    return tuple(
        sorted(
            [*_named(files, runs, named), *_met(files, runs, named, folders, places), *_missing(runs, places)],
            key=lambda item: (not item.named, item.file, item.reason),
        )
    )


def without_unknown(found: Iterable[UncheckedFile]) -> tuple[UncheckedFile, ...]:
    """What is left where files are named that may be anything (a hook names whatever was changed)."""
    return tuple(replace(item, named=False) for item in found if not item.named or item.why == "not-read")


def understood(file: SourceFile) -> bool:
    """Whether the text of a file could be read."""
    return _fatal(file) is None


def unparsed_files(runs: Iterable[Run], paths: Iterable[Path]) -> list[UncheckedFile]:
    """The files of runs that cannot be parsed; ``named``: by ``paths``, a launch line or a spec. Not among them is a
    template of a run that none starts: what it is shows when it is filled in."""
    asked_for = {disk.real(path) for path in paths}
    unparsed: dict[str, UncheckedFile] = {}
    for run in runs:
        started = run.launch is not None or run.spec is not None
        for file in files_of(run):
            fatal = _fatal_problem(file)
            if fatal is None or file.document is None or fatal.kind == OUTSIDE:
                continue
            if started or not stops_at_placeholder(file.document, fatal.span.start):
                known = unparsed.get(file.name)
                asked = file.path is not None and disk.real(file.path) in asked_for
                named = started or asked or (known is not None and known.named)
                reason = fatal.brief or fatal.message
                unparsed[file.name] = UncheckedFile(file.name, "not-read", reason, named)
    return list(unparsed.values())


def _fatal(file: SourceFile) -> str | None:
    problem = _fatal_problem(file)
    return (problem.brief or problem.message) if problem is not None else None


def _fatal_problem(file: SourceFile) -> Problem | None:
    document = file.document
    if document is None or document.root is not None:
        return None
    return next((problem for problem in document.problems if problem.fatal), None)


def _named(files: Files, runs: Sequence[Run], named: Collection[Path]) -> Iterator[UncheckedFile]:
    """The named files that are no part of a run."""
    used = {id(original(file)) for run in runs for file in files_of(run)}
    scripts = {files.real(run.entry_point) for run in runs if run.entry_point is not None}
    consulted = Consulted()
    for path in named:
        if _is_consulted(path, files, runs, consulted):
            continue
        if states_releases(path) and not is_launch_file(path):
            yield UncheckedFile(display_name(path), "not-recognised", _NO_RELEASES, True)
            continue
        file = files.open(path)
        if id(file) in used:
            continue
        trouble = _fatal(file)
        if trouble is not None:
            # any text may have the ending of a file that requirements include
            why: Why = "not-recognised" if may_be_included(path) else "not-read"
            yield UncheckedFile(file.name, why, trouble, True)
        elif file.kind == "script":
            if files.real(path) not in scripts:
                yield UncheckedFile(file.name, "not-started", "no launch line or spec that was found starts it", True)
        elif file.kind == "launch":
            other = _other_program(file)
            if other is not None:
                yield UncheckedFile(file.name, "other-program", other, True)
            elif not launch_lines(file):
                reason = "it holds no launch line of accelerate, deepspeed or torchrun"
                yield UncheckedFile(file.name, "no-launch-line", reason, True)
            else:
                yield UncheckedFile(file.name, "nothing-known", _NOTHING_KNOWN, True)
        elif file.kind in _UNCHECKED:
            yield UncheckedFile(file.name, "not-checked-kind", _UNCHECKED[file.kind], True)
        else:
            yield UncheckedFile(file.name, "not-recognised", _NOT_RECOGNISED, True)


def _is_consulted(path: Path, files: Files, runs: Sequence[Run], consulted: Consulted) -> bool:
    """Whether a named file decides what one of the runs does, without being one of its files."""
    kind = None if states_releases(path) and not is_launch_file(path) else files.open(path).kind
    if not may_be_consulted(path, kind):
        return False
    return any(consulted.any_of({disk.real(path)}, run) for run in runs)


def _met(
    files: Files, runs: Sequence[Run], named: Collection[Path], folders: Collection[Path], reported: Collection[Where]
) -> Iterator[UncheckedFile]:
    """Unreadable files of the runs that no finding speaks of, and those below the folders that are of no known kind."""
    found = {where.file for where in reported}
    of_runs = [file for run in runs for file in files_of(run)]
    used = {id(original(file)) for file in of_runs}
    seen: set[str] = set()
    exactly = {disk.resolved(path) for path in named}
    for file in of_runs:
        trouble = _fatal(file)
        if trouble is not None and file.name not in found and file.name not in seen:
            seen.add(file.name)
            yield UncheckedFile(
                file.name, "not-read", trouble, file.path is not None and disk.resolved(file.path) in exactly
            )
    tops = [disk.resolved(folder) for folder in folders]
    for file in files.met():
        trouble = _fatal(file)
        if trouble is None and id(file) not in used and is_launch_file(file.path or Path()):
            trouble = next((item.message for item in launches(file).exhausted), None)
        why: Why = "not-read"
        if trouble is None and id(file) not in used and file.kind == "launch":
            why, trouble = "other-program", _other_program(file)
        if trouble is None or id(file) in used or file.path is None:
            continue
        path = disk.resolved(file.path)
        if path not in exactly and any(path.is_relative_to(top) for top in tops):
            yield UncheckedFile(file.name, why, trouble)


def _other_program(file: SourceFile) -> str | None:
    """Why a launch file that is part of no run was not checked: it starts a program whose options are not known."""
    started = next(iter(launches(file).others), None)
    if started is None:
        return None
    return f"it starts {started.program} ({started.started}), whose options lint does not read"


def _missing(runs: Sequence[Run], reported: Collection[Where]) -> Iterator[UncheckedFile]:
    """Missing files that runs name and no diagnostic reports; each once."""
    places: dict[str, dict[Where | None, None]] = {}
    for run in runs:
        for origin in run.missing:
            where = place_of(origin)
            if where not in reported:
                places.setdefault(display_name(Path(origin.note)), {})[where] = None
    for name, found in places.items():
        first, *others = found
        by = f"; {first} names it" if first is not None else ""
        more = f", and {len(others)} more place{'s' * (len(others) != 1)}" if others else ""
        yield UncheckedFile(name, "missing", f"it is nowhere to be found{by}{more}", place=first)
