"""ZC2xx: the learning-rate schedule of the DeepSpeed config: its name and the parameters that it needs.

What it makes of the learning rate is in :mod:`warmup`, the Trainer's own schedules are in
:mod:`zerocfg.rules.recipes.trainer_schedule`.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Severity, Subject, rule
from zerocfg.rules.batch.sections import known_types, section_without_type, type_of
from zerocfg.rules.effects import effective_value, stage_of, under_trainer, with_accelerate
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.subjects import given_by, one_key
from zerocfg.run.model import Run

_TORCH = frozenset(
    "ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LambdaLR "
    "LinearLR MultiStepLR MultiplicativeLR OneCycleLR PolynomialLR ReduceLROnPlateau SequentialLR StepLR".split()
)
"""Classes of torch.optim.lr_scheduler."""

_SECTION = "scheduler"


def schedule_params(run: Run, *types: str) -> Key | None:
    """The parameters of the schedule, where it has one of ``types`` or there are none; None also where they are no
    mapping, and when DeepSpeed is not the engine."""
    kind, params = type_of(run, _SECTION), deepspeed(run, _SECTION, "params")
    wanted = kind is not None and (not types or kind.value in types)
    return params if wanted and isinstance(params.value, dict) else None


def schedule_of(*types: str) -> Subject[Key]:
    """The same, for rules that ask its run for more."""
    return given_by(lambda run: schedule_params(run, *types))


def _schedule_type(run: Run) -> Key | None:
    return type_of(run, _SECTION)


@rule("ZC224", "schedule-unknown", Severity.ERROR, one_key(_schedule_type))
def schedule_unknown(kind: Key) -> Iterator[Finding]:
    own = known_types(_SECTION)
    if kind.value in own or kind.value in _TORCH or kind.value == "LRScheduler":
        return
    meant = next((name for name in own if name.lower() == kind.value.lower()), None)
    trainer = ", or remove the section and set lr_scheduler_type" if under_trainer(kind.run) else ""
    yield kind.finding(
        f"DeepSpeed knows no schedule {show(kind.value)}; it stops when the engine is built, after the model was "
        "loaded",
        f"did you mean {meant}?" if meant else f"write one of {', '.join(own)}{trainer}",
        fix=kind.replace(f'"{meant}"', f"write {meant}") if meant else None,
        where="value",
    )


@rule("ZC225", "schedule-of-torch-with-zero", Severity.ERROR, given_by(_schedule_type))
def schedule_of_torch_with_zero(kind: Key) -> Iterator[Finding]:
    stage = stage_of(kind.run)
    if kind.value not in _TORCH:
        return
    if not stage and not any(effective_value(kind.run, f"{name}.enabled") is True for name in ("fp16", "bf16")):
        return
    trainer = under_trainer(kind.run)
    wrapper = f"at ZeRO stage {stage}" if stage else "in 16 bits"
    yield kind.finding(
        f"{show(kind.value)} is a schedule of torch, which {wrapper} refuses DeepSpeed's wrapper of the optimizer; "
        "the job stops when the engine is built",
        "use WarmupLR, WarmupDecayLR or WarmupCosineLR"
        + (", or remove the section and set lr_scheduler_type" if trainer else ""),
        fix=deepspeed(kind.run, _SECTION).delete("leave it to the Trainer", safe=False) if trainer else None,
        where="value",
    )


_FILLED = {
    "WarmupLR": '{"warmup_max_lr": "auto", "warmup_num_steps": "auto"}',
    "WarmupDecayLR": '{"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}',
    "WarmupCosineLR": '{"warmup_num_steps": "auto", "total_num_steps": "auto"}',
}


@rule("ZC226", "schedule-without-params", Severity.ERROR, given_by(_schedule_type))
def schedule_without_params(kind: Key) -> Iterator[Finding]:
    section = deepspeed(kind.run, _SECTION)
    if "params" in section:
        return
    own, text = known_types(_SECTION).get(kind.value), None
    if under_trainer(kind.run):
        text = _FILLED.get(kind.value)
    elif own is not None and not own.missing(()):
        text = "{}"
    yield section.finding(
        f"the schedule {show(kind.value)} has no `params`, which DeepSpeed needs even when it is empty; it stops when "
        "the engine is built",
        'add `"params": {}` or the parameters that you want',
        fix=section["params"].set(text, "add params", safe=False) if text else None,
        where="key",
    )


@rule("ZC227", "schedule-parameter-missing", Severity.ERROR, given_by(_schedule_type))
def schedule_parameter_missing(kind: Key) -> Iterator[Finding]:
    params = schedule_params(kind.run)
    own = known_types(_SECTION).get(kind.value)
    missing = own.missing(params.section) if own is not None and params is not None else []
    if params is None or not missing:
        return
    fix, counts = None, missing == ["total_num_steps"]
    if counts and under_trainer(kind.run):
        fix = params[missing[0]].set('"auto"', "let the Trainer fill it in")
    yield params.finding(
        f"{kind.value} has no {' and no '.join(f'`{name}`' for name in missing)}, for which there is no default; "
        "DeepSpeed stops when the engine is built",
        "add "
        + " and ".join(f'`"{name}"`' for name in missing)
        + (': the number of optimizer steps, or "auto" under the Trainer' if counts else ""),
        fix=fix,
        where="key",
    )


@rule("ZC228", "schedule-without-type", Severity.ERROR, section_without_type(_SECTION))
def schedule_without_type(section: Key) -> Iterator[Finding]:
    yield section.finding(
        "`scheduler` has no `type`: DeepSpeed makes no schedule, "
        + (
            "and the stand-in that the Trainer and accelerate keep fails at the first step"
            if with_accelerate(section.run)
            else "and silently leaves the learning rate as it is"
        ),
        'add `"type"`, or remove the section',
        fix=_typed(section),
        where="key",
    )


def _typed(section: Key) -> Fix | None:
    if not section.section:
        return section.delete("remove the empty section")
    kind = "WarmupDecayLR" if "total_num_steps" in section["params"] else "WarmupLR"
    return None if "type" in section else section["type"].set(f'"{kind}"', f"use {kind}", safe=False)
