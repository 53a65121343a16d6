"""A smoke-run: reduce, launch, check, certify."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from zerocfg.smoke import certificate, process
from zerocfg.smoke.checks import Check, check
from zerocfg.smoke.device import Device, choose
from zerocfg.smoke.folder import ACCELERATE, DEEPSPEED, RunFolder, SmokeError, read
from zerocfg.smoke.reduce import Reduced, reduce
from zerocfg.smoke.worker.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Verdict:
    """What a smoke-run found. ``passed`` when it ran to the end and no check failed."""

    run: RunFolder
    device: Device
    reduced: Reduced
    outcome: process.Outcome
    checks: list[Check] = field(default_factory=list)
    kept: Path | None = None
    certificate: Path | None = None

    @property
    def passed(self) -> bool:
        return self.outcome.failure is None and not any(one.ok is False for one in self.checks)


def smoke(
    folder: Path,
    *,
    ranks: int | None = None,
    device: str = "auto",
    steps: int = 3,
    limit: float = 300,
    keep: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verdict:
    """Run the configs in ``folder`` and check what really runs. Raises SmokeError when that cannot be tried.

    ``ranks`` None: as planned, but at most two, and no more than there are cards. ``keep``: a folder for the
    weights, the log and the reduced configs, which else are removed.
    """
    run = read(folder)
    _require(run)
    chosen = choose(device)
    planned = run.plan.get("num_processes")
    number = ranks or min(planned if isinstance(planned, int) and planned > 0 else 1, 2, chosen.count or 2)
    if chosen.kind == "cuda" and number > chosen.count:
        raise SmokeError(f"{number} ranks need {number} cards; {chosen.count} are here (--ranks {chosen.count})")
    if chosen.kind == "cpu" and str((run.accelerate or {}).get("distributed_type")) == "FSDP":
        raise SmokeError("FSDP needs a card: on a processor accelerate makes plain data parallelism of it")
    scratch = Path(tempfile.mkdtemp(prefix="zerocfg-smoke-"))
    try:
        reduced = reduce(run, chosen, number, scratch)
        command = prepare(run, reduced, chosen, steps, scratch)
        paths = [str(process.program(scratch)), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {"PYTHONPATH": os.pathsep.join(paths)}
        outcome = process.run(command, scratch, number, chosen.kind, limit, progress, variables)
        verdict = Verdict(run, chosen, reduced, outcome, check(run, reduced, outcome, steps))
        verdict.certificate = certify(verdict, steps)
        if keep is not None:
            verdict.kept = _keep(scratch, keep)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return verdict


def prepare(run: RunFolder, reduced: Reduced, device: Device, steps: int, scratch: Path) -> list[str]:
    """Write the reduced configs and the job into ``scratch``; the command that runs them there."""
    saved = scratch / "weights"
    saved.mkdir()
    if reduced.deepspeed is not None:
        (scratch / DEEPSPEED).write_text(json.dumps(reduced.deepspeed, indent=2))
    if reduced.accelerate is not None:
        section = reduced.accelerate.get("deepspeed_config")
        if isinstance(section, dict) and "deepspeed_config_file" in section:
            section["deepspeed_config_file"] = str(scratch / DEEPSPEED)
        (scratch / ACCELERATE).write_text(yaml.safe_dump(reduced.accelerate, sort_keys=False))
    job = Job(
        reports=str(scratch / "reports"),
        saved=str(saved),
        consumer=run.consumer,
        by_accelerate=reduced.accelerate is not None,
        device=device.kind,
        steps=steps,
        model=reduced.model,
        arguments=reduced.arguments,
        sequence=reduced.sequence,
        deepspeed_config=str(scratch / DEEPSPEED) if reduced.deepspeed is not None else None,
    )
    job.write(scratch / "job.json")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return [*process.launcher(reduced.accelerate is not None, reduced.ranks, port), str(scratch / "job.json")]


def certify(verdict: Verdict, steps: int) -> Path | None:
    """Write ``smoke.json`` beside the configs; None when the folder cannot be written or the run was interrupted."""
    if verdict.outcome.interrupted:
        return None
    first = verdict.outcome.reports[0] if verdict.outcome.reports else {}
    run = verdict.run
    return certificate.write(
        run.path, data(verdict), steps=steps, versions=first.get("versions", {}), files=run.hashes, lock=run.lock
    )


def data(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON data."""
    outcome, reports = verdict.outcome, verdict.outcome.reports
    first = reports[0] if reports else {}
    failure = None
    if outcome.failure is not None:
        failure = {"message": outcome.failure, "rank": outcome.rank, "detail": outcome.detail}
    return {
        "version": certificate.VERSION,
        "run": verdict.run.name,
        "passed": verdict.passed,
        "device": {
            "kind": verdict.device.kind,
            "name": first.get("seen", {}).get("device_name") or verdict.device.name,
        },
        "ranks": verdict.reduced.ranks,
        "reductions": verdict.reduced.words,
        "checks": [one.data() for one in verdict.checks],
        "failure": failure,
        "measured": {
            "seconds": round(outcome.seconds, 1),
            "step_seconds": first.get("step_seconds", []),
            "losses": first.get("losses", []),
            "peak_memory_bytes": [report.get("seen", {}).get("peak_memory_bytes") for report in reports],
        },
    }


def _require(run: RunFolder) -> None:
    needed = ["torch", "transformers", "accelerate", "safetensors"]
    if run.deepspeed is not None:
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
