"""Which nodes are not like the others, or not as expected: releases, hardware, limits, variables, room.

What more than half of the nodes have is right. Where no value has such a majority all of them are told, because then
nobody knows which one is.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from zerocfg.hardware.profile_drift import Difference, Sides, differences
from zerocfg.preflight.messages import NodeFacts
from zerocfg.preflight.verdict import Finding, Kind

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.preflight.expectations import Expectations, Limits

OF_A_NODE = re.compile(
    r"CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|.*_(IFNAME|HCA|HOME|CACHE|DIR|PATH|FILE|PREFIX|ROOT)"
    r"|.*_VERSION"
)
"""Variables that name devices, paths or adapters: nodes with other names may well differ in them."""
NONE = "not set"


def check(described: Mapping[str, NodeFacts], expected: Expectations) -> list[Finding]:
    """``described``: what each node says of itself, by its name."""
    return [
        *_releases(described, expected),
        *_hardware(described, expected),
        *_limits(described),
        *_variables(described),
        *_cards(described, expected.limits),
        *_memory(described, expected.limits),
        *_folders(described, expected.limits),
    ]


def _releases(described: Mapping[str, NodeFacts], expected: Expectations) -> Iterator[Finding]:
    wanted = {name: value.partition("+")[0] for name, value in expected.releases.items()}
    packages = dict.fromkeys(name for facts in described.values() for name in facts.releases)
    for package in dict.fromkeys([*packages, *wanted]):
        values = {node: facts.releases.get(package, "not installed") for node, facts in described.items()}
        if package not in wanted:
            cure = "install one release on all nodes: ranks of different releases hang or compute differently"
            yield from _majority("release", package, values, cure)
            continue
        for node, value in values.items():
            if value.partition("+")[0] != wanted[package]:
                yield Finding(
                    "release",
                    package,
                    value,
                    f"{node} has {package} {value}, {expected.source} was built for {wanted[package]}: install that "
                    "release there, or build the run for this one",
                    (node,),
                    others=wanted[package],
                )


def _hardware(described: Mapping[str, NodeFacts], expected: Expectations) -> Iterator[Finding]:
    """By the comparison that ``zerocfg probe --check`` makes."""
    profiles = {node: _comparable(facts.profile) for node, facts in described.items()}
    if expected.profile is not None:
        wanted = _comparable(expected.profile)
        for node, profile in profiles.items():
            sides = Sides(expected.source, "says", node)
            yield from (_unlike(difference, sides, (node,)) for difference in differences(wanted, profile))
        return
    alike: list[list[str]] = []
    for node, profile in profiles.items():
        kind = next((nodes for nodes in alike if not differences(profiles[nodes[0]], profile)), None)
        if kind is None:
            alike.append([node])
        else:
            kind.append(node)
    usual = max(alike, key=len, default=[])
    known = 2 * len(usual) > len(profiles)
    for node in (node for nodes in alike if nodes is not usual for node in nodes):
        sides = Sides(usual[0], "has", node)
        accused = (node,) if known else (usual[0], node)
        for difference in differences(profiles[usual[0]], profiles[node]):
            yield _unlike(difference, sides, accused)


def _unlike(found: Difference, sides: Sides, nodes: tuple[str, ...]) -> Finding:
    return Finding("hardware", found.label, found.here, sides.words(found), nodes, others=found.stated)


def _comparable(profile: HardwareProfile) -> HardwareProfile:
    """Without what differs between good nodes: names of virtual interfaces, the order of CPUs in the NUMA nodes."""
    if profile.host is None:
        return profile
    kept = profile.host.model_dump(exclude={"network", "numa"}, exclude_unset=True)
    return profile.model_copy(update={"host": type(profile.host).model_validate(kept)})


def _limits(described: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    values = {
        node: "unlimited" if facts.open_files is None else str(facts.open_files) for node, facts in described.items()
    }
    cure = "raise it there (ulimit -n, LimitNOFILE): data loaders and NCCL open a file for each connection"
    yield from _majority("limit", "limit of open files", values, cure)


def _variables(described: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    for name in sorted({name for facts in described.values() for name in facts.environment}):
        values = {node: facts.environment.get(name, NONE) for node, facts in described.items()}
        fails = OF_A_NODE.fullmatch(name) is None
        yield from _majority("environment", name, values, f"export {name} alike on all nodes", fails)


def _majority(kind: Kind, what: str, values: Mapping[str, str], cure: str, fails: bool = True) -> Iterator[Finding]:
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, value in values.items():
        nodes[value].append(node)
    if len(nodes) < 2:
        return
    usual, most = max(nodes.items(), key=lambda item: len(item[1]))
    if 2 * len(most) > len(values):
        for value, odd in nodes.items():
            if value != usual:
                for node in odd:
                    message = f"{node} has {what} {value}, {len(most)} of {len(values)} nodes have {usual}: {cure}"
                    yield Finding(kind, what, value, message, (node,), others=usual, fails=fails)
        return
    listing = ", ".join(f"{value} on {' '.join(having)}" for value, having in nodes.items())
    message = f"the nodes differ in {what}, and no value is in the majority: {listing}; {cure}"
    yield Finding(kind, what, "differs", message, tuple(values), fails=fails)


def _cards(described: Mapping[str, NodeFacts], limits: Limits) -> Iterator[Finding]:
    for node, facts in described.items():
        for index, card in enumerate(facts.cards):
            if card.free_gib < limits.card_share * card.usable_gib:
                used = card.usable_gib - card.free_gib
                yield Finding(
                    "memory",
                    f"card {index}",
                    f"{card.free_gib:.1f} GiB free",
                    f"{node}: {used:.1f} of {card.usable_gib:.1f} GiB of card {index} are in use before the job "
                    "starts: end the process that holds them (nvidia-smi lists it)",
                    (node,),
                    others=f"{card.usable_gib:.1f} GiB",
                )


def _memory(described: Mapping[str, NodeFacts], limits: Limits) -> Iterator[Finding]:
    available = {
        node: facts.profile.host.ram_available_gib
        for node, facts in described.items()
        if facts.profile.host is not None and facts.profile.host.ram_available_gib is not None
    }
    if len(available) < 2:
        return
    median = statistics.median(available.values())
    for node, free in available.items():
        if free < limits.host_share * median:
            yield Finding(
                "memory",
                "memory of the host",
                f"{free:.1f} GiB free",
                f"{node} has {free:.1f} GiB of memory available, the fleet's median is {median:.1f}: something else "
                "runs there, or an earlier job left processes or files in /dev/shm",
                (node,),
                others=f"{median:.1f} GiB",
            )


def _folders(described: Mapping[str, NodeFacts], limits: Limits) -> Iterator[Finding]:
    for node, facts in described.items():
        mounts = facts.profile.host.nvme if facts.profile.host is not None else []
        places = [(folder.role, folder.path, folder.free_gib) for folder in facts.folders]
        places += [("NVMe mount", mount.path, mount.free_gib) for mount in mounts]
        for role, path, free in places:
            if free is None:
                message = f"{node}: the {role} {path} cannot be written to: a job that saves there stops"
                yield Finding("disk", role, "not writable", message, (node,))
            elif free < limits.disk_gib:
                message = f"{node}: {_room(free)} are free in {path} ({role}), less than {_room(limits.disk_gib)}: "
                message += "a checkpoint, a cache or a compilation would stop there; make room"
                yield Finding(
                    "disk", role, f"{_room(free)} free", message, (node,), others=f">= {_room(limits.disk_gib)}"
                )


def _room(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"
