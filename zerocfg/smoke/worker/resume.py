"""A checkpoint in the middle of the planned training, and the rest of the training anew from it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from . import sums
from .record import Record
from .trial import Trial, checkpoints

if TYPE_CHECKING:
    from .job import Job
    from .report import Report
    from .watch import Watch

REDONE = 2  # steps after the checkpoint: the loss of the second depends on the optimizer's states, too
BYTES = 18  # of a checkpoint for each parameter: 16 bit, fp32 copy, Adam's states, and the whole weights beside
LARGEST = 2_000_000_000  # parameters; a larger checkpoint (36 GB and more) takes minutes


def last_before(steps: int) -> int:
    """After how many optimizer steps the checkpoint is written; 0: there is no step to do again."""
    return max(1, steps - REDONE) if steps > 1 else 0


def obstacle(job: Job, engine: Any) -> str | None:
    """Why no checkpoint is tried, None when one is. All ranks call this and get the same answer."""
    if job.no_resume:
        return job.no_resume
    if not last_before(job.steps):
        return "not tried: it takes 2 steps"
    parameters = sums.elements(engine)
    if parameters > LARGEST:
        return f"not tried: {parameters:,} parameters; a checkpoint is tried up to {LARGEST:,}"
    needed = parameters * BYTES
    free = sums.least(float(shutil.disk_usage(checkpoints(job).parent).free))
    if free < needed:
        return f"not tried: {needed / 2**30:.1f} GiB needed in {checkpoints(job).parent}, {free / 2**30:.1f} GiB free"
    return None


def run(job: Job, report: Report, loop: Any, watch: Watch) -> dict[str, Any]:
    """Train the steps after the checkpoint anew, from the checkpoint.

    {"from": steps behind the checkpoint, "losses", "rates", "steps", "momentum": as `Record` has them, "differing":
    names of parameters with other bits than after the planned training}, or {"state": "skipped", "why"}
    """
    if not watch.checkpoint:
        return {"state": "skipped", "why": watch.no_checkpoint or "no checkpoint was due"}
    record = Record(report, "resume", job.steps, watch.checkpoint)
    loop.train(job, record, Trial(checkpoints(job), resumed=watch.checkpoint, save=False))
    record.close()
    before = report.content["sums"]
    differing = [name for name, value in record.sums.items() if before.get(name) != value]
    return {"from": watch.checkpoint, **record.data(), "differing": len(differing), "of": len(before)}
