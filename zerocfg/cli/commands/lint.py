"""``zerocfg lint``."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from zerocfg.budgets import FILE_BYTES
from zerocfg.cli.linting.baseline import read_baseline_file, write_baseline_file
from zerocfg.cli.linting.job import Job
from zerocfg.cli.linting.selection import deprecated, selection_of
from zerocfg.cli.outputs import Output, OutputType, outputs, write
from zerocfg.cli.progress import Working
from zerocfg.cli.settings_options import SettingsOptions, options
from zerocfg.cli.terminal import colour, columns, write_exactly
from zerocfg.internal_errors import REPORT
from zerocfg.linter.engine import Result
from zerocfg.report.formats import render as as_format
from zerocfg.rules.api import Severity
from zerocfg.run.model import CONSUMERS

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("lint")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--select", default="", metavar="CODES", help="Only these rules: codes, prefixes or names, separated by commas."
)
@click.option("--ignore", default="", metavar="CODES", help="Not these rules.")
@options
@click.option("--preview", is_flag=True, help="Also apply preview rules, which may still change.")
@click.option("--notes", is_flag=True, help="Also report notes: worth knowing, with no effect.")
@click.option("--consumer", type=click.Choice(CONSUMERS), help="Who reads the configs, overriding what the files say.")
@click.option(
    "--output-format",
    "formats",
    type=OutputType(),
    multiple=True,
    help="full (default), concise, json, sarif, github, gitlab or junit; several where each but one has a =FILE.",
)
@click.option("--output-file", type=_FILE, help="Write the report to this file instead of standard output.")
@click.option("-q", "--quiet", is_flag=True, help="Print findings, and nothing else.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Also print which settings apply, which files are read and which runs found."
)
@click.option("--statistics", is_flag=True, help="Show only how often each rule found something.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    help="Exit 1 from this severity on (default: warning).",
)
@click.option("--fix", is_flag=True, help="Apply safe fixes to the files.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: also apply fixes that make a choice for you.")
@click.option(
    "--diff", is_flag=True, help="Show what --fix would change as a diff, change nothing, and exit 1 if there is any."
)
@click.option("--add-ignore", is_flag=True, help="Add a comment or setting that silences each finding.")
@click.option("--baseline", type=_FILE, help="Leave out the findings recorded in this file.")
@click.option("--write-baseline", type=_FILE, help="Record what is found in this file.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours; auto heeds NO_COLOR and FORCE_COLOR.",
)
@click.option("--stdin-filename", metavar="NAME", help="With '-': the name of the file read from standard input.")
@click.option("--skip-unknown", is_flag=True, help="Skip named files that are no configs, as hooks need.")
@click.option("--show-runs", is_flag=True, help="Show which runs are found and who reads them, instead of findings.")
@click.option("--all-releases", is_flag=True, help="Also show in which releases of its library each finding holds.")
@click.option("--exit-zero", is_flag=True, help="Exit 0 even if there are findings.")
@click.option("--watch", is_flag=True, help="Lint again whenever a config or script changes, until Ctrl-C.")
def command(
    paths: tuple[Path, ...],
    select: str,
    ignore: str,
    preview: bool,
    notes: bool,
    consumer: str | None,
    formats: tuple[Output, ...],
    output_file: Path | None,
    quiet: bool,
    verbose: bool,
    statistics: bool,
    fail_on: str | None,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    add_ignore: bool,
    baseline: Path | None,
    write_baseline: Path | None,
    color: str,
    stdin_filename: str | None,
    skip_unknown: bool,
    show_runs: bool,
    all_releases: bool,
    exit_zero: bool,
    watch: bool,
    **given: Any,
) -> None:
    """Find what will crash, be silently ignored, or lose the weights.

    PATHS are files and folders (default: the current one). In a folder zerocfg finds the accelerate configs, DeepSpeed
    configs, trainer recipes and launch lines by itself and ignores every other file. A single file stands for the runs
    that it takes part in: everything found in them is reported, in whichever file.

    Exit codes: 0 clean, 1 findings, 2 wrong use, a named file is missing, unreadable or no config, or zerocfg itself
    failed at something (what else was found is reported).
    """
    modes = {"--fix": fix or diff, "--add-ignore": add_ignore, "--write-baseline": write_baseline is not None}
    _check_use({**modes, "--show-runs": show_runs}, paths)
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose cannot be used together")
    if add_ignore and given["isolated"]:
        raise click.UsageError("--add-ignore may write into the settings, which --isolated leaves out")
    reports = outputs(formats, output_file)
    if statistics and any(report.format not in ("full", "concise", "json") for report in reports):
        raise click.UsageError("--statistics needs --output-format full, concise or json")
    targets, stdin = _targets(paths, stdin_filename)
    settings = SettingsOptions(**given).settings(targets[0])
    selection = selection_of(settings, select, ignore, preview)
    for note in deprecated(selection.select) if not quiet else ():
        click.echo(f"zerocfg: {note}", err=True)
    threshold = Severity(fail_on or settings.fail_on)
    tell_notes = notes or settings.notes or threshold is Severity.NOTE
    known = None if write_baseline else read_baseline_file(baseline, settings)
    if all_releases and (watch or show_runs or statistics or write_baseline or any(modes.values())):
        raise click.UsageError("--all-releases only works when findings are reported")
    if watch:
        if any(modes.values()) or show_runs or stdin or statistics:
            raise click.UsageError(
                "--watch only looks: not with standard input, --statistics, --show-runs, --fix, --diff or what writes"
            )
        _watch(lambda: Job(targets, settings, selection, consumer, known, notes=tell_notes), targets, reports, color)
    job = Job(targets, settings, selection, consumer, known, stdin, notes=tell_notes, skip_unknown=skip_unknown)
    began = time.monotonic()
    with Working("" if quiet else "linting", job.progress), _uncollected():
        result = job.lint()
    if verbose:
        from zerocfg.cli.linting.verbose import report_details

        report_details(job, time.monotonic() - began)
    if not quiet:
        _warn(job)
    unchecked = [one for one in result.unread if one.named]
    for one in unchecked:
        click.echo(f"zerocfg: '{one.file}' was not checked: {one.reason}", err=True)
    _tell_internal_errors(result)
    incomplete = bool(unchecked or result.internal_errors)
    if show_runs:
        _show_runs(job, reports[0], color)
        _exit(incomplete, False)
    if write_baseline is not None:
        write_baseline_file(result, write_baseline)  # notes too: who asks for them later has only new ones
        _exit(incomplete, False)
    if add_ignore:
        from zerocfg.cli.linting.add_ignores import add_ignores

        result = add_ignores(job, job.reported(result))
    elif diff:
        from zerocfg.cli.linting.apply_fixes import show_fixes

        _exit(incomplete, show_fixes(job, result, unsafe=unsafe_fixes, quiet=quiet) and not exit_zero)
    elif fix:
        from zerocfg.cli.linting.apply_fixes import fix_files

        result = fix_files(job, result, unsafe=unsafe_fixes, quiet=quiet)
    result = job.reported(result)
    if all_releases:
        from zerocfg.linter.release_ranges import with_release_ranges

        result.diagnostics = with_release_ranges(result.diagnostics, job.runs)
    # The fixed text of standard input has standard output to itself.
    for report in reports:
        if report.file is not None:
            write(report.file, render(result, report.format, statistics=statistics, quiet=quiet))
        else:
            show(result, report.format, color, statistics, sys.stderr if stdin and fix else sys.stdout, quiet)
    grave = any(diagnostic.severity.rank >= threshold.rank for diagnostic in result.diagnostics)
    _exit(incomplete, grave and not exit_zero)


@contextmanager
def _uncollected() -> Iterator[None]:
    """What a lint reads is kept, syntax trees above all: to look for cycles among it, again and again, takes half of
    the time in a repository of 2,000 Python files. Nor is it looked through when the process ends."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def _exit(incomplete: bool, found: bool) -> NoReturn:
    """2 where a file that was named could not be checked or zerocfg failed inside, else 1 for findings."""
    raise click.exceptions.Exit(2 if incomplete else int(found))


