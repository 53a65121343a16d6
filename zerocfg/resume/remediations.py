"""Remediations: commands that convert a checkpoint into what the run can read."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from zerocfg.resume.checkpoint import SHARDED

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint, DeepSpeed

USE_UNIVERSAL = 'then set "checkpoint": {"load_universal": true} in the run\'s DeepSpeed config'


def quoted(path: object) -> str:
    return shlex.quote(str(path))


def universal(checkpoint: Checkpoint, deepspeed: DeepSpeed) -> str:
    """Converts for any number of ranks; stages 1 and 2 cannot read what stage 3 saved, nor the reverse."""
    folder = checkpoint.path / deepspeed.tag
    return (
        "python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state "
        f"--input_folder {quoted(folder)} --output_folder {quoted(f'{folder}_universal')}"
    )


def to_weights(checkpoint: Checkpoint) -> str:
    """Whole weights in fp32 from DeepSpeed's shards; the optimizer state stays behind."""
    tag = checkpoint.deepspeed.tag if checkpoint.deepspeed else ""
    chosen = f" --tag {quoted(tag)}" if checkpoint.deepspeed and checkpoint.deepspeed.latest != tag else ""
    script = checkpoint.path / "zero_to_fp32.py"
    start = f"python {quoted(script)}" if checkpoint.converter else "python -m deepspeed.utils.zero_to_fp32"
    weights = quoted(checkpoint.path / "weights")
    return f"{start} {quoted(checkpoint.path)} {weights} --safe_serialization{chosen}"


def merge(checkpoint: Checkpoint) -> str:
    """Whole weights from FSDP's shards."""
    folder, weights = checkpoint.path / "pytorch_model_fsdp_0", checkpoint.path / "weights"
    return f"accelerate merge-weights {quoted(folder)} {quoted(weights)}"


def start_from(folder: object) -> str:
    return f"then start a new run from the weights in {quoted(folder)} (config.json and tokenizer beside them)"


def weights_alone(checkpoint: Checkpoint) -> tuple[str, ...]:
    """How to continue from the weights alone."""
    if checkpoint.weights is not None and checkpoint.weights.whole:
        return (f"start a new run from the weights in {quoted(checkpoint.path)}",)
    if checkpoint.fsdp is not None and checkpoint.fsdp.model == SHARDED:
        return (merge(checkpoint), start_from(checkpoint.path / "weights"))
    deepspeed = checkpoint.deepspeed
    if deepspeed is not None and deepspeed.optimizer_files:
        return (to_weights(checkpoint), start_from(checkpoint.path / "weights"))
    return ("take another checkpoint: there are no whole weights in this one",)
