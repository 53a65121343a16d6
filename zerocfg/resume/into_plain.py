"""Whether a run under DDP, or of one process, can read a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.resume.finding import NO_CHECKPOINT, Finding
from zerocfg.resume.remediations import weights_alone
from zerocfg.resume.trainer_files import random_generators, trainer_files

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint
    from zerocfg.resume.target import Target


def into_plain(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    """DDP or one process: the Trainer reads whole weights, optimizer.pt and scheduler.pt."""
    engine = "a run without DeepSpeed and FSDP"
    if target.trainer is not True:
        return [Finding("note", "loop", "zerocfg does not know what a custom training loop reads")]
    found = trainer_files(checkpoint, target)
    fsdp, weights = checkpoint.fsdp, checkpoint.weights
    if fsdp is not None and fsdp.model is not None:
        found.append(
            Finding(
                "stops",
                "fsdp",
                f"FSDP saved this, and {engine} does not read it",
                f"ValueError: Checkpoint found at {checkpoint.path} is only supported when using PyTorch FSDP",
                remediations=weights_alone(checkpoint),
            )
        )
    elif weights is None:
        found.append(
            Finding(
                "stops",
                "no-weights",
                f"there is no model.safetensors, and {engine} reads nothing else",
                NO_CHECKPOINT.format(path=checkpoint.path),
                remediations=weights_alone(checkpoint),
            )
        )
    elif not (checkpoint.optimizer and checkpoint.scheduler):
        absent = [
            name
            for name, there in (("optimizer.pt", checkpoint.optimizer), ("scheduler.pt", checkpoint.scheduler))
            if not there
        ]
        where = "; DeepSpeed's shards hold it, which this run does not read" if checkpoint.deepspeed else ""
        found.append(
            Finding(
                "loses",
                "optimizer",
                f"{' and '.join(absent)} absent{where}: the Trainer gives no warning, continues from step "
                f"{checkpoint.step}, and resets both optimizer and learning rate",
                lost="optimizer state and learning-rate schedule",
                remediations=("save without save_only_model",)
                if not checkpoint.deepspeed
                else ("resume under DeepSpeed",),
            )
        )
    return found + random_generators(checkpoint, target)
