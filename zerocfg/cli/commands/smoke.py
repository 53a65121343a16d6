"""``zerocfg smoke``: train a few steps with the emitted configs and check what really runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zerocfg.cli.screens import smoke_measure, smoke_on
from zerocfg.cli.smoke import options
from zerocfg.cli.smoke.play import play
from zerocfg.cli.smoke.runs import certified, chosen

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from zerocfg.smoke.smoke import Options

_PATH = click.Path(path_type=Path)


class _Smoke(click.Group):
    """A word that is no subcommand is a RUN or an option of the first one: ``zerocfg smoke built`` is short for
    ``zerocfg smoke run built``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if not named and (args or not ctx.resilient_parsing):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """The subcommands, and what may follow without one."""
        first = self.commands["run"]
        if incomplete.startswith("-"):
            return first.shell_complete(click.Context(first, parent=ctx), incomplete)
        return [*super().shell_complete(ctx, incomplete), *first.params[0].shell_complete(ctx, incomplete)]


@click.group(cls=_Smoke)
def command() -> None:
    """Train a few steps with the real libraries and compare what runs with its plan.

    `zerocfg smoke RUN` is short for `zerocfg smoke run RUN`. A folder that is called like a command is written with its
    path: ./run.

    Exit codes: 0 every check passed, 1 a check failed, 2 a run could not be tried, 3 nothing failed, but something
    essential was not measured (engine, stage, ranks, steps, finite losses, changed parameters, saved weights).
    """


@command.command("run", short_help="Launch each RUN and check what runs (also without this word).")
@click.argument("runs", metavar="[RUN|OUT]...", nargs=-1, type=_PATH)
@options.launch
@options.one_card
@options.several
@options.kept
@options.former
def run(runs: tuple[Path, ...], attach: str | None, output_format: str, **given: Any) -> None:
    """Launch each RUN with the real libraries and compare what runs with its plan.

    A RUN is a folder that `zerocfg build` wrote, or hand-written configs: a launch script, an accelerate YAML, a
    DeepSpeed JSON, a recipe, or a folder of these. The latter are started as they are and compared with what each of
    their files asks for; they get no certificate. A failure is explained by the rule that knows it.

    An OUT that holds several runs means all of them; without any argument the builds below the current folder. The
    model has random weights and learns one synthetic batch. What has to be smaller than planned is listed.
    The verdict is also written to RUN/smoke.json.

    With --on the builds travel to the nodes of a cluster as one job, a task for each, and the verdicts and certificates
    come back; no folder has to be shared. Ctrl-C cancels the job. A job whose terminal was closed runs on: `smoke
    attach` waits for it.
    """
    as_json = output_format == "json"
    if attach is not None:
        if runs or given["engine"] is not None:
            raise click.UsageError("--attach goes on with a job that was submitted: name no RUN and no --on")
        smoke_on.attach(attach, as_json)
        return
    _require_one_way(runs, given)
    measured = {name: given.pop(name) for name in ("ways", "find_max_batch", "picture", "batch_limit", "max_launches")}
    cluster = {name: given.pop(name) for name in ("engine", "words", "detach")}
    fail_fast, uncertified, line = given.pop("fail_fast"), given.pop("uncertified"), given.pop("line")
    nodes = given.pop("nodes")
    settings = {name: given.pop(name) for name in ("share_gpu", "keep", "sign")}
    found, launch = chosen(
        list(runs), given, command=line, unplanned=line is not None and not runs, nodes=nodes or 1, **settings
    )
    before = certified(found) if uncertified else []
    if uncertified:
        click.echo(f"{len(before)} of {len(found)} builds are certified already", err=True)
        found = [path for path in found if path not in before]
    if cluster["engine"] is not None:
        _on_cluster(found, launch, before, nodes=nodes, as_json=as_json, **cluster)
    elif found and measured["ways"] is None and not measured["find_max_batch"]:
        if measured["picture"] is not None:
            raise click.UsageError("--picture draws a comparison: give --compare as well")
        play(found, launch, as_json, fail_fast)
    elif found:
        if len(found) != 1 or line is not None:
            raise click.UsageError("--compare and --find-max-batch take one RUN, and no --command")
        smoke_measure.measure(found[0], launch, as_json=as_json, **measured)


