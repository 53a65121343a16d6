"""Lines of a fleet that never was: each rank tells what the test says, and otherwise what a good one does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from zerocfg.models.hardware import Accelerator, HardwareProfile, Host, Mount, Port
from zerocfg.preflight.messages import (
    Collective,
    Done,
    Facts,
    Folder,
    Local,
    Message,
    NodeFacts,
    Pair,
    line,
)

SWEEPS = 5


def profile(**host: Any) -> HardwareProfile:
    facts: dict[str, Any] = {
        "cpus": 64,
        "ram_gib": 512.0,
        "ram_available_gib": 480.0,
        "memlock": "unlimited",
        "driver": "550.90.07",
        "nvme": [Mount(path="/scratch", free_gib=900)],
        "infiniband": [Port(name="mlx5_0:1", gbit_s=400, state="active")],
    }
    card = Accelerator(name="H100-SXM-80GB", vendor="nvidia", usable_gib=79.1)
    return HardwareProfile(
        name="2xH100-SXM-80GB", accelerators_per_node=2, accelerator=card, host=Host.model_validate(facts | host)
    )


def node(**more: Any) -> NodeFacts:
    facts: dict[str, Any] = {
        "profile": profile(),
        "releases": {"python": "3.11.9", "torch": "2.6.0+cu124", "deepspeed": "0.19.8"},
        "environment": {"NCCL_IB_TIMEOUT": "22"},
        "folders": [Folder(role="working folder", path="/home/job", free_gib=100.0)],
        "open_files": 65536,
    }
    return NodeFacts.model_validate(facts | more)


@dataclass
class Fleet:
    """``nodes`` of ``each`` ranks, by the names node0, node1 and so on; changed by the tests before it `says`."""

    nodes: int
    each: int = 2
    attempts: int = 2
    facts: dict[int, NodeFacts] = field(default_factory=dict)
    """Of a node that is not as the others, by its number."""
    rate: Callable[[int, int, int], float] = lambda rank, attempt, sweep: 100.0
    seconds: Callable[[int, int, int, int], float] = lambda one, other, attempt, sweep: 0.010
    busbw: Callable[[int, int, int], float] = lambda node, attempt, sweep: 200.0
    extra: list[Message] = field(default_factory=list)
    drop: Callable[[Message], bool] = lambda message: False

    @property
    def ranks(self) -> int:
        return self.nodes * self.each

    def messages(self) -> Iterable[Message]:
        for rank in range(self.ranks):
            number, local = divmod(rank, self.each)
            told = self.facts.get(number, node()) if local == 0 else None
            yield Facts(
                rank=rank,
                local_rank=local,
                world=self.ranks,
                node=str(number),
                host=f"node{number}",
                time=1e9,
                facts=told,
            )
        for attempt in range(self.attempts):
            for sweep in range(SWEEPS):
                at: dict[str, Any] = {"attempt": attempt, "sweep": sweep}
                for rank in range(self.ranks):
                    rate = self.rate(rank, attempt, sweep)
                    yield Local(rank=rank, what="matrix products, bf16", unit="GFLOP/s", rate=rate, **at)
                    for other in range(rank + 1, self.ranks):
                        near = rank // self.each == other // self.each
                        like = "in a node" if near else "between nodes"
                        took = self.seconds(rank, other, attempt, sweep)
                        yield Pair(rank=rank, partner=other, megabytes=64, seconds=took, like=like, **at)
                for number in range(self.nodes):
                    told_by = {"rank": number * self.each, "ranks": self.each, "node": str(number)}
                    busbw = self.busbw(number, attempt, sweep)
                    yield Collective(what="all-reduce", busbw_gb_s=busbw, **told_by, **at)
                yield Collective(rank=0, what="all-reduce", ranks=self.ranks, busbw_gb_s=50, **at)
        for rank in range(self.ranks):
            yield Done(rank=rank, seconds=12.0 + rank)
        yield from self.extra

    def says(self) -> list[tuple[str, str]]:
        return [(f"source {one.rank}", line(one)) for one in self.messages() if not self.drop(one)]
