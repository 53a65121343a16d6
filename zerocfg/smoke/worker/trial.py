"""One training of the job: the planned one, a resumed one, or the reference."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .job import Job


@dataclasses.dataclass(frozen=True)
class Trial:
    """How a training differs from the planned one.

    ``folder``: of the checkpoint that is written, or read when ``resumed`` optimizer steps are behind (0: from the
    start). ``deepspeed``: a config in place of the planned one. ``weights``: the initial ones by name, full shapes,
    in place of random ones. ``save``: whether the weights are saved at the end.
    """

    folder: Path
    resumed: int = 0
    deepspeed: dict[str, object] | None = None
    weights: dict[str, torch.Tensor] | None = None
    save: bool = True

    @classmethod
    def planned(cls, job: Job) -> Trial:
        return cls(checkpoints(job), save=job.saves)

    def steps(self, job: Job) -> int:
        """Optimizer steps that are done in this training."""
        return job.steps - self.resumed


def checkpoints(job: Job) -> Path:
    """The folder of checkpoints, beside that of the saved weights."""
    return Path(job.saved).with_name("checkpoint")
