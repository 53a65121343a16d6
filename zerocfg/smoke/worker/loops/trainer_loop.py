"""A run of the Trainer of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import initial, join_deepspeed, make_model, tokens
from ..trial import Trial
from . import followed

if TYPE_CHECKING:
    import torch

    from ..job import Job
    from ..record import Record
    from ..watch import Watch


def train(job: Job, watch: Watch | Record, trial: Trial) -> torch.nn.Module:
    """Train and save; the bare model."""
    import transformers

    watch.phase("arguments")
    args = followed.arguments(transformers.TrainingArguments, job, trial)
    join_deepspeed()
    watch.phase("model")
    model = make_model(job, trial.weights)
    batch = args.per_device_train_batch_size
    row = tokens(job, watch.report.rank)
    data = [row] * (batch * args.gradient_accumulation_steps * max(1, args.world_size) * job.steps)
    return followed.train(transformers.Trainer, job, watch, trial, model=model, args=args, train_dataset=data)


def initial_weights(job: Job) -> dict[str, torch.Tensor]:
    """The weights with which the planned training begins."""
    import transformers

    # As long as they live the model is made in shards.
    arguments = followed.arguments(transformers.TrainingArguments, job, Trial.planned(job))
    join_deepspeed()
    weights = initial(job)
    del arguments
    return weights
