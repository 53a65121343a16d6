"""The RUN argument of ``zerocfg report``: a run of a spec, a build, or configs written by hand."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerocfg.cli.commands.explain_built import lock_at, locks_below, read_lock
from zerocfg.cli.spec_argument import read_or_exit, resolved
from zerocfg.compare.check_outputs import OutputCheck, check_run
from zerocfg.compare.lock_diff import changes, sources
from zerocfg.emit import lock as lockfile
from zerocfg.emit.files import emit
from zerocfg.emit.values import InvalidConfigError
from zerocfg.linter.engine import Result, lint_runs
from zerocfg.linter.selection import Selection
from zerocfg.page.report_input import ReportInput
from zerocfg.record import record, replace
from zerocfg.resolve.explain.alternatives import alternatives
from zerocfg.resolve.explain.forecast import Forecast, forecast
from zerocfg.resolve.facts import with_facts
from zerocfg.run.discover import SPEC_NAMES, Files, display_name
from zerocfg.run.link import find_runs
from zerocfg.run.releases import with_versions
from zerocfg.workspace.baseline import read_baseline_file
from zerocfg.workspace.compile_runs import compile_runs
from zerocfg.workspace.job import Job
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import find_settings

if TYPE_CHECKING:
    from zerocfg.emit.files import Emitted
    from zerocfg.resolve.build import BuildResult
    from zerocfg.resolve.explain.alternatives import Alternative
    from zerocfg.resolve.spec.spec_file import SpecFile
    from zerocfg.run.model import Run


@record(frozen=True, slots=True)
class ReportRequest:
    """The options of the command."""

    run: str | None = None
    build: Path | None = None
    hardware: str | None = None
    consumer: str | None = None
    trace: bool = True
    python: str | None = None


def collect_report_input(name: str, request: ReportRequest) -> ReportInput:
    """What a page about ``name`` is about. Raises click.UsageError where it is no run, or several."""
    lock = lock_at(name)
    if lock is not None:
        return _of_build(lock, request)
    try:
        path, run = Path(name), request.run
        head, colon, tail = name.rpartition(":")
        if colon and head and not path.exists() and Path(head).exists():
            path, run = Path(head), tail
        if not path.exists():
            raise click.UsageError(f"there is no file or folder '{name}'")
    except ValueError as error:  # a NUL in the name
        raise click.UsageError(f"'{name}' cannot be read: {error}") from None
    spec = (
        next((path / spec_name for spec_name in SPEC_NAMES if (path / spec_name).is_file()), None)
        if path.is_dir()
        else path
    )
    if spec is not None and (path.is_dir() or Files().open(spec).kind == "spec"):
        return _of_spec(spec, run, request)
    inside = sorted(item.parent for item in path.glob(f"*/{lockfile.NAME}")) if path.is_dir() else []
    if len(inside) == 1:
        return _of_build(inside[0] / lockfile.NAME, request)
    if inside:
        names = ", ".join(display_name(item) for item in inside[:8])
        raise click.UsageError(f"'{display_name(path)}' holds several builds; name one: {names}")
    return _by_hand(path, run, request.consumer)


def _of_spec(path: Path, run: str | None, request: ReportRequest) -> ReportInput:
    read = read_or_exit(path)
    try:
        names = read.selected(run)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if len(names) != 1:
        listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise click.UsageError(f"'{display_name(path)}' has several runs; name one with --run: {listed}")
    name = names[0]
    built = resolved(read, name, request.hardware)[0]
    builds = [_named(request.build, name)] if request.build is not None else _builds(path, name)
    build = builds[0] if len(builds) == 1 else None
    report_input = ReportInput(
        name, display_name(path), built=built, build=build, builds=builds if build is None else []
    )
    report_input.run, report_input.found = _linted(path, name)
    _compile(report_input, read, built)
    if not built.problems:
        report_input.forecast = _forecast(built, request)
        report_input.alternatives = _alternatives(built)
    return report_input


def _of_build(lock: Path, request: ReportRequest) -> ReportInput:
    """A build whose spec is still there stands for the run of that spec."""
    content, folder = read_lock(lock), lock.parent
    name = content.run or folder.name
    if request.run not in (None, name):
        raise click.UsageError(f"'{display_name(folder)}' is a build of {name}, not of {request.run}")
    spec = _spec_of(content, folder)
    if spec is not None and name in read_or_exit(spec).runs:
        return _of_spec(spec, name, replace(request, run=name, build=folder))
    report_input = ReportInput(name, lock=content, build=folder)
    runs, _ = find_runs([folder], Files())
    if runs:
        report_input.run = runs[0]
        report_input.found = _lint(runs[:1], folder)
    return report_input


def _spec_of(lock: lockfile.Lock, folder: Path) -> Path | None:
    start, path = lock.spec_folder, lock.source("spec")
    try:
        spec = folder / str(start) / path
        return Path(display_name(spec)) if path and start is not None and spec.is_file() else None
    except (OSError, ValueError):
        return None


def _by_hand(path: Path, name: str | None, consumer: str | None) -> ReportInput:
    runs, _ = find_runs([path], Files())
    if name is not None:  # launch lines are called after their file: train.sh:3
        runs = [run for run in runs if run.name == name or run.name.endswith(f":{name}")]
    if not runs:
        raise click.UsageError(f"no run{f' {name!r}' if name else ''} is found in '{display_name(path)}'")
    if len(runs) > 1:
        listed = ", ".join(run.name for run in runs[:8]) + (", ..." if len(runs) > 8 else "")
        raise click.UsageError(f"'{display_name(path)}' takes part in several runs; name one with --run: {listed}")
    folder = path if path.is_dir() else path.parent
    runs = Job([path], find_settings(folder), Selection(), consumer).read(runs)
    return ReportInput(runs[0].name, run=runs[0], found=_lint(runs, folder))


def _linted(spec: Path, name: str) -> tuple[Run | None, Result | None]:
    """The run as lint sees it, and what it finds: only what this run is about, with the project's settings."""
    files = Files()
    runs = [run for run in find_runs([spec], files)[0] if run.name == name and run.spec is not None]
    if not runs:
        return None, None
    settings = find_settings(spec.parent)
    runs = with_versions(runs, settings.versions)
    return runs[0], _lint(with_facts(runs, files), spec.parent)


