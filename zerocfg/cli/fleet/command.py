"""What ``zerocfg lint --repos`` does once its command line is read."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import ClickException

from zerocfg.budgets import REPORT_BYTES
from zerocfg.cli.coloured import write_coloured
from zerocfg.cli.fleet.one import How, lint_all
from zerocfg.cli.fleet.options import LIMIT, WORKERS
from zerocfg.cli.linting.lint import Options
from zerocfg.cli.outputs import Output, outputs, write
from zerocfg.errors import UsageError
from zerocfg.fleet.changes import Changes, changes
from zerocfg.fleet.json_format import ReadError, read, render_json
from zerocfg.fleet.listing import ListError, below, listed
from zerocfg.fleet.sarif import render_sarif
from zerocfg.fleet.summary import exit_code
from zerocfg.fleet.text import render_concise, render_full
from zerocfg.record import record
from zerocfg.source import disk
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import colour, columns, write_exactly
from zerocfg.workspace.selection import checked
from zerocfg.workspace.settings import SettingsOptions

if TYPE_CHECKING:
    from zerocfg.cluster.wait import Progress
    from zerocfg.fleet.model import Outcome, Repository

FORMATS = ("full", "concise", "json", "sarif", "html")
_TAKEN = {
    *("select", "ignore", "settings", "preview", "notes", "consumer", "formats", "output_file", "quiet", "fail_on"),
    *("color", "exit_zero", "no_cache"),
}
"""The options of a lint that go for many repositories as well."""


@record(frozen=True)
class Fleet:
    """The options of `zerocfg.cli.fleet.options`, by their names."""

    repos: str | None = None
    jobs: int | None = None
    engine: str | None = None
    workers: int | None = None
    words: tuple[str, ...] = ()
    time_limit: float | None = None
    since: Path | None = None
    fail_on_new: bool = False


def refuse(fleet: Fleet) -> None:
    """Raises UsageError for an option that is for --repos alone."""
    for field in fields(Fleet):
        if getattr(fleet, field.name) != field.default:
            raise UsageError(f"{_option(field.name)} is for --repos")


def lint_fleet(fleet: Fleet, options: Options) -> int:
    """Lint all and report; the exit code. Raises click.ClickException."""
    reports = _reports(fleet, options)
    repositories = _repositories(fleet.repos or "")
    before = _earlier(fleet.since) if fleet.since is not None else None
    how = How(
        options.select,
        options.ignore,
        options.preview,
        options.notes,
        options.consumer,
        options.fail_on,
        _absolute(options.settings),
        any(report.format == "sarif" for report in reports),
    )
    outcomes = _outcomes(repositories, fleet, how, options.quiet)
    changed = changes(outcomes, *before) if before is not None else None
    for report in reports:
        _report(report, outcomes, changed, options)
    code = exit_code(outcomes, changed if fleet.fail_on_new else None)
    return 0 if code == 1 and options.exit_zero else code


def _reports(fleet: Fleet, options: Options) -> list[Output]:
    """What is reported where. Raises UsageError for options that do not go together."""
    if options.paths:
        raise UsageError(f"--repos lints the repositories of its list; '{options.paths[0]}' is one path more")
    for field in fields(Options):
        if field.name not in _TAKEN and getattr(options, field.name) != field.default:
            raise UsageError(f"--repos and {_option(field.name)} cannot be used together")
    if fleet.fail_on_new and fleet.since is None:
        raise UsageError("--fail-on-new needs --since REPORT, to know what is new")
    if fleet.engine in (None, "local") and (fleet.workers is not None or fleet.words):
        raise UsageError(f"{'--workers' if fleet.workers is not None else '--on-option'} is for --on slurm or ray")
    checked(word.strip() for text in (options.select, options.ignore) for word in text.split(",") if word.strip())
    found = outputs(options.formats, options.output_file)
    for report in found:
        if report.format not in FORMATS:
            raise UsageError(f"--repos reports as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not as {report.format}")
        if report.format == "html" and importlib.util.find_spec("jinja2") is None:
            raise ClickException("a page needs jinja2: pip install 'zerocfg[report]'")  # before anything is linted
    return found


def _option(name: str) -> str:
    return {"engine": "--on", "words": "--on-option"}.get(name, f"--{name.replace('_', '-')}")


def _repositories(source: str) -> list[Repository]:
    try:
        if source == "-":
            return listed(sys.stdin, Path())
        path = Path(source)
        if path.is_dir():
            return below(path)
        try:
            text = disk.whole(path, REPORT_BYTES).decode("utf-8", "surrogateescape")
        except OSError as error:
            raise ListError(f"'{source}' cannot be read: {error.strerror or error}") from None
        return listed(text.splitlines(), Path())
    except ListError as error:
        raise UsageError(f"--repos: {error}") from None


def _earlier(path: Path) -> tuple[list[Outcome], str]:
    try:
        return read(disk.whole(path, REPORT_BYTES).decode("utf-8"))
    except (ReadError, OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClickException(f"--since '{path}' cannot be compared with: {reason}") from None


def _absolute(options: SettingsOptions) -> SettingsOptions:
    """Files that --config names, as every repository finds them."""
    config = tuple(str(Path(word).absolute()) if disk.is_file(word) else word for word in options.config)
    return SettingsOptions(config, options.isolated, options.exclude, options.extend_exclude)


def _outcomes(repositories: list[Repository], fleet: Fleet, how: How, quiet: bool) -> list[Outcome]:
    """In the order of the list."""
    limit = fleet.time_limit or LIMIT
    if fleet.engine in (None, "local"):
        found = _here(repositories, how, fleet.jobs or _cores(), limit, quiet)
    else:
        found = _there(repositories, how, fleet, limit, quiet)
    by_name = {outcome.name: outcome for outcome in found}
    return [by_name[repository.name] for repository in repositories]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _here(repositories: list[Repository], how: How, jobs: int, limit: float, quiet: bool) -> list[Outcome]:
    found: list[Outcome] = []
    phase = "" if quiet else "linting"
    with Working(phase, lambda: f"{len(found)} of {len(repositories)} repositories"):
        found.extend(lint_all(repositories, how, jobs=jobs, limit=limit))
    return found


def _there(repositories: list[Repository], how: How, fleet: Fleet, limit: float, quiet: bool) -> list[Outcome]:
    from zerocfg.cli.fleet.remote import Workers, done, lint_on
    from zerocfg.cli.screens.live_table import LiveTable
    from zerocfg.cluster.engines import engine
    from zerocfg.cluster.job import ClusterError
    from zerocfg.terminal.table import Column, table

    live = LiveTable()
    shown = (
        Column("worker"),
        Column("state"),
        Column("node", least=8),
        Column("repositories", right=True),
        Column(least=20),
    )

    def look(tasks: list[Progress], sizes: list[int], away: str) -> None:
        rows = [
            (str(number), task.state.state.value, task.state.hosts, f"{done(task)} of {size}", task.state.reason)
            for number, (task, size) in enumerate(zip(tasks, sizes, strict=True), 1)
        ]
        if not quiet:
            live.draw([*table(shown, rows, columns(sys.stderr), ""), *([f"no answer: {away}"] if away else [])])

    try:
        workers = Workers(fleet.workers or WORKERS, fleet.jobs or 1, limit, fleet.words)
        return lint_on(engine(fleet.engine or ""), repositories, how, workers, look)
    except ClusterError as error:
        raise ClickException(str(error)) from None
    finally:
        live.clear()


def _report(report: Output, outcomes: list[Outcome], changed: Changes | None, options: Options) -> None:
    stream = sys.stdout
    here = report.file is None
    coloured = here and colour(options.color, stream)
    text = _rendered(report.format, outcomes, changed, coloured, columns(stream) if here else None)
    if report.file is not None:
        write(report.file, text)
    elif report.format in ("full", "concise"):
        write_coloured(text, stream)
    else:
        write_exactly(text)


def _rendered(
    output_format: str, outcomes: list[Outcome], changed: Changes | None, coloured: bool, width: int | None
) -> str:
    renderers: dict[str, Any] = {
        "full": lambda: render_full(outcomes, changed, coloured, width),
        "concise": lambda: render_concise(outcomes, changed, coloured),
        "json": lambda: render_json(outcomes, changed),
        "sarif": lambda: render_sarif(outcomes),
        "html": lambda: _page(outcomes, changed),
    }
    text: str = renderers[output_format]()
    return text


def _page(outcomes: list[Outcome], changed: Changes | None) -> str:
    from zerocfg.page.fleet import fleet_page, render

    return render(fleet_page(outcomes, changed))
