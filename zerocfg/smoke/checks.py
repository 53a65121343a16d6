"""The plan against what the live engines and the saved files showed. Pure functions."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerocfg.smoke.folder import RunFolder
    from zerocfg.smoke.process import Outcome
    from zerocfg.smoke.reduce import Reduced


@dataclass(frozen=True)
class Check:
    """``planned`` and ``seen`` as shown; ``ok`` None for what is only noted."""

    name: str
    planned: str
    seen: str
    ok: bool | None

    def data(self) -> dict[str, Any]:
        return asdict(self)


def check(run: RunFolder, reduced: Reduced, outcome: Outcome, steps: int) -> list[Check]:
    """Every check that the reports allow, in the order of the table."""
    checks = [Check(f"{name} as built", "unchanged", "changed since", False) for name in sorted(run.changed)]
    if not all("world_size" in report.get("seen", {}) for report in outcome.reports):
        return checks
    for name, planned, key in _engine(reduced):
        seen = [report["seen"].get(key) for report in outcome.reports]
        ok = None if planned is None else all(_same(planned, value) for value in seen)
        checks.append(Check(name, _show(planned), _together(seen), ok))
    checks.append(_losses(outcome, steps))
    return [*checks, *_weights(outcome)]


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


def _losses(outcome: Outcome, steps: int) -> Check:
    losses = [loss for report in outcome.reports for loss in report.get("losses", [])]
    done = min(len(report.get("step_seconds", [])) for report in outcome.reports)
    finite = bool(losses) and all(math.isfinite(loss) for loss in losses)
    own = outcome.reports[0].get("losses", [])
    seen = f"{done}; loss {own[0]:.4g} to {own[-1]:.4g}" if own else str(done)
    return Check("optimizer steps, loss finite", str(steps), seen, finite and done == steps)


def _weights(outcome: Outcome) -> list[Check]:
    weights = outcome.reports[0].get("weights")
    if weights is None:
        return []
    expected, saved = weights["expected"], weights["saved"]
    wrong = [*weights["missing"], *weights["short"]]
    if not weights["file"]:
        seen = "no file of weights"
    elif wrong:
        seen = f"{saved:,} in {weights['file']}; not whole: {wrong[0]} and {len(wrong) - 1} more"
    else:
        seen = f"{saved:,} in {weights['file']}"
    checks = [Check("saved parameters", f"{expected:,}", seen, bool(weights["file"]) and not wrong)]
    if weights["file"]:
        loadable = weights["loadable"]
        checks.append(Check("loaded by from_pretrained", "yes", loadable or "yes", loadable is None))
    return checks


def _same(planned: Any, seen: Any) -> bool:
    if isinstance(planned, (int, float)) and isinstance(seen, (int, float)):
        return math.isclose(planned, seen, rel_tol=1e-9)
    return bool(planned == seen)


def _together(values: list[Any]) -> str:
    """One value when all ranks agree, else each rank's own."""
    shown = [_show(value) for value in values]
    if len(set(shown)) == 1:
        return shown[0]
    return ", ".join(f"rank {rank}: {value}" for rank, value in enumerate(shown))


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) and value.is_integer():
        return str(int(value)) if abs(value) < 1e15 else f"{value:g}"
    return str(value)
