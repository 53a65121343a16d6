"""ZC5xx: options of offloading that nobody looks at, or that do not do what they seem to."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import OFF_WORDS
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import may_be_on
from zerocfg.rules.effects import WITH_ACCELERATE, changed_before, stage_of, under_trainer
from zerocfg.rules.key import Key, accelerate, delete_all, setting
from zerocfg.rules.offload.devices import PARTS, device, device_key, offload, on_host
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, ZERO_SECTION, in_zero
from zerocfg.run.model import Run


@rule("ZC516", "super-offload-below-stage-3", Severity.ERROR, in_zero("offload_optimizer"))
def super_offload_below_stage_3(section: Key) -> Iterator[Finding]:
    key, stage = section["super_offload"], stage_of(section.run)
    if key.value is True and stage in (1, 2):
        yield key.finding(
            f"`super_offload` exists at stage 3 only; stage {stage} silently offloads without it",
            "use stage 3, or remove it",
            fix=delete_all([key, section["cpuadam_cores_perc"]], "remove what has no effect"),
        )


@rule("ZC517", "cores-without-super-offload", Severity.NOTE, in_zero("offload_optimizer"))
def cores_without_super_offload(section: Key) -> Iterator[Finding]:
    key = section["cpuadam_cores_perc"]
    if key and section.get("super_offload", False) is False:
        yield key.finding(
            "`cpuadam_cores_perc` has no effect without `super_offload`",
            "remove it, and set OMP_NUM_THREADS",
            fix=key.delete("remove the key"),
        )


_SWAPPING = {
    "offload_optimizer": ("buffer_count", "pipeline_read", "pipeline_write"),
    "offload_param": ("buffer_count", "buffer_size", "max_in_cpu"),
}


@rule("ZC518", "swap-settings-without-nvme", Severity.NOTE, ZERO_SECTION)
def swap_settings_without_nvme(zero: Key) -> Iterator[Finding]:
    for part in PARTS:
        section = zero[part]
        idle = [section[name] for name in _SWAPPING[part] if name in section]
        if section.get("device") == "cpu" and idle:
            yield idle[0].finding(
                f"{', '.join(f'`{key.name}`' for key in idle)} of `{part}`: no effect, because the device is cpu, "
                "not nvme",
                "remove them" if len(idle) > 1 else "remove it",
                idle[1:],
                fix=delete_all(idle, "remove what has no effect"),
            )


@rule("ZC519", "parameters-pinned-anyway", Severity.NOTE, in_zero("offload_param"))
def parameters_pinned_anyway(section: Key) -> Iterator[Finding]:
    key = section["pin_memory"]
    if section.get("device") != "cpu" or stage_of(section.run) != 3:
        return
    if key.value is False or (isinstance(key.value, str) and key.value.lower() in OFF_WORDS):
        yield key.finding(
            "`pin_memory: false` of `offload_param` is not kept: the parameters end in a page-locked buffer all "
            "the same",
            "remove it; if locked memory is short, offload less",
            fix=key.delete("remove what has no effect"),
        )


@rule("ZC520", "offload-under-two-names", Severity.ERROR, DEEPSPEED_CONFIG)
def offload_under_two_names(config: Key) -> Iterator[Finding]:
    zero = config["zero_optimization"]
    for old, new in (
        (zero["cpu_offload"], zero["offload_optimizer"]),
        (zero["cpu_offload_param"], zero["offload_param"]),
    ):
        # DeepSpeed takes "auto" for absent, but null for written.
        if any(not key or key.value == "auto" for key in (old, new)):
            continue
        same = old.value is True and new.get("device") == "cpu"
        yield old.finding(
            f"`{old.name}` is the old name of `{new.name}`; DeepSpeed stops when both are written",
            f"remove `{old.name}`",
            [new.at(label="the new name")],
            fix=old.delete("keep the new name", safe=same),
        )


@rule("ZC521", "offload-section-without-device", Severity.ERROR, ZERO_SECTION)
def offload_section_without_device(zero: Key) -> Iterator[Finding]:
    stage = stage_of(zero.run)
    for part in PARTS:
        section = zero[part]
        if not section.section or "device" in section or on_host(zero.run, part):
            continue
        if stage not in ((1, 2, 3) if part == "offload_optimizer" else (3,)):
            continue
        where = "nvme" if stage == 3 and isinstance(section.get("nvme_path"), str) else "cpu"
        yield section.finding(
            f'`{part}` names no `device`, which is "none" by default: nothing is offloaded',
            f'write "device": "{where}"',
            fix=section["device"].set(f'"{where}"', f"offload to {where}", safe=False),
            where="key",
        )


@rule("ZC522", "parameters-offloaded-alone", Severity.NOTE, WHOLE_RUN)
def parameters_offloaded_alone(run: Run) -> Iterator[Finding]:
    if (
        stage_of(run) != 3
        or not on_host(run, "offload_param")
        or may_be_on(run, "use_peft")
        or may_be_on(run, "use_lora")
    ):
        return
    optimizer = offload(run, "offload_optimizer")
    if device(run, "offload_optimizer") not in (None, "none") or optimizer.section:
        return  # a section without a device has a rule of its own
    key, text = optimizer, '{"device": "cpu"}'
    if not offload(run, "offload_param"):
        key, text = accelerate(run, "deepspeed_config", "offload_optimizer_device"), "cpu"
    yield device_key(run, "offload_param").finding(
        "`offload_param` without `offload_optimizer`: 2 bytes a parameter are moved away, and the 12 of the optimizer "
        "states stay",
        "offload the optimizer first",
        fix=key.set(text, "offload the optimizer too", safe=False),
    )


@rule("ZC528", "offload-device-auto", Severity.WARNING, WHOLE_RUN, consumers=WITH_ACCELERATE)
def offload_device_auto(run: Run) -> Iterator[Finding]:
    if changed_before(run) or (under_trainer(run) and only_below(run.declared("transformers"), "4.30")):
        return  # the Trainer before 4.30 started DeepSpeed without accelerate, so that "auto" reached it as it is
    stage = stage_of(run)
    devices = [
        offload(run, part, "device")
        for part, stages in (("offload_optimizer", (1, 2, 3)), ("offload_param", (3,)))
        if stage in stages and _filled_with_none(run, part)
    ]
    if devices:
        parts = " and ".join(f"`{key.path[-2]}`" for key in devices)
        yield devices[0].finding(
            f'the device of {parts} is "auto", which accelerate replaces by its default "none": nothing is offloaded',
            'write "cpu" to offload, or "none"',
            devices[1:],
        )


def _filled_with_none(run: Run, part: str) -> bool:
    """Whether a written "auto" ends as "none", which nobody asked for."""
    device = setting(run, f"zero_optimization.{part}.device")
    by_default = device.value == "none" and device.origin.kind == "default"
    return by_default and offload(run, part, "device").value == "auto"
