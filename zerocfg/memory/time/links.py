"""Rates of the links between devices, nodes, hosts and drives, and what passes over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.options import BYTES, Options, TorchOptions
from zerocfg.memory.time import rates
from zerocfg.memory.time.device_rates import GB
from zerocfg.memory.time.rates import Band, exactly, longer, taken_by

if TYPE_CHECKING:
    from zerocfg.memory.time.wire import Collective
    from zerocfg.models.hardware import HardwareProfile, Link
    from zerocfg.models.model_facts import ModelFacts


class Links:
    """Rates of the links of a profile, in bytes per second of one direction; says once what is not known."""

    def __init__(self, profile: HardwareProfile, notes: list[str]) -> None:
        self.notes = notes
        self.profile = profile
        self.within = self._rate(profile.link_within_node)
        self.between = self._rate(profile.link_between_nodes)
        device, host = profile.accelerator, profile.host
        if host is not None and host.pinned_gb_s is not None:
            self.host = exactly(host.pinned_gb_s * GB)
        else:
            self.host = rates.PINNED * ((device.host_gb_s or rates.HOST_LINK_GB_S) / 2 * GB)

    @staticmethod
    def _rate(link: Link | None) -> Band | None:
        if link is not None and link.busbw_gb_s is not None:
            return exactly(link.busbw_gb_s * GB)
        if link is None or link.gb_s is None:
            return None
        return rates.LINK.get(link.kind, rates.LINK_ELSEWHERE) * (link.gb_s / 2 * GB)

    def seconds(self, one: Collective) -> Band:
        """A ring is as slow as its slowest hop; each call waits for the latency."""
        total = exactly(0.0)
        for size, rate, place in (
            (one.within, self.within, "within a node"),
            (one.between, self.between, "between nodes"),
        ):
            if size and rate is None:
                note = f"the link {place} is not known: its share of the communication is left out"
                if note not in self.notes:
                    self.notes.append(note)
            elif size and rate is not None:
                total = longer(total, taken_by(size, rate))
        link = self.profile.link_between_nodes if one.between else self.profile.link_within_node
        if link is not None and link.latency_us is not None:
            latency = exactly(link.latency_us)
        else:
            latency = rates.LATENCY_BETWEEN_US if one.between else rates.LATENCY_WITHIN_US
        return total + latency * (one.messages * 1e-6)


def from_host(facts: ModelFacts, options: Options | TorchOptions, links: Links) -> Band:
    """Seconds of one pass in which a rank's own parameters come from the host (or NVMe) where they are kept there."""
    if isinstance(options, Options):
        place, ranks = options.offload_param, options.world_size
    else:
        place, ranks = ("cpu" if options.cpu_offload else "none"), options.shard_ranks or options.world_size
    if place == "none":
        return exactly(0.0)
    own = (facts.parameters or 0) * BYTES[options.precision] / ranks
    copied = taken_by(own, links.host)
    if place == "cpu":
        return copied
    beside = min(options.world_size, links.profile.accelerators_per_node)
    return longer(copied, taken_by(own * beside, nvme(links.profile)[0]))


def nvme(profile: HardwareProfile) -> tuple[Band, Band]:
    """Bytes per second of one node, reading and writing: of the fastest mount that was measured."""
    mounts = profile.host.nvme if profile.host else []
    reads = [mount.read_gb_s for mount in mounts if mount.read_gb_s is not None]
    writes = [mount.write_gb_s for mount in mounts if mount.write_gb_s is not None]
    return (
        exactly(max(reads) * GB) if reads else rates.NVME_READ_GB_S * GB,
        exactly(max(writes) * GB) if writes else rates.NVME_WRITE_GB_S * GB,
    )
