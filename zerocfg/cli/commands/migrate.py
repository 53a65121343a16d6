"""``zerocfg migrate``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from zerocfg.cli.settings_options import options
from zerocfg.compare.sides import Value
from zerocfg.compare.values import ABSENT, shown
from zerocfg.linter.engine import Diagnostic
from zerocfg.linter.kept import Kept
from zerocfg.linter.selection import Selection
from zerocfg.migrate.migration import Done, Migration, migrate
from zerocfg.migrate.outcome import Changed, Rest, rest
from zerocfg.migrate.releases import ReleasesError, parse_releases
from zerocfg.run.consumers import consumers
from zerocfg.run.discover import display_name
from zerocfg.run.unchecked import unparsed_files
from zerocfg.run.uncollected import uncollected
from zerocfg.source.edit import unified_diff
from zerocfg.source.write import Change, write_together
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import columns, write_diff
from zerocfg.terminal.table import folded
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import SettingsOptions


@click.command("migrate")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--to", "new", required=True, metavar="RELEASES", help="E.g. deepspeed==0.19.8,transformers==5.23.0.")
@click.option(
    "--from", "old", metavar="RELEASES", help="What the files are written for, where the project pins nothing."
)
@click.option("--write", "writes", is_flag=True, help="Change the files; without it the changes are shown as a diff.")
@click.option("--pins", is_flag=True, help="Also set the requirements of these libraries to the new releases.")
@click.option(
    "--consumer", type=click.Choice(consumers()), help="Who reads the configs, overriding what the files say."
)
@options
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    paths: tuple[Path, ...],
    new: str,
    old: str | None,
    writes: bool,
    pins: bool,
    consumer: str | None,
    output_format: str,
    **given: Any,
) -> None:
    """Bring configs, recipes, launch lines and scripts to other releases without changing what they mean.

    PATHS are files and folders (default: the current one). Arguments that the new releases dropped get their new name
    and form, or go where they asked for nothing; defaults that changed are written out where the old release is known;
    every other byte stays. What no edit can keep is listed with its place.

    Exit codes: 0 nothing is left to do, 1 something is: a change that --write would make, a place that needs a manual
    change, or a config that nothing starts and that cannot be parsed; 2 wrong use, or a file that cannot be read
    although PATHS, a launch line or a spec names it.
    """
    try:
        target, source = parse_releases(new), parse_releases(old) if old else {}
    except ReleasesError as error:
        raise click.UsageError(str(error)) from None
    targets = list(paths) or [Path()]
    missing = next((path for path in targets if not path.exists()), None)
    if missing is not None:
        raise click.UsageError(f"there is no file or folder '{missing}'")
    job = Job(targets, SettingsOptions(**given).settings(targets[0]), Selection(), consumer, kept=Kept())
    with Working("migrating", job.progress), uncollected():
        unchecked = job.find_targets()
        runs, empty = job.included, list(job.empty)
        asked_for = {file.file for file in unchecked}
        unchecked += [file for file in unparsed_files(runs, targets) if file.file not in asked_for]
        found = migrate(runs, target, source, with_pins=pins)
        job.find(found.texts)
        remaining = rest(found, runs, job.included, target, source)
    for file in unchecked:
        click.echo(f"zerocfg: '{file.file}' was not read: {file.reason}", err=True)
    if empty:
        from zerocfg.cli.linting.discovery_help import tell_empty

        tell_empty(empty)
    if output_format == "json":
        click.echo(_as_data(job, found, remaining, writes), nl=False)
    else:
        _show(job, found, remaining, writes, complete=not unchecked)
    if writes:
        write_together(
            Change(Path(path), job.original(path).encode("utf-8"), text.encode("utf-8"))
            for path, text in found.texts.items()
        )
    to_do = unchecked or found.left or remaining.errors or remaining.settings or (found.texts and not writes)
    raise click.exceptions.Exit(2 if any(file.named for file in unchecked) else int(bool(to_do)))


def _show(job: Job, found: Migration, remaining: Rest, writes: bool, *, complete: bool) -> None:
    """The diff as other tools read it, then what was done and what is left."""
    for path, text in () if writes else sorted(found.texts.items()):
        write_diff(unified_diff(display_name(Path(path)), job.original(path), text))
    blocks = [
        ("changed" if writes else "to change", [_line(item) for item in found.done]),
        ("needs a manual change", [*map(_line, found.left), *map(_finding, remaining.errors)]),
        ("changed settings", [row for setting in remaining.settings for row in _settings(setting)]),
    ]
    for title, rows in blocks:
        if rows:
            text = "".join(f"  {row}\n" for row in rows)
            click.echo(f"\n{title}:\n{folded(text, columns(sys.stdout))}", nl=False)
    files = len(found.texts)
    if not any(rows for _, rows in blocks):
        click.echo("Nothing to migrate." if complete else "Nothing to migrate in the files that were read.")
    elif files and not writes:
        click.echo(f"\n--write changes {files} file{'s' * (files != 1)}.", err=True)


def _line(item: Done) -> str:
    return f"{item.span.file.name}:{item.span.start.line}:{item.span.start.column}: {item.why}"


def _finding(diagnostic: Diagnostic) -> str:
    where = diagnostic.span
    return f"{where.file.name}:{where.start.line}:{where.start.column}: {diagnostic.code} {diagnostic.message}"


def _settings(item: Changed) -> list[str]:
    return [f"{item.run}: {each.name} {_shown(each.a)} -> {_shown(each.b)}" for each in item.differences]


def _shown(value: Value | None) -> str:
    return shown(ABSENT if value is None else value.value)


def _as_data(job: Job, found: Migration, remaining: Rest, writes: bool) -> str:
    data = {
        "version": 1,
        "written": writes and bool(found.texts),
        "files": [
            {"file": display_name(Path(path)), "diff": unified_diff(display_name(Path(path)), job.original(path), text)}
            for path, text in sorted(found.texts.items())
        ],
        "changes": [_place(item) for item in found.done],
        "left": [*map(_place, found.left), *map(_found, remaining.errors)],
        "differs": [
            {
                "run": setting.run,
                "key": each.name,
                "before": _shown(each.a),
                "after": _shown(each.b),
            }
            for setting in remaining.settings
            for each in setting.differences
        ],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _place(item: Done) -> dict[str, object]:
    start = item.span.start
    return {
        "file": item.span.file.name,
        "path": item.span.path,
        "line": start.line,
        "column": start.column,
        "why": item.why,
    }


def _found(diagnostic: Diagnostic) -> dict[str, object]:
    start = diagnostic.span.start
    place = {
        "file": diagnostic.span.file.name,
        "path": diagnostic.span.path,
        "line": start.line,
        "column": start.column,
    }
    return {**place, "code": diagnostic.code, "why": diagnostic.message}
