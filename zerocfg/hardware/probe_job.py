"""What ``zerocfg probe`` does: this machine, or all machines of the job that this process was started in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.hardware import drives, launcher
from zerocfg.hardware.measure import noted, of_all_nodes, of_this_machine
from zerocfg.hardware.nodes import from_reports
from zerocfg.hardware.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zerocfg.models.hardware import HardwareProfile


def probe_job(
    measure: bool, progress: Callable[[str], None], environment: Mapping[str, str] = os.environ
) -> HardwareProfile | None:
    """The profile; None in every rank but the first of a launcher's.

    Raises ValueError when the launcher's variables make no sense, MeasureError when the ranks did not meet.
    """
    place = launcher.find(environment)
    profile = None
    if place is None or place.local_rank == 0:
        profile = probe(progress=progress)
        if measure:
            profile = with_drives(profile, progress)
    if place is not None:
        reports = of_all_nodes(place, profile, measure, progress)
        return None if place.rank else from_reports(reports)
    return of_this_machine(profile, progress) if measure and profile is not None else profile


def with_drives(profile: HardwareProfile, progress: Callable[[str], None]) -> HardwareProfile:
    """The profile with the rates of its NVMe mounts."""
    if profile.host is None:
        return profile
    mounts, notes = [], []
    for mount in profile.host.nvme:
        progress(f"measuring the drive of {mount.path}")
        speed = drives.measure(Path(mount.path))
        if isinstance(speed, str):
            notes.append(f"the drive of {mount.path} was not measured: {speed}")
        else:
            mount = mount.model_copy(update={"read_gb_s": speed.read_gb_s, "write_gb_s": speed.write_gb_s})
        mounts.append(mount)
    if not mounts:
        notes.append("no drive was measured: no file system on NVMe is mounted where this user can write")
    host = profile.host.model_copy(update={"nvme": mounts})
    return noted(profile.model_copy(update={"host": host}), notes)
