"""``zerocfg build``."""

from __future__ import annotations

from pathlib import Path

import click

from zerocfg.cli.commands.build_check import check_outputs
from zerocfg.cli.screens.build import finished, problems, stopped
from zerocfg.cli.spec_argument import read_or_exit, resolved
from zerocfg.emit.exclusive import BusyError
from zerocfg.emit.write import RefusedError, check, write
from zerocfg.run.discover import display_name
from zerocfg.workspace.compile_runs import compile_runs
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import find_settings


class InTheWayError(click.ClickException):
    """A file that the build will not replace."""

    exit_code = 2


@click.command("build")
@click.argument("spec", type=click.Path(path_type=Path), default=".")
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to."
)
@click.option("--hardware", metavar="PROFILE", help="8xA100-80GB, a probed profile (.json), or 'this' machine.")
@click.option(
    "--network", metavar="GBIT", help="Between nodes: adapters of a node x Gbit/s of each (8x200), or of a node (100)."
)
@click.option("--run", "only", metavar="NAME", help="Only this run of the spec.")
@click.option("--force", is_flag=True, help="Replace files that zerocfg did not write or that were changed since.")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 where OUT is not what SPEC gives.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    spec: Path,
    out: Path,
    hardware: str | None,
    network: str | None,
    only: str | None,
    force: bool,
    only_check: bool,
    output_format: str,
) -> None:
    """Resolve every auto of SPEC (a zerocfg.yaml or its folder, default: the current one) and write runnable configs.

    For each run: OUT/RUN/accelerate.yaml, ds_config.json, launch.sh, and zerocfg.lock with the reason for
    every value. A run that does not resolve or does not lint clean gets no files; the others are built.

    Exit codes: 0 built, or with --check up to date; 1 something in the configs prevents it for a run, or OUT is out of
    date; 2 wrong use, an unreadable spec or an unreadable lock, or an error of zerocfg itself.
    """
    read = read_or_exit(spec)
    built = resolved(read, only, hardware, network)
    found = compile_runs(read, built, out, selection_of(find_settings(read.folder), "", "", False))
    status = 0 if not found.failed else 2 if found.broken else 1
    emitted = found.emitted
    if only_check and not status:
        raise click.exceptions.Exit(check_outputs(emitted, read.path, out, only, output_format))
    try:
        if only_check:
            check(emitted, force=force)
        written = [] if only_check else write(emitted, force=force)
    except (RefusedError, BusyError) as refused:
        raise InTheWayError(str(refused)) from None
    if written:
        text = finished(emitted, written, output_format)
        # Of a build with failures JSON tells what failed: it is one document.
        click.echo(text if not status or output_format == "text" else "", nl=False)
    if found.errors is not None:
        click.echo(stopped(found.errors, output_format), nl=False, color=True)
    if found.has_problems and (found.errors is None or output_format == "text"):
        click.echo(problems(built, display_name(read.path), output_format), nl=False, err=output_format == "text")
    if found.failed and emitted:
        click.echo(f"built {len(emitted)} of {len(built)} runs; not {', '.join(found.failed)}", err=True)
    if found.warnings and not status and output_format == "text":
        warnings = f"lint has {found.warnings} warning{'s' * (found.warnings > 1)} about the sources"
        click.echo(f"{warnings}: zerocfg lint {display_name(read.path)}")
    raise click.exceptions.Exit(status)
