"""Network interfaces and RDMA ports, from ``/sys``; and what they give to one device of a job of several nodes.

As in :mod:`zerocfg.hardware.linux` every function takes the root of the file tree; what is missing is None or absent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.hardware.linux import read_text
from zerocfg.models.hardware import Interface, Link, Port

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.models.hardware import Host


def interfaces(root: Path) -> list[Interface]:
    """Interfaces of hardware and bonds; where there are none (as in a container), all that are up but the loopback."""
    found, others = [], []
    for folder in sorted((root / "sys/class/net").glob("*")):
        if folder.name in ("lo", "bonding_masters"):
            continue
        speed = (read_text(folder / "speed") or "").strip()  # Mbit/s; -1 or an error when there is no link
        interface = Interface(
            name=folder.name,
            gbit_s=int(speed) / 1000 if speed.isdigit() and int(speed) > 0 else None,
            state=(read_text(folder / "operstate") or "unknown").strip(),
        )
        if (folder / "device").exists() or (folder / "bonding").exists():
            found.append(interface)
        elif interface.state == "up":
            others.append(interface)
    return found or others


def ports(root: Path) -> list[Port]:
    """Ports of RDMA adapters (``/sys/class/infiniband``)."""
    found = []
    for folder in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        rate = re.match(r"\s*([\d.]+)\s*Gb/sec", read_text(folder / "rate") or "")
        state = (read_text(folder / "state") or "").rpartition(":")[2].strip().lower()
        found.append(
            Port(
                name=f"{folder.parents[1].name}:{folder.name}",
                gbit_s=float(rate[1]) if rate and float(rate[1]) > 0 else None,
                state=state or "unknown",
                layer=(read_text(folder / "link_layer") or "InfiniBand").strip(),
            )
        )
    return found


def link_between_nodes(host: Host | None, devices: int) -> Link | None:
    """What the adapters of a node give to each of its devices, as printed; None where no speed is known.

    RDMA ports come first, the fastest ones and at most one for each device (further ones are for storage as a rule);
    without them the fastest interface. Which of them a job uses is up to NCCL's settings: a measured rate is better.
    """
    if host is None:
        return None
    active = [port for port in host.infiniband if port.state == "active" and port.gbit_s]
    if active:
        best = max(port.gbit_s or 0 for port in active)
        fastest = [port for port in active if port.gbit_s == best]
        kind = "infiniband" if fastest[0].layer.lower() == "infiniband" else "ethernet"
        return Link(kind=kind, gb_s=_both_directions(best * min(len(fastest), devices), devices))
    speeds = [interface.gbit_s for interface in host.network if interface.state != "down" and interface.gbit_s]
    return Link(kind="ethernet", gb_s=_both_directions(max(speeds), devices)) if speeds else None


def _both_directions(gbit_s: float, devices: int) -> float:
    return round(gbit_s / 8 * 2 / devices, 3)
