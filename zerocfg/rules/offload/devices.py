"""ZC5xx: optimizer states and parameters in host memory.

Its options are in :mod:`zerocfg.rules.offload.keys`, NVMe in :mod:`zerocfg.rules.offload.nvme`.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import OFF_WORDS
from zerocfg.catalog.versions import admits, only_below
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument
from zerocfg.rules.effects import (
    TRAINERS,
    accelerate_section,
    admitted,
    admitting,
    effective_value,
    section,
    stage_of,
    under_deepspeed_launcher,
)
from zerocfg.rules.failures import failures, primary_location, reported
from zerocfg.rules.fixes import edited, present
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import number
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

PARTS = ("offload_optimizer", "offload_param")


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


def place(run: Run, part: str) -> tuple[Location, list[Location]]:
    setting = run.effective.get(f"zero_optimization.{part}.device")
    return primary_location(run, [setting.origin] if setting else [])


def removed(run: Run, part: str, why: str, *, safe: bool) -> Fix | None:
    """A fix that takes the offloading of a part out of the file that asks for it."""
    if present(run.deepspeed, ("zero_optimization", part)):
        return edited(delete_entry, run.deepspeed, ("zero_optimization", part), why=why, safe=safe)
    path = ("deepspeed_config", f"{part}_device")
    return edited(delete_entry, run.accelerate, path, why=why, safe=safe) if present(run.accelerate, path) else None


@rule("ZC501", "offload-not-pinned", Severity.WARNING)
def offload_not_pinned(run: Run) -> Iterator[Finding]:
    part = "offload_optimizer"
    written = section(run, "zero_optimization", part)
    if run.deepspeed is None:
        yield from _never_pinned(run)
    if run.deepspeed is None or written.get("device") not in ("cpu", "nvme") or stage_of(run) == 0:
        return
    if run.hardware is not None and run.hardware.memlock is not None:
        return  # a limit is known: the author may well have chosen
    path = ("zero_optimization", part, "pin_memory")
    value = written.get("pin_memory")
    off = isinstance(value, (bool, int, float)) and not value
    if off or (isinstance(value, str) and value.lower() in OFF_WORDS):
        yield Finding(
            Location(run.deepspeed, path),
            f"`{part}` goes through memory that is not pinned: slower copies that overlap with nothing",
            "write true; it needs room in locked host memory",
            fix=edited(replace_value, run.deepspeed, path, "true", why="pin the memory", safe=False),
        )
    elif "pin_memory" not in written and admits(run.versions.get("deepspeed"), below="0.19.5"):
        yield Finding(
            Location(run.deepspeed, path[:2]),
            f"`{part}` without `pin_memory`, which is false before DeepSpeed 0.19.5 ({admitted(run, 'deepspeed')}): "
            "slower copies that overlap with nothing",
            'write "pin_memory": true',
            admitting(run, "deepspeed"),
            fix=edited(insert_entry, run.deepspeed, path[:2], "pin_memory", "true", why="pin the memory", safe=False),
            severity=_unless_newer(run),
        )


def _unless_newer(run: Run) -> Severity | None:
    """What is installed today pins by itself where the project admits it."""
    return None if only_below(run.versions.get("deepspeed"), "0.19.5") else Severity.NOTE


def _never_pinned(run: Run) -> Iterator[Finding]:
    """`offload_optimizer_device` of an accelerate YAML, beside which `pin_memory` cannot be written."""
    where = accelerate_section(run).get("offload_optimizer_device")
    if run.accelerate is None or where not in ("cpu", "nvme") or not under_deepspeed_launcher(run):
        return
    if run.hardware is not None and run.hardware.memlock is not None:
        return
    if stage_of(run) in (1, 2, 3) and admits(run.versions.get("deepspeed"), below="0.19.5"):
        yield Finding(
            Location(run.accelerate, ("deepspeed_config", "offload_optimizer_device")),
            f"`offload_optimizer_device: {where}` never pins its memory before DeepSpeed 0.19.5 "
            f"({admitted(run, 'deepspeed')}): slower copies that overlap with nothing, and this file has no key for it",
            'write the section in a DeepSpeed JSON, with "pin_memory": true',
            admitting(run, "deepspeed"),
            severity=_unless_newer(run),
        )


@rule("ZC502", "parameters-offloaded-below-stage-3", Severity.ERROR)
def parameters_offloaded_below_stage_3(run: Run) -> Iterator[Finding]:
    stage, where = stage_of(run), device(run, "offload_param")
    if stage in (0, 1, 2) and where in ("cpu", "nvme"):
        location, related = place(run, "offload_param")
        yield Finding(
            location,
            f"parameters are not offloaded at stage {stage}: DeepSpeed silently ignores `offload_param` to "
            f"{where} below stage 3",
            "use stage 3, or remove it",
            related,
            fix=removed(run, "offload_param", "remove what has no effect", safe=True),
        )


@rule("ZC503", "optimizer-offloaded-without-zero", Severity.ERROR)
def optimizer_offloaded_without_zero(run: Run) -> Iterator[Finding]:
    if stage_of(run) == 0 and device(run, "offload_optimizer") in ("cpu", "nvme"):
        location, related = place(run, "offload_optimizer")
        yield Finding(
            location,
            "the optimizer is not offloaded at stage 0, yet replaced by DeepSpeedCPUAdam",
            "use stage 1, 2 or 3, or remove it",
            related,
            fix=removed(run, "offload_optimizer", "do not offload", safe=False),
        )


@rule("ZC509", "ratio-below-stage-3", Severity.ERROR, versions="deepspeed>=0.15.0")
def ratio_below_stage_3(run: Run) -> Iterator[Finding]:
    stage, path = stage_of(run), ("zero_optimization", "offload_optimizer", "ratio")
    ratio = section(run, *path[:2]).get("ratio")
    if run.deepspeed is not None and stage in (0, 1, 2) and isinstance(ratio, (int, float)) and ratio < 1:
        yield Finding(
            Location(run.deepspeed, path),
            f"`ratio` {ratio} needs stage 3; DeepSpeed refuses it at stage {number(stage)}",
            "use stage 3 or remove the ratio",
            fix=edited(delete_entry, run.deepspeed, path, why="offload all of it", safe=False),
        )


_REPLACED = (
    "sgd",
    "adafactor",
    "rmsprop",
    "lomo",
    "adalomo",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "paged_adamw_8bit",
    "ademamix",
    "grokadamw",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "schedule_free_adamw",
    "schedule_free_radam",
    "schedule_free_sgd",
    "stable_adamw",
)


@rule("ZC510", "optimizer-replaced-by-cpu-adam", Severity.ERROR, consumers=TRAINERS)
def optimizer_replaced_by_cpu_adam(run: Run) -> Iterator[Finding]:
    asked = argument(run, "optim")
    if asked is None or asked.held not in _REPLACED or device(run, "offload_optimizer") not in ("cpu", "nvme"):
        return
    forced = effective_value(run, "zero_force_ds_cpu_optimizer")
    if forced is not True or effective_value(run, "engine") != "deepspeed":
        return
    if run.deepspeed is not None and "optimizer" in (run.deepspeed.data() or {}):
        return
    location, related = place(run, "offload_optimizer")
    yield Finding(
        asked.at("entry"),
        f"`optim: {asked.held}` is silently replaced by DeepSpeedCPUAdam, because the optimizer is offloaded",
        'use an AdamW, do not offload, or write "zero_force_ds_cpu_optimizer": false in the DeepSpeed config',
        [location, *related],
        fix=_unforced(run),
    )


def _unforced(run: Run) -> Fix | None:
    """Let the optimizer be."""
    key, why = "zero_force_ds_cpu_optimizer", "keep the optimizer of the training arguments"
    if present(run.deepspeed, (key,)):
        return edited(replace_value, run.deepspeed, (key,), "false", why=why, safe=False)
    return edited(insert_entry, run.deepspeed, (), key, "false", why=why, safe=False)


@rule("ZC511", "offload-null", Severity.ERROR)
def offload_null(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC511"):
        finding = reported(run, failure, "leave the section out")
        place = finding.location
        finding.fix = edited(delete_entry, place.file, place.path, why="leave the section out")
        yield finding
