"""Compares a machine with its profile. Pure: two profiles in, descriptions of the differences out.

Only keys that stand in the profile are compared, so that an older or a shortened one stays right. What changes from one
minute to the next (free space, available memory) and what was measured are not differences.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.hardware.catalogue import find_accelerator

if TYPE_CHECKING:
    from zerocfg.models.base import Section
    from zerocfg.models.hardware import Accelerator, HardwareProfile, Host

OLD = 180  # days
CARD_SHARE = 0.01  # of a card's memory: drivers of one series differ by some MiB
HOST_SHARE = 0.02  # of the host's memory: kernels keep more or less for themselves


@dataclass(frozen=True)
class Difference:
    """What the one profile states, and what the other has. ``absent``: one of them does not have the thing at all."""

    label: str
    stated: str
    here: str
    absent: bool = False


ABSENT, PRESENT = "missing", "there"


@dataclass(frozen=True)
class Sides:
    """The names of the two profiles in the descriptions."""

    one: str = "the profile"
    says: str = "says"
    other: str = "this machine"

    def words(self, found: Difference) -> str:
        """A difference in one line."""
        if found.absent:
            return f"{found.label}: only {self.one if found.here == ABSENT else self.other} has it"
        return f"{found.label}: {self.one} {self.says} {found.stated}, {self.other} has {found.here}"


def compare(profile: HardwareProfile, machine: HardwareProfile, sides: Sides | None = None) -> list[str]:
    """The differences in words, one line each."""
    return [(sides or Sides()).words(difference) for difference in differences(profile, machine)]


def differences(profile: HardwareProfile, machine: HardwareProfile) -> list[Difference]:
    """Where ``machine`` is not what ``profile`` says; of several nodes one is compared."""
    found = list(_devices(profile, machine))
    if profile.host is not None and machine.host is not None:
        found += _host(profile.host, machine.host)
    return found


def age(profile: HardwareProfile, today: datetime.date) -> int | None:
    """Days since the profile was written; None where it has no date, or one that is none."""
    try:
        return (today - datetime.date.fromisoformat(profile.date or "")).days
    except ValueError:
        return None


def _devices(profile: HardwareProfile, machine: HardwareProfile) -> Iterator[Difference]:
    stated, here = profile.accelerator, machine.accelerator
    if stated.vendor == "cpu" and here.vendor == "cpu":
        return  # ranks on CPUs: how many is the author's choice
    if not _same_device(stated, here) or profile.accelerators_per_node != machine.accelerators_per_node:
        yield _differ("devices", _count(profile), _count(machine))
    if not _same_device(stated, here):
        return
    yield from _size("memory of a card", stated.usable_gib, here.usable_gib, CARD_SHARE)
    for name, label in (
        ("architecture", "compute capability"),
        ("pcie_generation", "PCIe generation"),
        ("pcie_width", "PCIe lanes"),
    ):
        yield from _stated(stated, here, name, label)
    link, linked = profile.link_within_node, machine.link_within_node
    if link is not None and linked is not None and link.kind != linked.kind:
        yield _differ("link between the devices", link.kind, linked.kind)
    if profile.topology and machine.topology:
        for index, (row, other) in enumerate(zip(profile.topology, machine.topology, strict=False)):
            if row != other:
                yield _differ(f"paths of device {index}", row, other)


def _differ(label: str, stated: object, here: object) -> Difference:
    return Difference(label, str(stated), str(here))


def _same_device(stated: Accelerator, here: Accelerator) -> bool:
    """The names of a catalogue's entry and of the driver's library for one device differ."""
    if stated.name == here.name:
        return True
    one, other = find_accelerator(stated.name), find_accelerator(here.name)
    return one is not None and other is not None and one[0].name == other[0].name


def _count(profile: HardwareProfile) -> str:
    if profile.accelerator.vendor == "cpu":
        return "none"
    return f"{profile.accelerators_per_node} x {profile.accelerator.name}"


def _host(stated: Host, here: Host) -> Iterator[Difference]:
    for name, label in (
        ("cpu_model", "CPU"),
        ("cpus", "CPUs that a process may use"),
        ("memlock", "limit of locked memory (bytes)"),
        ("driver", "driver"),
        ("driver_cuda", "newest CUDA of the driver"),
    ):
        yield from _stated(stated, here, name, label)
    yield from _size("memory of the host", stated.ram_gib, here.ram_gib, HOST_SHARE)
    if stated.ram_limit_gib != here.ram_limit_gib:
        label = "memory limit of the control group"
        yield _differ(label, _gib(stated.ram_limit_gib), _gib(here.ram_limit_gib))
    # Without a limit the key is left out; releases that knew it wrote the list of NUMA nodes, if only an empty one.
    if stated.cpu_limit != here.cpu_limit and "numa" in stated.model_fields_set:
        limits = (limit if limit is not None else "none" for limit in (stated.cpu_limit, here.cpu_limit))
        yield _differ("CPU limit of the control group", *limits)
    for key, label, identity, facts in _LISTS:
        if key in stated.model_fields_set:
            yield from _lists(label, getattr(stated, key), getattr(here, key), identity, facts)


# list, what to call one of it, what it is known by, what else must be equal
_LISTS: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    ("numa", "NUMA node", "index", (("cpus", "CPUs"), ("accelerators", "devices"))),
    ("nvme", "NVMe mount", "path", ()),
    ("network", "network interface", "name", (("gbit_s", "Gbit/s"), ("state", "state"))),
    ("infiniband", "RDMA port", "name", (("gbit_s", "Gbit/s"), ("state", "state"), ("layer", "layer"))),
)


def _lists(
    label: str,
    stated: Sequence[Section],
    here: Sequence[Section],
    identity: str,
    facts: tuple[tuple[str, str], ...],
) -> Iterator[Difference]:
    others = {getattr(section, identity): section for section in here}
    for section in stated:
        name = getattr(section, identity)
        other = others.pop(name, None)
        if other is None:
            yield Difference(f"{label} {name}", PRESENT, ABSENT, absent=True)
            continue
        for fact, unit in facts:
            yield from _stated(section, other, fact, f"{unit} of {label} {name}")
    for name in others:
        yield Difference(f"{label} {name}", ABSENT, PRESENT, absent=True)


def _stated(stated: Section, here: Section, name: str, label: str) -> Iterator[Difference]:
    """A fact that the profile states and that could be read here."""
    one, other = getattr(stated, name), getattr(here, name)
    if one is not None and other is not None and name in stated.model_fields_set and one != other:
        yield _differ(label, one, other)


def _size(label: str, stated: float | None, here: float | None, share: float) -> Iterator[Difference]:
    if stated is not None and here is not None and abs(stated - here) > share * max(stated, here):
        yield _differ(label, _gib(stated), _gib(here))


def _gib(size: float | None) -> str:
    return "none" if size is None else f"{size:.1f} GiB"
