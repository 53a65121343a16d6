"""What Linux tells about a machine through ``/proc`` and ``/sys``.

Every function takes the root of the file tree, so a test can hand in a made-up one, and answers None (or an
empty list) where a file is missing, as it is on macOS and Windows.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GIB = 1 << 30
# Control groups of version 1 write "no limit" as the largest multiple of a page below 2^63.
NO_LIMIT = 1 << 60


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def memory(root: Path) -> tuple[int | None, int | None]:
    """Bytes of memory: installed, and available now (``/proc/meminfo``)."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", _text(root / "proc/meminfo") or "", re.M))
    total, available = (int(found[name]) * 1024 if name in found else None for name in ("MemTotal", "MemAvailable"))
    return total, available


def memory_limit(root: Path) -> int | None:
    """The least memory limit in bytes of this process's control group and its parents; None: unlimited.

    Inside a container the path in ``/proc/self/cgroup`` may not exist below the mount; the walk to the
    mount's root, which then is the container's own group, covers that.
    """
    limits = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if not controllers:
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts) + 1):
            value = (_text(mount.joinpath(*parts[:depth]) / name) or "").strip()
            if value.isdigit() and int(value) < NO_LIMIT:
                limits.append(int(value))
    return min(limits, default=None)


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
    for line in (_text(root / "proc/mounts") or "").splitlines():
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
