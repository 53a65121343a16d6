"""``zerocfg convert``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from zerocfg.cli.settings_options import options
from zerocfg.convert.conversion import Conversion, ConversionError, Row
from zerocfg.convert.targets import TARGETS, convert, opened
from zerocfg.linter.selection import Selection
from zerocfg.run.consumers import consumers
from zerocfg.run.discover import Files, display_name
from zerocfg.run.releases import with_versions
from zerocfg.source.edit import unified_diff
from zerocfg.source.write import Change, write_together
from zerocfg.terminal.streams import columns, write_diff
from zerocfg.terminal.table import Column, folded, table
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import SettingsOptions


class NotConvertedError(click.ClickException):
    """A config that cannot be converted, or an output that is in the way."""

    exit_code = 2


@click.command("convert")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", "target", type=click.Choice(TARGETS), required=True, help="The form or engine to convert to.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="Write the accelerate config to a new file."
)
@click.option("--write", "writes", is_flag=True, help="Change FILE itself; without it and -o the changes are shown.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The new DeepSpeed JSON. Default: beside the accelerate config, with its name.",
)
@click.option("--allow-loss", is_flag=True, help="Write even where a key has no counterpart.")
@click.option(
    "--consumer", type=click.Choice(consumers()), help="Who reads the configs, overriding what the files say."
)
@options
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    file: Path,
    target: str,
    output: Path | None,
    writes: bool,
    json_file: Path | None,
    allow_loss: bool,
    consumer: str | None,
    output_format: str,
    **given: Any,
) -> None:
    """Convert an accelerate config to another form or engine, and say what becomes of every key.

    deepspeed-json moves all that FILE says of DeepSpeed into a DeepSpeed JSON, what accelerate ignores among it;
    accelerate-yaml takes a JSON back in. fsdp2 takes configs of DeepSpeed, FSDP 1 and DDP; zero2 and zero3 those of
    DDP. Shown are the edits as a diff and a table: what is carried over exactly, what nobody read before and counts
    now, what nearly, and what not at all. Effective settings are compared before and after.

    Nothing is written without -o or --write, and with a key that has no counterpart only with --allow-loss.

    Exit codes: 0 everything is carried over, 1 something has no counterpart, 2 wrong use or an unreadable file.
    """
    if output is not None and writes:
        raise click.UsageError("-o and --write cannot be combined: write a new file, or change FILE")
    try:
        files, settings = Files(), SettingsOptions(**given).settings(file)
        job = Job([file], settings, Selection(), consumer)
        (run,) = job.read(with_versions([opened(file, files)], settings.versions))
        found = convert(run, files, target, output or file, json_file)
    except ConversionError as error:
        raise NotConvertedError(str(error)) from None
    blocked = bool(found.lost) and not allow_loss
    changes = [] if blocked else _changes(found, output, writes)
    if output_format == "json":
        click.echo(_as_data(found, bool(changes)), nl=False)
    else:
        _show(found, output, bool(changes))
    if blocked and (writes or output):
        click.echo("Nothing was written: --allow-loss drops what has no counterpart.", err=True)
    try:
        write_together(changes)
    except OSError as error:
        raise NotConvertedError(f"'{error.filename}': {error.strerror or error}") from None
    raise click.exceptions.Exit(int(bool(found.lost)))


def _changes(found: Conversion, output: Path | None, writes: bool) -> list[Change]:
    """What is written: nothing that is there already, but for what --write asks for."""
    if not writes and output is None:
        return []
    file = found.source.accelerate
    assert file is not None and file.path is not None
    changes = []
    if output is not None:
        changes.append(Change(output, None, found.accelerate.encode("utf-8")))
    elif found.accelerate != file.source.text:
        changes.append(Change(file.path, file.source.text.encode("utf-8"), found.accelerate.encode("utf-8")))
    for path, text in found.deepspeed.items():
        before = _before(found, path)
        if text != before:
            changes.append(Change(path, None if before is None else before.encode("utf-8"), text.encode("utf-8")))
    for change in changes:
        if change.before is not None and output is not None:
            raise NotConvertedError(
                f"'{display_name(change.path)}', which FILE reads, would change; --write changes both"
            )
        if change.before is None and change.path.exists():
            raise NotConvertedError(f"'{display_name(change.path)}' is there already; name another file")
    return changes


def _before(found: Conversion, path: Path) -> str | None:
    """The text of a DeepSpeed JSON before; None where it is a new one."""
    file = found.source.deepspeed
    return file.source.text if file is not None and file.path == path else None


def _show(found: Conversion, output: Path | None, written: bool) -> None:
    file = found.source.accelerate
    assert file is not None
    if not written:
        name = file.name if output is None else display_name(output)
        write_diff(unified_diff(name, file.source.text, found.accelerate))
        for path, text in found.deepspeed.items():
            write_diff(unified_diff(display_name(path), _before(found, path) or "", text))
    rows = [*found.rows, *found.differences]
    if not rows:
        click.echo("Nothing to convert.")
        return
    titles = (Column("key", least=20), Column("becomes", least=20), Column("maps"), Column("because", least=20))
    cells = [(row.old, row.new, row.match, row.why) for row in rows]
    if not written:
        click.echo()
    click.echo("\n".join(table(titles, cells, columns(sys.stdout), "")))
    counts = [
        f"{sum(row.match == match for row in rows)} {match}" for match in dict.fromkeys(row.match for row in rows)
    ]
    click.echo(folded(f"\n{', '.join(counts)}\n", columns(sys.stdout)), nl=False)


def _as_data(found: Conversion, written: bool) -> str:
    file = found.source.accelerate
    assert file is not None
    texts = [(file.name, file.source.text, found.accelerate)]
    texts += [(display_name(path), _before(found, path) or "", text) for path, text in found.deepspeed.items()]
    data = {
        "version": 1,
        "written": written,
        "files": [{"file": name, "diff": unified_diff(name, before, after)} for name, before, after in texts],
        "table": [_row(row) for row in found.rows],
        "differs": [_row(row) for row in found.differences],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _row(row: Row) -> dict[str, str]:
    return {"place": row.place, "key": row.old, "becomes": row.new, "maps": row.match, "because": row.why}
