"""The network between nodes: as somebody states it, or assumed from the class of the hardware where nobody did.

A catalogue knows the links of a node, not the network that it stands in. Left out, communication between nodes would
cost nothing, and the plan that sends most would win. So the least is assumed that a vendor documents for nodes with
such devices, and said.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.models.hardware import Link

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile

# name of the device | Gbit/s of each device, one direction | kind | who documents it
_CLASSES = (
    (re.compile(r"G?B[23]00|H200-SXM"), 400, "ethernet", "Google Cloud A4 and A3 Ultra: 3,200 for 8 devices"),
    (re.compile(r"H[18]00-SXM|H20$|GH200"), 100, "ethernet", "Google Cloud A3 High: four cards of 200 for 8 devices"),
    (re.compile(r"A[18]00-SXM"), 50, "ethernet", "Amazon EC2 P4d: 400 for 8 devices"),
    (re.compile(r"MI3\d\dX"), 400, "infiniband", "Azure ND MI300X v5: 400 for each device"),
    (re.compile(r"Gaudi3"), 600, "ethernet", "Intel Gaudi 3: three ports of 200 to other nodes"),
    (re.compile(r"Gaudi2"), 300, "ethernet", "Intel Gaudi 2: three ports of 100 to other nodes"),
    (re.compile(r"RTXPRO6000"), 50, "ethernet", "Google Cloud G4: 400 for 8 devices"),
)
_ELSEWHERE = (12.5, "ethernet", "Amazon EC2 P3dn and G5, Google Cloud G2: 100 for 8 devices")
_DESKTOP = re.compile(r"RTX\d{4}(Ti)?|cpu", re.IGNORECASE)
_DESKTOP_NODE = 10  # Gbit/s of a node: 10GBASE-T of workstation boards; clouds offer no such nodes

_STATED = re.compile(
    r"(?:(\d+)\s*[x×*]\s*)?(\d+(?:\.\d+)?)\s*(gbit/s|gbit|gbps|Gb/s|gb|g)?[\s-]*(infiniband|ib|ethernet|roce)?",
    re.IGNORECASE,
)
FORM = "write adapters of a node x Gbit/s of each (8x200), or Gbit/s of a node (100), then infiniband or ethernet"


def with_network(profile: HardwareProfile, stated: str | None = None) -> HardwareProfile:
    """The profile with the network that is ``stated`` (``--network``), else with its own, else, where it has several
    nodes, with an assumed one. Raises ValueError with one line for a statement that is none."""
    if stated is not None:
        link = _stated(stated, profile.accelerators_per_node)
    else:
        known = profile.link_between_nodes
        has_rate = known is not None and (known.gb_s is not None or known.busbw_gb_s is not None)
        if profile.nodes == 1 or (has_rate and known is not None and not known.assumed):
            return profile
        link = _assumed(profile)
    return profile.model_copy(update={"link_between_nodes": link})


def describe_network(profile: HardwareProfile) -> str:
    """The network between the nodes in words, and whether it is assumed; empty for one node."""
    link = profile.link_between_nodes
    if profile.nodes == 1 or link is None:
        return ""
    if link.busbw_gb_s is not None:
        return f"{link.kind}, {link.busbw_gb_s:g} GB/s for each device, measured"
    if link.gb_s is None:
        return f"{link.kind} of unknown speed"
    rate = f"{link.kind} of {link.gb_s * 4:g} Gbit/s for each device"
    return f"{rate}, assumed ({link.assumed}); --network states another" if link.assumed else rate


def _assumed(profile: HardwareProfile) -> Link:
    name, each = profile.accelerator.name, profile.accelerators_per_node
    if _DESKTOP.fullmatch(name):
        return _link("ethernet", _DESKTOP_NODE / each, f"a node with {_DESKTOP_NODE} Gbit/s, as workstations have")
    for pattern, rate, kind, source in _CLASSES:
        if pattern.match(name):
            return _link(kind, rate, source)
    gbit_s, kind, source = _ELSEWHERE
    return _link(kind, gbit_s, source)


def _link(kind: str, gbit_s: float, assumed: str | None = None) -> Link:
    """``gbit_s`` of one device in one direction; a link counts both, in GB/s."""
    return Link(kind=kind, gb_s=gbit_s / 8 * 2, assumed=assumed)


def _stated(text: str, devices: int) -> Link:
    match = _STATED.fullmatch(text.strip())
    if "GB/s" in text:
        raise ValueError(f"--network {text}: networks are stated in Gbit/s, 8 times as many as GB/s; {FORM}")
    adapters, gbit_s = (int(match[1] or 1), float(match[2])) if match else (0, 0.0)
    if match is None or not adapters or not 0 < gbit_s <= 100_000:
        raise ValueError(f"--network {text}: {FORM}")
    kind = "infiniband" if (match[4] or "").lower() in ("infiniband", "ib") else "ethernet"
    return _link(kind, adapters * gbit_s / devices)
