"""What Linux tells about a machine through ``/proc`` and ``/sys``.

Every function takes the root of the file tree, so a test can hand in a made-up one, and answers None (or an
empty list) where a file is missing, as it is on macOS and Windows.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GIB = 1 << 30
# Control groups of version 1 write "no limit" as the largest multiple of a page below 2^63.
NO_LIMIT = 1 << 60


def read_text(path: Path) -> str | None:
    """The text of a small file; None where it cannot be read (some files of /sys answer with an error)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def memory(root: Path) -> tuple[int | None, int | None]:
    """Bytes of memory: installed, and available now (``/proc/meminfo``)."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", read_text(root / "proc/meminfo") or "", re.M))
    total, available = (int(found[name]) * 1024 if name in found else None for name in ("MemTotal", "MemAvailable"))
    return total, available


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control group and of its parents that ``controller`` may have its limits in.

    Inside a container the path in ``/proc/self/cgroup`` may not exist below the mount; the walk to the
    mount's root, which then is the container's own group, covers that.
    """
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if not controllers:
            mount = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controller
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts) + 1):
            yield mount.joinpath(*parts[:depth])


def memory_limit(root: Path) -> int | None:
    """The least memory limit in bytes of this process's control group and its parents; None: unlimited."""
    limits = []
    for folder in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            value = (read_text(folder / name) or "").strip()
            if value.isdigit() and int(value) < NO_LIMIT:
                limits.append(int(value))
    return min(limits, default=None)


def memory_left(root: Path) -> int | None:
    """Bytes that this process's control group and its parents may still take; None: unlimited.

    Files in memory (tmpfs) count as used, cached files of a disk do not: the kernel gives those up.
    """
    left = []
    for folder in _groups(root, "memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            most, taken = ((read_text(folder / name) or "").strip() for name in (limit, used))
            if not (most.isdigit() and int(most) < NO_LIMIT):
                continue
            cached = re.search(r"^(?:total_)?inactive_file (\d+)", read_text(folder / "memory.stat") or "", re.M)
            taken_bytes = int(taken) - (int(cached[1]) if cached else 0) if taken.isdigit() else 0
            left.append(int(most) - max(0, taken_bytes))
    return max(0, min(left)) if left else None


def cpu_limit(root: Path) -> float | None:
    """CPUs whose time the control group of this process, or one of its parents, grants; None: unlimited."""
    limits = []
    for folder in _groups(root, "cpu"):
        quota, period = ([*(read_text(folder / "cpu.max") or "").split(), "", ""])[:2]
        if not quota:
            quota = (read_text(folder / "cpu.cfs_quota_us") or "").strip()
            period = (read_text(folder / "cpu.cfs_period_us") or "").strip()
        if quota.isdigit() and period.isdigit() and int(period) > 0 and int(quota) > 0:
            limits.append(int(quota) / int(period))
    return round(min(limits), 2) if limits else None


def cpu_model(root: Path) -> str | None:
    """The CPU's name (``/proc/cpuinfo``); Arm writes none there."""
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.*\S)", read_text(root / "proc/cpuinfo") or "", re.M)
    return found[1] if found else None


def numa_nodes(root: Path) -> list[tuple[int, str, int | None]]:
    """(number, its CPUs as Linux lists them, its memory in bytes) of each NUMA node."""
    nodes = []
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        found = re.search(r"MemTotal:\s+(\d+) kB", read_text(folder / "meminfo") or "")
        cpus = (read_text(folder / "cpulist") or "").strip()
        nodes.append((int(folder.name[4:]), cpus, int(found[1]) * 1024 if found else None))
    return sorted(nodes)


def numa_node_of(root: Path, pci: str) -> int | None:
    """The NUMA node of a PCI device such as ``0000:3b:00.0``; None where the firmware does not say (-1)."""
    node = (read_text(root / "sys/bus/pci/devices" / pci / "numa_node") or "").strip()
    return int(node) if node.isdigit() else None


def free_bytes(path: Path) -> int | None:
    """Bytes that this user may still write below ``path``; None when it may not write there at all."""
    try:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize if os.access(path, os.W_OK) else None
    except (OSError, AttributeError):
        return None


def nvme_mounts(root: Path, free: Callable[[Path], int | None] = free_bytes) -> list[tuple[str, int]]:
    """Writable file systems on NVMe drives as (mount point, free bytes), the roomiest first.

    Partitions, LVM, dm-crypt and md arrays are followed to their drives through ``/sys/class/block``; an
    array counts when all of its drives are NVMe. A device that is mounted at several places is listed
    once.
    """
    found: dict[str, tuple[str, int]] = {}
    for line in (read_text(root / "proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) < 4 or not fields[0].startswith("/dev/") or "ro" in fields[3].split(","):
            continue
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        if point == "/boot" or point.startswith("/boot/") or not (root / point.lstrip("/")).is_dir():
            continue
        device = _kernel_name(root, fields[0])
        room = free(root / point.lstrip("/")) if _is_nvme(root, device, depth=0) else None
        if room is not None and (device not in found or len(point) < len(found[device][0])):
            found[device] = (point, room)
    return sorted(found.values(), key=lambda mount: -mount[1])


def _kernel_name(root: Path, device: str) -> str:
    """``/dev/mapper/data`` as ``dm-0``; other names as they are."""
    path = root / device.lstrip("/")
    try:
        return path.readlink().name if path.is_symlink() else path.name
    except OSError:
        return path.name


def _is_nvme(root: Path, device: str, depth: int) -> bool:
    if re.fullmatch(r"nvme\d+(c\d+)?n\d+(p\d+)?", device):
        return True
    try:
        slaves = [entry.name for entry in (root / "sys/class/block" / device / "slaves").iterdir()]
    except OSError:
        return False
    return depth < 8 and bool(slaves) and all(_is_nvme(root, slave, depth + 1) for slave in slaves)
