"""ZC5xx: optimizer states and parameters on NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_section, section, stage_of, under_deepspeed_launcher
from zerocfg.rules.failures import ignored, primary_location
from zerocfg.rules.fixes import edited, present, together
from zerocfg.rules.offload.devices import PARTS, device, place
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Path


@rule("ZC504", "nvme-below-stage-3", Severity.ERROR)
def nvme_below_stage_3(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if stage in (1, 2) and device(run, "offload_optimizer") == "nvme":
        location, related = place(run, "offload_optimizer")
        yield Finding(
            location,
            f"stage {stage} does not offload to NVMe: the optimizer states silently go to host memory",
            'use stage 3, or write "cpu"',
            related,
            fix=to_host(run, "offload_optimizer", "offload to host memory, as it does today"),
        )


def to_host(run: Run, part: str, why: str) -> Fix | None:
    """A fix that offloads a part to host memory, and takes away a path that nobody would look at."""
    file, text = run.deepspeed, '"cpu"'
    device_at: Path = ("zero_optimization", part, "device")
    path: Path = ("zero_optimization", part, "nvme_path")
    if not present(file, device_at):
        file, text = run.accelerate, "cpu"
        device_at, path = ("deepspeed_config", f"{part}_device"), ("deepspeed_config", f"{part}_nvme_path")
    fix = edited(replace_value, file, device_at, text, why=why, safe=False)
    if fix is None or not present(file, path):
        return fix
    return together(why, fix, edited(delete_entry, file, path, why=why), safe=False)


@rule("ZC505", "nvme-without-path", Severity.ERROR)
def nvme_without_path(run: Run) -> Iterator[Finding]:
    for part in PARTS:
        written = section(run, "zero_optimization", part)
        if run.deepspeed is None or written.get("device") != "nvme" or stage_of(run) != 3:
            continue
        if written.get("nvme_path") is None:
            yield Finding(
                Location(run.deepspeed, ("zero_optimization", part)),
                f"`{part}` to NVMe without `nvme_path`; the engine stops when it is built",
                'write "nvme_path": a folder on a local NVMe drive',
                fix=to_host(run, part, "offload to host memory instead"),
            )


@rule("ZC506", "nvme-path-in-accelerate-config", Severity.ERROR)
def nvme_path_in_accelerate_config(run: Run) -> Iterator[Finding]:
    if not under_deepspeed_launcher(run):
        return
    told = set()
    for item in ignored(run, "ZC506"):
        path = item.place.path
        value = accelerate_section(run).get(str(path[-1]))
        if value in (None, "none", ""):
            continue
        part = "offload_optimizer" if "optimizer" in str(path[-1]) else "offload_param"
        told.add(part)
        nvme = accelerate_section(run).get(f"{part}_device") == "nvme"
        location, related = primary_location(run, [item.place])
        yield Finding(
            location,
            f'accelerate never passes `{path[-1]}` on; DeepSpeed gets the path "none" instead of {show(value)}'
            if nvme
            else f"`{path[-1]}` is never used: {part}_device is not nvme, and offloading to the CPU needs no path",
            "put the offload section into a DeepSpeed JSON and name it in `deepspeed_config_file`"
            if nvme
            else "remove it",
            related,
            severity=None if nvme else Severity.NOTE,
            fix=to_host(run, part, "offload to host memory instead")
            if nvme
            else edited(delete_entry, run.accelerate, path, why="remove what nobody reads"),
        )
    for part in PARTS:
        if run.accelerate is None or run.deepspeed is not None or part in told:
            continue
        if accelerate_section(run).get(f"{part}_device") == "nvme" and stage_of(run) == 3:
            yield Finding(
                Location(run.accelerate, ("deepspeed_config", f"{part}_device")),
                f'`{part}_device: nvme` here always gets the path "none", a folder in the current directory',
                "put the offload section into a DeepSpeed JSON and name it in `deepspeed_config_file`",
                fix=to_host(run, part, "offload to host memory instead"),
            )


@rule("ZC507", "nvme-path-unused", Severity.NOTE)
def nvme_path_unused(run: Run) -> Iterator[Finding]:
    for part in PARTS:
        written = section(run, "zero_optimization", part)
        path = ("zero_optimization", part, "nvme_path")
        if run.deepspeed is None or written.get("nvme_path") in (None, "none", "", "auto"):
            continue
        if written.get("device") in ("cpu", "none"):
            yield Finding(
                Location(run.deepspeed, path),
                f"`nvme_path` is not used: `{part}` goes to {written['device']}, which needs no NVMe drive",
                'remove it, or write "device": "nvme"',
                fix=edited(delete_entry, run.deepspeed, path, why="remove the path"),
            )


@rule("ZC508", "fast-init-without-nvme", Severity.NOTE)
def fast_init_without_nvme(run: Run) -> Iterator[Finding]:
    path = ("zero_optimization", "offload_optimizer", "fast_init")
    written = section(run, *path[:2])
    if run.deepspeed is None or written.get("fast_init") is not True:
        return
    if any(device(run, part) != "nvme" for part in PARTS):
        yield Finding(
            Location(run.deepspeed, path),
            "`fast_init` has no effect unless optimizer states and parameters are both on NVMe",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key"),
        )