def _tell_internal_errors(result: Result) -> None:
    for one in result.internal_errors:
        click.echo(f"zerocfg: internal error: {one}", err=True)
    if result.internal_errors:
        click.echo(REPORT, err=True)


def _warn(job: Job) -> None:
    if job.empty:
        from zerocfg.cli.linting.discovery_help import tell_empty

        tell_empty(job.empty)


def _show_runs(job: Job, output: Output, color: str) -> None:
    from zerocfg.report.runs import render_runs, render_runs_json
    from zerocfg.report.table import folded

    if output.format not in ("full", "json"):
        raise click.UsageError("--show-runs needs --output-format full or json")
    coloured = output.file is None and colour(color, sys.stdout)
    text = render_runs_json(job.runs) if output.format == "json" else render_runs(job.runs, coloured)
    if output.format == "full" and output.file is None:
        text = folded(text, columns(sys.stdout))
    if output.file is not None:
        write(output.file, text)
    else:
        click.echo(text, nl=False, color=True)


def _watch(make_job: Callable[[], Job], targets: list[Path], reports: list[Output], color: str) -> NoReturn:
    """Report again and again; a terminal is cleared before each report."""
    from zerocfg.cli.linting.watch import watch

    def lint() -> None:
        job = make_job()
        with Working("linting", job.progress):
            result = job.reported(job.lint())
        _warn(job)
        _tell_internal_errors(result)
        for report in reports:
            if report.file is not None:
                write(report.file, render(result, report.format))
            else:
                click.clear()
                show(result, report.format, color)
        click.echo("watching for changes; Ctrl-C ends", err=True)

    watch(targets, lint)
    raise AssertionError("only an interrupt ends it")


