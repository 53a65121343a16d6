"""zerocfg from Python: what the commands do, as functions that return values and raise errors.

Everything here is also in ``zerocfg`` itself (``import zerocfg; zerocfg.lint("configs")``) and loaded when it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from zerocfg.errors import Error, ValidationError
from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.linter.kept import Kept
from zerocfg.run.consumers import consumers
from zerocfg.run.discover import Files, display_name
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.source import boundary
from zerocfg.workspace.baseline import read_baseline_file
from zerocfg.workspace.job import Job
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import find_settings

if TYPE_CHECKING:
    from zerocfg.models.accelerate import ClusterConfig, SageMakerConfig
    from zerocfg.models.base import Section
    from zerocfg.models.deepspeed import DeepSpeedConfig
    from zerocfg.models.training_arguments import TrainingArguments
    from zerocfg.resolve.build import BuildResult
    from zerocfg.resolve.explain.forecast import Forecast
    from zerocfg.resolve.spec.spec_file import SpecFile
    from zerocfg.typed import Kind, Loaded

__all__ = [
    "UNKNOWN", "ConfigError", "Diagnostic", "Error", "Origin", "Result", "Run", "Setting", "ValidationError",
    "build", "check_or_raise", "effective", "lint", "load", "plan", "runs",
]  # fmt: skip

AnyPath = str | PathLike[str]


class ConfigError(Error):
    """The configs have findings. ``result`` holds them; the text is what `zerocfg lint` prints."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


def lint(
    *paths: AnyPath,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    preview: bool = False,
    notes: bool = False,
    consumer: str | None = None,
) -> Result:
    """What `zerocfg lint` finds in files and folders (default: the current folder), with the project's settings.

    ``select``, ``ignore``: codes, prefixes or names of rules. ``notes``: also what changes nothing.
    ``consumer``: who reads the configs, whatever the files tell. `Result.diagnostics` are in the order of files and
    lines, `Result.unread` are files that could not be checked. Raises Error for a path that is not there, an unknown
    code, or settings that make no sense.
    """
    if consumer is not None and consumer not in consumers():
        raise Error(f"consumer is one of {', '.join(consumers())}, not {consumer!r}")
    with boundary.reading(paths):
        return _lint(_existing(paths), select, ignore, preview, notes, consumer)


def _lint(
    targets: list[Path], select: Iterable[str], ignore: Iterable[str], preview: bool, notes: bool, consumer: str | None
) -> Result:
    settings = find_settings(_folder(targets[0]))
    selection = selection_of(settings, ",".join(select), ",".join(ignore), preview)
    with_notes = notes or settings.notes or settings.fail_on == "note"
    known = read_baseline_file(None, settings)
    job = Job(targets, settings, selection, consumer, known, notes=with_notes, kept=Kept())
    return job.reported(job.with_sound_fixes(job.lint()))


@overload
def load(path: AnyPath, kind: Literal["deepspeed"]) -> Loaded[DeepSpeedConfig]: ...
@overload
def load(path: AnyPath, kind: Literal["accelerate"]) -> Loaded[ClusterConfig | SageMakerConfig]: ...
@overload
def load(path: AnyPath, kind: Literal["recipe"]) -> Loaded[TrainingArguments]: ...
@overload
def load(path: AnyPath, kind: None = None) -> Loaded[Section]: ...
def load(path: AnyPath, kind: Kind | None = None) -> Loaded[Section]:
    """A DeepSpeed config, accelerate config or recipe as the typed model of its format, its values converted as the
    library converts them.

    ``kind`` ("deepspeed", "accelerate", "recipe") follows from the file's keys unless it is given. `Loaded.model` holds
    the values, `Loaded.place("zero_optimization.stage")` is where one is written. Raises ValidationError for what the
    library refuses: each key with its place, what is written and what it is read as; Error for a file that cannot be
    read or is of no such kind. Imports pydantic, which linting does without.
    """
    from zerocfg.typed import load as typed

    with boundary.reading([path]):
        return typed(Path(path), kind)


def runs(*paths: AnyPath) -> list[Run]:
    """The runs that files and folders take part in: which files belong together, and what they amount to.

    `Run.effective.settings` are the values that the training process gets, by dotted name. Raises Error for a path
    that is not there.
    """
    with boundary.reading(paths):
        return find_runs(_existing(paths), Files())[0]


def effective(path: AnyPath, run: str | None = None) -> dict[str, Setting]:
    """The effective settings of one run: name -> value, where it comes from, what it replaced.

    ``run`` names one where ``path`` takes part in several. A value that the files do not tell is `UNKNOWN`. Raises
    Error when there is no such run, or when there are several and none is named.
    """
    found = runs(path)
    names = [item.name for item in found]
    if run is not None:
        found = [item for item in found if item.name == run]
    if len(found) != 1:
        said = f"it takes part in {', '.join(names)}" if names else "no run is found there"
        raise Error(f"'{path}' has no single run{f' {run!r}' if run else ''}: {said}")
    return dict(found[0].effective.settings)


