"""One profile for several nodes: of everything the least, with a word on where they differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from zerocfg.hardware.measure import MeasureError, least, noted, with_measured
from zerocfg.hardware.measuring.messages import Report
from zerocfg.hardware.network import link_between_nodes
from zerocfg.hardware.profile_drift import Sides, compare
from zerocfg.models.hardware import Accelerator, HardwareProfile, Host, Interface, Link, Mount, Port

Memlock = int | Literal["unlimited"] | None
Named = TypeVar("Named", Mount, Interface, Port)


def from_reports(reports: Sequence[Report]) -> HardwareProfile:
    """The profile of a job, from the reports of all its ranks in their order. Raises MeasureError."""
    nodes = list(dict.fromkeys(str(report["node"]) for report in reports))
    ranks = {node: [report for report in reports if report["node"] == node] for node in nodes}
    profiles, names, notes = [], [], []
    for number, node in enumerate(nodes):
        first = next((report for report in ranks[node] if report["profile"] is not None), None)
        name = f"node {number} ({ranks[node][0]['host']})"
        if first is None:
            notes.append(f"{name} did not describe itself: none of its ranks has the local rank 0")
            continue
        profile = HardwareProfile.model_validate(first["profile"])
        if profile.accelerator.vendor == "cpu":
            profile = profile.model_copy(update={"accelerators_per_node": len(ranks[node])})
        profiles.append(profile)
        names.append(name)
    if not profiles:
        raise MeasureError("no rank described its node: none has the local rank 0")
    return with_measured(noted(merge(profiles, names, len(nodes)), notes), reports)


def merge(profiles: Sequence[HardwareProfile], names: Sequence[str], nodes: int) -> HardwareProfile:
    """The nodes as one profile; ``names`` are for the notes. ``nodes`` counts those without a profile as well."""
    first = profiles[0]
    notes = list(first.notes)
    for name, profile in zip(names[1:], profiles[1:], strict=True):
        for line in compare(first, profile, Sides(names[0], "has", name)):
            notes.append(f"the nodes differ: {line}")
    if len(notes) > len(first.notes):
        notes.append("where the nodes differ this profile has the least that each of them has")
    for name, profile in zip(names[1:], profiles[1:], strict=True):
        notes += [f"{name}: {note}" for note in profile.notes if note not in first.notes]
    per_node = min(profile.accelerators_per_node for profile in profiles)
    accelerator = _device([profile.accelerator for profile in profiles])
    host = _host([profile.host for profile in profiles if profile.host is not None])
    between = [link_between_nodes(profile.host, per_node) for profile in profiles]
    same = all(profile.topology == first.topology for profile in profiles)
    return first.model_copy(
        update={
            "name": _name(nodes, per_node, accelerator),
            "nodes": nodes,
            "accelerators_per_node": per_node,
            "accelerator": accelerator,
            "link_within_node": _slowest([profile.link_within_node for profile in profiles]),
            "topology": first.topology if same else [],
            "link_between_nodes": _slowest(between) if nodes > 1 else None,
            "host": host,
            "notes": notes,
        }
    )


def _name(nodes: int, per_node: int, accelerator: Accelerator) -> str:
    each = f"{per_node}x{accelerator.name}"
    if nodes > 1:
        return f"{nodes}x{each}"
    return each if per_node > 1 or accelerator.vendor != "cpu" else accelerator.name


def _device(devices: Sequence[Accelerator]) -> Accelerator:
    """The device with the least memory (a node without a device has none), with the slowest slot."""
    smallest = min(devices, key=lambda device: device.planning_gib or 0)
    slot = min(devices, key=lambda device: device.host_gb_s or 0)
    names = ("pcie_generation", "pcie_width", "host_gb_s")
    return smallest.model_copy(update={name: getattr(slot, name) for name in names})


def _slowest(links: Sequence[Link | None]) -> Link | None:
    known = [link for link in links if link is not None]
    return min(known, key=lambda link: link.gb_s or 0, default=None)


def _host(hosts: Sequence[Host]) -> Host | None:
    if not hosts:
        return None
    smallest = {
        name: least(getattr(host, name) for host in hosts)
        for name in ("cpus", "cpu_limit", "ram_gib", "ram_available_gib", "ram_limit_gib", "memory_gb_s", "pinned_gb_s")
    }
    return hosts[0].model_copy(
        update={
            **smallest,
            "launch_us": max((host.launch_us for host in hosts if host.launch_us is not None), default=None),
            "memlock": _memlock([host.memlock for host in hosts]),
            "nvme": [
                _least_of(mounts, ("free_gib", "read_gb_s", "write_gb_s"))
                for mounts in _everywhere([host.nvme for host in hosts], "path")
            ],
            "network": [
                _least_of(found, ("gbit_s",), "up") for found in _everywhere([host.network for host in hosts], "name")
            ],
            "infiniband": [
                _least_of(found, ("gbit_s",), "active")
                for found in _everywhere([host.infiniband for host in hosts], "name")
            ],
        }
    )


def _everywhere(lists: Sequence[Sequence[Named]], identity: str) -> list[list[Named]]:
    """What every node has, in the order of the first one."""
    by_name = [{getattr(item, identity): item for item in found} for found in lists]
    return [[found[name] for found in by_name] for name in by_name[0] if all(name in found for found in by_name)]


def _least_of(same: Sequence[Named], rates: tuple[str, ...], best: str = "") -> Named:
    """The same thing on every node: its lowest rates, and ``best`` as its state only when it is that everywhere."""
    updates: dict[str, object] = {name: least(getattr(item, name) for item in same) for name in rates}
    if best:
        updates["state"] = next((state for item in same if (state := getattr(item, "state", "")) != best), best)
    return same[0].model_copy(update=updates)


def _memlock(limits: Sequence[Memlock]) -> Memlock:
    known = [limit for limit in limits if limit is not None]
    numbers = [limit for limit in known if isinstance(limit, int)]
    return min(numbers) if numbers else ("unlimited" if known else None)
