"""``zerocfg smoke``: train a few steps with the emitted configs and check what really runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerocfg.cli import settings_options
from zerocfg.cli.screens import smoke_measure, smoke_on
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import columns
from zerocfg.workspace.job import excludes_path
from zerocfg.workspace.settings import SettingsOptions

if TYPE_CHECKING:
    from zerocfg.smoke.many import Result
    from zerocfg.smoke.smoke import Options


@click.command()
@click.argument("runs", metavar="[RUN|OUT]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--ranks", type=click.IntRange(1, 64), help="Processes. Default: as planned, at most 2.")
@click.option(
    "--nodes",
    type=click.IntRange(1, 1024),
    help="Machines that run this command at the same time, --ranks on each; they find each other as launch.sh does. "
    "With --on: those that the job asks for.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--share-gpu",
    is_flag=True,
    help="Put all ranks on the first card, if a trial shows that they can; times mean nothing.",
)
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="Optimizer steps.")
@click.option(
    "--command", "line", metavar="LINE", help="Run your own training command instead, stopped after the steps."
)
@click.option(
    "--consumer",
    type=click.Choice(["transformers", "trl", "accelerate", "deepspeed"]),
    help="Who reads hand-written configs, when no file says so.",
)
@click.option("--run", "name", metavar="NAME", help="Which run, if hand-written files hold several.")
@click.option("--time-limit", type=click.FloatRange(1), default=300, show_default=True, help="Seconds for each run.")
@smoke_measure.options
@smoke_on.options
@settings_options.options
@click.option("--uncertified", is_flag=True, help="Leave out the builds that have a certificate of what is here now.")
@click.option("--fail-fast", is_flag=True, help="Stop after the first run that does not pass.")
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep weights, log and reduced configs here."
)
@click.option(
    "--sign",
    metavar="KEY",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sign the certificate with this OpenSSH key (a public one: with the agent's).",
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    runs: tuple[Path, ...],
    ranks: int | None,
    nodes: int | None,
    device: str,
    share_gpu: bool,
    steps: int,
    line: str | None,
    consumer: str | None,
    name: str | None,
    time_limit: float,
    ways: str | None,
    picture: Path | None,
    find_max_batch: bool,
    batch_limit: int | None,
    max_launches: int,
    memory_limit: float | None,
    engine: str | None,
    words: tuple[str, ...],
    detach: bool,
    attach: str | None,
    uncertified: bool,
    fail_fast: bool,
    keep: Path | None,
    sign: Path | None,
    output_format: str,
    **given: Any,
) -> None:
    """Launch each RUN with the real libraries and compare what runs with its plan.

    A RUN is a folder that `zerocfg build` wrote, or hand-written configs: a launch script, an accelerate YAML, a
    DeepSpeed JSON, a recipe, or a folder of these. The latter are started as they are and compared with what each of
    their files asks for; they get no certificate. A failure is explained by the rule that knows it.

    An OUT that holds several runs means all of them; without any argument the builds below the current folder. The
    model has random weights and learns one synthetic batch. What has to be smaller than planned is listed.
    The verdict is also written to RUN/smoke.json.

    With --command your own training is run as you start it in this folder: your script, model and data, stopped by a
    callback after the optimizer steps; nothing is saved into your folders. With one RUN it is compared with its plan.

    With --find-max-batch or --compare one RUN is launched several times, to find the largest micro batch that fits or
    to fill a table of ZeRO stages, with the same model and samples each time; nothing is certified then.

    With --on the builds travel to the nodes of a cluster as one job, a task for each, and the verdicts and certificates
    come back; no folder has to be shared. Ctrl-C cancels the job. A job whose terminal was closed runs on: --attach
    waits for it.

    Exit codes: 0 every check passed, 1 a check failed, 2 a run could not be tried, 3 nothing failed, but something
    essential was not measured (engine, stage, ranks, steps, finite losses, changed parameters, saved weights).
    """
    from zerocfg.smoke.many import find
    from zerocfg.smoke.model.error import SmokeError
    from zerocfg.smoke.smoke import Options

    if attach is not None:
        if runs or engine is not None:
            raise click.UsageError("--attach goes on with a job that was submitted: name no RUN and no --on")
        smoke_on.attach(attach, output_format == "json")
        return
    if engine is None and (words or detach):
        raise click.UsageError("--on-option and --detach are about a job: give --on as well")
    if engine is not None and (line is not None or share_gpu or ways is not None or find_max_batch or fail_fast):
        raise click.UsageError(
            "--on takes builds, without --command, --share-gpu, --compare, --find-max-batch and --fail-fast"
        )
    if line is not None and len(runs) > 1:
        raise click.UsageError("--command is one training: name one RUN, or none to compare it with nothing")
    if line is not None and share_gpu:
        raise click.UsageError(
            "--share-gpu is for zerocfg's own launch: what a --command starts chooses its cards itself"
        )
    if nodes is not None and nodes > 1 and (line is not None or share_gpu or ways is not None or find_max_batch):
        raise click.UsageError("--nodes takes builds, without --command, --share-gpu, --compare and --find-max-batch")
    unplanned = line is not None and not runs
    try:
        found = [Path()] if unplanned else find(list(runs))
    except SmokeError as error:
        raise click.UsageError(str(error)) from None
    settings = SettingsOptions(**given).settings(found[0])
    found = [run for run in found if run in runs or not excludes_path(settings, run)]
    if not found:
        raise click.UsageError("every run here is excluded, by the settings or --exclude")
    options = Options(
        ranks=ranks,
        device=device,
        steps=steps,
        limit=time_limit,
        keep=keep,
        command=line,
        unplanned=unplanned,
        consumer=consumer or settings.consumer,
        name=name,
        share_gpu=share_gpu,
        nodes=nodes or 1,
        sign=sign,
        memory_limit=int(memory_limit * smoke_measure.GIB) if memory_limit else None,
    )
    before: list[Path] = []
    if uncertified:
        before = [run for run in found if _certified(run)]
        click.echo(f"{len(before)} of {len(found)} builds are certified already", err=True)
        found = [run for run in found if run not in before]
        if not found:
            if engine is not None:
                smoke_on.compare(before, output_format == "json")
            return
    if engine is not None:
        smoke_on.submit(
            engine,
            found,
            options,
            before=before,
            nodes=nodes,
            words=words,
            detach=detach,
            as_json=output_format == "json",
        )
        return
    if ways is None and not find_max_batch:
        if picture is not None:
            raise click.UsageError("--picture draws a comparison: give --compare as well")
        play(found, options, output_format == "json", fail_fast)
        return
    if len(found) != 1 or line is not None:
        raise click.UsageError("--compare and --find-max-batch take one RUN, and no --command")
    smoke_measure.measure(
        found[0],
        options,
        ways=ways,
        find_max_batch=find_max_batch,
        picture=picture,
        batch_limit=batch_limit,
        max_launches=max_launches,
        as_json=output_format == "json",
    )


def _certified(path: Path) -> bool:
    from zerocfg.smoke.certify.current import is_certified
    from zerocfg.smoke.model.error import SmokeError
    from zerocfg.smoke.prepare.folder import read

    try:
        return is_certified(read(path))
    except SmokeError:
        return False  # the smoke-run says why


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
    if any(one.interrupted for one in results):
        raise click.Abort
    code = many.exit_code(results)
    if code:
        raise click.exceptions.Exit(code)


def _show(result: Result, several: bool) -> None:
    from zerocfg.smoke.text import render

    if result.verdict is not None:
        click.echo(render(result.verdict, columns(sys.stdout)) + "\n" * several, nl=False)
