"""Predicted against allocated bytes of ZeRO 0 to 3 on CPU ranks, moment by moment and rank by rank."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerocfg.memory.ledger import Ledger
from zerocfg.memory.options import Options
from zerocfg.memory.tensors import Model, Module, Tensor
from zerocfg.memory.zero import played

Sites = dict[str, list[list[int]]]
MOMENTS = ("init", "forward", "backward", "step")
PARTS = {
    "init": ("init",),
    "forward": ("forward", "loss"),
    "backward": ("head backward", "backward", "step: reduction"),
    "step": ("step",),
}


@dataclass(frozen=True)
class Case:
    """One run: ``model`` is a name of measure.py; ``frozen`` a part of the names of parameters without gradients."""

    name: str
    options: Options
    model: str = "odd"
    frozen: str = ""

    def request(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "frozen": self.frozen,
            "world_size": self.options.world_size,
            "zero_init": self.options.stage == 3 and self.options.zero_init,
            "optimizer": self.options.optimizer,
            "config": config_of(self.options),
        }


def config_of(options: Options) -> dict[str, Any]:
    """The DeepSpeed config that these options describe."""
    zero: dict[str, Any] = {
        "stage": options.stage,
        "reduce_bucket_size": options.reduce_bucket_size,
        "allgather_bucket_size": options.allgather_bucket_size,
        "contiguous_gradients": options.contiguous_gradients,
        "overlap_comm": options.overlaps,
    }
    if options.stage == 3:
        zero |= {
            "sub_group_size": options.sub_group_size,
            "stage3_prefetch_bucket_size": options.prefetch_bucket_size,
            "stage3_param_persistence_threshold": options.param_persistence_threshold,
            "stage3_max_live_parameters": options.max_live_parameters,
            "stage3_max_reuse_distance": options.max_reuse_distance,
            "zero_hpz_partition_size": options.secondary_partition_size,
        }
    for section in ("offload_optimizer", "offload_param"):
        if getattr(options, section) != "none":
            zero[section] = {"device": getattr(options, section), "pin_memory": True}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**6,
    }
    if options.precision != "fp32":
        config[options.precision] = {"enabled": True}
    if options.precision == "fp16":
        config["fp16"]["loss_scale"] = 1.0
    if options.accumulation:
        config["data_types"] = {"grad_accum_dtype": options.accumulation}
    if options.optimizer == "adamw_fused":
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3}}
    return config


def measure(cases: list[Case], timeout: float = 580.0) -> list[dict[str, Any]]:
    """What measure.py answers for each case."""
    program = Path(__file__).with_name("measure.py")
    text = json.dumps([case.request() for case in cases])
    done = subprocess.run([sys.executable, str(program)], input=text, capture_output=True, text=True, timeout=timeout)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(cases):
        raise RuntimeError(done.stderr[-3000:])
    return answers


def model_of(shape: dict[str, Any]) -> Model:
    """The model as the run described it."""
    tensors = tuple(Tensor(size, trained) for size, trained in shape["tensors"])
    modules = tuple(Module(tuple(module), head) for module, head in shape["modules"])
    return Model(tensors, modules, *(tuple(shape[name]) for name in ("gradients", "forward", "backward")))


@dataclass(frozen=True)
class Row:
    """One moment of one rank: bytes at its worst point and at its end."""

    moment: str
    predicted_peak: int
    allocated_peak: int
    predicted_end: int
    allocated_end: int
    small: int  # bytes of the peak at sites that are scalars
    small_end: int

    @property
    def unexplained(self) -> int:
        return abs(self.allocated_peak - self.small - self.predicted_peak) + abs(
            self.allocated_end - self.small_end - self.predicted_end
        )


LIMIT = 16  # bytes: step counters, loss scales, norms, flags
# A norm for each tensor, and all of them stacked: 8 bytes for each tensor of the model, twice.
NORMS = ("clip_grad_norm_", "get_global_norm_of_tensors", "get_flattened_grad_norm", "get_weight_norm", "get_grad_norm")
PREDICTED = ("_get_flat_partition_unpadded",)  # tiny, but predicted: the padding of a partition


def small_of(point: Sites) -> int:
    """Bytes of scalars and of norms, the only ones that are not predicted."""
    found = 0
    for site, sizes in point.items():
        function = site.split(":")[1] if ":" in site else site
        if site != "model" and function not in PREDICTED:
            found += sum(size * n for size, n in sizes if size <= LIMIT or function in NORMS)
    return found


def total_of(point: Sites) -> int:
    return sum(size * n for site, sizes in point.items() if site != "model" for size, n in sizes)


def compare(case: Case, answer: dict[str, Any]) -> list[list[Row]]:
    """The rows of each rank."""
    found = []
    for rank, seen in enumerate(answer["ranks"]):
        ledger = played(model_of(seen["shape"]), case.options, rank, cpu=True)
        found.append([row_of(ledger, seen["moments"], moment) for moment in MOMENTS])
    return found


def row_of(ledger: Ledger, seen: dict[str, Any], moment: str) -> Row:
    micro = [name for name in seen if name.split()[0] == moment]
    peak = max((seen[name]["peak"] for name in micro), key=total_of)
    end = seen[micro[-1]]["end"]
    predicted = max(ledger.peak(part) for part in PARTS[moment])
    last = sum(ledger.ends["device", PARTS[moment][-1]].values())
    return Row(moment, predicted, total_of(peak), last, total_of(end), small_of(peak), small_of(end))
