"""``zerocfg plan``: what the runs of a spec will take, before anything is launched."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from zerocfg.cli.screens import model_plans
from zerocfg.cli.screens.build import problems
from zerocfg.cli.screens.plan import Shown, as_data, as_text
from zerocfg.cli.screens.plan_table import compared
from zerocfg.cli.spec_argument import read_or_exit, resolved
from zerocfg.memory.verdict import UNKNOWN, Verdict
from zerocfg.resolve.build import BuildResult
from zerocfg.resolve.explain.alternatives import Alternative, alternatives
from zerocfg.resolve.explain.forecast import Forecast, forecast
from zerocfg.resolve.model_plans import Model, ModelPlans, find_model, not_a_model, plans_of
from zerocfg.run.discover import display_name
from zerocfg.run.hub import is_hub_name
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import columns

NOT_KNOWN = 3  # exit code, as of a smoke-run that is incomplete


@click.command("plan")
@click.argument("spec", type=click.Path(path_type=Path), default=".", metavar="[SPEC | MODEL]")
@click.option("--hardware", metavar="PROFILE", help="8xA100-80GB, a probed profile (.json), or 'this' machine.")
@click.option(
    "--network", metavar="GBIT", help="Between nodes: adapters of a node x Gbit/s of each (8x200), or of a node (100)."
)
@click.option("--run", "only", metavar="NAME", help="Only this run of the spec.")
@click.option("--trace/--no-trace", default=True, show_default=True, help="Trace the model's activations with torch.")
@click.option("--python", metavar="PATH", help="The interpreter that has torch and transformers. Default: this one.")
@click.option("--all", "every", is_flag=True, help="List every plan that was compared, not the best of each kind.")
@click.option("--lora", is_flag=True, help="Of a MODEL: train adapters of rank 16 instead of all parameters.")
@click.option("--seq", metavar="TOKENS", type=click.IntRange(1), help="Of a MODEL: tokens of a sample. Default: 2048.")
@click.option(
    "--batch", metavar="SAMPLES", type=click.IntRange(1), help="Of a MODEL: samples of a step, over all devices."
)
@click.option(
    "--images",
    metavar="N",
    type=click.IntRange(0),
    help="Of a MODEL that reads images: how many a sample has. Default: none, text alone.",
)
@click.option("--pixels", metavar="PIXELS", type=click.IntRange(1), help="Of each of the --images, after resizing.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the plans (.svg, .png or .pdf; needs matplotlib).",
)
@click.option(
    "--fail-below",
    type=click.IntRange(1, 99),
    metavar="PERCENT",
    help="Exit with 1 where the chance that a run fits is lower than this, or not known.",
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    spec: Path,
    hardware: str | None,
    network: str | None,
    only: str | None,
    trace: bool,
    python: str | None,
    every: bool,
    lora: bool,
    seq: int | None,
    batch: int | None,
    images: int | None,
    pixels: int | None,
    picture: Path | None,
    fail_below: int | None,
    output_format: str,
) -> None:
    """Predict memory and time of the runs of SPEC (a zerocfg.yaml or its folder, default: the current one).

    Without a spec: `zerocfg plan MODEL --hardware PROFILE` compares DDP, ZeRO and FSDP 2 for a model. MODEL is a
    config.json or its folder, a name on the hub that is well known or in the local cache, or a number of parameters
    (7B, in the shape of Llama). What is assumed stands above the table; activations follow from the formula.

    For each run: what one rank holds in each phase of a step, term by term; what the three counters will show
    (allocated, reserved, the driver's); how likely it fits, and the cheapest change that makes it fit; and beside it
    every other way to run the job with the same global batch (stage, offload, micro batch, recomputation).
    Activations are traced on the real model class without weights or accelerator when torch and transformers are
    there, else they follow from a formula. Nothing is written or launched.

    Exit codes: 0 every run (of a model: its best plan) is more likely to fit than not; 1 one is not (unlikely, does not
    fit), or cannot be resolved; 2 wrong use, an unreadable spec or an unknown model; 3 of a run it is not known. With
    --fail-below the chance has to be at least that, and known: else the code is 1.
    """
    width = columns(sys.stdout)
    model = _model(spec, hardware)
    if model is not None:
        if only is not None or picture is not None:
            raise click.UsageError("--run and --picture need a spec, not a model")
        if hardware is None:
            raise click.UsageError(f"a model needs hardware: zerocfg plan {spec} --hardware 8xA100-80GB")
        if pixels is not None and not images:
            raise click.UsageError("--pixels is the size of an image; say with --images how many a sample has")
        found = _compared(model, hardware, network, lora, seq, batch, images, pixels)
        text = model_plans.as_data(found) if output_format == "json" else model_plans.as_text(found, every, width)
        click.echo(text, nl=False)
        raise click.exceptions.Exit(_exit_code(found.rows[0].candidate.certain, fail_below) if found.rows else 1)
    if not spec.exists() and not _has_spec(spec) and is_hub_name(spec.as_posix()):
        raise click.UsageError(f"there is no file and no known model '{spec}'. {not_a_model(spec.as_posix())}")
    if lora or any(given is not None for given in (seq, batch, images, pixels)):
        raise click.UsageError(
            "--lora, --seq, --batch, --images and --pixels are for a model; a spec and its recipe say these themselves"
        )
    read = read_or_exit(spec)
    built = resolved(read, only, hardware, network)
    if any(build_result.problems for build_result in built):
        click.echo(problems(built, display_name(read.path), output_format), nl=False, err=output_format == "text")
        if output_format == "text":
            # Where none fits, the plans that come closest are what one wants to see.
            click.echo(
                "".join(
                    compared(build_result.inputs.considered, 12, width)
                    for build_result in built
                    if build_result.problems
                ),
                nl=False,
            )
        raise click.exceptions.Exit(1)
    shown = [
        Shown(build_result, _forecast(build_result, trace, python), _alternatives(build_result))
        for build_result in built
    ]
    if picture is not None:
        _draw(shown, picture)
    click.echo(as_data(shown) if output_format == "json" else as_text(shown, every=every, width=width), nl=False)
    codes = {_exit_code(_verdict(item.forecast), fail_below) for item in shown}
    raise click.exceptions.Exit(next((code for code in (1, NOT_KNOWN) if code in codes), 0))


def _verdict(found: Forecast | str) -> Verdict:
    return UNKNOWN if isinstance(found, str) else found.verdict


def _exit_code(verdict: Verdict, below: int | None) -> int:
    """1 where a run is less likely to fit than ``below`` percent, or than not; 3 where that is not known."""
    if below is not None:
        return int(verdict.chance is None or verdict.chance * 100 < below)
    return {"fits": 0, "likely": 0, "unknown": NOT_KNOWN}.get(verdict.word, 1)


def _forecast(built: BuildResult, trace: bool, python: str | None) -> Forecast | str:
    """The forecast, or in words why there is none."""
    doing = "tracing the model's activations" if trace else "predicting"
    try:
        with Working(f"{built.name}: {doing}"):
            return forecast(built, tracing=trace, python=python)
    except ValueError as error:
        return str(error)


def _alternatives(built: BuildResult) -> list[Alternative]:
    """Empty where no plan can be predicted; the forecast has the reason."""
    try:
        with Working(f"{built.name}: comparing plans"):
            return alternatives(built)
    except ValueError:
        return []


def _has_spec(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml") or (path / "zerocfg.yaml").exists()


def _model(path: Path, hardware: str | None) -> Model | None:
    """The model that is meant; None where it is a spec, or nothing."""
    if _has_spec(path) or (hardware is None and path == Path()):
        return None
    try:
        return find_model(path.as_posix(), Path.cwd())
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _compared(
    model: Model,
    hardware: str,
    network: str | None,
    lora: bool,
    tokens: int | None,
    samples: int | None,
    images: int | None,
    pixels: int | None,
) -> ModelPlans:
    try:
        with Working(f"{model.name}: comparing plans"):
            return plans_of(
                model,
                hardware,
                lora=lora,
                tokens=tokens,
                samples=samples,
                network=network,
                images=images,
                pixels=pixels,
            )
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _draw(found: list[Shown], path: Path) -> None:
    from zerocfg.cli.screens.plan_picture import PictureError, draw

    try:
        draw(found, path)
    except PictureError as error:
        raise click.ClickException(str(error)) from None