def _lint(runs: list[Run], folder: Path) -> Result:
    """The findings of `zerocfg lint` about these runs, without those in the project's baseline."""
    settings = find_settings(folder)
    result = lint_runs(runs, selection_of(settings, "", "", False))
    known = read_baseline_file(None, settings)
    if known is None:
        return result
    from zerocfg.linter.baseline import without_known

    return without_known(result, known.entries, known.folder, frozenset().union(*result.together))


def _builds(spec: Path, name: str) -> list[Path]:
    """The folders that hold a build of this run, below the spec and below the current folder."""
    found: dict[Path, Path] = {}
    for folder in dict.fromkeys((spec.parent, Path())):
        for lock in locks_below(folder):
            content = lockfile.read(lock.parent)
            own = _spec_of(content, lock.parent) if content is not None and content.run == name else None
            if own is not None and own.resolve() == spec.resolve():
                found.setdefault(lock.parent.resolve(), Path(display_name(lock.parent)))
    return list(found.values())


def _named(build: Path, name: str) -> Path:
    for folder in (build, build / name):
        if (folder / lockfile.NAME).is_file():
            return folder
    raise click.UsageError(f"'{display_name(build)}' holds no build of {name}: there is no {lockfile.NAME}")


def _compile(report_input: ReportInput, read: SpecFile, built: BuildResult) -> None:
    """The lock that a build would write now, and how the last build differs from it."""
    out = report_input.build.parent if report_input.build is not None else read.path.parent / "built"
    found = compile_runs(read, [built], out, selection_of(find_settings(read.folder), "", "", False))
    if not found.emitted:
        # Findings keep it from being built; what it would get is known all the same.
        if built.plan is not None and not built.problems:
            with suppress(InvalidConfigError):  # the findings name the value that the library refuses
                report_input.lock = _lock(emit(built.plan, out))
        return
    emitted = found.emitted[0]
    report_input.lock = _lock(emitted)
    if report_input.build is not None:
        report_input.checked = _checked(emitted, report_input.build, report_input.lock)


def _lock(emitted: Emitted) -> lockfile.Lock:
    return lockfile.parse(emitted.files[lockfile.NAME], emitted.folder / lockfile.NAME)


def _checked(emitted: Emitted, build: Path, new: lockfile.Lock) -> OutputCheck:
    if emitted.folder.resolve() == build.resolve():
        read_lock(build / lockfile.NAME)  # a lock that cannot be read fails as in every command
        return check_run(emitted)
    # The folder was renamed: its files hold paths that a build would write otherwise, its values can be compared.
    old = read_lock(build / lockfile.NAME)
    moved = changes(old, new)
    return OutputCheck(emitted.plan.name, build, "differs" if moved else "up to date", moved, [], sources(old, new))


def _forecast(built: BuildResult, request: ReportRequest) -> Forecast | str:
    try:
        return forecast(built, tracing=request.trace, python=request.python)
    except ValueError as error:
        return str(error)


def _alternatives(built: BuildResult) -> list[Alternative]:
    """Empty where no plan can be predicted; the forecast has the reason."""
    try:
        return alternatives(built)
    except ValueError:
        return []
