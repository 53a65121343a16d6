"""``zerocfg plan``: what the runs of a spec will take, before anything is launched."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from zerocfg.cli.build_output import problems
from zerocfg.cli.plan_output import as_data, as_text
from zerocfg.resolve.build import Built, build_plans
from zerocfg.resolve.forecast import Forecast, forecast
from zerocfg.resolve.spec_file import SpecFile, read_spec
from zerocfg.run.discover import display_name


@click.command("plan")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--hardware", metavar="PROFILE", help="8xA100-80GB, a probed profile (.json), or 'this' machine.")
@click.option("--run", "only", metavar="NAME", help="Only this run of the spec.")
@click.option("--trace/--no-trace", default=True, show_default=True, help="Trace the model's activations with torch.")
@click.option("--python", metavar="PATH", help="The interpreter that has torch and transformers. Default: this one.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    spec: Path, hardware: str | None, only: str | None, trace: bool, python: str | None, output_format: str
) -> None:
    """Predict memory and time of the runs of SPEC (a zerocfg.yaml, or the folder that holds one).

    For each run: what one rank holds in each phase of a step, term by term; what the three counters will show
    (allocated, reserved, the driver's); whether it fits, and the cheapest change that makes it fit. Activations are
    traced on the real model class without weights or accelerator when torch and transformers are there, else they
    follow from a formula. Nothing is written or launched.

    Exit codes: 0 every run fits or is tight, 1 a run does not fit or cannot be resolved, 2 wrong use or an unreadable
    spec.
    """
    path = spec / "zerocfg.yaml" if spec.is_dir() else spec
    if not path.exists():
        raise click.UsageError(f"there is no file '{path}'")
    read = read_spec(path, display_name(path))
    if read.spec is None:
        for problem in read.problems:
            click.echo(f"{problem}", err=True)
        raise click.exceptions.Exit(2)
    if only is not None and only not in read.spec.runs:
        raise click.UsageError(f"the spec has no run '{only}'; it has {', '.join(read.spec.runs)}")
    built = _plans(read, only, hardware)
    if any(one.problems for one in built):
        click.echo(problems(built, display_name(path), output_format), nl=False, err=output_format == "text")
        raise click.exceptions.Exit(1)
    found = [(one, _forecast(one, trace, python)) for one in built]
    click.echo(as_data(found) if output_format == "json" else as_text(found), nl=False)
    if any(isinstance(one, Forecast) and one.word == "does not fit" for _, one in found):
        raise click.exceptions.Exit(1)


def _plans(read: SpecFile, only: str | None, hardware: str | None) -> list[Built]:
    try:
        return build_plans(read, only, hardware)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _forecast(built: Built, trace: bool, python: str | None) -> Forecast | str:
    """The forecast, or in words why there is none."""
    show = sys.stderr.isatty()
    if show:
        click.echo(f"\r\033[K{built.name}: predicting", err=True, nl=False)
    try:
        return forecast(built, tracing=trace, python=python)
    except ValueError as error:
        return str(error)
    finally:
        if show:
            click.echo("\r\033[K", err=True, nl=False)
