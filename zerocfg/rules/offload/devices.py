"""ZC5xx: optimizer states and parameters in host memory.

Its options are in :mod:`zerocfg.rules.offload.keys`, NVMe in :mod:`zerocfg.rules.offload.nvme`.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import OFF_WORDS
from zerocfg.catalog.versions import admits, only_below
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, Subject, rule
from zerocfg.rules.arguments import argument
from zerocfg.rules.effects import TRAINERS, admitted, admitting, effective_value, stage_of, under_deepspeed_launcher
from zerocfg.rules.key import Key, accelerate, deepspeed, setting
from zerocfg.rules.subjects import FailureOfRun, each_failure, given_by, in_zero
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import number

PARTS = ("offload_optimizer", "offload_param")


def offload(run: Run, part: str, *path: str) -> Key:
    """The section of a part in the DeepSpeed config, or a key of it."""
    return deepspeed(run, "zero_optimization", part, *path)


def device(run: Run, part: str) -> object:
    """Where a part lives: "cpu", "nvme", or something that offloads nothing."""
    return effective_value(run, f"zero_optimization.{part}.device")


def on_host(run: Run, part: str) -> bool:
    return device(run, part) in ("cpu", "nvme")


def number_of(value: object) -> float | None:
    """A plain number of a size that a machine can hold, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -1e18 < value < 1e18 else None


def device_key(run: Run, part: str) -> Key:
    """Where it is said where a part lives."""
    return setting(run, f"zero_optimization.{part}.device")


def device_of(part: str) -> Subject[Key]:
    """The same for rules."""
    return given_by(lambda run: device_key(run, part) or None, "run")


def _removed(run: Run, part: str, why: str, *, safe: bool) -> Fix | None:
    """A fix that takes the offloading of a part out of the file that asks for it."""
    key = offload(run, part)
    return (key if key else accelerate(run, "deepspeed_config", f"{part}_device")).delete(why, safe=safe)


@rule("ZC501", "offload-not-pinned", Severity.WARNING, WHOLE_RUN)
def offload_not_pinned(run: Run) -> Iterator[Finding]:
    if run.hardware is not None and run.hardware.memlock is not None:
        return  # a limit is known: the author may well have chosen
    if run.deepspeed is None:
        yield from _never_pinned(run)
    part = "offload_optimizer"
    section = offload(run, part)
    if section.get("device") not in ("cpu", "nvme") or stage_of(run) == 0:
        return
    key = section["pin_memory"]
    off = isinstance(key.value, (bool, int, float)) and not key.value
    if off or (isinstance(key.value, str) and key.value.lower() in OFF_WORDS):
        yield key.finding(
            f"`{part}` goes through memory that is not pinned: slower copies that overlap with nothing",
            "write true; it needs room in locked host memory",
            fix=key.replace("true", "pin the memory", safe=False),
        )
    elif not key and admits(run.declared("deepspeed"), below="0.19.5"):
        yield section.finding(
            f"`{part}` without `pin_memory`, which is false before DeepSpeed 0.19.5 ({admitted(run, 'deepspeed')}): "
            "slower copies that overlap with nothing",
            'write "pin_memory": true',
            admitting(run, "deepspeed"),
            fix=key.set("true", "pin the memory", safe=False),
            severity=_unless_newer(run),
        )


def _unless_newer(run: Run) -> Severity | None:
    """What is installed today pins by itself where the project admits it."""
    return None if only_below(run.declared("deepspeed"), "0.19.5") else Severity.NOTE


def _never_pinned(run: Run) -> Iterator[Finding]:
    """`offload_optimizer_device` of an accelerate YAML, beside which `pin_memory` cannot be written."""
    key = accelerate(run, "deepspeed_config", "offload_optimizer_device")
    if key.value not in ("cpu", "nvme") or not under_deepspeed_launcher(run):
        return
    if stage_of(run) in (1, 2, 3) and admits(run.declared("deepspeed"), below="0.19.5"):
        yield key.finding(
            f"`{key.name}: {key.value}` never pins its memory before DeepSpeed 0.19.5 ({admitted(run, 'deepspeed')}): "
            "slower copies that overlap with nothing, and this file has no key for it",
            'write the section in a DeepSpeed JSON, with "pin_memory": true',
            admitting(run, "deepspeed"),
            severity=_unless_newer(run),
        )


@rule("ZC502", "parameters-offloaded-below-stage-3", Severity.ERROR, device_of("offload_param"))
def parameters_offloaded_below_stage_3(key: Key) -> Iterator[Finding]:
    stage, part = stage_of(key.run), "offload_param"
    if stage in (0, 1, 2) and key.value in ("cpu", "nvme"):
        yield key.finding(
            f"parameters are not offloaded at stage {stage}: DeepSpeed silently ignores `{part}` to "
            f"{key.value} below stage 3",
            "use stage 3, or remove it",
            fix=_removed(key.run, part, "remove what has no effect", safe=True),
        )


@rule("ZC503", "optimizer-offloaded-without-zero", Severity.ERROR, device_of("offload_optimizer"))
def optimizer_offloaded_without_zero(key: Key) -> Iterator[Finding]:
    if stage_of(key.run) == 0 and key.value in ("cpu", "nvme"):
        yield key.finding(
            "the optimizer is not offloaded at stage 0, yet replaced by DeepSpeedCPUAdam",
            "use stage 1, 2 or 3, or remove it",
            fix=_removed(key.run, "offload_optimizer", "do not offload", safe=False),
        )


@rule(
    "ZC509", "ratio-below-stage-3", Severity.ERROR, in_zero("offload_optimizer", "ratio"), versions="deepspeed>=0.15.0"
)
def ratio_below_stage_3(key: Key) -> Iterator[Finding]:
    stage = stage_of(key.run)
    if stage in (0, 1, 2) and isinstance(key.value, (int, float)) and key.value < 1:
        yield key.finding(
            f"`ratio` {key.value} needs stage 3; DeepSpeed refuses it at stage {number(stage)}",
            "use stage 3 or remove the ratio",
            fix=key.delete("offload all of it", safe=False),
        )


_REPLACED = frozenset(
    "sgd adafactor rmsprop lomo adalomo adamw_bnb_8bit adamw_8bit paged_adamw_8bit ademamix grokadamw rmsprop_bnb "
    "rmsprop_bnb_8bit schedule_free_adamw schedule_free_radam schedule_free_sgd stable_adamw".split()
)


@rule("ZC510", "optimizer-replaced-by-cpu-adam", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def optimizer_replaced_by_cpu_adam(run: Run) -> Iterator[Finding]:
    asked = argument(run, "optim")
    if asked is None or not isinstance(asked.held, str) or asked.held not in _REPLACED:
        return
    if not on_host(run, "offload_optimizer") or effective_value(run, "engine") != "deepspeed":
        return
    forced = "zero_force_ds_cpu_optimizer"
    if effective_value(run, forced) is not True or "optimizer" in deepspeed(run):
        return
    yield Finding(
        asked.at("entry"),
        f"`optim: {asked.held}` is silently replaced by DeepSpeedCPUAdam, because the optimizer is offloaded",
        'use an AdamW, do not offload, or write "zero_force_ds_cpu_optimizer": false in the DeepSpeed config',
        [device_key(run, "offload_optimizer").at()],
        fix=deepspeed(run, forced).set("false", "keep the optimizer of the training arguments", safe=False),
    )


@rule("ZC511", "offload-null", Severity.ERROR, each_failure("ZC511"))
def offload_null(predicted: FailureOfRun) -> Iterator[Finding]:
    why = "leave the section out"
    yield predicted.finding(why, predicted.keys[0].delete(why))
