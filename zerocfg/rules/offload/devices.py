"""ZC5xx: optimizer states and parameters in host memory.

Its options are in :mod:`zerocfg.rules.offload.keys`, NVMe in :mod:`zerocfg.rules.offload.nvme`.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import OFF_WORDS
from zerocfg.catalog.versions import admits, only_below
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument
from zerocfg.rules.effects import (
    TRAINERS,
    accelerate_section,
    admitted,
    admitting,
    anchor,
    edited,
    effective,
    failures,
    present,
    section,
    stage_of,
    told,
    under_deepspeed_launcher,
)
from zerocfg.rules.proof import at_least, crashes, shows
from zerocfg.run.engine import number
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

PARTS = ("offload_optimizer", "offload_param")
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 2%s}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\noptim: %s\n"
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: %s\n"


def device(run: Run, part: str) -> object:
    """Where a part lives: "cpu", "nvme", or something that offloads nothing."""
    return effective(run, f"zero_optimization.{part}.device")


def on_host(run: Run, part: str) -> bool:
    return device(run, part) in ("cpu", "nvme")


def number_of(value: object) -> float | None:
    """A plain number of a size that a machine can hold, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -1e18 < value < 1e18 else None


def place(run: Run, part: str) -> tuple[Location, list[Location]]:
    setting = run.effective.get(f"zero_optimization.{part}.device")
    return anchor(run, [setting.origin] if setting else [])


def removed(run: Run, part: str, why: str, *, safe: bool) -> Fix | None:
    """A fix that takes the offloading of a part out of the file that asks for it."""
    if present(run.deepspeed, ("zero_optimization", part)):
        return edited(delete_entry, run.deepspeed, ("zero_optimization", part), why=why, safe=safe)
    path = ("deepspeed_config", f"{part}_device")
    return edited(delete_entry, run.accelerate, path, why=why, safe=safe) if present(run.accelerate, path) else None


@rule(
    "ZC501",
    "offload-not-pinned",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu", "pin_memory": false}'},
        consumer="deepspeed",
    ).finds("warning", 'ds.json: "pin_memory": false'),
    good=Example(
        {"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu", "pin_memory": true}'},
        consumer="deepspeed",
    ),
    proof=shows("init", {"memory.pinned": (0, at_least(10_000_000))}),
    fixable=True,
    references=("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8", "deepspeed/runtime/zero/offload_config.py@0.19.8"),
)
def offload_not_pinned(run: Run) -> Iterator[Finding]:
    """The optimizer is offloaded through memory that the system may page out.

    Copies between the accelerator and pageable memory are slower than from page-locked memory, and cannot overlap
    with computation; every step pays for it.

    What happens: DeepSpeed page-locks none of the buffers that gradients and parameters travel through. `pin_memory`
    is true by default since DeepSpeed 0.19.5; before, it had to be written, for which an accelerate YAML has no key.
    Only a note where the project admits releases on both sides of it.

    Fix: writes true, which needs room in locked host memory (about 8 bytes a parameter in 16-bit training).

    When to ignore: the host has little memory or a low limit on locked memory (`ulimit -l`).
    """
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


@rule(
    "ZC502",
    "parameters-offloaded-below-stage-3",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _DS % '2, "offload_param": {"device": "cpu"}'}, consumer="deepspeed").finds(
            "error", 'ds.json: "device": "cpu"', 2, 3, 3
        ),
        Example(
            {"accelerate.yaml": _YAML % 2 + "  offload_param_device: cpu\n"},
            consumer="accelerate",
            proof=shows(
                "init", {"config.zero_optimization.offload_param.device": ("cpu", "none"), "memory.pinned": (0, 0)}
            ),
        ).finds("error", "accelerate.yaml: offload_param_device: cpu", 2, 3, 3),
    ),
    good=Example(
        {
            "ds.json": _DS
            % '3, "stage3_gather_16bit_weights_on_model_save": true, "offload_param": {"device": "cpu"}, '
            '"offload_optimizer": {"device": "cpu"}'
        },
        consumer="deepspeed",
    ),
    proof=shows(
        "init",
        {"engine.zero_config.offload_param.device": ("cpu", "cpu"), "memory.pinned": (0, at_least(2_000_000))},
    ),
    fixable=True,
    references=("deepspeedai/DeepSpeed#2174", "wenet-e2e/wenet#2499"),
)
def parameters_offloaded_below_stage_3(run: Run) -> Iterator[Finding]:
    """`offload_param` at a stage below 3.

    Whoever writes it counts on accelerator memory that is not freed: the job runs out of memory, or the batch is
    planned too large.

    What happens: nothing. Parameters are sharded, and can be moved away, at stage 3 only; below it DeepSpeed
    ignores the section without a word, makes no host buffer and keeps the parameters on the accelerator.

    Fix: removes it, which changes nothing. To free the memory, use stage 3.

    When to ignore: the stage is raised to 3 on the command line of another job that shares the file.
    """
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


