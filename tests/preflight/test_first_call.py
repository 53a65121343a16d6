"""The order of calls in each group of preflight and of probe, on groups that behave as NCCL's."""

from __future__ import annotations

import datetime
import threading
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.preflight import tournament

from .groups import CARD, Distributed, Torch, World

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.libs


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocfg.hardware.measuring import collectives
    from zerocfg.preflight import measuring

    for module in (collectives, measuring):
        monkeypatch.setattr(module, "torch", Torch(module.torch))
    for name, value in {"SWEEPS": 1, "LEAST": 1, "ATTEMPTS": 1, "EXCHANGES": 1, "COLLECTIVE": 0.0}.items():
        monkeypatch.setattr(measuring, name, value)
    monkeypatch.setattr(measuring, "SENT", {"cpu": 4096})
    monkeypatch.setattr(measuring.Sweeps, "_solo", lambda _: [])
    monkeypatch.setattr(collectives, "SIZES", {"cpu": 4096})
    monkeypatch.setattr(collectives, "BUDGET", 0.0)


def ranks_of(world: World, rank: int, free: int = 1 << 40) -> Any:
    from zerocfg.hardware.measuring.collectives import Ranks
    from zerocfg.hardware.measuring.library import Device

    class OnCard(Device):
        """Counts as a processor, so that no card is needed; its tensors are those of a card."""

        @property
        def torch(self) -> object:
            return CARD

        def free_bytes(self, otherwise: int) -> int:
            return free

    ranks = Ranks.__new__(Ranks)
    ranks.dist, ranks.device = Distributed(world, rank), OnCard("cpu")  # type: ignore[assignment]
    ranks.limit = datetime.timedelta(seconds=7)
    return ranks


def play(world: World, run: Callable[[int], object]) -> list[Any]:
    """Run all ranks at once; what each returned. Raises the first error."""
    found: dict[int, Any] = {}
    errors: list[Exception] = []

    def one(rank: int) -> None:
        try:
            found[rank] = run(rank)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in world.whole.members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[rank] for rank in world.whole.members]


@pytest.mark.parametrize("size", range(2, 10))
def test_the_first_call_of_a_group_is_made_by_all(size: int, small: None) -> None:
    from zerocfg.preflight.measuring import Sweeps

    world, said = World(size), []
    nodes = ["a" if rank < (size + 1) // 2 else "b" for rank in range(size)]

    def run(rank: int) -> None:
        ranks = ranks_of(world, rank)
        sweeps = Sweeps(ranks.device, rank, said.append)
        sweeps.join(ranks, range(size), nodes[rank], rank)
        sweeps.run()

    play(world, run)
    idle = any(2 * len(pairs) < size for pairs in tournament.rounds(size))
    assert idle is (size % 2 == 1), "odd numbers of ranks leave one without a partner"
    used = [group for group in world.groups if any(group.calls.values())]
    expected = [
        list(range(size)),
        *({tuple(r for r in range(size) if nodes[r] == name) for name in "ab"} if size > 2 else ()),
    ]
    assert sorted(group.members for group in used) == sorted(list(one) for one in expected if len(one) > 1)
    for group in used:
        assert {calls[0] for calls in group.calls.values()} == {"all_reduce"}
        assert sorted(group.calls) == group.members, "by every member"
    stages = [one.name for one in said if one.kind == "stage" and one.rank == 0]
    assert stages.index("connecting") < stages.index("exchanges")
    pairs = {(one.rank, one.partner) for one in said if one.kind == "pair"}
    assert pairs == {(low, high) for low in range(size) for high in range(low + 1, size)}


def test_the_links_of_probe_begin_with_all_members(small: None) -> None:
    """Also where cards have different room: all members of a group reduce as much."""
    world, nodes = World(4), ["a", "a", "b", "b"]
    found = play(world, lambda rank: ranks_of(world, rank, free=8 * (4096 >> rank)).links(nodes, [0, 1, 0, 1], rank))
    assert all(set(links) == {"within", "between"} for links in found)
    used = [group for group in world.groups if any(group.calls.values())]
    assert sorted(group.members for group in used) == [[0, 1], [0, 1, 2, 3], [0, 2], [1, 3], [2, 3]]
    assert {calls[0] for group in used for calls in group.calls.values()} == {"all_reduce"}


def test_the_stand_in_hangs_where_a_member_stays_away(small: None) -> None:
    """As NCCL does: the first exchange of two among three ranks. Afterwards, two are enough."""
    from zerocfg.preflight import measuring

    def exchange(connected: bool) -> Callable[[int], object]:
        world = World(3)

        def run(rank: int) -> None:
            ranks = ranks_of(world, rank)
            if connected:
                ranks.connect()
            if rank < 2:
                tensor = measuring.torch.zeros(4, device=CARD)
                ranks.dist.batch_isend_irecv(
                    [(ranks.dist.isend, tensor, 1 - rank), (ranks.dist.irecv, tensor, 1 - rank)]
                )

        return lambda _: play(world, run)

    with pytest.raises(TimeoutError, match="as the first call of a group hangs"):
        exchange(connected=False)(0)
    exchange(connected=True)(0)
