"""What the live engine runs with, setting by setting."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from zerocfg.smoke.checks.check import Check, show, together

if TYPE_CHECKING:
    from zerocfg.smoke.reduce import Reduced


def check(reduced: Reduced, reports: list[dict[str, Any]]) -> list[Check]:
    """Each setting of the plan against every rank's engine."""
    checks = []
    for name, planned, key in _engine(reduced):
        seen = [report["seen"].get(key) for report in reports]
        ok = None if planned is None else all(_same(planned, value) for value in seen)
        checks.append(Check(name, show(planned), together(seen), ok))
    return checks


def _engine(reduced: Reduced) -> list[tuple[str, Any, str]]:
    """(name, planned value, key of the report). None: nothing is planned, the value is noted."""
    plan = reduced.plan
    deepspeed = reduced.deepspeed is not None
    kind = "deepspeed" if deepspeed else plan.get("engine") or "ddp"
    if kind == "ddp" and str((reduced.accelerate or {}).get("distributed_type")) in ("NO", "False"):
        kind = "single"
    dtype = next((name for name in ("bf16", "fp16") if _asked(reduced, name)), "fp32")
    found = [
        ("engine", kind, "engine"),
        ("world size", reduced.ranks, "world_size"),
        ("micro batch per rank", plan.get("train_micro_batch_size_per_gpu"), "micro_batch"),
        ("gradient accumulation", plan.get("gradient_accumulation_steps"), "gradient_accumulation_steps"),
        ("gradient clipping", plan.get("gradient_clipping"), "gradient_clipping"),
        ("precision", dtype, "dtype"),
    ]
    if deepspeed:
        name = "zero_optimization"
        found[1:1] = [("ZeRO stage", plan.get(f"{name}.stage"), "stage")]
        for part in ("offload_optimizer", "offload_param"):
            label = part.replace("_", " ").replace("param", "parameters")
            found.append((label, plan.get(f"{name}.{part}.device") or "none", part))
    return [*found, ("optimizer", None, "optimizer"), ("device", None, "device")]


def _asked(reduced: Reduced, dtype: str) -> bool:
    """Whether the plan trains in ``dtype``; without DeepSpeed the trainer's or the launcher's word counts."""
    if reduced.plan.get(f"{dtype}.enabled") is not None:
        return bool(reduced.plan[f"{dtype}.enabled"])
    return bool(reduced.arguments.get(dtype)) or (reduced.accelerate or {}).get("mixed_precision") == dtype


def _same(planned: Any, seen: Any) -> bool:
    if isinstance(planned, (int, float)) and isinstance(seen, (int, float)):
        return math.isclose(planned, seen, rel_tol=1e-9)
    return bool(planned == seen)
