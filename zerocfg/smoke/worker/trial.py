"""One training of the job: the planned one, one that writes a checkpoint or resumes from it, or the reference."""

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

    ``last``: the optimizer step with which it ends. ``folder``: of the checkpoint, which is written after the last step
    where ``checkpoint`` is set, and read where ``resumed`` optimizer steps are behind (0: from the start).
    ``deepspeed``: a config in place of the planned one. ``weights``: the initial ones by name, full shapes, in place of
    random ones. ``save``: whether the weights are saved at the end.
    """

    folder: Path
    last: int
    resumed: int = 0
    checkpoint: bool = False
    deepspeed: dict[str, object] | None = None
    weights: dict[str, torch.Tensor] | None = None
    save: bool = False

    @classmethod
    def planned(cls, job: Job) -> Trial:
        return cls(checkpoints(job), job.steps, save=job.saves)

    @property
    def steps(self) -> int:
        """Optimizer steps that are done in this training."""
        return self.last - self.resumed


def checkpoints(job: Job) -> Path:
    """The folder of checkpoints, beside that of the saved weights."""
    return Path(job.saved).with_name("checkpoint")
