"""Ranks as threads of one process, and groups that behave on a card's tensors as those of NCCL do.

An exchange (`batch_isend_irecv`) as the first call of a group on a card needs every member; one that stays away leaves
the others waiting. Tensors lie on the processor; those that were asked for on ``CARD`` are remembered.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

PATIENCE = 3.0
"""Seconds after which a rank that waits is taken to hang."""


class Card:
    """The device that tensors are asked for on."""


CARD = Card()


class Torch:
    """torch, except that tensors asked for on ``CARD`` are marked."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        made = getattr(self.real, name)
        if name not in ("zeros", "full", "tensor"):
            return made

        def make(*arguments: Any, device: object = None, **named: Any) -> Any:
            tensor = made(*arguments, **named)
            tensor.on_card = device is CARD
            return tensor

        return make

    def empty_like(self, tensor: Any) -> Any:
        found = self.real.empty_like(tensor)
        found.on_card = tensor.on_card
        return found


@dataclass
class Group:
    """``calls``: by member, what it did with tensors of the card, in order."""

    members: list[int]
    calls: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    slots: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(len(self.members))

    def meet(self, what: str) -> None:
        try:
            self.barrier.wait(PATIENCE)
        except threading.BrokenBarrierError:
            raise TimeoutError(f"{what} hangs: not every member of {self.members} takes part") from None


class World:
    """What the ranks of a job share."""

    def __init__(self, size: int) -> None:
        self.whole = Group(list(range(size)))
        self.groups = [self.whole]
        self.made: dict[tuple[int, ...], list[Group]] = defaultdict(list)
        self.lock = threading.Lock()
        self.mail: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self.arrived = threading.Condition()


class Distributed:
    """torch.distributed of one rank."""

    ReduceOp = SimpleNamespace(SUM=sum, MAX=max, MIN=min)

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.made = world, rank, defaultdict(int)

    def _group(self, group: Any) -> Group:
        return self.world.whole if group is None else group

    def new_group(self, members: Any = None, **options: Any) -> Group:
        assert options.pop("timeout").total_seconds() == 7
        key = tuple(members or self.world.whole.members)
        with self.world.lock:
            made = self.world.made[key]
            if len(made) == self.made[key]:
                made.append(Group(list(key)))
                self.world.groups.append(made[-1])
            self.made[key] += 1
            return made[self.made[key] - 1]

    def _share(self, what: str, value: Any, group: Any, tensor: Any = None) -> list[Any]:
        """Every member's value, in their order."""
        one = self._group(group)
        one.slots[self.rank] = value
        one.meet(what)
        found = [one.slots[member] for member in one.members]
        one.meet(what)
        if tensor is not None and tensor.on_card:
            one.calls[self.rank].append(what)
        return found

    def all_reduce(self, tensor: Any, op: Any = sum, group: Any = None) -> None:
        sizes = self._share("size of all_reduce", tensor.numel(), group)
        assert len(set(sizes)) == 1, f"members reduce different sizes: {sizes}"
        every = self._share("all_reduce", tensor.clone(), group, tensor)
        tensor.copy_(sum(every) if op is sum else op(every, key=float))

    def broadcast(self, tensor: Any, src: int) -> None:
        tensor.copy_(self._share("broadcast", tensor.clone(), None, tensor)[src])

    def all_gather(self, parts: list[Any], part: Any) -> None:
        for target, source in zip(parts, self._share("all_gather", part.clone(), None, part), strict=True):
            target.copy_(source)

    def all_gather_object(self, found: list[Any], mine: Any, group: Any = None) -> None:
        found[:] = self._share("all_gather_object", mine, group)

    def gather_object(self, mine: Any, found: Any, dst: int, group: Any = None) -> None:
        every = self._share("gather_object", mine, group)
        if self.rank == dst:
            found[:] = every

    def isend(self, tensor: Any, other: int) -> None:
        with self.world.arrived:
            self.world.mail[self.rank, other].append(tensor.clone())
            self.world.arrived.notify_all()

    def irecv(self, tensor: Any, other: int) -> None:
        box = self.world.mail[other, self.rank]
        with self.world.arrived:
            if not self.world.arrived.wait_for(lambda: bool(box), PATIENCE):
                raise TimeoutError(f"rank {self.rank} waits for rank {other}")
            tensor.copy_(box.pop(0))

    def send(self, tensor: Any, dst: int) -> None:
        self.isend(tensor, dst)

    def recv(self, tensor: Any, src: int) -> None:
        self.irecv(tensor, src)

    def P2POp(self, function: Any, tensor: Any, peer: int) -> tuple[Any, Any, int]:  # noqa: N802
        return function, tensor, peer

    def batch_isend_irecv(self, operations: list[tuple[Any, Any, int]]) -> list[Any]:
        group = self.world.whole
        if not group.calls[self.rank]:
            group.meet("batch_isend_irecv as the first call of a group")
        group.calls[self.rank].append("batch_isend_irecv")
        for function, tensor, peer in sorted(operations, key=lambda one: one[0] == self.irecv):
            function(tensor, peer)
        return [SimpleNamespace(wait=lambda: None)]
