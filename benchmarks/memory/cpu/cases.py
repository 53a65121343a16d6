"""The configurations that are compared. Buckets and thresholds are small because the models are: 13887 and 69400
elements or so, none of whose tensors divides by the ranks evenly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zerocfg.memory.options import Options


@dataclass(frozen=True)
class Case:
    """One run: ``model`` is a name of measure.py; ``frozen`` a part of the names of parameters without gradients."""

    name: str
    options: Options
    model: str = "odd"
    frozen: str = ""


SMALL: dict[str, Any] = {
    "optimizer": "fused_adam",
    "reduce_bucket_size": 2000,
    "allgather_bucket_size": 3000,
    "prefetch_bucket_size": 2500,
    "param_persistence_threshold": 100,
    "zero_init": False,
}
LET_GO: dict[str, Any] = {"max_live_parameters": 4000, "max_reuse_distance": 0}
CPU: dict[str, Any] = {"offload_optimizer": "cpu"}
BOTH: dict[str, Any] = {"offload_optimizer": "cpu", "offload_param": "cpu"}
TWICE: dict[str, Any] = {"gradient_accumulation_steps": 2}


def _options(stage: int, ranks: int, **more: Any) -> Options:
    return Options(stage, ranks, **{**SMALL, **more})


CASES = [
    Case("0", _options(0, 1)),
    Case("0, fp32, GA 2", _options(0, 2, precision="fp32", **TWICE)),
    Case("0, fp16", _options(0, 4, precision="fp16")),
    Case("0, torch Adam (foreach)", _options(0, 2, optimizer="adamw_foreach")),
    Case("1", _options(1, 2)),
    Case("1, bucket holds the model", _options(1, 4, reduce_bucket_size=20000)),
    Case("1, overlap, GA 2", _options(1, 2, overlap_comm=True, **TWICE)),
    Case("1, bf16 accumulated in fp32", _options(1, 4, accumulation="fp32")),
    Case("1, fp16 accumulated in fp32", _options(1, 2, precision="fp16", accumulation="fp32")),
    Case("1, optimizer on cpu, llama", _options(1, 2, **CPU), model="llama"),
    Case("2", _options(2, 1)),
    Case("2, overlap, llama", _options(2, 2, overlap_comm=True), model="llama"),
    Case("2, fp32, GA 2", _options(2, 4, precision="fp32", **TWICE)),
    Case("2, not contiguous", _options(2, 2, contiguous_gradients=False)),
    Case("2, accumulated in fp32, GA 2", _options(2, 2, accumulation="fp32", **TWICE)),
    Case("2, frozen embedding and norms", _options(2, 2), frozen="embed"),
    Case("2, torch Adam (for-loop)", _options(2, 2, optimizer="adamw_for_loop")),
    Case("2, optimizer on cpu", _options(2, 1, **CPU)),
    Case("2, optimizer on cpu, GA 2", _options(2, 4, **CPU, **TWICE)),
    Case("3", _options(3, 1)),
    Case("3, parameters let go early, GA 2", _options(3, 2, **LET_GO, **TWICE)),
    Case("3, zero.Init, sub groups", _options(3, 4, **LET_GO, zero_init=True, sub_group_size=1500)),
    Case("3, llama", _options(3, 2, param_persistence_threshold=50), model="llama"),
    Case("3, fp32", _options(3, 2, **LET_GO, precision="fp32")),
    Case("3, fp16", _options(3, 2, precision="fp16")),
    Case("3, accumulated in fp32", _options(3, 2, **LET_GO, accumulation="fp32")),
    Case("3, not contiguous", _options(3, 2, contiguous_gradients=False)),
    Case("3, frozen", _options(3, 2, **LET_GO), frozen="up"),
    Case("3, hpZ of 2 ranks", _options(3, 4, **LET_GO, secondary_partition_size=2)),
    Case("3, optimizer on cpu", _options(3, 1, **CPU)),
    Case("3, optimizer on cpu, GA 2", _options(3, 2, **LET_GO, **CPU, **TWICE)),
    Case("3, both on cpu", _options(3, 4, **LET_GO, **BOTH, zero_init=True)),
    Case("3, both on cpu, large bucket, llama", _options(3, 2, **BOTH, reduce_bucket_size=100_000), model="llama"),
]
