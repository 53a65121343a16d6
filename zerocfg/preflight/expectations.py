"""What the nodes should be like: a build's lock says its releases and hardware, a profile the hardware."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.emit import lock as lockfile
from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.hardware.profile import read_profile
from zerocfg.models.hardware import Accelerator, HardwareProfile

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Limits:
    """From which figure on a node fails."""

    disk_gib: float = 1.0
    """Free space of a folder that a job writes to."""
    card_share: float = 0.9
    """Of a card's usable memory that is free: what is less is in another job's hands."""
    host_share: float = 0.75
    """Of the fleet's median of available memory."""
    clock_s: float = 1.0
    """Beyond what the measurement can tell: times of files and logs of different nodes no longer compare."""


@dataclass(frozen=True)
class Expectations:
    """``source``: who says so, as it is shown. Nothing is expected of what is not said. ``nodes`` of the job, and
    ``ranks`` on each of them, as a build plans them."""

    source: str = ""
    releases: Mapping[str, str] = field(default_factory=dict)
    profile: HardwareProfile | None = None
    limits: Limits = Limits()
    nodes: int | None = None
    ranks: int | None = None


def read(path: Path) -> Expectations:
    """From the folder of a build, its lock, or a profile that ``zerocfg probe`` wrote. Raises ValueError, one line."""
    if path.is_dir() or path.name == lockfile.NAME:
        lock = lockfile.load(path / lockfile.NAME if path.is_dir() else path)
        nodes, each = (lock.hardware.get(name) for name in ("nodes", "accelerators_per_node"))
        return Expectations(
            str(path),
            lock.versions,
            _profile(lock),
            nodes=nodes if isinstance(nodes, int) else None,
            ranks=each if isinstance(each, int) else None,
        )
    return Expectations(str(path), {}, read_profile(path))


def _profile(lock: lockfile.Lock) -> HardwareProfile | None:
    """The devices of a lock; it keeps less of them than a profile does."""
    name, vendor = lock.hardware.get("accelerator"), lock.hardware.get("vendor")
    each = lock.hardware.get("accelerators_per_node")
    if not (isinstance(name, str) and isinstance(vendor, str) and isinstance(each, int)) or vendor == "cpu":
        return None  # a build for ranks on CPUs says nothing about the cards of a node
    known = find_accelerator(name)
    device = known[0] if known else Accelerator.model_validate({"name": name, "vendor": vendor})
    # The catalogue's slot and link are those of a usual board, not of this build.
    device = device.model_copy(update={"pcie_generation": None, "pcie_width": None})
    return HardwareProfile(name=lock.hardware_name, accelerators_per_node=each, accelerator=device)