def _check_use(modes: dict[str, bool], paths: tuple[Path, ...]) -> None:
    asked = [name for name, given in modes.items() if given]
    if len(asked) > 1:
        raise click.UsageError(f"{asked[0]} and {asked[1]} cannot be used together")
    if asked and asked[0] != "--fix" and any(str(path) == "-" for path in paths):
        raise click.UsageError(f"{asked[0]} needs files, not standard input")


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
        from zerocfg.report.table import folded

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
) -> None:
    """Print the result as it suits the reader: a person at a terminal, a file, a program."""
    stream = stream or sys.stdout
    text = render(result, output_format, colour(color, stream), statistics, columns(stream), quiet)
    if output_format in ("full", "concise"):
        # click would take the colours out of what goes to a pipe, also where they are asked for.
        click.echo(text, file=stream, nl=False, color=True)
    elif stream is sys.stdout:
        write_exactly(text)
    else:
        click.echo(text, file=stream, nl=False)


def _targets(paths: tuple[Path, ...], stdin_filename: str | None) -> tuple[list[Path], dict[str, str]]:
    """The files and folders to look at, and the text of standard input by its real path."""
    targets, stdin = [], {}
    for path in paths or (Path(),):
        if str(path) == "-":
            name = Path(stdin_filename or "stdin.yaml")
            data = sys.stdin.buffer.read(FILE_BYTES + 1)
            if len(data) > FILE_BYTES:
                raise click.UsageError(f"standard input is larger than {FILE_BYTES >> 20} MiB; not read")
            stdin[os.path.realpath(name)] = data.decode("utf-8", "replace")
            targets.append(name)
        elif not path.exists():
            raise click.UsageError(f"there is no file or folder '{path}'")
        else:
            targets.append(path)
    return targets, stdin
