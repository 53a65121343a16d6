"""Runs in turn: each result is shown as it comes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import columns

if TYPE_CHECKING:
    from zerocfg.smoke.many import Result
    from zerocfg.smoke.smoke import Options


def play(runs: list[Path], options: Options, as_json: bool, fail_fast: bool = False) -> None:
    """Run all, show each result as it comes, and end with the exit code of them all."""
    from zerocfg.smoke import many

    working = Working("smoke-run: preparing")

    def ended(result: Result) -> None:
        working("")
        working.clear()
        if result.problem is not None:
            click.echo(f"Error: {result.problem}", err=True)
        if not as_json:
            _show(result, len(runs) > 1)

    with working:
        results = many.run_all(runs, options, ended, lambda phase: working(f"smoke-run: {phase}"), fail_fast)
    if as_json:
        click.echo(json.dumps(many.as_data(results), indent=2))
    elif len(runs) > 1:
        click.echo(many.summary(results, columns(sys.stdout)), nl=False)
    if any(result.interrupted for result in results):
        raise click.Abort
    code = many.exit_code(results)
    if code:
        raise click.exceptions.Exit(code)


def _show(result: Result, several: bool) -> None:
    from zerocfg.smoke.text import render

    if result.verdict is not None:
        click.echo(render(result.verdict, columns(sys.stdout)) + "\n" * several, nl=False)
