"""``zerocfg preflight``: before a job, name the node or rank that is slow, broken or unlike the others."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerocfg.cli.on_cluster import on
from zerocfg.cluster.engines import NAMES
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import columns

if TYPE_CHECKING:
    from zerocfg.cluster.wait import Progress
    from zerocfg.preflight.expectations import Expectations
    from zerocfg.preflight.node import Request
    from zerocfg.preflight.start import Start
    from zerocfg.preflight.verdict import Verdict

NODE = "node"
"""As --on: this process starts the ranks of one node, and others those of the others."""
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@on(
    "Start the ranks: as a job of that scheduler, as processes of this machine (local), or those of this node, when it "
    "is called once on every node of a job (node).",
    NODE,
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 10_000),
    help="Nodes of the job, or (local) to play on this machine; 1, or as many as the build of --expect plans.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1, 64),
    help="Ranks on each of them; as the build of --expect plans, else 1. Local: one for each device, else 2.",
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu"]), default="auto", show_default=True, help="What to measure."
)
@click.option(
    "--expect",
    type=click.Path(exists=True, path_type=Path),
    metavar="RUN",
    help="What the nodes must be like: the folder of a build, its zerocfg.lock, or a profile of zerocfg probe.",
)
@click.option(
    "--hosts",
    metavar="NAME,...",
    help="With --on node: all nodes in the order of their numbers, so that one that never answers has a name.",
)
@click.option("--wait", type=click.FloatRange(1, 600), default=45.0, show_default=True, help="Seconds for all to come.")
@click.option("--passing", type=_FILE, metavar="FILE", help="Write the names of the nodes that pass, one a line.")
@click.option("--exclude-file", type=_FILE, metavar="FILE", help="Write the names of the nodes that fail, one a line.")
@click.option("--hostfile", type=_FILE, metavar="FILE", help="Write the nodes that pass as a hostfile of DeepSpeed.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    engine: str | None,
    words: tuple[str, ...],
    nodes: int | None,
    ranks: int | None,
    device: str,
    expect: Path | None,
    hosts: str | None,
    wait: float,
    passing: Path | None,
    exclude_file: Path | None,
    hostfile: Path | None,
    output_format: str,
) -> int:
    """Before a job: name the node, rank or link that is slow, broken or unlike the others, with its figure.

    Compares releases, hardware, limits and variables of all nodes, looks for room, and measures what each rank does by
    itself, exchanges of pairs and collectives, for up to a minute. Started on every rank by torchrun, srun or mpirun
    (which need MASTER_ADDR) the first rank tells the verdict. With --on slurm or ray it is a job of its own, which
    needs no shared folder; with --on local the ranks are processes of this machine. With --on node it is called once
    on every node, as launch.sh is: MACHINE_RANK, MAIN_PROCESS_IP and MAIN_PROCESS_PORT say which one this is and where
    the ranks meet, and the first node tells the verdict.

    Exit codes: 0 all nodes pass, 1 one fails, 2 nothing could be tried.
    """
    from zerocfg.hardware.measure import has_torch
    from zerocfg.preflight import expectations

    try:
        expected = expectations.read(expect) if expect is not None else expectations.Expectations()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if words and engine in (None, "local", NODE):
        raise click.UsageError("--on-option is for a scheduler: give --on slurm as well")
    if hosts is not None and engine != NODE:
        raise click.UsageError(f"--hosts is for --on {NODE}: the others know the names of their nodes")
    if engine in NAMES and engine != "local":
        verdict: Verdict | None = _job(engine, nodes, ranks, device, wait, expected, words)
    elif not has_torch():
        raise click.ClickException("torch is not installed in this Python, and the ranks meet through it")
    elif engine == NODE:
        verdict = _node(_request(nodes, ranks, ["--relay", *_measured(wait, device)], expected), expected, hosts)
    elif engine is not None:
        if nodes is not None and nodes > 64:
            raise click.UsageError("--on local plays at most 64 nodes on this machine")
        verdict = _local(nodes or 1, ranks, device, wait, expected)
    else:
        verdict = _launched(device, wait, expected)
    if verdict is None:
        return 0
    _write(verdict, passing, exclude_file, hostfile)
    _show(verdict, output_format)
    return verdict.exit_code


def _job(
    name: str,
    nodes: int | None,
    ranks: int | None,
    device: str,
    wait: float,
    expected: Expectations,
    words: tuple[str, ...],
) -> Verdict:
    from zerocfg.cluster.engines import engine
    from zerocfg.cluster.job import ClusterError
    from zerocfg.preflight import remote
    from zerocfg.preflight.judge import judge

    request = _request(nodes, ranks, _measured(wait, device), expected)
    with Working("submitting the job") as working:

        def look(seen: Progress, away: str) -> None:
            if away:
                working.phase = f"the scheduler does not answer: {away}"
            elif not seen.events:
                reason = f", {seen.state.reason}" if seen.state.reason else ""
                working.phase = f"{seen.state.state.value}{reason}"
            else:
                working.phase = f"measuring on {', '.join(seen.hosts) or seen.state.hosts}"

        try:
            found = remote.play(engine(name), request, 0 if device == "cpu" else request.ranks, words, look)
        except ClusterError as error:
            raise _NotTriedError(str(error)) from None
    for problem in found.problems:
        click.echo(f"Error: {problem}", err=True)
    return judge(found.lines, request.nodes * request.ranks, expected, found.hosts)


def _measured(wait: float, device: str) -> list[str]:
    """Arguments of the rank program."""
    return ["--wait", str(wait), "--device", device]


def _request(nodes: int | None, ranks: int | None, arguments: list[str], expected: Expectations) -> Request:
    from zerocfg.preflight.node import Request

    return Request(nodes or expected.nodes or 1, ranks or expected.ranks or 1, arguments)


def _node(request: Request, expected: Expectations, hosts: str | None) -> Verdict | None:
    """The verdict of all nodes on the first one, None on the others."""
    from zerocfg.preflight.judge import judge
    from zerocfg.preflight.node import starts

    names = [name.strip() for name in hosts.split(",")] if hosts else []
    if names and len(names) != request.nodes:
        raise click.UsageError(f"--hosts names {len(names)}, the job has {request.nodes} node(s)")
    try:
        ranks = starts(request, os.environ)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    first = ranks[0].environment["GROUP_RANK"] == "0"
    lines = _follow(ranks, first)
    return judge(lines, request.nodes * request.ranks, expected, names) if first else None


class _NotTriedError(click.ClickException):
    exit_code = 2


def _local(nodes: int, ranks: int | None, device: str, wait: float, expected: Expectations) -> Verdict:
    from zerocfg.hardware.probe import probe
    from zerocfg.preflight import start
    from zerocfg.preflight.judge import judge

    profile = probe()
    cards = profile.accelerators_per_node if profile.accelerator.vendor != "cpu" else 0
    each = ranks or cards or 2
    # Two ranks cannot share a card: nodes that are only played measure the processor.
    arguments = _measured(wait, "cpu" if nodes > 1 or each > cards else device)
    return judge(_follow(start.fake_nodes(nodes, each, arguments)), nodes * each, expected)


def _launched(device: str, wait: float, expected: Expectations) -> Verdict | None:
    """The verdict of all ranks in the first one, None in the others."""
    from zerocfg.hardware import launcher
    from zerocfg.preflight import start
    from zerocfg.preflight.judge import judge

    try:
        place = launcher.find(os.environ)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if place is None:
        raise click.UsageError(
            "this is no rank of a job: start it with torchrun, srun or mpirun, or with --on local on this machine alone"
        )
    arguments = ["--relay", *_measured(wait, device)]
    lines = _follow([start.Start({**os.environ, **place.environment}, arguments)], place.rank == 0)
    return None if place.rank else judge(lines, place.world, expected)


def _follow(starts: list[Start], shown: bool = True) -> list[tuple[str, str]]:
    """The lines of the ranks; what they do is shown while they do it."""
    from zerocfg.preflight.messages import Stage, read
    from zerocfg.preflight.start import follow

    with Working("starting the ranks" if shown else "") as working:

        def progress(_: str, line: str) -> None:
            message = read(line)
            if shown and isinstance(message, Stage) and message.rank == 0:
                working(f"measuring: {message.name}")

        try:
            return follow(starts, progress)
        except OSError as error:
            raise click.ClickException(f"the ranks cannot be started: {error.strerror}") from None


def _write(verdict: Verdict, passing: Path | None, exclude_file: Path | None, hostfile: Path | None) -> None:
    from zerocfg.preflight import text
    from zerocfg.source.write import write_atomic

    failing = "".join(f"{name}\n" for name in verdict.failing)
    written = {passing: text.passing_nodes(verdict), exclude_file: failing, hostfile: text.hostfile(verdict)}
    for path, content in written.items():
        if path is None:
            continue
        try:
            write_atomic(path, content.encode())
        except OSError as error:
            raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None


def _show(verdict: Verdict, output_format: str) -> None:
    from zerocfg.preflight import text

    shown = text.as_json(verdict) if output_format == "json" else text.render(verdict, columns(sys.stdout))
    click.echo(shown, nl=False)
