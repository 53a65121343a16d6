"""This machine as a hardware profile. Nothing here raises; what could not be read becomes a note."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Literal

from zerocfg.hardware import linux
from zerocfg.hardware.catalogue import CPU
from zerocfg.hardware.nvml import Devices, read_devices
from zerocfg.models.hardware import Accelerator, HardwareProfile, Host, Mount

GIB = 1 << 30


def probe(root: Path = Path("/"), devices: Devices | None = None) -> HardwareProfile:
    """Describe this machine as one node. ``root`` and ``devices`` are replaced by tests."""
    found = read_devices() if devices is None else devices
    notes = list(found.notes)
    host = probe_host(root, notes)
    accelerator = _common(found.accelerators, notes)
    count = max(1, len(found.accelerators))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if accelerator is not CPU and visible is not None:
        notes.append(f"CUDA_VISIBLE_DEVICES={visible} is set; this profile describes every device")
    if (root / "dev/kfd").exists() and accelerator is CPU:
        notes.append("there seem to be AMD devices, which are not probed: name them by hand, as in 8xMI300X")
    return HardwareProfile(
        name="cpu" if accelerator is CPU else f"{count}x{accelerator.name}",
        accelerators_per_node=count,
        accelerator=accelerator,
        link_within_node=found.link,
        host=host,
        origin=f"probe of {platform.system() or 'an unknown system'} {platform.machine()}".strip(),
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        notes=notes,
    )


def probe_host(root: Path, notes: list[str]) -> Host:
    """CPUs, memory, limits and NVMe drives; adds to ``notes`` what could not be read."""
    total, available = linux.memory(root)
    if total is None:
        total = _installed_memory()
    if total is None:
        notes.append("the amount of memory could not be read")
    limit = linux.memory_limit(root)
    memlock = _memlock()
    if memlock is None:
        notes.append("the limit of locked memory could not be read")
    return Host(
        cpus=_cpus(),
        ram_gib=_gib(total) or None,
        ram_available_gib=_gib(available),
        ram_limit_gib=_gib(limit),
        memlock=memlock,
        nvme=[Mount(path=path, free_gib=round(free / GIB, 2)) for path, free in linux.nvme_mounts(root)],
    )


def _common(accelerators: list[Accelerator], notes: list[str]) -> Accelerator:
    """The one device that stands for all: of different ones the one with the least memory."""
    if not accelerators:
        return CPU
    names = sorted({accelerator.name for accelerator in accelerators})
    if len(names) > 1:
        notes.append(f"the devices differ ({', '.join(names)}): the one with the least memory stands for all")
    return min(accelerators, key=lambda accelerator: accelerator.planning_gib or 0)


def _cpus() -> int | None:
    """Logical CPUs that this process may run on (its affinity where the system has one)."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count()


def _installed_memory() -> int | None:
    """Bytes of memory where there is no ``/proc`` (macOS, BSD)."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _memlock() -> int | Literal["unlimited"] | None:
    """Soft limit of locked memory in bytes; None where the system has no such limit (Windows)."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    except (ImportError, AttributeError, ValueError, OSError):
        return None
    return "unlimited" if soft == resource.RLIM_INFINITY else soft


def _gib(size: int | None) -> float | None:
    return None if size is None else round(size / GIB, 2)
