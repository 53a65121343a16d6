"""ZC9xx: what the hardware holds: devices, accelerator memory, host memory.

These rules speak about the runs of a zerocfg.yaml that names its hardware. Memory is that of the model states alone
(parameters, gradients, optimizer), between two steps: what exceeds the machine with nothing else counted cannot run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zerocfg.catalog.versions import admits
from zerocfg.record import record
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, rule
from zerocfg.rules.arguments import may_be_on
from zerocfg.rules.effects import effective_value, fits_at, stage_of
from zerocfg.rules.key import Key, accelerate, deepspeed, delete_all, finding_at, setting
from zerocfg.rules.offload.devices import PARTS, device_key, offload, on_host
from zerocfg.rules.subjects import given_by, in_zero
from zerocfg.run.model import Run

if TYPE_CHECKING:
    from zerocfg.run.facts import HardwareSummary, MemorySummary, ModelSummary


@record(frozen=True, slots=True)
class SizedRun:
    """A run whose hardware and model are known, and what is predicted of its memory."""

    run: Run
    hardware: HardwareSummary
    model: ModelSummary
    memory: MemorySummary


def _sized(run: Run) -> SizedRun | None:
    if run.hardware is None or run.model is None or run.memory is None:
        return None
    return SizedRun(run, run.hardware, run.model, run.memory)


SIZED_RUN = given_by(_sized, "run")


def whole_model_trained(run: Run) -> bool:
    """Whether the counted states are those of this run: adapters and quantised weights need far less."""
    if run.model is not None and not run.model.all_trained:
        return True  # the spec counts what is trained
    small = ("use_peft", "use_lora", "load_in_4bit", "load_in_8bit", "lora_r", "adapter", "finetuning_type")
    return not any(may_be_on(run, name) for name in small) and "zenflow" not in deepspeed(run, "zero_optimization")


def stage_key(run: Run) -> Key:
    """Where the ZeRO stage is said."""
    return setting(run, "zero_optimization.stage")


@rule("ZC920", "processes-and-accelerators", Severity.ERROR, WHOLE_RUN, needs={"hardware"})
def processes_and_accelerators(run: Run) -> Iterator[Finding]:
    if run.hardware is None:
        return
    for name, available in (("num_processes", run.hardware.accelerators), ("num_machines", run.hardware.nodes)):
        key = accelerate(run, name)
        said = key.value
        if not isinstance(said, int) or isinstance(said, bool) or said < 1 or said == available:
            continue
        unit = "accelerators" if name == "num_processes" else "machines"
        end = "some find no device" if said > available else f"{available - said} stay idle"
        yield key.finding(
            f"`{name}: {said}`, but {run.hardware.name} has {available} {unit}: {end}",
            f"write {available}",
            fix=key.replace(str(available), "as the hardware has", safe=False),
            severity=None if said > available else Severity.NOTE,
        )


@rule("ZC921", "bf16-not-in-hardware", Severity.ERROR, WHOLE_RUN, needs={"hardware"})
def bf16_not_in_hardware(run: Run) -> Iterator[Finding]:
    if run.hardware is None or run.hardware.bf16 is not False:
        return
    for key in (setting(run, "bf16.enabled"), setting(run, "mixed_precision")):
        if key.value in (True, "bf16") and key.origin.kind != "default":
            yield key.finding(f"bf16 on {run.hardware.name}, whose accelerators do not compute in bfloat16", "use fp16")
            return


@rule("ZC922", "states-do-not-fit", Severity.ERROR, SIZED_RUN, needs={"hardware", "model"})
def states_do_not_fit(sized: SizedRun) -> Iterator[Finding]:
    hardware, memory, stage = sized.hardware, sized.memory, stage_of(sized.run)
    if hardware.memory_gib is None or memory.resting_gib is None:
        return
    if memory.resting_gib <= hardware.memory_gib or not whole_model_trained(sized.run) or stage is None:
        return
    enough = enough_stage(sized.run, stage)
    yield stage_key(sized.run).finding(
        f"the states of {sized.model.name} take {memory.resting_gib:.1f} GiB of each accelerator at stage {stage}, "
        f"and {hardware.name} has {hardware.memory_gib:.1f} GiB",
        f"the states fit at stage {enough}" if enough else "use more accelerators, or offload",
        fix=to_stage(sized.run, enough),
    )


def enough_stage(run: Run, stage: int) -> int | None:
    """The first stage above this one that the run would fit at, as far as that is known."""
    assert run.hardware is not None and run.hardware.memory_gib is not None and run.memory is not None
    room, memory = run.hardware.memory_gib, run.memory
    for other in range(stage + 1, 4):
        states = memory.states_gib.get(other, float("inf")) + memory.vllm_gib
        if states < room and memory.stage_peaks_gib.get(other, (0, 0))[0] < room:
            return other
    return None


def to_stage(run: Run, stage: int | None) -> Fix | None:
    return None if stage is None else stage_key(run).replace(str(stage), f"stage {stage}", safe=False)


@rule("ZC923", "host-memory-exceeded", Severity.ERROR, SIZED_RUN, needs={"hardware", "model"})
def host_memory_exceeded(sized: SizedRun) -> Iterator[Finding]:
    hardware, memory = sized.hardware, sized.memory
    if hardware.host_gib is None or memory.host_states_gib is None:
        return
    need, rounding = memory.host_states_gib, memory.pinned_rounding_gib
    if need <= hardware.host_gib or not whole_model_trained(sized.run):
        return
    only_rounding = need - rounding <= hardware.host_gib
    keys = [key for key in (device_key(sized.run, part) for part in PARTS) if key.value in ("cpu", "nvme")]
    yield finding_at(
        sized.run,
        keys,
        f"offloading {sized.model.name} takes {need:.0f} GiB of the host's memory"
        + (f" ({rounding:.0f} of them because torch rounds pinned blocks up)" if rounding >= 1 else "")
        + f", and a node of {hardware.name} has {hardware.host_gib:.0f} GiB",
        "pin no memory, or let DeepSpeed pin it (`DS_PIN_MEMORY_BACKEND=native`), which does not round"
        if only_rounding
        else "shard over more nodes, offload less, or use NVMe at stage 3",
        severity=Severity.WARNING if only_rounding else None,
    )


@rule("ZC924", "locked-memory-exceeded", Severity.NOTE, WHOLE_RUN, needs={"hardware", "model"})
def locked_memory_exceeded(run: Run) -> Iterator[Finding]:
    hardware, model = run.hardware, run.model
    if hardware is None or model is None or not model.parameters or hardware.memlock is None:
        return
    section = offload(run, "offload_optimizer")
    pinned = effective_value(run, "zero_optimization.offload_optimizer.pin_memory")
    if device_key(run, section.name).value != "cpu" or stage_of(run) not in (1, 2, 3):
        return
    if pinned not in (None, True) or not section or not whole_model_trained(run):
        return
    if not section["pin_memory"] and admits(run.declared("deepspeed"), below="0.19.5"):
        return  # false by default there
    need = 10 * model.parameters // hardware.accelerators
    if need <= hardware.memlock:
        return
    yield section.finding(
        f"a rank locks about {need / 2**30:.1f} GiB of host memory, and a process of {hardware.name} may lock "
        f"{hardware.memlock / 2**30:.2f} GiB",
        'raise the limit (`ulimit -l`), or write "pin_memory": false',
        fix=section["pin_memory"].set("false", "do not pin", safe=False),
        where="key",
    )


@rule("ZC925", "offload-not-needed", Severity.NOTE, SIZED_RUN, needs={"hardware", "model"})
def offload_not_needed(sized: SizedRun) -> Iterator[Finding]:
    hardware, stage = sized.hardware, stage_of(sized.run)
    parts = [part for part in PARTS if on_host(sized.run, part)]
    if not hardware.memory_gib or stage is None or not parts:
        return
    if stage == 0 or not fits_at(sized.run, stage):
        return
    states = sized.memory.states_gib[stage]
    if stage < 3 and "offload_optimizer" not in parts:
        return
    sections = [offload(sized.run, part) for part in parts]
    yield device_key(sized.run, parts[0]).finding(
        f"the states of {sized.model.name} are offloaded, and at stage {stage} they would take {states:.1f} of "
        f"{hardware.memory_gib:.0f} GiB of each accelerator on {hardware.name}",
        "do not offload: the step waits for the host",
        fix=delete_all(sections, "offload nothing", safe=False) if all(sections) else None,
    )


@rule("ZC926", "super-offload-without-nvidia", Severity.ERROR, in_zero("offload_optimizer"), needs={"hardware"})
def super_offload_without_nvidia(section: Key) -> Iterator[Finding]:
    key, hardware = section["super_offload"], section.run.hardware
    if hardware is None or hardware.vendor in (None, "nvidia") or key.value is not True:
        return
    if stage_of(section.run) == 3 and on_host(section.run, section.name):
        yield key.finding(
            f"`super_offload` works on NVIDIA accelerators only; on {hardware.name} the engine stops when it is built",
            "remove it",
            fix=delete_all([key, section["cpuadam_cores_perc"]], "offload as usual", safe=False),
        )
