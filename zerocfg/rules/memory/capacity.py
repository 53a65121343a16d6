"""ZC9xx: what the hardware holds: devices, accelerator memory, host memory.

These rules speak about the runs of a zerocfg.yaml that names its hardware. Memory is that of the model states alone
(parameters, gradients, optimizer), between two steps: what exceeds the machine with nothing else counted cannot run.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import may_be_on
from zerocfg.rules.effects import accelerate_data, effective_value, fits_at, section, stage_of
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited, present, without
from zerocfg.rules.offload.devices import PARTS, on_host, place
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry, replace_value


def whole_model_trained(run: Run) -> bool:
    """Whether the counted states are those of this run: adapters and quantised weights need far less."""
    if run.model is not None and not run.model.all_trained:
        return True  # the spec counts what is trained
    small = ("use_peft", "use_lora", "load_in_4bit", "load_in_8bit", "lora_r", "adapter", "finetuning_type")
    return not any(may_be_on(run, name) for name in small) and "zenflow" not in section(run, "zero_optimization")


def _stage_place(run: Run) -> tuple[Location, list[Location]]:
    setting = run.effective.get("zero_optimization.stage")
    return primary_location(run, [setting.origin] if setting else [])


@rule("ZC920", "processes-and-accelerators", Severity.ERROR, needs={"hardware"})
def processes_and_accelerators(run: Run) -> Iterator[Finding]:
    if run.hardware is None or run.accelerate is None:
        return
    has = {"num_processes": run.hardware.accelerators, "num_machines": run.hardware.nodes}
    for name, available in has.items():
        said = accelerate_data(run).get(name)
        if not isinstance(said, int) or isinstance(said, bool) or said < 1 or said == available:
            continue
        unit = "accelerators" if name == "num_processes" else "machines"
        end = "some find no device" if said > available else f"{available - said} stay idle"
        yield Finding(
            Location(run.accelerate, (name,)),
            f"`{name}: {said}`, but {run.hardware.name} has {available} {unit}: {end}",
            f"write {available}",
            fix=edited(replace_value, run.accelerate, (name,), str(available), why="as the hardware has", safe=False),
            severity=None if said > available else Severity.NOTE,
        )


@rule("ZC921", "bf16-not-in-hardware", Severity.ERROR, needs={"hardware"})
def bf16_not_in_hardware(run: Run) -> Iterator[Finding]:
    if run.hardware is None or run.hardware.bf16 is not False:
        return
    for name in ("bf16.enabled", "mixed_precision"):
        setting = run.effective.get(name)
        if setting is None or setting.value not in (True, "bf16") or setting.origin.kind == "default":
            continue
        location, related = primary_location(run, [setting.origin])
        yield Finding(
            location,
            f"bf16 on {run.hardware.name}, whose accelerators do not compute in bfloat16",
            "use fp16",
            related,
        )
        return


@rule("ZC922", "states-do-not-fit", Severity.ERROR, needs={"hardware", "model"})
def states_do_not_fit(run: Run) -> Iterator[Finding]:
    hardware, memory, stage = run.hardware, run.memory, stage_of(run)
    if hardware is None or run.model is None or hardware.memory_gib is None:
        return
    if memory is None or memory.resting_gib is None:
        return
    if memory.resting_gib <= hardware.memory_gib or not whole_model_trained(run) or stage is None:
        return
    enough = enough_stage(run, stage)
    location, related = _stage_place(run)
    yield Finding(
        location,
        f"the states of {run.model.name} take {memory.resting_gib:.1f} GiB of each accelerator at stage {stage}, "
        f"and {hardware.name} has {hardware.memory_gib:.1f} GiB",
        f"the states fit at stage {enough}" if enough else "use more accelerators, or offload",
        related,
        fix=to_stage(run, enough),
    )


def enough_stage(run: Run, stage: int) -> int | None:
    """The first stage above this one that the run would fit at, as far as that is known."""
    assert run.hardware is not None and run.hardware.memory_gib is not None and run.memory is not None
    room, memory = run.hardware.memory_gib, run.memory
    for other in range(stage + 1, 4):
        if memory.states_gib.get(other, float("inf")) < room and memory.stage_peaks_gib.get(other, (0, 0))[0] < room:
            return other
    return None


def to_stage(run: Run, stage: int | None) -> Fix | None:
    setting = run.effective.get("zero_optimization.stage")
    if stage is None or setting is None or setting.origin.kind != "file":
        return None
    origin = setting.origin
    return edited(replace_value, origin.file, origin.path, str(stage), why=f"stage {stage}", safe=False)


@rule("ZC923", "host-memory-exceeded", Severity.ERROR, needs={"hardware", "model"})
def host_memory_exceeded(run: Run) -> Iterator[Finding]:
    hardware, memory = run.hardware, run.memory
    if hardware is None or run.model is None or hardware.host_gib is None:
        return
    if memory is None or memory.host_states_gib is None:
        return
    need, rounding = memory.host_states_gib, memory.pinned_rounding_gib
    if need <= hardware.host_gib or not whole_model_trained(run):
        return
    only_rounding = need - rounding <= hardware.host_gib
    settings = [run.effective.get(f"zero_optimization.{part}.device") for part in PARTS]
    location, related = primary_location(run, [one.origin for one in settings if one and one.value in ("cpu", "nvme")])
    yield Finding(
        location,
        f"offloading {run.model.name} takes {need:.0f} GiB of the host's memory"
        + (f" ({rounding:.0f} of them because torch rounds pinned blocks up)" if rounding >= 1 else "")
        + f", and a node of {hardware.name} has {hardware.host_gib:.0f} GiB",
        "pin no memory, or let DeepSpeed pin it (`DS_PIN_MEMORY_BACKEND=native`), which does not round"
        if only_rounding
        else "shard over more nodes, offload less, or use NVMe at stage 3",
        related,
        severity=Severity.WARNING if only_rounding else None,
    )


@rule("ZC924", "locked-memory-exceeded", Severity.NOTE, needs={"hardware", "model"})
def locked_memory_exceeded(run: Run) -> Iterator[Finding]:
    hardware, model = run.hardware, run.model
    if hardware is None or model is None or not model.parameters or hardware.memlock is None:
        return
    path = ("zero_optimization", "offload_optimizer", "pin_memory")
    pinned = effective_value(run, ".".join(path))
    if effective_value(run, "zero_optimization.offload_optimizer.device") != "cpu" or stage_of(run) not in (1, 2, 3):
        return
    if pinned not in (None, True) or not present(run.deepspeed, path[:2]) or not whole_model_trained(run):
        return
    need = 10 * model.parameters // hardware.accelerators
    if need <= hardware.memlock:
        return
    insert = not present(run.deepspeed, path)
    why = "do not pin"
    yield Finding(
        Location(run.deepspeed or _stage_place(run)[0].file, path[:2], "key"),
        f"a rank locks about {need / 2**30:.1f} GiB of host memory, and a process of {hardware.name} may lock "
        f"{hardware.memlock / 2**30:.2f} GiB",
        'raise the limit (`ulimit -l`), or write "pin_memory": false',
        fix=edited(insert_entry, run.deepspeed, path[:2], path[2], "false", why=why, safe=False)
        if insert
        else edited(replace_value, run.deepspeed, path, "false", why=why, safe=False),
    )


@rule("ZC925", "offload-not-needed", Severity.NOTE, needs={"hardware", "model"})
def offload_not_needed(run: Run) -> Iterator[Finding]:
    hardware, stage = run.hardware, stage_of(run)
    parts = [part for part in PARTS if on_host(run, part)]
    if hardware is None or run.model is None or not hardware.memory_gib or stage is None or not parts:
        return
    if stage == 0 or run.memory is None or not fits_at(run, stage):
        return
    states = run.memory.states_gib[stage]
    if stage < 3 and "offload_optimizer" not in parts:
        return
    location, related = place(run, parts[0])
    paths = [("zero_optimization", part) for part in parts]
    all_here = all(present(run.deepspeed, path) for path in paths)
    yield Finding(
        location,
        f"the states of {run.model.name} are offloaded, and at stage {stage} they would take {states:.1f} of "
        f"{hardware.memory_gib:.0f} GiB of each accelerator on {hardware.name}",
        "do not offload: the step waits for the host",
        related,
        fix=without(run.deepspeed, paths, "offload nothing", safe=False) if all_here else None,
    )


@rule("ZC926", "super-offload-without-nvidia", Severity.ERROR, needs={"hardware"})
def super_offload_without_nvidia(run: Run) -> Iterator[Finding]:
    part = ("zero_optimization", "offload_optimizer")
    written = section(run, *part)
    if run.hardware is None or run.hardware.vendor in (None, "nvidia") or written.get("super_offload") is not True:
        return
    if run.deepspeed is None or stage_of(run) != 3 or not on_host(run, part[1]):
        return
    paths = [(*part, name) for name in ("super_offload", "cpuadam_cores_perc") if name in written]
    yield Finding(
        Location(run.deepspeed, paths[0]),
        f"`super_offload` works on NVIDIA accelerators only; on {run.hardware.name} the engine stops when it is built",
        "remove it",
        fix=without(run.deepspeed, paths, "offload as usual", safe=False),
    )
