"""ZC9xx: runs that do not fit although their states do: the optimizer step, the activations, the drive.

These rules speak about the runs of a zerocfg.yaml that names model and hardware, and only where the least that is
predicted exceeds what there is. A run that fits narrowly or perhaps is no finding: `zerocfg plan` shows the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import effective_value, section, stage_of
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import present, put
from zerocfg.rules.memory.capacity import enough_stage, to_stage, whole_model_trained
from zerocfg.rules.offload.devices import PARTS, device, on_host
from zerocfg.run.model import Run

if TYPE_CHECKING:
    from zerocfg.run.facts import HardwareSummary, MemorySummary


def _sized(gib: float) -> str:
    return f"{gib:.1f}" if gib >= 1 else f"{gib:.3g}"


def _states_fit(memory: MemorySummary, room: float) -> bool:
    """Whether the states fit between two steps; if not, ZC922 says so."""
    return memory.resting_gib is not None and memory.resting_gib <= room


@rule("ZC927", "optimizer-step-does-not-fit", Severity.ERROR, needs={"hardware", "model"})
def optimizer_step_does_not_fit(run: Run) -> Iterator[Finding]:
    hardware, memory, stage = run.hardware, run.memory, stage_of(run)
    if hardware is None or hardware.memory_gib is None or memory is None or run.model is None or stage is None:
        return
    if memory.step_gib is None or memory.step_gib <= hardware.memory_gib or not whole_model_trained(run):
        return
    if not _states_fit(memory, hardware.memory_gib):
        return
    name = "zero_optimization.sub_group_size"
    group, setting = _smaller_group(run, hardware, memory), run.effective.get("zero_optimization.stage")
    sizes = run.effective.get(name) if group else None
    location, related = primary_location(run, [one.origin for one in (sizes, setting) if one])
    other = enough_stage(run, stage)
    fix: Fix | None
    if group:
        help_text = f"write `sub_group_size` {group}: the step then goes in smaller pieces"
        fix = put(run.deepspeed, ("zero_optimization", "sub_group_size"), str(group), why="smaller sub groups")
    else:
        help_text = f"stage {other} fits" if other else "use more accelerators, or offload the optimizer"
        fix = to_stage(run, other)
    yield Finding(
        location,
        f"the optimizer step of {run.model.name} takes {_sized(memory.step_gib)} GiB of each accelerator at stage "
        f"{stage}, {_sized(memory.step_gib - (memory.resting_gib or 0))} of them only for the step itself, and "
        f"{hardware.name} has {_sized(hardware.memory_gib)} GiB",
        help_text,
        related,
        fix=fix,
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
    held = min(size + over, trained // hardware.accelerators)
    left = 0.9 * hardware.memory_gib - memory.resting_gib
    wanted = int(held * left / (memory.step_gib - memory.resting_gib)) - over
    if wanted < 10_000:
        return None
    digits = len(str(wanted)) - 1
    return int(str(wanted)[0]) * int(10**digits)


@rule("ZC928", "run-does-not-fit", Severity.ERROR, needs={"hardware", "model"})
def run_does_not_fit(run: Run) -> Iterator[Finding]:
    hardware, memory, stage = run.hardware, run.memory, stage_of(run)
    if hardware is None or hardware.memory_gib is None or memory is None or memory.peak_gib is None:
        return
    low, high = memory.peak_gib
    if run.model is None or low <= hardware.memory_gib or not whole_model_trained(run):
        return
    if memory.resting_gib is not None and not _states_fit(memory, hardware.memory_gib):
        return
    if memory.step_gib is not None and memory.step_gib > hardware.memory_gib:
        return  # told by ZC927
    setting = run.effective.get("zero_optimization.stage")
    micro = run.effective.get("train_micro_batch_size_per_gpu")
    location, related = primary_location(run, [one.origin for one in (setting, micro) if one])
    at_stage = f" at stage {stage}" if stage else ""
    yield Finding(
        location,
        f"{run.model.name} with {memory.micro_batch} x {memory.sequence_length} tokens takes about {low:.0f} to "
        f"{high:.0f} GiB of each accelerator{at_stage}, and {hardware.name} has {hardware.memory_gib:.1f} GiB",
        _remedy(run, hardware.memory_gib, memory),
        related,
    )


def _remedy(run: Run, room: float, memory: MemorySummary) -> str:
    for stage in range((stage_of(run) or 0) + 1, 4):
        if memory.stage_peaks_gib.get(stage, (room + 1, room + 1))[1] <= room:
            return f"stage {stage} fits"
    if memory.peak_gib and memory.logits_gib and memory.peak_gib[1] - memory.logits_gib <= room:
        return f"logits and loss are {memory.logits_gib:.0f} GiB of it: compute the loss in pieces (Liger kernels)"
    return "`zerocfg plan` lists what would make it fit"


@rule("ZC929", "nvme-drive-too-small", Severity.WARNING, needs={"hardware", "model"})
def nvme_drive_too_small(run: Run) -> Iterator[Finding]:
    hardware, memory = run.hardware, run.memory
    if hardware is None or memory is None or run.model is None or not memory.nvme_gib or not whole_model_trained(run):
        return
    parts = [part for part in PARTS if device(run, part) == "nvme"]
    paths = {part: section(run, "zero_optimization", part).get("nvme_path") for part in parts}
    mounts = {_mount(path, hardware.nvme_free_gib) for path in paths.values()}
    mount = mounts.pop() if len(mounts) == 1 else None
    if mount is None or run.deepspeed is None or memory.nvme_gib <= hardware.nvme_free_gib[mount]:
        return
    where = ("zero_optimization", parts[0], "nvme_path")
    yield Finding(
        Location(run.deepspeed, where) if present(run.deepspeed, where) else Location(run.deepspeed, where[:2]),
        f"the ranks of a node write {memory.nvme_gib:.0f} GiB, and {mount} of {hardware.name} has "
        f"{hardware.nvme_free_gib[mount]:.0f} GiB free",
        "choose a larger drive, or shard over more nodes",
    )


def _mount(path: object, free: dict[str, float]) -> str | None:
    """The probed file system that a path lies on."""
    if not isinstance(path, str):
        return None
    above = {str(one) for one in (PurePosixPath(path), *PurePosixPath(path).parents)}
    return max((mount for mount in free if mount in above), key=len, default=None)
