"""``zerocfg report``: one page about a run, to be read in a browser and sent to others."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from zerocfg.cli.outputs import write
from zerocfg.source import disk
from zerocfg.terminal.streams import draw_anew

HEAD = 4096
"""Bytes at the beginning of a file that are searched for the generator."""


class NoPageError(click.ClickException):
    """Why no page was written."""

    exit_code = 2


@click.command("report")
@click.argument("run", default=".")
@click.option("-o", "--out", required=True, metavar="FILE", help="The page to write; '-' is standard output.")
@click.option("--run", "only", metavar="NAME", help="Which run, if RUN holds several.")
@click.option(
    "--build",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The last build (OUT or OUT/RUN). Default: found below the spec or the current folder.",
)
@click.option(
    "--consumer",
    type=click.Choice(["transformers", "trl", "accelerate", "deepspeed"]),
    help="Who reads hand-written configs, when no file says so.",
)
@click.option("--hardware", metavar="PROFILE", help="8xA100-80GB, a probed profile (.json), or 'this' machine.")
@click.option("--trace/--no-trace", default=True, show_default=True, help="Trace the model's activations with torch.")
@click.option("--python", metavar="PATH", help="The interpreter that has torch and transformers. Default: this one.")
@click.option("--force", is_flag=True, help="Replace a file that zerocfg did not write.")
def command(
    run: str,
    out: str,
    only: str | None,
    build: Path | None,
    consumer: str | None,
    hardware: str | None,
    trace: bool,
    python: str | None,
    force: bool,
) -> None:
    """Write one self-contained HTML page about RUN: findings, predicted memory and time, what a smoke-run saw, what
    changed since the last build, and every effective setting with its origin.

    RUN is a zerocfg.yaml (or its folder, or zerocfg.yaml:NAME), a folder that `zerocfg build` wrote, or hand-written
    configs; default: the current folder. The page opens from disk, loads nothing, and is the same for the same files.
    What is not known is listed together with the command that finds it out.

    Needs matplotlib and jinja2: pip install 'zerocfg[report]'.

    Exit codes: 0 written, whatever it says; 2 wrong use, an unreadable RUN, or a file in the way.
    """
    _require()
    target = None if out == "-" else Path(out)
    if target is not None:
        _check(target, force)
    from zerocfg.cli.commands.report_input import ReportRequest, collect_report_input
    from zerocfg.page.page import page
    from zerocfg.page.render import render
    from zerocfg.page.report_input import PageError

    show = sys.stderr.isatty()
    try:
        _tell(show, "reading and predicting")
        report_input = collect_report_input(run, ReportRequest(only, build, hardware, consumer, trace, python))
        _tell(show, "drawing")
        text = render(page(report_input))
    except PageError as error:
        raise NoPageError(str(error)) from None
    finally:
        _tell(show, "")
    if target is None:
        click.echo(text.encode(), nl=False)
        return
    _check(target, force)
    try:
        write(target, text)
    except click.ClickException as error:
        raise NoPageError(error.message) from None
    click.echo(f"wrote {out} ({len(text.encode()) / 1024:.0f} kB)")


def _tell(show: bool, text: str) -> None:
    if show:
        draw_anew(text, sys.stderr)


def _require() -> None:
    """Before anything is computed."""
    import importlib.util

    missing = [name for name in ("jinja2", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise NoPageError(f"a report needs {' and '.join(missing)}: pip install 'zerocfg[report]'")


def _check(target: Path, force: bool) -> None:
    """Only pages that this command wrote are replaced."""
    from zerocfg.page.render import is_ours

    try:
        if target.is_dir():
            raise NoPageError(f"'{target}' is a folder; -o names a file")
        if not target.absolute().parent.is_dir():
            raise NoPageError(f"'{target}' cannot be written: there is no folder '{target.parent}'")
        if force or not target.exists():
            return
        head = disk.content(target, HEAD, HEAD)[1]
    except (OSError, ValueError) as error:
        raise NoPageError(f"'{target}' cannot be written: {getattr(error, 'strerror', None) or error}") from None
    if not is_ours(head):
        raise NoPageError(f"'{target}' was not written by zerocfg report; --force replaces it")
