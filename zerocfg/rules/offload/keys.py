"""ZC5xx: options of offloading that nobody looks at, or that do not do what they seem to."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import OFF_WORDS
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import may_be_on
from zerocfg.rules.effects import section, stage_of
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited, present, without
from zerocfg.rules.offload.devices import PARTS, device
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_ZERO = ("zero_optimization",)


@rule("ZC516", "super-offload-below-stage-3", Severity.ERROR)
def super_offload_below_stage_3(run: Run) -> Iterator[Finding]:
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


@rule("ZC517", "cores-without-super-offload", Severity.NOTE)
def cores_without_super_offload(run: Run) -> Iterator[Finding]:
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


@rule("ZC518", "swap-settings-without-nvme", Severity.NOTE)
def swap_settings_without_nvme(run: Run) -> Iterator[Finding]:
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


@rule("ZC519", "parameters-pinned-anyway", Severity.NOTE)
def parameters_pinned_anyway(run: Run) -> Iterator[Finding]:
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


@rule("ZC520", "offload-under-two-names", Severity.ERROR)
def offload_under_two_names(run: Run) -> Iterator[Finding]:
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


@rule("ZC521", "offload-section-without-device", Severity.ERROR)
def offload_section_without_device(run: Run) -> Iterator[Finding]:
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


@rule("ZC522", "parameters-offloaded-alone", Severity.NOTE)
def parameters_offloaded_alone(run: Run) -> Iterator[Finding]:
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
    location, related = primary_location(run, [setting.origin] if setting else [])
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
