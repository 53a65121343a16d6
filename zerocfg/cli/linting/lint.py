"""What ``zerocfg lint`` does once its command line is read. It needs no click (see `start_lint`)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import NoReturn, TextIO

from zerocfg.budgets import FILE_BYTES
from zerocfg.cli.coloured import write_coloured
from zerocfg.cli.outputs import Output, outputs, write
from zerocfg.errors import UsageError
from zerocfg.internal_errors import REPORT
from zerocfg.linter.engine import Result
from zerocfg.linter.kept import Kept
from zerocfg.record import record
from zerocfg.report.formats import render as as_format
from zerocfg.rules.api import Severity
from zerocfg.run.uncollected import uncollected
from zerocfg.source import disk
from zerocfg.terminal.streams import clear, colour, columns, tell, write_exactly
from zerocfg.workspace.baseline import read_baseline_file, write_baseline_file
from zerocfg.workspace.job import Job
from zerocfg.workspace.selection import deprecated, selection_of
from zerocfg.workspace.settings import SettingsOptions, folder_of_settings

_FOR_PEOPLE = ("full", "concise")


@record(frozen=True)
class Options:
    """The command line, by the names of its options."""

    paths: tuple[Path, ...] = ()
    select: str = ""
    ignore: str = ""
    settings: SettingsOptions = SettingsOptions()
    preview: bool = False
    notes: bool = False
    consumer: str | None = None
    formats: tuple[Output, ...] = ()
    output_file: Path | None = None
    quiet: bool = False
    verbose: bool = False
    statistics: bool = False
    fail_on: str | None = None
    fix: bool = False
    unsafe_fixes: bool = False
    diff: bool = False
    add_ignore: bool = False
    baseline: Path | None = None
    write_baseline: Path | None = None
    color: str = "auto"
    stdin_filename: str | None = None
    skip_unknown: bool = False
    show_runs: bool = False
    all_releases: bool = False
    exit_zero: bool = False
    no_cache: bool = False
    watch: bool = False

    @property
    def writing(self) -> dict[str, bool]:
        """Which options that exclude each other are given: they change files, or show how."""
        return {
            "--fix": self.fix or self.diff,
            "--add-ignore": self.add_ignore,
            "--write-baseline": self.write_baseline is not None,
        }


def lint(options: Options) -> int:
    """Lint, report or write as the options say; returns the exit code. Raises UsageError."""
    with ExitStack() as until_reported:
        return _lint(options, until_reported)


def _lint(options: Options, until_reported: ExitStack) -> int:
    reports = _reports(options)
    kept = None
    if _only_looks(options) and not options.no_cache and all(report.file is None for report in reports):
        from zerocfg.workspace.cache import recording

        kept = until_reported.enter_context(recording())
    targets, stdin = _targets(options.paths, options.stdin_filename)
    settings = options.settings.settings(targets[0])
    selection = selection_of(settings, options.select, options.ignore, options.preview)
    warned = deprecated(selection.select) if not options.quiet else []
    for note in warned:
        tell(f"zerocfg: {note}")
    threshold = Severity(options.fail_on or settings.fail_on)
    notes = options.notes or settings.notes or threshold is Severity.NOTE
    known = None if options.write_baseline else read_baseline_file(options.baseline, settings)
    if options.watch:
        _watch(
            lambda: Job(targets, settings, selection, options.consumer, known, notes=notes, kept=Kept()),
            *(targets, reports, options),
        )
    job = Job(
        *(targets, settings, selection, options.consumer, known, stdin),
        notes=notes,
        skip_unknown=options.skip_unknown,
        kept=Kept(),
    )
    began = time.monotonic()
    with _progress("" if options.quiet else "linting", job), uncollected():
        result = job.lint()
    if options.verbose:
        from zerocfg.cli.linting.verbose import report_details

        report_details(job, time.monotonic() - began)
    if not options.quiet:
        _warn(job)
    unchecked = [unchecked_file for unchecked_file in result.unread if unchecked_file.named]
    for item in unchecked:
        tell(f"zerocfg: '{item.file}' was not checked: {item.reason}")
    _tell_internal_errors(result)
    incomplete = bool(unchecked or result.internal_errors)
    if options.show_runs:
        _show_runs(job, reports[0], options.color)
        return _code(incomplete, False)
    if options.write_baseline is not None:
        # Notes too: who asks for them later has only new ones.
        count = write_baseline_file(result, options.write_baseline)
        sys.stdout.write(f"{count} finding{'s' * (count != 1)} written to {options.write_baseline}.\n")
        return _code(incomplete, False)
    if options.diff:
        from zerocfg.cli.linting.apply_fixes import show_fixes

        changes = show_fixes(job, result, unsafe=options.unsafe_fixes, quiet=options.quiet)
        return _code(incomplete, changes and not options.exit_zero)
    result = job.reported(_remaining(job, result, options))
    if options.all_releases:
        from zerocfg.linter.release_ranges import with_release_ranges

        result.diagnostics = with_release_ranges(result.diagnostics, job.runs)
    failed = not options.exit_zero and any(
        diagnostic.severity.rank >= threshold.rank for diagnostic in result.diagnostics
    )
    for report in reports:
        if report.file is not None:
            write(report.file, render(result, report.format, statistics=options.statistics, quiet=options.quiet))
            continue
        # The fixed text of standard input has standard output to itself.
        stream = sys.stderr if stdin and options.fix else sys.stdout
        text = show(result, report.format, options.color, options.statistics, stream, options.quiet)
        if kept is not None and settings.cache and not incomplete and not warned and _all_noted(job):
            kept.keep(text, int(failed), exactly=report.format not in _FOR_PEOPLE)
    return _code(incomplete, failed)


def _remaining(job: Job, result: Result, options: Options) -> Result:
    """What is left to report once files are changed, if they are to be."""
    if options.add_ignore:
        from zerocfg.workspace.add_ignores import add_ignores

        silenced = add_ignores(job, job.reported(result))
        if silenced.count:
            where = ", ".join(silenced.files) if len(silenced.files) <= 5 else f"{len(silenced.files)} files"
            tell(f"{silenced.count} finding{'s' * (silenced.count != 1)} silenced in {where}.")
        return silenced.remaining
    if options.fix:
        from zerocfg.cli.linting.apply_fixes import fix_files

        return fix_files(job, result, unsafe=options.unsafe_fixes, quiet=options.quiet)
    return job.with_sound_fixes(result)


def _reports(options: Options) -> list[Output]:
    """What is reported where. Raises UsageError where options exclude each other."""
    writing = any(options.writing.values())
    _check_use({**options.writing, "--show-runs": options.show_runs}, options.paths)
    if options.quiet and options.verbose:
        raise UsageError("--quiet and --verbose cannot be used together")
    if options.add_ignore and options.settings.isolated:
        raise UsageError("--add-ignore may write into the settings, which --isolated leaves out")
    reports = outputs(options.formats, options.output_file)
    if options.statistics and any(report.format not in ("full", "concise", "json") for report in reports):
        raise UsageError("--statistics needs --output-format full, concise or json")
    if options.all_releases and (options.watch or options.show_runs or options.statistics or writing):
        raise UsageError("--all-releases only works when findings are reported")
    if options.watch and (writing or options.show_runs or options.statistics or _from_stdin(options.paths)):
        raise UsageError(
            "--watch only looks: not with standard input, --statistics, --show-runs, --fix, --diff or what writes"
        )
    return reports


def _only_looks(options: Options) -> bool:
    """Whether the report is all that comes of it, and the same each time."""
    more = options.watch or options.show_runs or options.verbose or any(options.writing.values())
    return not more and not _from_stdin(options.paths)


def _from_stdin(paths: tuple[Path, ...]) -> bool:
    return any(str(path) == "-" for path in paths)


def _progress(phase: str, job: Job) -> AbstractContextManager[object]:
    if not sys.stderr.isatty():
        return nullcontext()
    from zerocfg.terminal.progress import Working

    return Working(phase, job.progress)


def _code(incomplete: bool, found: bool) -> int:
    """2 where a file that was named could not be checked or zerocfg failed inside, else 1 for findings."""
    return 2 if incomplete else int(found)


def _all_noted(job: Job) -> bool:
    """Whether nothing but the report was said, and all that the lint asked of the machine was noted: a spec is read
    with its model and hardware, as builds read them."""
    assert job.files is not None
    return not job.empty and all(file.kind != "spec" for file in job.files.all())


def _tell_internal_errors(result: Result) -> None:
    for internal_error in result.internal_errors:
        tell(f"zerocfg: internal error: {internal_error}")
    if result.internal_errors:
        tell(REPORT)


def _warn(job: Job) -> None:
    if job.empty:
        from zerocfg.cli.linting.discovery_help import tell_empty

        tell_empty(job.empty)


def _show_runs(job: Job, output: Output, color: str) -> None:
    from zerocfg.report.runs import render_runs, render_runs_json
    from zerocfg.source.secrets import masked
    from zerocfg.terminal.table import folded

    if output.format not in ("full", "json"):
        raise UsageError("--show-runs needs --output-format full or json")
    coloured = output.file is None and colour(color, sys.stdout)
    text = render_runs_json(job.runs) if output.format == "json" else render_runs(job.runs, coloured)
    text = masked(text)
    if output.format == "full" and output.file is None:
        text = folded(text, columns(sys.stdout))
    if output.file is not None:
        write(output.file, text)
    else:
        write_coloured(text, sys.stdout)


def _watch(make_job: Callable[[], Job], targets: list[Path], reports: list[Output], options: Options) -> NoReturn:
    """Report again and again; a terminal is cleared before each report."""
    from zerocfg.cli.linting.watch import watch

    def look() -> None:
        job = make_job()
        with _progress("linting", job):
            result = job.reported(job.with_sound_fixes(job.lint()))
        _warn(job)
        _tell_internal_errors(result)
        for report in reports:
            if report.file is not None:
                write(report.file, render(result, report.format))
            else:
                clear(sys.stdout)
                show(result, report.format, options.color)
        tell("watching for changes; Ctrl-C ends")

    watch(targets, look)
    raise AssertionError("only an interrupt ends it")


def _check_use(modes: dict[str, bool], paths: tuple[Path, ...]) -> None:
    asked = [name for name, given in modes.items() if given]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} cannot be used together")
    if asked and asked[0] != "--fix" and _from_stdin(paths):
        raise UsageError(f"{asked[0]} needs files, not standard input")


def render(
    result: Result,
    output_format: str,
    coloured: bool = False,
    statistics: bool = False,
    width: int | None = None,
    quiet: bool = False,
) -> str:
    """The result as text. ``width``: columns of the terminal it is for; ``quiet``: findings alone."""
    if statistics:
        from zerocfg.report.statistics import render_statistics, render_statistics_json
        from zerocfg.terminal.table import folded

        if output_format == "json":
            return render_statistics_json(result)
        return folded(render_statistics(result, coloured), width)
    return as_format(result, output_format, coloured, width, quiet)


def show(
    result: Result,
    output_format: str,
    color: str,
    statistics: bool = False,
    stream: TextIO | None = None,
    quiet: bool = False,
) -> str:
    """Print the result as it suits the reader, a person at a terminal, a file, a program; returns what is printed."""
    stream = stream or sys.stdout
    text = render(result, output_format, colour(color, stream), statistics, columns(stream), quiet)
    if output_format in _FOR_PEOPLE:
        write_coloured(text, stream)
    elif stream is sys.stdout:
        write_exactly(text)
    else:
        stream.write(text)
        stream.flush()
    return text


def _targets(paths: tuple[Path, ...], stdin_filename: str | None) -> tuple[list[Path], dict[str, str]]:
    """The files and folders to look at, and the text of standard input by its real path."""
    targets, stdin = [], {}
    for path in paths or (Path(),):
        if str(path) == "-":
            name = Path(stdin_filename or "stdin.yaml")
            data = sys.stdin.buffer.read(FILE_BYTES + 1)
            if len(data) > FILE_BYTES:
                raise UsageError(f"standard input is larger than {FILE_BYTES >> 20} MiB; not read")
            stdin[disk.real(name)] = data.decode("utf-8", "replace")
            targets.append(name)
        elif not disk.exists(path):
            raise UsageError(f"there is no file or folder '{path}'")
        elif not os.access(path, os.R_OK):
            raise UsageError(f"'{path}' is not readable")
        else:
            targets.append((not disk.is_dir(path) and folder_of_settings(path)) or path)
    return targets, stdin
