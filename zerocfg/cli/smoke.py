"""``zerocfg smoke``: train a few steps with the emitted configs and check what really runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--ranks", type=click.IntRange(1, 64), help="Processes. Default: as planned, at most 2.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="Optimizer steps.")
@click.option(
    "--time-limit", type=click.FloatRange(1), default=300, show_default=True, help="Seconds for the whole run."
)
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep weights, log and reduced configs here."
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    run: Path,
    ranks: int | None,
    device: str,
    steps: int,
    time_limit: float,
    keep: Path | None,
    output_format: str,
) -> None:
    """Launch RUN (a folder that `zerocfg build` wrote) with the real libraries and compare with its plan.

    The model has random weights and learns one synthetic batch. What has to be smaller than planned is said.
    The verdict is also written to RUN/smoke.json.

    Exit codes: 0 every check passed, 1 a check failed, 2 the run could not be tried.
    """
    from zerocfg.smoke.folder import SmokeError
    from zerocfg.smoke.smoke import Options, smoke
    from zerocfg.smoke.text import render
    from zerocfg.smoke.verdict import data

    def progress(phase: str) -> None:
        click.echo(f"\r\033[K{phase}", err=True, nl=False)

    show = sys.stderr.isatty()
    try:
        options = Options(ranks=ranks, device=device, steps=steps, limit=time_limit, keep=keep)
        verdict = smoke(run, options, progress if show else None)
    except SmokeError as error:
        raise click.ClickException(str(error)) from None
    finally:
        if show:
            click.echo("\r\033[K", err=True, nl=False)
    if output_format == "json":
        click.echo(json.dumps(data(verdict), indent=2))
    else:
        click.echo(render(verdict), nl=False)
    if verdict.outcome.interrupted:
        raise click.Abort
    if not verdict.passed:
        raise click.exceptions.Exit(1)
