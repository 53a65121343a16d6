"""ZC2xx: what a schedule of the DeepSpeed config makes of the learning rate: its peak, its warm-up, its decay."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import admits
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.batch.hyperparameters import number
from zerocfg.rules.batch.scheduler import PARAMS, parameters, scheduler_type
from zerocfg.rules.effects import TRAINERS, describe_origin, effective_value, section
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited
from zerocfg.run.model import Run
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import Path

_WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_RATE: Path = ("optimizer", "params", "lr")
_NULL_IS_THE_OPTIMIZERS = "0.17.2"
"""The release of DeepSpeed from which on a peak of null is the optimizer's rate; earlier ones stop at it."""


@rule("ZC229", "warmup-longer-than-schedule", Severity.WARNING)
def warmup_longer_than_schedule(run: Run) -> Iterator[Finding]:
    kind, params = scheduler_type(run), parameters(run)
    if kind not in ("WarmupDecayLR", "WarmupCosineLR") or params is None or run.deepspeed is None:
        return
    total = effective_value(run, "scheduler.params.total_num_steps")
    steps = effective_value(run, "scheduler.params.warmup_num_steps") if "warmup_num_steps" in params else 1000
    if not number(total) or not number(steps) or total >= steps or total <= 0:
        return
    written = "warmup_num_steps" in params
    yield Finding(
        Location(run.deepspeed, (*PARAMS, "warmup_num_steps") if written else PARAMS, "entry" if written else "key"),
        f"the warm-up takes {show(steps)} steps{'' if written else ', by default,'} but the schedule ends after "
        f"{show(total)}: the learning rate never reaches its peak",
        "write a `warmup_num_steps` below total_num_steps",
        [Location(run.deepspeed, (*PARAMS, "total_num_steps"), label="the end")],
    )


@rule("ZC230", "peak-ignores-learning-rate", Severity.ERROR)
def peak_ignores_learning_rate(run: Run) -> Iterator[Finding]:
    params = parameters(run)
    if scheduler_type(run) != "WarmupDecayLR" or params is None or "warmup_max_lr" in params or run.deepspeed is None:
        return
    rate = section(run, "optimizer", "params").get("lr")
    if run.consumer in TRAINERS:
        rate = arguments_of(run).setting("learning_rate").value
    if number(rate) and rate == 1e-3:
        return
    text = "null"
    if run.consumer in (*TRAINERS, "accelerate"):
        text = '"auto"'
    elif "deepspeed" in run.versions and admits(run.versions["deepspeed"], below=_NULL_IS_THE_OPTIMIZERS):
        text = show(rate) if number(rate) else ""
    known = f" although the optimizer's learning rate is {show(rate)}" if number(rate) else ""
    yield Finding(
        Location(run.deepspeed, PARAMS, "key"),
        f"WarmupDecayLR has no `warmup_max_lr` and silently climbs to its own default, 0.001{known}",
        f'add `"warmup_max_lr": {text}`: the learning rate of the optimizer'
        if text
        else "add `warmup_max_lr`, the learning rate of the optimizer",
        fix=edited(insert_entry, run.deepspeed, PARAMS, "warmup_max_lr", text, why="climb to the optimizer's rate")
        if text
        else None,
        severity=None if number(rate) else Severity.WARNING,
    )


@rule("ZC231", "peak-beats-learning-rate", Severity.WARNING)
def peak_beats_learning_rate(run: Run) -> Iterator[Finding]:
    params, rate = parameters(run), section(run, "optimizer", "params").get("lr")
    if scheduler_type(run) not in ("WarmupLR", "WarmupDecayLR") or params is None or run.deepspeed is None:
        return
    peak = params.get("warmup_max_lr")
    if run.consumer in TRAINERS or not number(rate) or not number(peak) or rate == peak:
        return
    document = run.deepspeed.document
    node = document.get(_RATE) if document is not None else None
    text = document.source.text[node.span.start : node.span.end] if document is not None and node is not None else None
    path: Path = (*PARAMS, "warmup_max_lr")
    yield Finding(
        Location(run.deepspeed, path),
        f"the schedule climbs to {show(peak)}, the optimizer's `lr` is {show(rate)} and never used",
        "write one number in both places",
        [Location(run.deepspeed, _RATE, label="without effect")],
        edited(replace_value, run.deepspeed, path, text, why="climb to the optimizer's rate", safe=False)
        if text
        else None,
    )


@rule("ZC232", "warmup-type-unknown", Severity.ERROR)
def warmup_type_unknown(run: Run) -> Iterator[Finding]:
    params = parameters(run)
    if scheduler_type(run) not in _WARMUPS or params is None or run.deepspeed is None:
        return
    kind = params.get("warmup_type", "log")
    if kind in ("log", "linear", "auto") or not isinstance(kind, str):
        return
    path: Path = (*PARAMS, "warmup_type")
    meant = "log" if kind.lower().startswith("log") else "linear"
    same = kind.strip().lower() == meant
    yield Finding(
        Location(run.deepspeed, path, "value"),
        f"`warmup_type: {show(kind)}` is unknown: DeepSpeed logs that and warms up logarithmically",
        'write "linear" or "log", in lower case',
        fix=edited(replace_value, run.deepspeed, path, f'"{meant}"', why=f'write "{meant}"', safe=same),
    )


@rule("ZC233", "warmup-not-passed-on", Severity.ERROR, consumers=TRAINERS)
def warmup_not_passed_on(run: Run) -> Iterator[Finding]:
    params, kind = parameters(run), scheduler_type(run)
    if kind not in _WARMUPS or params is None or "warmup_num_steps" in params or run.deepspeed is None:
        return
    asked = arguments_of(run).setting("warmup_steps")
    if asked.origin.kind in ("default", "computed") or not number(asked.value) or asked.value == 1000:
        return
    location, related = primary_location(run, [asked.origin])
    yield Finding(
        location,
        f"`warmup_steps: {show(asked.value)}` ({describe_origin(asked.origin)}) does not reach {kind} of "
        f"{run.deepspeed.name}, which has no `warmup_num_steps` and silently warms up for 1000 steps",
        'add `"warmup_num_steps": "auto"` to `scheduler.params`',
        [*related, Location(run.deepspeed, PARAMS, label="no such key here")],
        edited(insert_entry, run.deepspeed, PARAMS, "warmup_num_steps", '"auto"', why="let the Trainer fill it in"),
    )


@rule("ZC236", "decay-without-interval", Severity.ERROR)
def decay_without_interval(run: Run) -> Iterator[Finding]:
    params = parameters(run)
    if scheduler_type(run) != "OneCycle" or params is None or run.deepspeed is None:
        return
    rate, interval = params.get("decay_lr_rate"), params.get("decay_step_size", 0)
    if not number(rate) or rate == 0 or not number(interval) or interval != 0:
        return
    yield Finding(
        Location(run.deepspeed, (*PARAMS, "decay_lr_rate")),
        f"`decay_lr_rate: {show(rate)}` has no effect: `decay_step_size` is 0, which switches the decay off",
        "add `decay_step_size`, the number of steps between two decays",
    )
