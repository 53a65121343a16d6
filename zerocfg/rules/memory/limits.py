"""ZC9xx: runs that do not fit although their states do: the optimizer step, the activations, the drive.

These rules speak about the runs of a zerocfg.yaml that names model and hardware, and only where the least that is
predicted exceeds what there is. A run that fits narrowly or perhaps is no finding: `zerocfg plan` shows the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import effective_value, stage_of
from zerocfg.rules.key import deepspeed, finding_at, setting
from zerocfg.rules.memory.capacity import SIZED_RUN, SizedRun, enough_stage, stage_key, to_stage, whole_model_trained
from zerocfg.rules.offload.devices import PARTS, device, offload, on_host
from zerocfg.run.model import Run

if TYPE_CHECKING:
    from zerocfg.run.facts import HardwareSummary, MemorySummary


def _sized(gib: float) -> str:
    return f"{gib:.1f}" if gib >= 1 else f"{gib:.3g}"


def _states_fit(memory: MemorySummary, room: float) -> bool:
    """Whether the states fit between two steps; if not, ZC922 says so."""
    return memory.resting_gib is not None and memory.resting_gib <= room


@rule("ZC927", "optimizer-step-does-not-fit", Severity.ERROR, SIZED_RUN, needs={"hardware", "model"})
def optimizer_step_does_not_fit(sized: SizedRun) -> Iterator[Finding]:
    hardware, memory, stage = sized.hardware, sized.memory, stage_of(sized.run)
    if hardware.memory_gib is None or stage is None:
        return
    if memory.step_gib is None or memory.step_gib <= hardware.memory_gib or not whole_model_trained(sized.run):
        return
    if not _states_fit(memory, hardware.memory_gib):
        return
    group, other = _smaller_group(sized.run, hardware, memory), enough_stage(sized.run, stage)
    if group:
        help_text = f"write `sub_group_size` {group}: the step then goes in smaller pieces"
        fix = deepspeed(sized.run, "zero_optimization", "sub_group_size").set(
            str(group), "smaller sub groups", safe=False
        )
    else:
        help_text = f"stage {other} fits" if other else "use more accelerators, or offload the optimizer"
        fix = to_stage(sized.run, other)
    yield finding_at(
        sized.run,
        [setting(sized.run, "zero_optimization.sub_group_size")] * bool(group) + [stage_key(sized.run)],
        f"the optimizer step of {sized.model.name} takes {_sized(memory.step_gib)} GiB of each accelerator at stage "
        f"{stage}, {_sized(memory.step_gib - (memory.resting_gib or 0))} of them only for the step itself, and "
        f"{hardware.name} has {_sized(hardware.memory_gib)} GiB",
        help_text,
        fix,
    )


def _smaller_group(run: Run, hardware: HardwareSummary, memory: MemorySummary) -> int | None:
    """A sub group size, one digit and zeros, with which the step leaves a tenth of the memory; None: there is none."""
    size = effective_value(run, "zero_optimization.sub_group_size")
    trained = run.model.parameters if run.model and run.model.all_trained else None
    if stage_of(run) != 3 or on_host(run, "offload_optimizer") or not isinstance(size, int) or size < 1 or not trained:
        return None
    assert hardware.memory_gib is not None and memory.step_gib is not None and memory.resting_gib is not None
    # A group ends after the parameter that crosses the limit.
    over = -(-(run.model.largest_parameter or 0) // hardware.accelerators) if run.model else 0
    elements = min(size + over, trained // hardware.accelerators)
    left = 0.9 * hardware.memory_gib - memory.resting_gib
    wanted = int(elements * left / (memory.step_gib - memory.resting_gib)) - over
    if wanted < 10_000:
        return None
    digits = len(str(wanted)) - 1
    return int(str(wanted)[0]) * int(10**digits)


@rule("ZC928", "run-does-not-fit", Severity.ERROR, SIZED_RUN, needs={"hardware", "model"})
def run_does_not_fit(sized: SizedRun) -> Iterator[Finding]:
    hardware, memory, stage = sized.hardware, sized.memory, stage_of(sized.run)
    if hardware.memory_gib is None or memory.peak_gib is None:
        return
    low, high = memory.peak_gib
    if low <= hardware.memory_gib or not whole_model_trained(sized.run):
        return
    if memory.resting_gib is not None and not _states_fit(memory, hardware.memory_gib):
        return
    if memory.step_gib is not None and memory.step_gib > hardware.memory_gib:
        return  # told by ZC927
    yield finding_at(
        sized.run,
        (stage_key(sized.run), setting(sized.run, "train_micro_batch_size_per_gpu")),
        f"{sized.model.name} with {memory.micro_batch} x {memory.sequence_length} tokens takes about {low:.0f} to "
        f"{high:.0f} GiB of each accelerator{f' at stage {stage}' if stage else ''}, and {hardware.name} has "
        f"{hardware.memory_gib:.1f} GiB",
        _remedy(sized.run, hardware.memory_gib, memory),
    )


def _remedy(run: Run, room: float, memory: MemorySummary) -> str:
    for stage in range((stage_of(run) or 0) + 1, 4):
        if memory.stage_peaks_gib.get(stage, (room + 1, room + 1))[1] <= room:
            return f"stage {stage} fits"
    if memory.peak_gib and memory.logits_gib and memory.peak_gib[1] - memory.logits_gib <= room:
        return f"logits and loss are {memory.logits_gib:.0f} GiB of it: compute the loss in pieces (Liger kernels)"
    return "`zerocfg plan` lists what would make it fit"


@rule("ZC929", "nvme-drive-too-small", Severity.WARNING, SIZED_RUN, needs={"hardware", "model"})
def nvme_drive_too_small(sized: SizedRun) -> Iterator[Finding]:
    hardware, memory = sized.hardware, sized.memory
    if not memory.nvme_gib or not whole_model_trained(sized.run):
        return
    parts = [part for part in PARTS if device(sized.run, part) == "nvme"]
    mounts = {_mount(offload(sized.run, part, "nvme_path").value, hardware.nvme_free_gib) for part in parts}
    mount = mounts.pop() if len(mounts) == 1 else None
    if mount is None or memory.nvme_gib <= hardware.nvme_free_gib[mount]:
        return
    key = offload(sized.run, parts[0], "nvme_path")
    yield key.finding(
        f"the ranks of a node write {memory.nvme_gib:.0f} GiB, and {mount} of {hardware.name} has "
        f"{hardware.nvme_free_gib[mount]:.0f} GiB free",
        "choose a larger drive, or shard over more nodes",
    )


def _mount(path: object, free: dict[str, float]) -> str | None:
    """The probed file system that a path lies on."""
    if not isinstance(path, str):
        return None
    above = {str(parent) for parent in (PurePosixPath(path), *PurePosixPath(path).parents)}
    return max((mount for mount in free if mount in above), key=len, default=None)
