"""ZC2xx: the learning-rate schedule of the DeepSpeed config: its name and the parameters that it needs.

What it makes of the learning rate is in :mod:`warmup`, the Trainer's own schedules are in
:mod:`zerocfg.rules.recipes.trainer_schedule`.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, WITH_ACCELERATE, deepspeed_data, effective_value, section, stage_of
from zerocfg.rules.fixes import edited
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

NEEDED: dict[str, tuple[str, ...]] = {
    "WarmupLR": (),
    "WarmupDecayLR": ("total_num_steps",),
    "WarmupCosineLR": ("total_num_steps",),
    "OneCycle": ("cycle_min_lr", "cycle_max_lr"),
    "LRRangeTest": (),
}
"""DeepSpeed's own schedules, with the parameters that have no default."""

_TORCH = frozenset(
    (
        "ChainedScheduler",
        "ConstantLR",
        "CosineAnnealingLR",
        "CosineAnnealingWarmRestarts",
        "CyclicLR",
        "ExponentialLR",
        "LambdaLR",
        "LinearLR",
        "MultiStepLR",
        "MultiplicativeLR",
        "OneCycleLR",
        "PolynomialLR",
        "ReduceLROnPlateau",
        "SequentialLR",
        "StepLR",
    )
)
"""Classes of torch.optim.lr_scheduler."""

PARAMS: Path = ("scheduler", "params")
_TYPE: Path = ("scheduler", "type")


def scheduler_type(run: Run) -> str | None:
    """The type that the DeepSpeed config names, as written; None when DeepSpeed is not the engine."""
    kind = section(run, "scheduler").get("type")
    if run.deepspeed is None or not isinstance(kind, str) or kind == "auto":
        return None
    return kind if effective_value(run, "engine") in (None, UNKNOWN, "deepspeed") else None


def parameters(run: Run) -> dict[str, object] | None:
    """The schedule's parameters; None where there is no mapping of them."""
    written = section(run, "scheduler").get("params")
    return written if isinstance(written, dict) else None


@rule("ZC224", "schedule-unknown", Severity.ERROR)
def schedule_unknown(run: Run) -> Iterator[Finding]:
    kind = scheduler_type(run)
    if kind is None or run.deepspeed is None or kind in NEEDED or kind in _TORCH or kind == "LRScheduler":
        return
    meant = next((name for name in NEEDED if name.lower() == kind.lower()), None)
    trainer = ", or remove the section and set lr_scheduler_type" if run.consumer in TRAINERS else ""
    yield Finding(
        Location(run.deepspeed, _TYPE, "value"),
        f"DeepSpeed knows no schedule {show(kind)}; it stops when the engine is built, after the model was loaded",
        f"did you mean {meant}?" if meant else f"write one of {', '.join(NEEDED)}{trainer}",
        fix=edited(replace_value, run.deepspeed, _TYPE, f'"{meant}"', why=f"write {meant}") if meant else None,
    )


@rule("ZC225", "schedule-of-torch-with-zero", Severity.ERROR)
def schedule_of_torch_with_zero(run: Run) -> Iterator[Finding]:
    kind, stage = scheduler_type(run), stage_of(run)
    if kind not in _TORCH or run.deepspeed is None:
        return
    if not stage and not any(effective_value(run, f"{name}.enabled") is True for name in ("fp16", "bf16")):
        return
    fix = None
    if run.consumer in TRAINERS:
        fix = edited(delete_entry, run.deepspeed, ("scheduler",), why="leave it to the Trainer", safe=False)
    wrapper = f"at ZeRO stage {stage}" if stage else "in 16 bits"
    yield Finding(
        Location(run.deepspeed, _TYPE, "value"),
        f"{show(kind)} is a schedule of torch, which {wrapper} refuses DeepSpeed's wrapper of the optimizer; the job "
        "stops when the engine is built",
        "use WarmupLR, WarmupDecayLR or WarmupCosineLR"
        + (", or remove the section and set lr_scheduler_type" if run.consumer in TRAINERS else ""),
        fix=fix,
    )


_FILLED = {
    "WarmupLR": '{"warmup_max_lr": "auto", "warmup_num_steps": "auto"}',
    "WarmupDecayLR": '{"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}',
    "WarmupCosineLR": '{"warmup_num_steps": "auto", "total_num_steps": "auto"}',
}


@rule("ZC226", "schedule-without-params", Severity.ERROR)
def schedule_without_params(run: Run) -> Iterator[Finding]:
    kind = scheduler_type(run)
    if kind is None or run.deepspeed is None or "params" in section(run, "scheduler"):
        return
    text = _FILLED.get(kind) if run.consumer in TRAINERS else "{}" if NEEDED.get(kind) == () else None
    yield Finding(
        Location(run.deepspeed, ("scheduler",), "key"),
        f"the schedule {show(kind)} has no `params`, which DeepSpeed needs even when it is empty; it stops when the "
        "engine is built",
        'add `"params": {}` or the parameters that you want',
        fix=edited(insert_entry, run.deepspeed, ("scheduler",), "params", text, why="add params", safe=False)
        if text
        else None,
    )


@rule("ZC227", "schedule-parameter-missing", Severity.ERROR)
def schedule_parameter_missing(run: Run) -> Iterator[Finding]:
    kind, params = scheduler_type(run), parameters(run)
    if kind is None or params is None or run.deepspeed is None:
        return
    names = [name for name in NEEDED.get(kind, ()) if name not in params]
    if not names:
        return
    fix, counts = None, names == ["total_num_steps"]
    if counts and run.consumer in TRAINERS:
        fix = edited(insert_entry, run.deepspeed, PARAMS, names[0], '"auto"', why="let the Trainer fill it in")
    yield Finding(
        Location(run.deepspeed, PARAMS, "key"),
        f"{kind} has no {' and no '.join(f'`{name}`' for name in names)}, for which there is no default; DeepSpeed "
        "stops when the engine is built",
        "add "
        + " and ".join(f'`"{name}"`' for name in names)
        + (': the number of optimizer steps, or "auto" under the Trainer' if counts else ""),
        fix=fix,
    )


@rule("ZC228", "schedule-without-type", Severity.ERROR)
def schedule_without_type(run: Run) -> Iterator[Finding]:
    written = deepspeed_data(run).get("scheduler")
    if not isinstance(written, dict) or written.get("type") is not None or run.deepspeed is None:
        return
    if effective_value(run, "engine") not in (None, UNKNOWN, "deepspeed"):
        return
    handed_over = run.consumer in WITH_ACCELERATE
    if not written and not handed_over:
        return
    yield Finding(
        Location(run.deepspeed, ("scheduler",), "key"),
        "`scheduler` has no `type`: DeepSpeed makes no schedule, "
        + (
            "and the stand-in that the Trainer and accelerate keep fails at the first step"
            if handed_over
            else "and silently leaves the learning rate as it is"
        ),
        'add `"type"`, or remove the section',
        fix=_typed(run, written),
    )


def _typed(run: Run, written: dict[str, object]) -> Fix | None:
    if not written:
        return edited(delete_entry, run.deepspeed, ("scheduler",), why="remove the empty section")
    kind = "WarmupDecayLR" if "total_num_steps" in (parameters(run) or {}) else "WarmupLR"
    if "type" in written:
        return None
    return edited(insert_entry, run.deepspeed, ("scheduler",), "type", f'"{kind}"', why=f"use {kind}", safe=False)
