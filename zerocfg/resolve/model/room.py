"""The memory that there is for a rank and for a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.host import node_band, node_bytes
from zerocfg.memory.overhead import GIB, Band

if TYPE_CHECKING:
    from zerocfg.memory.predict import Prediction
    from zerocfg.models.hardware import HardwareProfile


def host_room(profile: HardwareProfile | None) -> int | None:
    """Bytes of a node's memory; None: not known."""
    ram = profile.host.planning_gib if profile is not None and profile.host is not None else None
    return None if ram is None else int(ram * GIB)


def device_room(profile: HardwareProfile | None) -> int | None:
    """Bytes that one rank may hold where it computes; None: not known.

    On a processor its share of the node's memory, else what the driver reports as the device's total.
    """
    if profile is None:
        return None
    if profile.accelerator.vendor == "cpu":
        room = host_room(profile)
        return None if room is None else room // profile.accelerators_per_node
    memory = profile.accelerator.planning_gib
    return int(memory * GIB) if memory else None


def host_needed(prediction: Prediction, profile: HardwareProfile | None, ranks: int) -> Band:
    """Bytes of its memory that a node with ``ranks`` ranks needs: on a processor with all that they compute with."""
    found = node_band(node_bytes(prediction.estimate.terms, ranks))
    if profile is None or profile.accelerator.vendor != "cpu":
        return found
    device = prediction.device
    return Band(*(getattr(found, end) + ranks * getattr(device, end) for end in ("low", "expected", "high")))
