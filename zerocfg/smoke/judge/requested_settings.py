"""The settings that a handwritten run requests, with every place that states them, against the live engine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from zerocfg.smoke.judge.settings import show, together
from zerocfg.smoke.model.certificate import ENGINE, STAGE, Check
from zerocfg.smoke.model.reduction import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.requested_settings import Claim
    from zerocfg.smoke.worker.report_schema import RankReport, Seen

# By the name that the ranks report.
NAMES = {
    "engine": ENGINE,
    "stage": STAGE,
    "micro_batch": "micro batch per rank",
    "gradient_accumulation_steps": "gradient accumulation",
    "gradient_clipping": "gradient clipping",
    "dtype": "precision",
    "offload_optimizer": "offload optimizer",
    "offload_param": "offload parameters",
    "optimizer": "optimizer",
    "scheduler": "scheduler",
}
OFFLOADS = {kind.value: kind for kind in (Kind.OFFLOAD_OPTIMIZER, Kind.OFFLOAD_PARAM)}
OPTIMIZERS = ("adafactor", "adagrad", "lion", "lamb", "muon", "rmsprop", "sgd", "adam")
# Schedules of DeepSpeed, as the Trainer calls the same course.
SCHEDULES = {"WarmupLR": "constant_with_warmup", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}


def replace_planned(
    planned: list[Check], requested: Mapping[str, Sequence[Claim]], reduced: Reduced, reports: list[RankReport]
) -> list[Check]:
    """The checks, with those of a plan replaced by the requested settings."""
    requested_checks = check(requested, reduced, reports)
    names = {requested_check.name for requested_check in requested_checks}
    return [*requested_checks, *(item for item in planned if item.name not in names)]


def check(requested: Mapping[str, Sequence[Claim]], reduced: Reduced, reports: list[RankReport]) -> list[Check]:
    """One check for each setting that a file asks for or an engine reports; without a claim it is only noted."""
    checks = []
    for key, name in NAMES.items():
        seen = [_seen(report["seen"], key) for report in reports]
        wanted = [claim for claim in requested.get(key, ()) if meaning(key, claim.value) is not None]
        if not wanted:
            if any(value is not None for value in seen):
                checks.append(Check(name, "-", together(seen), None))
            continue
        wrong = [claim for claim in wanted if not all(fits(key, claim.value, value, reduced) for value in seen)]
        checks.append(Check(name, _planned(wanted, wrong), together(seen), not wrong))
    return checks


def _seen(seen: Seen, key: str) -> object:
    if key != "scheduler":
        return seen.get(key)
    settings = seen.get("settings") or {}
    return settings.get("scheduler.type") or settings.get("lr_scheduler_type")


def _planned(wanted: Sequence[Claim], wrong: Sequence[Claim]) -> str:
    """The value; where something else runs, every place with what it says."""
    return "; ".join(dict.fromkeys(map(str, wanted))) if wrong else show(wanted[0].value)


def fits(key: str, requested: object, seen: object, reduced: Reduced) -> bool:
    """Whether what runs is what was asked for, after what had to be reduced."""
    if key == "engine" and requested == "ddp" and reduced.ranks == 1:
        return bool(seen == "single")
    if key == "dtype" and requested == "fp16" and reduced.has(Kind.PRECISION):
        requested = "bf16"
    if requested == "nvme" and key in OFFLOADS and reduced.has(OFFLOADS[key]):
        requested = "cpu"
    requested, seen = meaning(key, requested), meaning(key, seen)
    if isinstance(requested, (int, float)) and isinstance(seen, (int, float)):
        return math.isclose(requested, seen, rel_tol=1e-9)
    return bool(requested == seen)


def meaning(key: str, value: object) -> object:
    """The value as both sides spell it; None for what cannot be compared."""
    if value is None:
        return None
    if key == "optimizer":
        # 8-bit and paged kinds need a card and are replaced without one.
        text = str(value).lower()
        if any(word in text for word in ("8bit", "paged", "bnb", "apex", "npu")):
            return None
        return next((family for family in OPTIMIZERS if family in text), None)
    if key == "scheduler":
        return SCHEDULES.get(str(value), str(value))
    if key == "dtype" and value not in ("bf16", "fp16", "fp32"):
        return None
    return value