@command.command("compare")
@click.argument("path", metavar="RUN", type=_PATH)
@click.argument("ways", metavar="STAGES")
@options.launch
@options.one_card
@options.picture()
@options.find_max_batch()
@options.search()
def compare(path: Path, ways: str, output_format: str, share_gpu: bool, **given: Any) -> None:
    """Compare ZeRO stages of one RUN: memory, throughput, loss.

    STAGES are such as 0,1,2,3 or 0,3,ddp. RUN is launched once with each, with the same model and samples; nothing is
    certified.
    """
    names = ("find_max_batch", "picture", "batch_limit", "max_launches")
    measured = {name: given.pop(name) for name in names}
    _measure(path, given, share_gpu, output_format, ways=ways, **measured)


@command.command("max-batch")
@click.argument("path", metavar="RUN", type=_PATH)
@options.launch
@options.one_card
@options.search()
def max_batch(
    path: Path, output_format: str, share_gpu: bool, batch_limit: int | None, max_launches: int, **given: Any
) -> None:
    """Search the largest micro batch of one RUN that fits.

    RUN is launched several times, with the same model and samples each time; nothing is certified.
    """
    search = {"batch_limit": batch_limit, "max_launches": max_launches}
    _measure(path, given, share_gpu, output_format, ways=None, find_max_batch=True, picture=None, **search)


@command.command("script", short_help="The same of your own training command, stopped early.")
@click.argument("line", metavar="LINE")
@click.argument("path", metavar="[RUN]", required=False, type=_PATH)
@options.launch
@options.kept
def script(
    line: str, path: Path | None, output_format: str, keep: Path | None, sign: Path | None, **given: Any
) -> None:
    """Run your own training command instead, stopped after the optimizer steps.

    LINE is run as you start it in this folder ("bash launch.sh"): your script, model and data; a callback stops it, and
    nothing is saved into your folders. With a RUN it is compared with its plan.
    """
    named = [path] if path is not None else []
    found, launch = chosen(named, given, command=line, unplanned=path is None, keep=keep, sign=sign)
    if len(found) > 1:
        raise click.UsageError(f"LINE is one training, and {path} holds {len(found)} runs: name one")
    play(found, launch, output_format == "json")


@command.command("attach")
@click.argument("job", metavar="[JOB]", required=False, default="")
@options.output_format
def attach(job: str, output_format: str) -> None:
    """Wait for a job that `smoke run --on` submitted.

    Of those submitted from this folder the last one, if none is named.
    """
    smoke_on.attach(job, output_format == "json")


def _measure(path: Path, given: dict[str, Any], share_gpu: bool, output_format: str, **how: Any) -> None:
    """Several launches of the one run that a path names."""
    found, launch = chosen([path], given, share_gpu=share_gpu)
    if len(found) != 1:
        raise click.UsageError(f"{path} holds {len(found)} runs: name one of them")
    smoke_measure.measure(found[0], launch, as_json=output_format == "json", **how)


def _require_one_way(runs: tuple[Path, ...], given: dict[str, Any]) -> None:
    """Refuse options of `run` that do not go together."""
    engine, line, sharing = given["engine"], given["line"], given["share_gpu"]
    measured = given["ways"] is not None or given["find_max_batch"]
    if engine is None and (given["words"] or given["detach"]):
        raise click.UsageError("--on-option and --detach are about a job: give --on as well")
    if engine is not None and (line is not None or sharing or measured or given["fail_fast"]):
        raise click.UsageError(
            "--on takes builds, without --command, --share-gpu, --compare, --find-max-batch and --fail-fast"
        )
    if line is not None and len(runs) > 1:
        raise click.UsageError("--command is one training: name one RUN, or none to compare it with nothing")
    if line is not None and sharing:
        raise click.UsageError(
            "--share-gpu is for zerocfg's own launch: what a --command starts chooses its cards itself"
        )
    if (given["nodes"] or 1) > 1 and (line is not None or sharing or measured):
        raise click.UsageError("--nodes takes builds, without --command, --share-gpu, --compare and --find-max-batch")


def _on_cluster(found: list[Path], launch: Options, before: list[Path], *, as_json: bool, **job: Any) -> None:
    """Submit the runs as a job; without any left to run, show what the certificates say."""
    if not found:
        smoke_on.compare(before, as_json)
        return
    engine = job.pop("engine")
    smoke_on.submit(engine, found, launch, before=before, as_json=as_json, **job)
