"""ZC5xx: options of offloading that nobody looks at, or that do not do what they seem to."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import OFF_WORDS
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import may_be_on
from zerocfg.rules.effects import (
    anchor,
    edited,
    present,
    section,
    stage_of,
    without,
)
from zerocfg.rules.offload.devices import PARTS, device
from zerocfg.rules.proof import Between, at_least, crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_ZERO = ("zero_optimization",)
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_ADAM = (
    '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4%s}}, '
    '"zero_optimization": {"stage": %s}}\n'
)
_TRAINER = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", %s'
    '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\noptim: adamw_torch\n"
_CPU = '"offload_optimizer": {"device": "cpu"%s}'
_SAVED = '3, "stage3_gather_16bit_weights_on_model_save": true, "reduce_bucket_size": 1000000, '


@rule(
    "ZC516",
    "super-offload-below-stage-3",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % ("2, " + _CPU % ', "super_offload": true')}, consumer="deepspeed").finds(
        "error", 'ds.json: "super_offload": true', 3, 2, 3
    ),
    good=Example({"ds.json": _DS % ("2, " + _CPU % "")}, consumer="deepspeed"),
    proof=shows(
        "step",
        {
            "engine.zero_config.offload_optimizer.super_offload": (True, False),
            "uses.zero_config.offload_optimizer.super_offload": (0, 0),
        },
    ),
    fixable=True,
    references=("deepspeed/runtime/engine.py@0.19.8",),
)
def super_offload_below_stage_3(run: Run) -> Iterator[Finding]:
    """`super_offload` at stage 1 or 2.

    The speed that it promises is counted on and never comes.

    What happens: nothing. Only stage 3 has a SuperOffload; stages 1 and 2 offload as they always do, without a word.

    Fix: removes it. To get it, use stage 3.

    When to ignore: another variant of this file uses stage 3.
    """
    path = (*_ZERO, "offload_optimizer", "super_offload")
    written, stage = section(run, *path[:2]), stage_of(run)
    if run.deepspeed is None or written.get("super_offload") is not True or stage not in (1, 2):
        return
    gone = [path, (*path[:2], "cpuadam_cores_perc")] if "cpuadam_cores_perc" in written else [path]
    yield Finding(
        Location(run.deepspeed, path),
        f"`super_offload` exists at stage 3 only; stage {stage} silently offloads without it",
        "use stage 3, or remove it",
        fix=without(run.deepspeed, gone, "remove what has no effect"),
    )


@rule(
    "ZC517",
    "cores-without-super-offload",
    Severity.NOTE,
    bad=Example({"ds.json": _DS % ("2, " + _CPU % ', "cpuadam_cores_perc": 0.5')}, consumer="deepspeed").finds(
        "note", 'ds.json: "cpuadam_cores_perc": 0.5'
    ),
    good=Example({"ds.json": _DS % ("2, " + _CPU % "")}, consumer="deepspeed"),
    proof=shows(
        "step",
        {
            "engine.zero_config.offload_optimizer.cpuadam_cores_perc": (0.5, 0.8),
            "uses.zero_config.offload_optimizer.cpuadam_cores_perc": (0, 0),
        },
    ),
    fixable=True,
    references=("deepspeed/runtime/superoffload/superoffload_stage3.py@0.19.8",),
)
def cores_without_super_offload(run: Run) -> Iterator[Finding]:
    """`cpuadam_cores_perc` without `super_offload`.

    The step uses as many processors as it would without the key.

    What happens: nothing; only SuperOffload looks at it. How many processors DeepSpeedCPUAdam uses is decided by
    OMP_NUM_THREADS.

    Fix: removes the key.

    When to ignore: `super_offload` is switched on in another variant of this file.
    """
    path = (*_ZERO, "offload_optimizer", "cpuadam_cores_perc")
    written = section(run, *path[:2])
    if run.deepspeed is None or "cpuadam_cores_perc" not in written:
        return
    if written.get("super_offload", False) is False:
        yield Finding(
            Location(run.deepspeed, path),
            "`cpuadam_cores_perc` has no effect without `super_offload`",
            "remove it, and set OMP_NUM_THREADS",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key"),
        )


_SWAPPING = {
    "offload_optimizer": ("buffer_count", "pipeline_read", "pipeline_write"),
    "offload_param": ("buffer_count", "buffer_size", "max_in_cpu"),
}


@rule(
    "ZC518",
    "swap-settings-without-nvme",
    Severity.NOTE,
    bad=Example(
        {
            "ds.json": _DS
            % (
                _SAVED + _CPU % ', "pipeline_read": true' + ', "offload_param": {"device": "cpu", "buffer_count": 50, '
                '"buffer_size": 1, "max_in_cpu": 1}'
            )
        },
        consumer="deepspeed",
    )
    .finds("note", 'ds.json: "pipeline_read": true')
    .finds(
        "note",
        'ds.json: "buffer_count": 50',
        also=(
            'ds.json: "buffer_size": 1',
            'ds.json: "max_in_cpu": 1',
        ),
    ),
    good=Example(
        {"ds.json": _DS % (_SAVED + _CPU % "" + ', "offload_param": {"device": "cpu"}')}, consumer="deepspeed"
    ),
    proof=shows(
        "step",
        {
            "engine.zero_config.offload_param.buffer_count": (50, 5),
            "uses.zero_config.offload_param.buffer_count": (0, 0),
            "uses.zero_config.offload_param.buffer_size": (0, 0),
            "uses.zero_config.offload_optimizer.pipeline": (0, 0),
            "uses.zero_config.offload_optimizer.pipeline_read": (0, 0),
        },
    ),
    fixable=True,
    references=("deepspeed/runtime/swap_tensor/partitioned_param_swapper.py@0.19.8",),
)
def swap_settings_without_nvme(run: Run) -> Iterator[Finding]:
    """Settings of swapping to NVMe for something that is offloaded to the CPU.

    A limit such as `max_in_cpu` reads as if host memory were bounded. It is not.

    What happens: nothing. The buffers and the pipeline exist only where the device is nvme.

    Fix: removes them.

    When to ignore: the device is switched to nvme from time to time.
    """
    for part in PARTS:
        written = section(run, *_ZERO, part)
        names = [name for name in _SWAPPING[part] if name in written]
        if run.deepspeed is None or written.get("device") != "cpu" or not names:
            continue
        paths: list[Path] = [(*_ZERO, part, name) for name in names]
        yield Finding(
            Location(run.deepspeed, paths[0]),
            f"{', '.join(f'`{name}`' for name in names)} of `{part}`: no effect, because the device is cpu, not nvme",
            "remove them" if len(names) > 1 else "remove it",
            [Location(run.deepspeed, path) for path in paths[1:]],
            fix=without(run.deepspeed, paths, "remove what has no effect"),
        )


@rule(
    "ZC519",
    "parameters-pinned-anyway",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % (_SAVED + '"offload_param": {"device": "cpu", "pin_memory": false}')}, consumer="deepspeed"
    ).finds("note", 'ds.json: "pin_memory": false'),
    good=Example(
        {"ds.json": _DS % (_SAVED + '"offload_param": {"device": "cpu", "pin_memory": true}')}, consumer="deepspeed"
    ),
    proof=shows("init", {"memory.pinned": (Between(4_200_000, 4_400_000), at_least(8_000_000))}),
    fixable=True,
    references=("deepspeed/runtime/zero/stage3.py@0.19.8",),
)
def parameters_pinned_anyway(run: Run) -> Iterator[Finding]:
    """`pin_memory: false` for parameters that are offloaded to the CPU.

    Whoever writes it has little memory that may be locked, and runs into that limit all the same.

    What happens: the parameters end in one page-locked buffer whatever the key says; it decides only about the first
    copy of each parameter, which is dropped for that buffer.

    Fix: removes the key.

    When to ignore: the engine is only just built within the limit, and the first copies matter.
    """
    path = (*_ZERO, "offload_param", "pin_memory")
    written = section(run, *path[:2])
    value = written.get("pin_memory")
    if run.deepspeed is None or written.get("device") != "cpu" or stage_of(run) != 3:
        return
    if value is False or (isinstance(value, str) and value.lower() in OFF_WORDS):
        yield Finding(
            Location(run.deepspeed, path),
            "`pin_memory: false` of `offload_param` is not kept: the parameters end in a page-locked buffer all "
            "the same",
            "remove it; if locked memory is short, offload less",
            fix=edited(delete_entry, run.deepspeed, path, why="remove what has no effect"),
        )


_OLD = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}


@rule(
    "ZC520",
    "offload-under-two-names",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % ('2, "cpu_offload": true, ' + _CPU % "")}, consumer="deepspeed").finds(
        "error", 'ds.json: "cpu_offload": true', also=('ds.json: "offload_optimizer": {"device": "cpu"}',)
    ),
    good=Example({"ds.json": _DS % ("2, " + _CPU % "")}, consumer="deepspeed"),
    proof=crashes("parse", "Cannot provide deprecated parameter 'cpu_offload' and replacing parameter"),
    fixable=True,
    references=("deepspeed/runtime/config_utils.py@0.19.8",),
)
def offload_under_two_names(run: Run) -> Iterator[Finding]:
    """`cpu_offload` beside `offload_optimizer`, or `cpu_offload_param` beside `offload_param`.

    The job ends before the model is used.

    What happens: `AssertionError: Cannot provide deprecated parameter 'cpu_offload' and replacing parameter
    'offload_optimizer' together`.

    Fix: removes the old name. It is safe where both say the same.
    """
    written = section(run, *_ZERO)
    for old, new in _OLD.items():
        # DeepSpeed takes "auto" for absent, but null for written.
        if run.deepspeed is None or any(written.get(name, "auto") == "auto" for name in (old, new)):
            continue
        same = written[old] is True and section(run, *_ZERO, new).get("device") == "cpu"
        yield Finding(
            Location(run.deepspeed, (*_ZERO, old)),
            f"`{old}` is the old name of `{new}`; DeepSpeed stops when both are written",
            f"remove `{old}`",
            [Location(run.deepspeed, (*_ZERO, new), label="the new name")],
            fix=edited(delete_entry, run.deepspeed, (*_ZERO, old), why="keep the new name", safe=same),
        )


@rule(
    "ZC521",
    "offload-section-without-device",
    Severity.ERROR,
    bad=Example({"ds.json": _ADAM % ("", '2, "offload_optimizer": {"pin_memory": true}')}, consumer="deepspeed").finds(
        "error", 'ds.json: "offload_optimizer"'
    ),
    good=Example({"ds.json": _ADAM % ("", '2, "offload_optimizer": {"device": "cpu"}')}, consumer="deepspeed"),
    proof=shows(
        "init",
        {
            "engine.zero_config.offload_optimizer.device": ("none", "cpu"),
            "engine.optimizer": ("FusedAdam", "DeepSpeedCPUAdam"),
        },
    ),
    fixable=True,
    references=("deepspeed/runtime/zero/offload_config.py@0.19.8",),
)
def offload_section_without_device(run: Run) -> Iterator[Finding]:
    """An offload section that does not say where to.

    The memory that was to be freed is not: the states stay on the accelerator.

    What happens: `device` is "none" by default, so DeepSpeed offloads nothing, without a word.

    Fix: writes `"device": "cpu"`; "nvme" where the section names a path and the stage is 3.

    When to ignore: a program fills in the device before the file is used.
    """
    stage = stage_of(run)
    for part in PARTS:
        written = section(run, *_ZERO, part)
        if run.deepspeed is None or not written or "device" in written or device(run, part) in ("cpu", "nvme"):
            continue
        if stage not in ((1, 2, 3) if part == "offload_optimizer" else (3,)):
            continue
        where = "nvme" if stage == 3 and isinstance(written.get("nvme_path"), str) else "cpu"
        path = (*_ZERO, part)
        yield Finding(
            Location(run.deepspeed, path, "key"),
            f'`{part}` names no `device`, which is "none" by default: nothing is offloaded',
            f'write "device": "{where}"',
            fix=edited(
                insert_entry, run.deepspeed, path, "device", f'"{where}"', why=f"offload to {where}", safe=False
            ),
        )


@rule(
    "ZC522",
    "parameters-offloaded-alone",
    Severity.NOTE,
    bad=Example({"ds.json": _DS % (_SAVED + '"offload_param": {"device": "cpu"}')}, consumer="deepspeed").finds(
        "note", 'ds.json: "device": "cpu"', 2, 12
    ),
    good=Example(
        {"ds.json": _DS % (_SAVED + '"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}')},
        consumer="deepspeed",
    ),
    proof=shows(
        "init", {"engine.optimizer": ("AdamW", "DeepSpeedCPUAdam"), "optimizer.offload_optimizer": (False, True)}
    ),
    fixable=True,
)
def parameters_offloaded_alone(run: Run) -> Iterator[Finding]:
    """The parameters are offloaded, and the optimizer states, six times as large, stay on the accelerator.

    Parameters (2 bytes each in 16-bit training) travel to the accelerator in every forward and backward pass; the
    states (12 bytes) are needed once a step. Moving the states first frees more and costs less.

    What happens: DeepSpeed does as it is told; master weights, moments and gradients remain on the accelerator.

    Fix: offloads the optimizer too.

    When to ignore: only a small part of the parameters is trained (LoRA), so that there are hardly any states.
    """
    if stage_of(run) != 3 or device(run, "offload_param") not in ("cpu", "nvme"):
        return
    if (
        device(run, "offload_optimizer") not in (None, "none")
        or may_be_on(run, "use_peft")
        or may_be_on(run, "use_lora")
    ):
        return
    if section(run, *_ZERO, "offload_optimizer"):
        return  # a section without a device has a rule of its own
    setting = run.effective.get("zero_optimization.offload_param.device")
    location, related = anchor(run, [setting.origin] if setting else [])
    yield Finding(
        location,
        "`offload_param` without `offload_optimizer`: 2 bytes a parameter are moved away, and the 12 of the optimizer "
        "states stay",
        "offload the optimizer first",
        related,
        fix=_optimizer_too(run),
    )


def _optimizer_too(run: Run) -> Fix | None:
    why = "offload the optimizer too"
    if present(run.deepspeed, (*_ZERO, "offload_param")):
        return edited(insert_entry, run.deepspeed, _ZERO, "offload_optimizer", '{"device": "cpu"}', why=why, safe=False)
    path = ("deepspeed_config", "offload_optimizer_device")
    if present(run.accelerate, path):
        return edited(replace_value, run.accelerate, path, "cpu", why=why, safe=False)
    return edited(insert_entry, run.accelerate, path[:1], path[1], "cpu", why=why, safe=False)


RULES = (
    super_offload_below_stage_3,
    cores_without_super_offload,
    swap_settings_without_nvme,
    parameters_pinned_anyway,
    offload_under_two_names,
    offload_section_without_device,
    parameters_offloaded_alone,
)
