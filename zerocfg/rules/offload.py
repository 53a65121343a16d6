"""ZC5xx: optimizer states and parameters in host memory. NVMe is in :mod:`zerocfg.rules.nvme`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    TRAINERS,
    anchor,
    edited,
    effective,
    failures,
    recipe_data,
    section,
    stage_of,
    told,
)
from zerocfg.rules.proof import cited, crashes, shows
from zerocfg.rules.versions import admits
from zerocfg.run.engine import FALSE_WORDS, number
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, replace_value

PARTS = ("offload_optimizer", "offload_param")
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 2%s}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\noptim: %s\n"
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: %s\n"


def device(run: Run, part: str) -> Any:
    """Where a part lives: "cpu", "nvme", or something that offloads nothing."""
    return effective(run, f"zero_optimization.{part}.device")


def place(run: Run, part: str) -> tuple[Location, list[Location]]:
    setting = run.effective.get(f"zero_optimization.{part}.device")
    return anchor(run, [setting.origin] if setting else [])


@rule(
    "ZC501",
    "offload-not-pinned",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu", "pin_memory": false}'},
        consumer="deepspeed",
    ),
    good=Example(
        {"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu", "pin_memory": true}'},
        consumer="deepspeed",
    ),
    proof=shows("parse", {"engine.zero_config.offload_optimizer.pin_memory": (False, True)}),
    fixable=True,
)
def offload_not_pinned(run: Run) -> Iterator[Finding]:
    """Offloading through pageable host memory.

    Copies between the accelerator and pageable memory are slower than from page-locked memory, and cannot overlap
    with computation. `pin_memory` is true by default since DeepSpeed 0.19.5; before, it had to be written.

    When to ignore: the host has little memory or a low limit on locked memory (`ulimit -l`).
    """
    for part in PARTS:
        written = section(run, "zero_optimization", part)
        if run.deepspeed is None or written.get("device") not in ("cpu", "nvme"):
            continue
        path = ("zero_optimization", part, "pin_memory")
        value = written.get("pin_memory")
        if value is False or (isinstance(value, str) and value.lower() in FALSE_WORDS):
            yield Finding(
                Location(run.deepspeed, path),
                f"`{part}` goes through memory that is not pinned: slower copies that overlap with nothing",
                "write true; it needs room in locked host memory",
                fix=edited(replace_value, run.deepspeed, path, "true", why="pin the memory", safe=False),
            )
        elif "pin_memory" not in written and admits(run.versions.get("deepspeed"), below="0.19.5"):
            yield Finding(
                Location(run.deepspeed, path[:2]),
                f"`{part}` without `pin_memory`, which is false before DeepSpeed 0.19.5 (declared: "
                f"{run.versions['deepspeed']}): slower copies that overlap with nothing",
                'write "pin_memory": true',
            )


@rule(
    "ZC502",
    "parameters-offloaded-below-stage-3",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '2, "offload_param": {"device": "cpu"}'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % '2, "offload_param": {"device": "none"}'}, consumer="deepspeed"),
    proof=cited("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8"),
)
def parameters_offloaded_below_stage_3(run: Run) -> Iterator[Finding]:
    """`offload_param` at a stage below 3.

    What happens: nothing. Parameters are sharded, and can be moved away, at stage 3 only; below it DeepSpeed
    ignores the section and keeps them on the accelerator.
    """
    stage, where = stage_of(run), device(run, "offload_param")
    if stage in (0, 1, 2) and where in ("cpu", "nvme"):
        location, related = place(run, "offload_param")
        yield Finding(
            location,
            f"parameters are not offloaded at stage {stage}: DeepSpeed silently ignores `offload_param` to "
            f"{where} below "
            "stage 3",
            "use stage 3, or remove it",
            related,
        )


@rule(
    "ZC503",
    "optimizer-offloaded-without-zero",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML % 0 + "  offload_optimizer_device: cpu\n"}, consumer="accelerate"),
    good=Example({"accelerate.yaml": _YAML % 0 + "  offload_optimizer_device: none\n"}, consumer="accelerate"),
    proof=shows("init", {"engine.optimizer": ("DeepSpeedCPUAdam", "AdamW")}),
)
def optimizer_offloaded_without_zero(run: Run) -> Iterator[Finding]:
    """`offload_optimizer` at stage 0.

    What happens: nothing is offloaded, but the optimizer is replaced by DeepSpeedCPUAdam all the same, which then
    is given parameters that lie on the accelerator.
    """
    if stage_of(run) == 0 and device(run, "offload_optimizer") in ("cpu", "nvme"):
        location, related = place(run, "offload_optimizer")
        yield Finding(
            location,
            "the optimizer is not offloaded at stage 0, yet replaced by DeepSpeedCPUAdam",
            "use stage 1, 2 or 3, or remove it",
            related,
        )


@rule(
    "ZC509",
    "ratio-below-stage-3",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu"}'}, consumer="deepspeed"),
    proof=crashes("parse", "[Pp]artial offloading only supported for ZeRO Stage 3"),
)
def ratio_below_stage_3(run: Run) -> Iterator[Finding]:
    """A partial offload (`ratio` below 1) at another stage than 3.

    What happens: a ValidationError when DeepSpeed reads the config.
    """
    stage, path = stage_of(run), ("zero_optimization", "offload_optimizer", "ratio")
    ratio = section(run, *path[:2]).get("ratio")
    if run.deepspeed is not None and stage in (0, 1, 2) and isinstance(ratio, (int, float)) and ratio < 1:
        yield Finding(
            Location(run.deepspeed, path),
            f"`ratio` {ratio} needs stage 3; DeepSpeed refuses it at stage {number(stage)}",
            "use stage 3 or remove the ratio",
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
)


@rule(
    "ZC510",
    "optimizer-replaced-by-cpu-adam",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _AUTO_DS % ', "offload_optimizer": {"device": "cpu"}', "recipe.yaml": _RECIPE % "sgd"},
        consumer="transformers",
    ),
    good=Example({"ds.json": _AUTO_DS % "", "recipe.yaml": _RECIPE % "sgd"}, consumer="transformers"),
    proof=shows("init", {"engine.optimizer": ("DeepSpeedCPUAdam", "SGD")}),
    consumers=TRAINERS,
)
def optimizer_replaced_by_cpu_adam(run: Run) -> Iterator[Finding]:
    """Optimizer offload replaces the optimizer that the training arguments name.

    What happens: with `offload_optimizer` accelerate builds DeepSpeedCPUAdam (or its Adagrad and Lion twins) in
    place of whatever optimizer it is given, without a word. `optim: sgd` trains with Adam.

    `"zero_force_ds_cpu_optimizer": false` in the DeepSpeed config keeps the optimizer, at the price of a slow step.
    """
    name = recipe_data(run).get("optim")
    if name not in _REPLACED or device(run, "offload_optimizer") not in ("cpu", "nvme") or run.recipe is None:
        return
    forced = effective(run, "zero_force_ds_cpu_optimizer")
    if forced is not True or effective(run, "engine") != "deepspeed":
        return
    if run.deepspeed is not None and "optimizer" in (run.deepspeed.data() or {}):
        return
    location, related = place(run, "offload_optimizer")
    yield Finding(
        Location(run.recipe, ("optim",)),
        f"`optim: {name}` is silently replaced by DeepSpeedCPUAdam, because the optimizer is offloaded",
        'use an AdamW, do not offload, or write "zero_force_ds_cpu_optimizer": false in the DeepSpeed config',
        [location, *related],
    )


@rule(
    "ZC511",
    "offload-null",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _AUTO_DS % ', "offload_optimizer": null', "recipe.yaml": _RECIPE % "adamw_torch"},
        consumer="transformers",
    ),
    good=Example({"ds.json": _AUTO_DS % "", "recipe.yaml": _RECIPE % "adamw_torch"}, consumer="transformers"),
    proof=crashes("init", "NoneType"),
    fixable=True,
)
def offload_null(run: Run) -> Iterator[Finding]:
    """`"offload_optimizer": null`, read by accelerate or the Trainer.

    What happens: DeepSpeed takes null for absent, but accelerate looks into the section and stops:
    `AttributeError: 'NoneType' object has no attribute 'get'`.
    """
    for failure in failures(run, "ZC511"):
        finding = told(run, failure, "leave the section out")
        place = finding.location
        finding.fix = edited(delete_entry, place.file, place.path, why="leave the section out")
        yield finding


RULES = (
    offload_not_pinned,
    parameters_offloaded_below_stage_3,
    optimizer_offloaded_without_zero,
    ratio_below_stage_3,
    optimizer_replaced_by_cpu_adam,
    offload_null,
)
