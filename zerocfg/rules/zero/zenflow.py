"""ZC4xx: ZenFlow, the optimizer offload that updates important gradients first."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, at, rule
from zerocfg.rules.effects import effective_value, stage_of, under_trainer
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.offload.devices import device, offload, on_host
from zerocfg.rules.subjects import given_by
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import number

_ADAMW = '{"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}'


def _zenflow(run: Run) -> Key | None:
    """The section, also where it is empty: its presence switches ZenFlow on."""
    key = deepspeed(run, "zero_optimization", "zenflow")
    return key if isinstance(key.value, dict) else None


ZENFLOW = given_by(_zenflow, config="deepspeed")


@rule("ZC431", "zenflow-without-offload", Severity.ERROR, ZENFLOW)
def zenflow_without_offload(zenflow: Key) -> Iterator[Finding]:
    part = offload(zenflow.run, "offload_optimizer")
    if stage_of(zenflow.run) not in (1, 2) or device(zenflow.run, part.name) != "none":
        return
    written = isinstance(part.value, dict)
    key, text = (part["device"], '"cpu"') if written else (part, '{"device": "cpu"}')
    yield zenflow.finding(
        "`zenflow` needs the optimizer on the CPU; DeepSpeed stops when the engine is built",
        'add "offload_optimizer": {"device": "cpu"}, or remove `zenflow`',
        fix=key.set(text, "offload the optimizer", safe=False),
        where="key",
    )


@rule("ZC432", "zenflow-interval-and-strategy", Severity.ERROR, ZENFLOW)
def zenflow_interval_and_strategy(zenflow: Key) -> Iterator[Finding]:
    strategy, interval = zenflow.get("select_strategy", "auto"), zenflow.get("select_interval", "auto")
    if strategy == "auto" and isinstance(interval, int) and not isinstance(interval, bool):
        yield zenflow["select_interval"].finding(
            f'`select_interval` {interval} needs a `select_strategy`: under "auto" DeepSpeed refuses a number',
            'write "select_strategy": "step" or "epoch", or remove the interval',
            fix=zenflow["select_strategy"].set('"step"', "count the interval in steps", safe=False),
        )
    elif strategy in ("step", "epoch") and interval == "auto":
        yield zenflow["select_strategy"].finding(
            f'`select_strategy: "{strategy}"` needs a number as `select_interval`; DeepSpeed stops at "auto"',
            "write the interval as a number",
            fix=zenflow["select_strategy"].set('"auto"', "leave the choice to ZenFlow", safe=False),
        )


@rule("ZC433", "zenflow-selects-too-often", Severity.ERROR, ZENFLOW)
def zenflow_selects_too_often(zenflow: Key) -> Iterator[Finding]:
    if zenflow.get("select_strategy") != "step":
        return
    key, other = zenflow["select_interval"], zenflow["update_interval"]
    select, update = key.value, other.value
    if isinstance(select, int) and isinstance(update, int) and 0 < select < update:
        yield key.finding(
            f"`select_interval` {select} is shorter than `update_interval` {update}; DeepSpeed refuses that",
            f"write at least {update}",
            [other.at(label="the update interval")],
            key.replace(str(update), f"select every {update} steps", safe=False),
        )


@rule("ZC434", "zenflow-replaces-accumulation", Severity.ERROR, ZENFLOW)
def zenflow_replaces_accumulation(zenflow: Key) -> Iterator[Finding]:
    setting = zenflow.run.effective.get("gradient_accumulation_steps")
    if setting is None or stage_of(zenflow.run) not in (1, 2, 3):
        return
    steps, update = setting.value, zenflow.get("update_interval", "auto")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps <= 1 or update == steps:
        return
    if update != "auto" and not isinstance(number(update), int):
        return
    key = zenflow["update_interval"]
    becomes = "0 (its default, auto)" if not key else 0 if update == "auto" else update
    other = at(setting.origin, "the accumulation")
    yield (key or zenflow).finding(
        f"gradients are accumulated over {steps} steps, but ZenFlow's `update_interval` makes that {becomes}",
        f'write "update_interval": {steps}',
        [other] if other is not None else [],
        key.set(str(steps), "update as often as gradients are accumulated", safe=False),
    )


@rule("ZC435", "zenflow-without-optimizer", Severity.ERROR, ZENFLOW)
def zenflow_without_optimizer(zenflow: Key) -> Iterator[Finding]:
    optimizer = deepspeed(zenflow.run, "optimizer")
    if stage_of(zenflow.run) not in (1, 2) or not on_host(zenflow.run, "offload_optimizer"):
        return
    if optimizer.value is None or (isinstance(optimizer.value, dict) and optimizer.get("params") is None):
        fillable = under_trainer(zenflow.run) and not optimizer
        yield zenflow.finding(
            "`zenflow` takes its optimizer from `optimizer.params`, which is not there; the engine cannot be built",
            'add an "optimizer" of type AdamW with its "params"',
            fix=optimizer.set(_ADAMW, "let ZenFlow build AdamW", safe=False) if fillable else None,
            where="key",
        )


@rule("ZC436", "zenflow-at-stage-0", Severity.ERROR, ZENFLOW)
def zenflow_at_stage_0(zenflow: Key) -> Iterator[Finding]:
    if stage_of(zenflow.run) == 0:
        yield zenflow.finding(
            "`zenflow` needs ZeRO, which is off at stage 0; the first step stops with an AttributeError",
            "use stage 1 or 2 with optimizer offload, or remove `zenflow`",
            where="key",
        )


@rule("ZC437", "zenflow-offload-without-overlap", Severity.ERROR, ZENFLOW)
def zenflow_offload_without_overlap(zenflow: Key) -> Iterator[Finding]:
    overlap = deepspeed(zenflow.run, "zero_optimization", "overlap_comm")
    if stage_of(zenflow.run) not in (1, 2) or not zenflow["offload"].on:
        return
    if (
        on_host(zenflow.run, "offload_optimizer")
        and effective_value(zenflow.run, "zero_optimization.overlap_comm") is False
    ):
        yield zenflow["offload"].finding(
            "`zenflow.offload` needs `overlap_comm`, which is off; DeepSpeed stops when the engine is built",
            'write "overlap_comm": true, or remove `offload`',
            fix=overlap.set("true", "overlap the communication", safe=False),
        )