@rule(
    "ZC503",
    "optimizer-offloaded-without-zero",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML % 0 + "  offload_optimizer_device: cpu\n"}, consumer="accelerate").finds(
        "error", "accelerate.yaml: offload_optimizer_device: cpu", 0, 1, 2, 3
    ),
    good=Example({"accelerate.yaml": _YAML % 0 + "  offload_optimizer_device: none\n"}, consumer="accelerate"),
    proof=shows("init", {"engine.optimizer": ("DeepSpeedCPUAdam", "AdamW")}),
    fixable=True,
)
def optimizer_offloaded_without_zero(run: Run) -> Iterator[Finding]:
    """`offload_optimizer` at stage 0.

    No memory is freed, and the optimizer is another than the one that was asked for.

    What happens: nothing is offloaded, but the optimizer is replaced by DeepSpeedCPUAdam all the same, which then
    is given parameters that lie on the accelerator.

    Fix: removes the offloading, which leaves the optimizer alone. The other way out is stage 1, 2 or 3.

    When to ignore: never; without ZeRO there is nothing to gain from it.
    """
    if stage_of(run) == 0 and device(run, "offload_optimizer") in ("cpu", "nvme"):
        location, related = place(run, "offload_optimizer")
        yield Finding(
            location,
            "the optimizer is not offloaded at stage 0, yet replaced by DeepSpeedCPUAdam",
            "use stage 1, 2 or 3, or remove it",
            related,
            fix=removed(run, "offload_optimizer", "do not offload", safe=False),
        )


@rule(
    "ZC509",
    "ratio-below-stage-3",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}'}, consumer="deepspeed"
    ).finds("error", 'ds.json: "ratio": 0.5', "0.5", 3, 2, 3),
    good=Example({"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu"}'}, consumer="deepspeed"),
    proof=crashes("parse", "[Pp]artial offloading only supported for ZeRO Stage 3"),
    fixable=True,
    versions="deepspeed>=0.15.0",
)
def ratio_below_stage_3(run: Run) -> Iterator[Finding]:
    """A partial offload (`ratio` below 1) at another stage than 3.

    The job ends before the model is used. Stages 1 and 2 keep the optimizer as one piece.

    What happens: `Partial offloading only supported for ZeRO Stage 3.` when DeepSpeed reads the config.

    Fix: removes the ratio, so that the whole optimizer is offloaded.
    """
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


@rule(
    "ZC510",
    "optimizer-replaced-by-cpu-adam",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _AUTO_DS % ', "offload_optimizer": {"device": "cpu"}', "recipe.yaml": _RECIPE % "sgd"},
        consumer="transformers",
    ).finds("error", "recipe.yaml: optim: sgd", also=('ds.json: "device": "cpu"',)),
    good=Example({"ds.json": _AUTO_DS % "", "recipe.yaml": _RECIPE % "sgd"}, consumer="transformers"),
    proof=shows("init", {"engine.optimizer": ("DeepSpeedCPUAdam", "SGD")}),
    consumers=TRAINERS,
    fixable=True,
    references=("accelerate/accelerator.py@1.15.0", "huggingface/transformers#22043"),
)
def optimizer_replaced_by_cpu_adam(run: Run) -> Iterator[Finding]:
    """Optimizer offload replaces the optimizer that the training arguments name.

    The model is trained by another algorithm than the one that was chosen, with a learning rate that was chosen for
    that one; nothing in the log says so.

    What happens: with `offload_optimizer` accelerate builds DeepSpeedCPUAdam (or its Adagrad and Lion twins) in
    place of whatever optimizer it is given, without a word. `optim: sgd` trains with Adam.

    Fix: writes `"zero_force_ds_cpu_optimizer": false` into the DeepSpeed config, which keeps the optimizer, at the
    price of a slow step.

    When to ignore: Adam was meant, and the name in the training arguments is a leftover.
    """
    asked = argument(run, "optim")
    if asked is None or asked.held not in _REPLACED or device(run, "offload_optimizer") not in ("cpu", "nvme"):
        return
    forced = effective(run, "zero_force_ds_cpu_optimizer")
    if forced is not True or effective(run, "engine") != "deepspeed":
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


@rule(
    "ZC511",
    "offload-null",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _AUTO_DS % ', "offload_optimizer": null', "recipe.yaml": _RECIPE % "adamw_torch"},
        consumer="transformers",
    ).finds("error", 'ds.json: "offload_optimizer": null'),
    good=Example({"ds.json": _AUTO_DS % "", "recipe.yaml": _RECIPE % "adamw_torch"}, consumer="transformers"),
    proof=crashes("init", "AttributeError: 'NoneType' object has no attribute 'get'"),
    fixable=True,
)
def offload_null(run: Run) -> Iterator[Finding]:
    """`"offload_optimizer": null`, read by accelerate or the Trainer.

    The job ends when the optimizer is prepared, after the model was loaded.

    What happens: DeepSpeed takes null for absent, but accelerate looks into the section and stops:
    `AttributeError: 'NoneType' object has no attribute 'get'`.

    Fix: leaves the section out, which means the same.
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
