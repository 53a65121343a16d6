"""After which step the checkpoint is written that is resumed from, and why none is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from .trial import checkpoints

if TYPE_CHECKING:
    from .job import Job

REDONE = 2  # steps after the checkpoint: the loss of the second depends on the optimizer's states, too
BYTES = 18  # of a checkpoint for each parameter: 16 bit, fp32 copy, Adam's states, and the whole weights beside
LARGEST = 2_000_000_000  # parameters; a larger checkpoint (36 GB and more) takes minutes


def last_before(steps: int) -> int:
    """The number of optimizer steps before the checkpoint; 0: there is no step to repeat."""
    return max(1, steps - REDONE) if steps > 1 else 0


def obstacle(job: Job, parameters: int | None) -> str | None:
    """Why this rank tries no checkpoint, None when it does.

    ``parameters``: elements of the model, None where they could not be counted.
    """
    if job.no_resume:
        return job.no_resume
    if not last_before(job.steps):
        return "not tried: it takes 2 steps"
    if parameters is None:
        return "not tried: the size of a checkpoint is not known"
    if parameters > LARGEST:
        return f"not tried: {parameters:,} parameters; a checkpoint is tried up to {LARGEST:,}"
    needed, free = parameters * BYTES, shutil.disk_usage(checkpoints(job).parent).free
    if free < needed:
        return f"not tried: {needed / 2**30:.1f} GiB needed in {checkpoints(job).parent}, {free / 2**30:.1f} GiB free"
    return None
