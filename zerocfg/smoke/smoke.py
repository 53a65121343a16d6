"""A smoke-run: reduce, launch, check, certify."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.smoke.certify import certificate_file
from zerocfg.smoke.certify.code import code_hashes
from zerocfg.smoke.certify.current import is_certified
from zerocfg.smoke.certify.result import smoke_result
from zerocfg.smoke.certify.signature import SignatureError, sign
from zerocfg.smoke.judge import command as commands
from zerocfg.smoke.judge import measured
from zerocfg.smoke.judge.lint_findings import check_arguments, lint_findings
from zerocfg.smoke.judge.verdict import Verdict, run_checks
from zerocfg.smoke.launch import process, sharing
from zerocfg.smoke.launch.interrupts import interrupts
from zerocfg.smoke.launch.job_folder import prepare, variables
from zerocfg.smoke.launch.scratch import LOCK, scratch
from zerocfg.smoke.model import certificate
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare import nodes
from zerocfg.smoke.prepare.device import Device, choose
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.prepare.linked_run import linked_run
from zerocfg.smoke.prepare.operators import missing_tools
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.worker.releases import installed_versions

if TYPE_CHECKING:
    from collections.abc import Callable

PORTS = 3
"""Launches to try when another program takes the chosen port before the ranks do."""


@dataclass(frozen=True)
class Options:
    """``ranks`` None: as planned, but at most two, and no more than there are cards. ``device`` "auto", "cpu", "cuda".
    ``steps``: optimizer steps. ``limit``: seconds for the whole run. ``keep``: a folder for the weights, the log and
    the reduced configs, which else are removed. ``consumer``, ``name``: of configs written by hand, who reads them and
    which run is meant, where the files leave it open. ``command``: the user's own, run in the current folder instead of
    the ranks' program; ``unplanned``: without a run that it is compared with. ``memory_limit``: bytes that each rank
    may have. ``parts``: what is done beside the planned training, "train": a checkpoint is resumed from, and the same
    is trained under ZeRO-0. ``share_gpu``: all ranks on the first card. ``nodes``: machines that run this at the same
    time; ``ranks`` are then those of each, and only the first of them writes a certificate. ``sign``: the key that
    signs it.
    """

    ranks: int | None = None
    device: str = "auto"
    steps: int = 3
    limit: float = 300
    consumer: str | None = None
    name: str | None = None
    keep: Path | None = None
    memory_limit: int | None = None
    parts: tuple[str, ...] = ("train", "resume", "reference")
    command: str | None = None
    unplanned: bool = False
    share_gpu: bool = False
    nodes: int = 1
    sign: Path | None = None


def smoke(folder: Path, options: Options, progress: Callable[[str], None] | None = None) -> Verdict:
    """Run the configs in ``folder``, check what really runs and certify it; hand-written ones get no certificate.

    Raises SmokeError when that cannot be tried.
    """
    if options.command is not None and options.unplanned:
        return _command(commands.without_plan(options.command), options.command, options, progress)
    run = read(folder, options.consumer, options.name)
    if options.command is not None:
        verdict = _command(run, options.command, options, progress)
    else:
        verdict = launch_once(run, options, progress)
    if options.nodes == 1 or nodes.here(options.nodes).rank == 0:
        verdict.certificate = certify(verdict, options.steps, options.sign)
    return verdict


def launch_once(run: RunFolder, options: Options, progress: Callable[[str], None] | None = None) -> Verdict:
    """Launch a run once and check what runs. Nothing is written beside it, and everything is cleaned up.

    Raises SmokeError when that cannot be tried.
    """
    _require(run)
    device = device_for(options)
    ranks = ranks_for(run, device, options.ranks, options.nodes)
    spread = None
    if options.nodes > 1:
        spread = replace(nodes.here(options.nodes), each=ranks)
        ranks = spread.ranks
        if run.handwritten is not None:
            raise SmokeError(f"{run.path}: --nodes takes a build; configs written by hand are run on one machine")
    keep = _kept_in(options.keep)
    with interrupts(), scratch() as folder:
        reduced = reduce(run, device, ranks, folder, options.limit, spread, options.parts)
        if reduced.deepspeed is not None and (missing := missing_tools(reduced.deepspeed)) is not None:
            raise SmokeError(missing)
        own, mode, memory = variables(folder, run.handwritten), None, options.memory_limit
        if device.shared and ranks > 1:
            shared = sharing.cached(ranks) or sharing.find(ranks, folder, progress=progress)
            own, mode = own | sharing.first_card(), shared.mode
            memory = memory or sharing.memory_of_a_rank(device, ranks)
            reduced.changes.append(shared.reduction(ranks, device.name))
        command = prepare(run, reduced, device, options.steps, folder, memory, options.parts, mode, spread)
        for _ in range(PORTS):
            outcome = process.run(command, folder, ranks, device.kind, options.limit, progress, own, nodes=spread)
            if outcome.kind != "port" or spread is not None:
                break
            command = process.elsewhere(command)
        verdict = Verdict(run, device, reduced, outcome, run_checks(run, reduced, outcome, options.steps))
        verdict.checks += check_arguments(lint_findings(linked_run(run)))
        verdict.checks += measured.check(verdict.figures, verdict.expected, outcome)
        verdict.kept = _keep(folder, keep)
    return verdict


def _command(run: RunFolder, line: str, options: Options, progress: Callable[[str], None] | None = None) -> Verdict:
    """Run the user's own command once and check what it trains, as `launch_once` does with the ranks' program."""
    device = choose(options.device)
    keep = _kept_in(options.keep)
    with interrupts(), scratch() as folder:
        played = commands.run_command(line, run, device, options.steps, options.ranks, options.limit, folder, progress)
        verdict = Verdict(run, device, played.reduced, played.outcome, played.checks, command=played.command)
        verdict.kept = _keep(folder, keep)
    return verdict


def device_for(options: Options) -> Device:
    """The device of the ranks. Raises SmokeError where this machine has none of the kind."""
    device = choose(options.device)
    return sharing.one_card(device) if options.share_gpu else device


def ranks_for(run: RunFolder, device: Device, wanted: int | None, nodes: int = 1) -> int:
    """The number of processes to start on this machine."""
    planned = run.plan.get("num_processes")
    planned = planned // nodes if isinstance(planned, int) else planned
    here = 2 if device.shared else device.count or 2
    ranks = wanted or min(planned if isinstance(planned, int) and planned > 0 else 1, 2, here)
    if device.kind == "cuda" and ranks > device.count and not device.shared:
        way_out = f"--ranks {device.count}, or --share-gpu"
        raise SmokeError(f"{ranks} ranks need {ranks} cards; {device.count} are here ({way_out})")
    if device.kind == "cpu" and ranks < 2 and str((run.accelerate or {}).get("distributed_type")) == "FSDP":
        raise SmokeError("FSDP on a processor needs two ranks: accelerate trains alone in one (--ranks 2)")
    return ranks


def certify(verdict: Verdict, steps: int, key: Path | None = None) -> Path | None:
    """Write ``smoke.json`` beside the configs and sign it, also of a run that failed or was interrupted: it says what
    was proven up to there. None when the folder cannot be written.

    An interrupted run takes nothing away: a certificate of the same build that passed stays. Why nothing is written or
    signed is added to the verdict.
    """
    run = verdict.run
    if run.handwritten is not None:
        return None
    if verdict.outcome.interrupted and is_certified(run):
        verdict.uncertified = f"{run.path / certificate.NAME} stays: it is of this build, and passed"
        return None
    versions = _releases(verdict)
    try:
        path = certificate_file.write(
            run.path,
            smoke_result(verdict),
            steps=steps,
            versions=versions,
            files=run.hashes,
            lock=run.lock,
            code=code_hashes(run.path, run.lock),
        )
        if key is not None:
            sign(path, key)
        return path
    except OSError as error:
        verdict.uncertified = f"not written, {run.path / certificate.NAME}: {error.strerror or error}"
        return None
    except SignatureError as error:
        verdict.uncertified = f"not signed, {error}"
        return path


def _releases(verdict: Verdict) -> dict[str, str]:
    """The releases that ran: of what every run loads, and of the others that this one uses. Where no rank reported,
    those that are installed here."""
    reports = verdict.outcome.reports
    versions = next((report["versions"] for report in reports if report.get("versions")), None)
    if versions is None:
        versions = installed_versions() if verdict.command is None else {}
    engine = next((report["seen"].get("engine") for report in reports if report.get("seen")), None)
    unused = {"trl"} if verdict.reduced.trainer is None else set()
    if verdict.reduced.deepspeed is None and engine != "deepspeed":
        unused.add("deepspeed")
    return {name: version for name, version in versions.items() if name not in unused}


def _require(run: RunFolder) -> None:
    needed = ["torch", "transformers", "accelerate", "safetensors"]
    if run.deepspeed is not None or (run.handwritten is not None and run.handwritten.run.deepspeed is not None):
        needed.append("deepspeed")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise SmokeError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed; a smoke-run needs the "
            "real "
            "libraries: pip install 'zerocfg[smoke]'"
        )


def _kept_in(keep: Path | None) -> Path | None:
    """The folder of ``--keep``, created before anything runs, so that a failure to create it costs no run."""
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SmokeError(f"cannot create the folder of --keep: {keep}: {error.strerror or error}") from None
    return keep


def _keep(scratch: Path, keep: Path | None) -> Path | None:
    if keep is None:
        return None
    for child in scratch.iterdir():
        target = keep / child.name
        with contextlib.suppress(OSError):
            if child.is_dir() and child.name != "tmp":
                shutil.copytree(child, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.reserve"))
            elif child.is_file() and child.name != LOCK:
                shutil.copy2(child, target)
    return keep
