"""The command line."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tools.every_command.play import play
from tools.every_command.processes import PROGRAM, forked, import_zerocfg, started
from tools.every_command.rows import read_rows, tables
from zerocfg.fleet.listing import ListError, below, listed


@click.command()
@click.argument("checkouts", type=click.Path(exists=True, path_type=Path))
@click.option("--rows", type=click.Path(path_type=Path), required=True, help="A row of JSON a line; goes on there.")
@click.option("--start", is_flag=True, help="Start a process for each command, instead of forking one.")
def main(checkouts: Path, rows: Path, start: bool) -> None:
    """Play every command over checkouts and print the tables. Exits with 1 where anything went wrong."""
    try:
        repositories = (
            below(checkouts) if checkouts.is_dir() else listed(checkouts.read_text().splitlines(), checkouts.parent)
        )
    except ListError as error:
        raise click.UsageError(str(error)) from None
    known = read_rows(rows.read_text()) if rows.exists() else []
    played = {row.checkout for row in known}
    if start:
        run = started(PROGRAM)
    else:
        import_zerocfg()
        run = forked
    for repository in repositories:
        folder = Path(repository.path)
        if folder.name in played:
            continue
        new = list(play(folder, run))
        with rows.open("a") as file:
            file.writelines(row.line() for row in new)
        known += new
        seconds = sum(row.seconds for row in new)
        wrong = sum(row.wrong for row in new)
        click.echo(f"{folder.name}: {len(new)} commands, {seconds:.0f} s of CPU, {wrong} wrong", err=True)
    click.echo(tables(known), nl=False)
    sys.exit(1 if any(row.wrong for row in known) else 0)


if __name__ == "__main__":
    main()
