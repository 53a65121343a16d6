"""A smoke-run: reduce, launch, check, certify."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.smoke import certificate, process
from zerocfg.smoke import command as commands
from zerocfg.smoke.checks import check
from zerocfg.smoke.device import Device, choose
from zerocfg.smoke.folder import RunFolder, SmokeError, read
from zerocfg.smoke.launch import prepare, variables
from zerocfg.smoke.reduce import reduce
from zerocfg.smoke.verdict import Verdict, data

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Options:
    """``ranks`` None: as planned, but at most two, and no more than there are cards. ``device`` "auto", "cpu", "cuda".
    ``steps``: optimizer steps. ``limit``: seconds for the whole run. ``keep``: a folder for the weights, the log and
    the reduced configs, which else are removed. ``consumer``, ``name``: of configs written by hand, who reads them and
    which run is meant, where the files leave it open. ``command``: the user's own, run in the current folder instead of
    the ranks' program; ``unplanned``: without a run that it is compared with.
    """

    ranks: int | None = None
    device: str = "auto"
    steps: int = 3
    limit: float = 300
    consumer: str | None = None
    name: str | None = None
    keep: Path | None = None
    command: str | None = None
    unplanned: bool = False


def smoke(folder: Path, options: Options, progress: Callable[[str], None] | None = None) -> Verdict:
    """Run the configs in ``folder``, check what really runs and certify it; hand-written ones get no certificate.

    Raises SmokeError when that cannot be tried.
    """
    if options.command is not None and options.unplanned:
        return _command(commands.nobody(options.command), options.command, options, progress)
    run = read(folder, options.consumer, options.name)
    if options.command is not None:
        verdict = _command(run, options.command, options, progress)
    else:
        verdict = play(run, options, progress)
    verdict.certificate = certify(verdict, options.steps)
    return verdict


def play(run: RunFolder, options: Options, progress: Callable[[str], None] | None = None) -> Verdict:
    """Launch a run once and check what runs. Nothing is written beside it, and nothing is left of it.

    Raises SmokeError when that cannot be tried.
    """
    _require(run)
    device = choose(options.device)
    ranks = _ranks(run, device, options.ranks)
    scratch = Path(tempfile.mkdtemp(prefix="zerocfg-smoke-"))
    try:
        reduced = reduce(run, device, ranks, scratch)
        command = prepare(run, reduced, device, options.steps, scratch)
        outcome = process.run(
            command, scratch, ranks, device.kind, options.limit, progress, variables(scratch, run.handwritten)
        )
        verdict = Verdict(run, device, reduced, outcome, check(run, reduced, outcome, options.steps))
        if options.keep is not None:
            verdict.kept = _keep(scratch, options.keep)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return verdict


def _command(run: RunFolder, line: str, options: Options, progress: Callable[[str], None] | None = None) -> Verdict:
    """Run the user's own command once and check what it trains, as `play` does with the ranks' program."""
    device = choose(options.device)
    scratch = Path(tempfile.mkdtemp(prefix="zerocfg-smoke-"))
    try:
        played = commands.play(line, run, device, options.steps, options.ranks, options.limit, scratch, progress)
        verdict = Verdict(run, device, played.reduced, played.outcome, played.checks, command=played.command)
        if options.keep is not None:
            verdict.kept = _keep(scratch, options.keep)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return verdict


def _ranks(run: RunFolder, device: Device, wanted: int | None) -> int:
    """How many processes are started."""
    planned = run.plan.get("num_processes")
    ranks = wanted or min(planned if isinstance(planned, int) and planned > 0 else 1, 2, device.count or 2)
    if device.kind == "cuda" and ranks > device.count:
        raise SmokeError(f"{ranks} ranks need {ranks} cards; {device.count} are here (--ranks {device.count})")
    if device.kind == "cpu" and str((run.accelerate or {}).get("distributed_type")) == "FSDP":
        raise SmokeError("FSDP needs a card: on a processor accelerate makes plain data parallelism of it")
    return ranks


def certify(verdict: Verdict, steps: int) -> Path | None:
    """Write ``smoke.json`` beside the configs; None when the folder cannot be written or the run was interrupted."""
    if verdict.outcome.interrupted or verdict.run.handwritten is not None:
        return None
    first = verdict.outcome.reports[0] if verdict.outcome.reports else {}
    run = verdict.run
    return certificate.write(
        run.path, data(verdict), steps=steps, versions=first.get("versions", {}), files=run.hashes, lock=run.lock
    )


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


def _keep(scratch: Path, keep: Path) -> Path:
    keep.mkdir(parents=True, exist_ok=True)
    for child in scratch.iterdir():
        target = keep / child.name
        with contextlib.suppress(OSError):
            if child.is_dir():
                shutil.copytree(child, target, dirs_exist_ok=True)
            else:
                shutil.copy2(child, target)
    return keep
