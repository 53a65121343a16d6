"""This machine as a hardware profile. Nothing here raises; what could not be read becomes a note."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zerocfg.hardware import amd, intel, linux, network, nvml
from zerocfg.hardware.catalogue import CPU
from zerocfg.hardware.devices import Devices
from zerocfg.models.hardware import Accelerator, HardwareProfile, Host, Mount, NumaNode

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30


def quietly(_: str) -> None:
    """No progress is shown."""


def probe(
    root: Path = Path("/"), devices: Devices | None = None, progress: Callable[[str], None] = quietly
) -> HardwareProfile:
    """Describe this machine as one node. ``root`` and ``devices`` are replaced by tests."""
    found = find_devices(root, progress) if devices is None else devices
    notes = list(found.notes)
    host = probe_host(root, notes, found)
    accelerator = _common(found.accelerators, notes)
    count = max(1, len(found.accelerators))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if accelerator is not CPU and name in os.environ:
            notes.append(f"{name}={os.environ[name]} is set; this profile describes every device")
    return HardwareProfile(
        name="cpu" if accelerator is CPU else f"{count}x{accelerator.name}",
        accelerators_per_node=count,
        accelerator=accelerator,
        link_within_node=found.link,
        topology=found.topology,
        host=host,
        origin=f"probe of {platform.system() or 'an unknown system'} {platform.machine()}".strip(),
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        notes=notes,
    )


def find_devices(root: Path, progress: Callable[[str], None] = quietly) -> Devices:
    """The devices of the first vendor that has some here: NVIDIA, AMD, Intel (only where Linux shows such a device)."""
    found = nvml.read_devices()
    notes = list(found.notes)
    if not found.accelerators and (root / "dev/kfd").exists():
        progress("reading AMD devices")
        found = amd.read_devices()
        notes += found.notes
    if not found.accelerators and intel.is_here(root):
        progress("asking torch for Intel devices")
        found = intel.read_devices(progress)
        notes += found.notes
    if found.accelerators:
        return found
    return Devices(notes=notes)


def probe_host(root: Path, notes: list[str], devices: Devices | None = None) -> Host:
    """CPUs, memory, limits, drives and networks; adds to ``notes`` what could not be read."""
    total, available = linux.memory(root)
    if total is None:
        total = _installed_memory()
    if total is None:
        notes.append("the amount of memory could not be read")
    limit = linux.memory_limit(root)
    memlock = _memlock()
    if memlock is None:
        notes.append("the limit of locked memory could not be read")
    near: dict[int, list[int]] = {}
    for index, pci in enumerate(devices.pci if devices else []):
        node = linux.numa_node_of(root, pci) if pci else None
        if node is not None:
            near.setdefault(node, []).append(index)
    return Host(
        cpu_model=linux.cpu_model(root) or platform.processor() or None,
        cpus=_cpus(),
        cpu_limit=linux.cpu_limit(root),
        numa=[
            NumaNode(index=index, cpus=cpus, memory_gib=_gib(size), accelerators=near.get(index, []))
            for index, cpus, size in linux.numa_nodes(root)
        ],
        ram_gib=_gib(total) or None,
        ram_available_gib=_gib(available),
        ram_limit_gib=_gib(limit),
        memlock=memlock,
        nvme=[Mount(path=path, free_gib=round(free / GIB, 2)) for path, free in linux.nvme_mounts(root)],
        network=network.interfaces(root),
        infiniband=network.ports(root),
        driver=devices.driver if devices else None,
        driver_cuda=devices.driver_cuda if devices else None,
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
