"""ZC2xx: what a schedule of the DeepSpeed config makes of the learning rate: its peak, its warm-up, its decay."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import admits
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.batch.scheduler import schedule_of
from zerocfg.rules.effects import TRAINERS, describe_origin, under_trainer, with_accelerate
from zerocfg.rules.key import Key, deepspeed, setting, trainer_argument

_NULL_IS_THE_OPTIMIZERS = "0.17.2"
"""The release of DeepSpeed from which on a peak of null is the optimizer's rate; earlier ones stop at it."""


@rule("ZC229", "warmup-longer-than-schedule", Severity.WARNING, schedule_of("WarmupDecayLR", "WarmupCosineLR"))
def warmup_longer_than_schedule(params: Key) -> Iterator[Finding]:
    key = params["warmup_num_steps"]
    total = setting(params.run, "scheduler.params.total_num_steps").number
    steps = setting(params.run, "scheduler.params.warmup_num_steps").number if key else 1000
    if total is None or steps is None or not 0 < total < steps:
        return
    yield (key or params).finding(
        f"the warm-up takes {show(steps)} steps{'' if key else ', by default,'} but the schedule ends after "
        f"{show(total)}: the learning rate never reaches its peak",
        "write a `warmup_num_steps` below total_num_steps",
        [params["total_num_steps"].at(label="the end")],
        where="entry" if key else "key",
    )


@rule("ZC230", "peak-ignores-learning-rate", Severity.ERROR, schedule_of("WarmupDecayLR"))
def peak_ignores_learning_rate(params: Key) -> Iterator[Finding]:
    if "warmup_max_lr" in params:
        return
    trainer = under_trainer(params.run)
    rate = (
        trainer_argument(params.run, "learning_rate") if trainer else deepspeed(params.run, "optimizer", "params", "lr")
    ).number
    if rate == 1e-3:
        return
    text = '"auto"' if with_accelerate(params.run) else "null"
    declared = params.run.declared("deepspeed") or ""
    if text == "null" and declared and admits(declared, below=_NULL_IS_THE_OPTIMIZERS):
        text = "" if rate is None else show(rate)
    known = "" if rate is None else f" although the optimizer's learning rate is {show(rate)}"
    entry = f'`"warmup_max_lr": {text}`:' if text else "`warmup_max_lr`,"
    yield params.finding(
        f"WarmupDecayLR has no `warmup_max_lr` and silently climbs to its own default, 0.001{known}",
        f"add {entry} the learning rate of the optimizer",
        fix=params["warmup_max_lr"].set(text, "climb to the optimizer's rate") if text else None,
        where="key",
        severity=Severity.WARNING if rate is None else None,
    )


@rule("ZC231", "peak-beats-learning-rate", Severity.WARNING, schedule_of("WarmupLR", "WarmupDecayLR"))
def peak_beats_learning_rate(params: Key) -> Iterator[Finding]:
    rate = deepspeed(params.run, "optimizer", "params", "lr")
    if under_trainer(params.run):
        return
    peak = params["warmup_max_lr"]
    if rate.number is None or peak.number is None or rate.number == peak.number:
        return
    yield peak.finding(
        f"the schedule climbs to {show(peak.value)}, the optimizer's `lr` is {show(rate.value)} and never used",
        "write one number in both places",
        [rate.at(label="without effect")],
        peak.replace(rate.raw, "climb to the optimizer's rate", safe=False),
    )


@rule("ZC232", "warmup-type-unknown", Severity.ERROR, schedule_of("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"))
def warmup_type_unknown(params: Key) -> Iterator[Finding]:
    key = params["warmup_type"]
    if not isinstance(key.value, str) or key.value in ("log", "linear", "auto"):
        return
    meant = "log" if key.value.lower().startswith("log") else "linear"
    yield key.finding(
        f"`warmup_type: {show(key.value)}` is unknown: DeepSpeed logs that and warms up logarithmically",
        'write "linear" or "log", in lower case',
        fix=key.replace(f'"{meant}"', f'write "{meant}"', safe=key.value.strip().lower() == meant),
        where="value",
    )


@rule(
    "ZC233",
    "warmup-not-passed-on",
    Severity.ERROR,
    schedule_of("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"),
    consumers=TRAINERS,
)
def warmup_not_passed_on(params: Key) -> Iterator[Finding]:
    if "warmup_num_steps" in params:
        return
    asked = trainer_argument(params.run, "warmup_steps")
    if not asked or asked.number in (None, 1000):
        return
    yield asked.finding(
        f"`warmup_steps: {show(asked.value)}` ({describe_origin(asked.origin)}) does not reach "
        f"{deepspeed(params.run, 'scheduler').get('type')} of {params.file_name}, which has no `warmup_num_steps` and "
        "silently warms up for 1000 steps",
        'add `"warmup_num_steps": "auto"` to `scheduler.params`',
        [params.at(label="no such key here")],
        params["warmup_num_steps"].set('"auto"', "let the Trainer fill it in"),
    )


@rule("ZC236", "decay-without-interval", Severity.ERROR, schedule_of("OneCycle"))
def decay_without_interval(params: Key) -> Iterator[Finding]:
    rate, interval = params["decay_lr_rate"], params["decay_step_size"]
    if rate.number and (interval.is_number(0) or not interval):
        yield rate.finding(
            f"`decay_lr_rate: {show(rate.value)}` has no effect: `decay_step_size` is 0, which switches the decay off",
            "add `decay_step_size`, the number of steps between two decays",
        )
