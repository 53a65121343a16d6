"""Bandwidth and latency of all-reduce through torch.distributed, and the gathering of what the ranks know."""

from __future__ import annotations

import datetime
import time
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from zerocfg.hardware.measuring.library import GB, MIB, Device, torch

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {"cpu": 16 * MIB, "cuda": 256 * MIB, "xpu": 256 * MIB}
BUDGET = 1.0  # seconds for each figure
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}
"""Of torch.distributed by kind of device; what the ranks only agree on is sent from the processor everywhere."""

Found = TypeVar("Found")


class Ranks:
    """All ranks of the job. Raises what torch.distributed raises, after ``patience`` seconds at the latest.

    They meet as the environment says, or in ``store`` as number ``rank`` of ``size``.
    """

    def __init__(
        self, device: Device, patience: float, store: object | None = None, rank: int = -1, size: int = -1
    ) -> None:
        self.dist: ModuleType = torch.distributed
        self.device = device
        self.limit = datetime.timedelta(seconds=patience)
        backend = BACKENDS[device.kind]
        self.dist.init_process_group(backend, timeout=self.limit, store=store, rank=rank, world_size=size)

    def gather(self, mine: Found) -> list[Found]:
        """``mine`` of every rank, in their order."""
        everyone = [mine] * int(self.dist.get_world_size())
        self.dist.all_gather_object(everyone, mine)
        return everyone

    def meet(self) -> None:
        """Wait for all the others."""
        self.dist.all_reduce(torch.zeros(1))

    def new_group(self, members: list[int] | None = None, **options: object) -> object:
        """A group with the patience of the whole job; torch's own is 10 to 30 minutes."""
        return self.dist.new_group(members, timeout=self.limit, **options)

    def connect(self, group: object = None) -> None:
        """Make the first collective of a group on the device, with all its members.

        torch leaves undefined what an exchange between some of them does as the first call of a group (NCCL hangs).
        """
        self.all_reduce(1, group)()
        self.device.wait()

    def close(self) -> None:
        """Leave."""
        self.dist.destroy_process_group()

    def links(self, nodes: list[str], local_ranks: list[int], rank: int) -> dict[str, dict[str, float]]:
        """Rates of the links that this rank takes part in; ``nodes`` and ``local_ranks`` are those of all ranks.

        ``within``: the ranks of its node. ``between``: the ranks with the same number on each node, all these groups at
        the same time, so that each shows the share of one device in the node's adapters; latency is that of all ranks.
        """
        within = self._groups([[r for r, node in enumerate(nodes) if node == name] for name in dict.fromkeys(nodes)])
        between = self._groups(
            [[r for r, place in enumerate(local_ranks) if place == number] for number in sorted(set(local_ranks))]
            if len(set(nodes)) > 1
            else []
        )
        found: dict[str, dict[str, float]] = {}
        for name, groups in (("within", within), ("between", between)):
            self.meet()
            for members, group in groups:
                if rank in members and len(members) > 1:
                    found[name] = {"ranks": len(members)} | self._all_reduce(group, len(members))
        if len(set(nodes)) > 1:
            self.meet()
            latency = round(self.seconds(self.all_reduce(1), None) * 1e6, 1)
            if "between" in found:
                found["between"]["latency_us"] = latency
        return found

    def _groups(self, wanted: list[list[int]]) -> list[tuple[list[int], object]]:
        """Every rank has to make every group, in one order."""
        return [(members, self.new_group(members)) for members in wanted]

    def _all_reduce(self, group: object, members: int) -> dict[str, float]:
        size = self._least(min(SIZES[self.device.kind], self.device.free_bytes(1 << 62) // 8), group)
        seconds = self.seconds(self.all_reduce(size // 4, group), group)
        return {
            "busbw_gb_s": round(2 * (members - 1) / members * size / seconds / GB, 3),
            "latency_us": round(self.seconds(self.all_reduce(1, group), group) * 1e6, 1),
        }

    def _least(self, value: int, group: object) -> int:
        """The smallest value of the group: all members have to pass as many elements."""
        word = torch.tensor([value], dtype=torch.int64, device=self.device.torch)
        self.dist.all_reduce(word, op=self.dist.ReduceOp.MIN, group=group)
        return int(word)

    def all_reduce(self, elements: int, group: object = None) -> Callable[[], object]:
        """An all-reduce of fp32 elements; None is the group of all ranks."""
        data = torch.zeros(elements, device=self.device.torch)
        return lambda: self.dist.all_reduce(data, group=group)

    def seconds(self, run: Callable[[], object], group: object, budget: float = BUDGET) -> float:
        """Seconds of one call that every member of the group makes, as many as fit into ``budget`` seconds; two warm
        up. All members make the same number of calls, set by the slowest."""
        for _ in range(2):
            run()
        self.device.wait()
        start = time.perf_counter()
        run()
        self.device.wait()
        one = torch.tensor([time.perf_counter() - start], device=self.device.torch)
        self.dist.all_reduce(one, op=self.dist.ReduceOp.MAX, group=group)
        calls = max(3, min(200, int(budget / max(float(one), 1e-7))))
        start = time.perf_counter()
        for _ in range(calls):
            run()
        self.device.wait()
        return (time.perf_counter() - start) / calls
