"""Resumes from a checkpoint in the middle of the planned training, and trains the rest again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import Record
from .trial import Trial, checkpoints

if TYPE_CHECKING:
    from types import ModuleType

    from .job import Job
    from .report import Report
    from .report_schema import Part
    from .watch import Watch


def run(job: Job, report: Report, loop: ModuleType, watch: Watch) -> Part:
    """Train the steps after the checkpoint again, from the checkpoint.

    "differing" counts parameters with other bits than after the planned training.
    """
    if not watch.checkpoint:
        return {"state": "skipped", "why": watch.no_checkpoint or "no checkpoint was due"}
    record = Record(report, "resume", job.steps, watch.checkpoint)
    loop.train(job, record, Trial(checkpoints(job), resumed=watch.checkpoint, save=False))
    record.close()
    before = report.content["sums"]
    differing = [name for name, value in record.sums.items() if before.get(name) != value]
    found: Part = {"from": watch.checkpoint}
    found.update(record.data())
    found.update({"differing": len(differing), "of": len(before)})
    return found
