"""What the trainings after the planned one are compared with: that one, or the same training of a narrow copy."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from . import learning_rate

if TYPE_CHECKING:
    from .job import Job
    from .report import Report


@dataclasses.dataclass
class Baseline:
    """``job``: whose model is trained. ``parameters``: its elements, None where they could not be counted. ``sums``:
    checksums of the parameters after the training, by name; empty where they were not read. ``rate``: the least
    learning rate of the steps, None where the schedule decides alone.
    """

    job: Job
    parameters: int | None
    sums: dict[str, int]
    rate: float | None

    @classmethod
    def planned(cls, job: Job, report: Report) -> Baseline:
        content = report.content
        return cls(job, content.get("parameters"), content.get("sums") or {}, content.get("trial_rate"))

    @classmethod
    def of_copy(cls, job: Job, model: dict[str, object], report: Report) -> Baseline:
        """Before the copy is trained. Where the planned training raised its rate, this one does, for its own width."""
        copy = dataclasses.replace(job, model=model)
        raised = "trial_rate" in report.content
        return cls(copy, None, {}, learning_rate.deciding_rate(copy) if raised else None)