def plan(spec: AnyPath, *, run: str | None = None, hardware: str | None = None) -> dict[str, Forecast]:
    """What `zerocfg plan` predicts for the runs of a spec: memory by phase and time of a step (bytes, seconds).

    ``run``: only that one. ``hardware``: instead of the spec's, as "8xA100-80GB" or a probed profile. Raises Error when
    a run does not resolve or nothing can be predicted for it.
    """
    from zerocfg.resolve.explain.forecast import forecast

    with _around(spec, hardware):
        _, built = _resolved(spec, run, hardware)
        _stop_on_problems(built)
        try:
            return {build_result.name: forecast(build_result) for build_result in built}
        except ValueError as error:
            raise Error(str(error)) from None


def build(
    spec: AnyPath, out: AnyPath, *, run: str | None = None, hardware: str | None = None, force: bool = False
) -> list[Path]:
    """Write what `zerocfg build` writes below ``out``; the paths of the files.

    Nothing is written unless every run resolves and lints clean. ``force`` replaces files that zerocfg did not write or
    that were changed since. Raises ConfigError for errors that lint finds, Error for all else that prevents it.
    """
    with _around(spec, hardware, out):
        return _build(spec, Path(out), run, hardware, force)


def _build(spec: AnyPath, out: Path, run: str | None, hardware: str | None, force: bool) -> list[Path]:
    from zerocfg.emit.exclusive import BusyError
    from zerocfg.emit.lock import LockError
    from zerocfg.emit.write import RefusedError, write
    from zerocfg.workspace.compile_runs import compile_runs

    read, built = _resolved(spec, run, hardware)
    selection = selection_of(find_settings(read.folder), "", "", False)
    found = compile_runs(read, built, out, selection)
    if found.errors is not None:
        raise ConfigError(_text(found.errors), found.errors)
    _stop_on_problems(built)
    try:
        return write(found.emitted, force=force)
    except (RefusedError, BusyError, LockError, OSError) as error:
        raise Error(str(error)) from None


def check_or_raise(*paths: AnyPath, fail_on: str = "error") -> None:
    """At the top of a training script, before the model loads: stop the job when its configs have errors.

    Looks at the command that this process was started with and at the variables that its launcher exported, and lints
    the configs that they name; with ``paths`` those files instead. Quiet when nothing is found from ``fail_on`` on
    ("error", "warning", "note"). Every rank raises ConfigError, the first one of a job with the findings as its text.
    """
    from zerocfg.guard import check

    result = lint(*paths, notes=True) if paths else check()
    rank = {"note": 0, "warning": 1, "error": 2}
    if fail_on not in rank:
        raise Error(f"fail_on is one of {', '.join(rank)}, not {fail_on!r}")
    grave = [diagnostic for diagnostic in result.diagnostics if diagnostic.severity.rank >= rank[fail_on]]
    if grave:
        from zerocfg.guard import is_first, let_the_first_speak

        errors = Result(grave, result.suppressed, result.files)
        if is_first():
            raise ConfigError(_text(errors), errors)
        let_the_first_speak()
        raise ConfigError("the configs have errors; rank 0 says which", errors)


def _around(spec: AnyPath, hardware: str | None, *written: AnyPath) -> AbstractContextManager[None]:
    """In which a spec is read with the project around it, and the profile of hardware that was named."""
    return boundary.reading([Path(spec) / "zerocfg.yaml", spec], [*([hardware] if hardware else []), *written])


def _existing(paths: tuple[AnyPath, ...]) -> list[Path]:
    targets = [Path(path) for path in paths] or [Path()]
    for target in targets:
        if not target.exists():
            raise Error(f"there is no file or folder '{target}'")
    return targets


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _resolved(spec: AnyPath, run: str | None, hardware: str | None) -> tuple[SpecFile, list[BuildResult]]:
    from zerocfg.resolve.build import build_plans
    from zerocfg.resolve.spec.spec_file import read_spec

    path = Path(spec) / "zerocfg.yaml" if Path(spec).is_dir() else Path(spec)
    if not path.exists():
        raise Error(f"there is no file '{path}'")
    read = read_spec(path, display_name(path))
    if read.spec is None:
        raise Error("\n".join(map(str, read.problems)))
    try:
        return read, build_plans(read, run, hardware, versions=find_settings(read.folder).versions)
    except ValueError as error:
        raise Error(str(error)) from None


def _stop_on_problems(built: list[BuildResult]) -> None:
    problems = [
        f"{problem.place}: run {build_result.name}: {problem.key}: {problem.message}"
        for build_result in built
        for problem in build_result.problems
    ]
    if problems:
        raise Error("\n".join(problems))


def _text(result: Result) -> str:
    from zerocfg.report.full import render_full

    return "\n" + render_full(result)
