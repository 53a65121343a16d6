"""The same training under ZeRO-0: nothing is split over the ranks, nothing is offloaded."""

from __future__ import annotations

import contextlib
import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import checksums
from .record import Record
from .trial import Trial, checkpoints
from .values import mapping, whole

if TYPE_CHECKING:
    from types import ModuleType

    import torch

    from .baseline import Baseline
    from .report import Report
    from .report_schema import Part, Seen
    from .watch import Watch

BYTES = 18  # that ZeRO-0 holds for each parameter: weights and gradients in 16 bit, fp32 copy, Adam's states, room


def obstacle(base: Baseline, report: Report, watch: Watch) -> str | None:
    """Why this rank does not compare, None when it does."""
    if watch.config is None:
        if report.content["seen"].get("engine") == "deepspeed":
            return "not compared: the config of the engine was not read"
        return "not compared: without DeepSpeed there is no stage to compare"
    if _stage(watch.config) == 0:
        return "not compared: this run is ZeRO-0 itself"
    if whole(mapping(watch.config.get("tensor_parallel")).get("autotp_size"), 0) > 1:
        return "not compared: the model is split by tensor parallelism"
    zero = mapping(watch.config.get("zero_optimization"))
    if any(zero.get(f"zero_quantized_{name}") for name in ("weights", "gradients", "nontrainable_weights")):
        return "not compared: ZeRO++ rounds what the ranks exchange, by design"
    if base.parameters is None:
        return "not compared: the size of the model is not known"
    needed, room = base.parameters * BYTES, _free(base.job.device)
    if needed > room:
        return f"not compared: ZeRO-0 takes {needed / 2**30:.1f} GiB a rank, {room / 2**30:.1f} GiB are free"
    return None


def run(base: Baseline, report: Report, loop: ModuleType, watch: Watch) -> Part:
    """Train again under ZeRO-0, from the same weights."""
    assert watch.config is not None, "there is an obstacle"
    job = base.job
    record = _Plain(report, "reference", job.steps, rate=base.rate)
    record.phase("model")
    # ZeRO-3 makes a model in shards, and so in another order of random numbers.
    weights = loop.initial_weights(job) if _stage(watch.config) == 3 else None
    loop.train(job, record, Trial(checkpoints(job), job.steps, deepspeed=config(watch.config), weights=weights))
    record.close()
    return record.data()


def _stage(config: dict[str, object]) -> int:
    return whole(mapping(config.get("zero_optimization")).get("stage"), 0)


class _Plain(Record):
    def prepared(
        self,
        engine: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: Seen | None = None,
        scheduler: object = None,
    ) -> None:
        """DeepSpeed's ZeRO-0 in 16 bit begins with an optimizer step of empty gradients, which the other stages do not.

        Adam's bias correction would be a step ahead: 0.74 of the learning rate in the first step (seen in 0.19.8).
        """
        if int(engine.zero_optimization_stage()) != 0:
            raise RuntimeError(f"ZeRO-0 was asked for the comparison, stage {engine.zero_optimization_stage()} came up")
        checksums.base(optimizer).state.clear()
        super().prepared(engine, optimizer, settings, scheduler)


def config(planned: dict[str, object]) -> dict[str, object]:
    """The planned DeepSpeed config, as the engine resolved it, at stage 0 and without what needs another stage."""
    plain = copy.deepcopy(planned)
    plain["zero_optimization"] = {"stage": 0}
    for name in ("data_types", "compile", "checkpoint", "aio", "zero_force_ds_cpu_optimizer"):
        plain.pop(name, None)
    for dtype in ("bf16", "bfloat16", "fp16"):
        section = plain.get(dtype)
        if isinstance(section, dict):
            # Low-precision masters and states exist in the ZeRO stages only.
            kept = section.items()
            plain[dtype] = {key: value for key, value in kept if "master" not in key and key != "bf16_optimizer_states"}
    optimizer = plain.get("optimizer")
    if isinstance(optimizer, dict) and str(optimizer.get("type")).lower() in ("adam", "adamw"):
        # The same mathematics, and no operator that has to be compiled for this comparison alone.
        optimizer["params"] = {**(optimizer.get("params") or {}), "torch_adam": True}
        optimizer["params"].pop("fp32_optimizer_states", None)
    return plain


def _free(device: str) -> float:
    """Bytes that this rank may still take; infinite where the system does not say."""
    if device == "cuda":
        import torch

        return float(torch.cuda.mem_get_info()[0])
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return float("inf")
