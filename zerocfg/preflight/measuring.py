"""What the ranks measure together, in sweeps: every measurement once, and again some time later.

Between two meetings all ranks do the same, so that they share what they would share in a training step. What a rank
does by itself is timed by itself: in a collective a slow rank slows all, and in an exchange its partner.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.measuring import rates
from zerocfg.hardware.measuring.collectives import Ranks
from zerocfg.hardware.measuring.library import GB, MIB, Device, torch
from zerocfg.preflight import slow, tournament
from zerocfg.preflight.messages import Clock, Collective, Local, Pair, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zerocfg.preflight.messages import Message

SWEEPS = 7  # of an attempt
LEAST = 4  # sweeps, however long they take
ATTEMPTS = 3  # a suspected rank is measured again, twice
BUDGET = 9.0  # seconds of an attempt
WINDOW = {"cpu": 0.2, "cuda": 0.1, "xpu": 0.1}  # seconds of one measurement that a rank makes by itself
ROWS = {"cpu": 384, "cuda": 8192, "xpu": 8192}  # of the matrices
COPIED = {"cpu": 32 * MIB, "cuda": 64 * MIB, "xpu": 64 * MIB}  # bytes
SENT = {"cpu": 2 * MIB, "cuda": 64 * MIB, "xpu": 64 * MIB}  # bytes of an exchange or a collective
TRIPS = 8  # between two clocks; the shortest counts
EXCHANGES = 5  # the median counts
COLLECTIVE = 0.05  # seconds of each collective


class WrongResultError(Exception):
    """What arrived is not what was sent."""


class AloneError(Exception):
    """What a rank does by itself failed."""


class PartnerError(Exception):
    """An exchange failed."""

    def __init__(self, partner: int, error: Exception) -> None:
        super().__init__(str(error))
        self.partner = partner


class Sweeps:
    """The measurements of one rank, told as they come. Raises what torch raises."""

    def __init__(self, device: Device, rank: int, tell: Callable[[Message], None]) -> None:
        self.device, self.rank, self.tell = device, rank, tell
        self.stage, self.step = "", 0
        self.told: list[Message] = []
        self.ranks: Ranks | None = None
        self.numbers = [rank]
        self.nodes, self.locals = [""], [0]
        self.neighbours: object = None
        try:
            self.solo = self._solo()
        except Exception as error:
            raise AloneError(str(error)) from error

    def join(self, ranks: Ranks, numbers: Sequence[int], node: str, local: int) -> None:
        """Measure with the others as well; ``numbers`` are their ranks in the job."""
        self.ranks, self.numbers = ranks, list(numbers)
        self.control = ranks.new_group(backend="gloo")
        self.index = self.numbers.index(self.rank)
        places: list[Any] = [None] * len(self.numbers)
        ranks.dist.all_gather_object(places, (node, local), group=self.control)
        self.nodes, self.locals = [place[0] for place in places], [place[1] for place in places]
        neighbours = [at for at, name in enumerate(self.nodes) if name == node]
        if 1 < len(neighbours) < len(self.nodes):
            self.neighbours = ranks.new_group(neighbours, use_local_synchronization=True)
        self.first, self.members = neighbours[0] == self.index, len(neighbours)

    def run(self) -> None:
        """All attempts."""
        if self.ranks:
            self._connect(self.ranks)
            self._clocks(self.ranks)
        suspected: set[slow.Suspect] | None = None
        for attempt in range(ATTEMPTS):
            self.told = []
            start = time.monotonic()
            for sweep in range(SWEEPS):
                if not self._agreed(sweep < LEAST or time.monotonic() - start < BUDGET):
                    break
                self._sweep(attempt, sweep)
            found = self._suspects()
            suspected = found if suspected is None else suspected & found
            if not self._agreed(bool(suspected)):
                break

    def _connect(self, ranks: Ranks) -> None:
        """Before the first exchange, in which some ranks have no partner."""
        self._begin("connecting")
        ranks.connect()
        if self.neighbours is not None:
            ranks.connect(self.neighbours)

    def _say(self, message: Message) -> None:
        self.told.append(message)
        self.tell(message)

    def _begin(self, stage: str) -> None:
        self.stage = stage
        self.tell(Stage(rank=self.rank, name=stage, step=self.step))

    def _meet(self) -> None:
        """All ranks begin a step at the same time."""
        self.step += 1
        if self.ranks:
            self.ranks.meet()

    def _agreed(self, wanted: bool) -> bool:
        """What the first of the ranks wants."""
        if self.ranks is None:
            return wanted
        self.step += 1
        word = torch.tensor([int(wanted)])
        self.ranks.dist.broadcast(word, src=0)
        return bool(word)

    def _suspects(self) -> set[slow.Suspect]:
        """What looks slow to the first of the ranks."""
        if self.ranks is None:
            return set()
        self._begin("comparing")
        everyone: list[Any] | None = [None] * len(self.numbers) if self.index == 0 else None
        self.ranks.dist.gather_object(self.told, everyone, dst=0, group=self.control)
        return slow.suspects(message for messages in everyone for message in messages) if everyone else set()

    def _sweep(self, attempt: int, sweep: int) -> None:
        self._begin("alone")
        for what, unit, like, run, amount in self.solo:
            self._meet()
            try:
                rate, cpu = self._window(run, amount)
            except Exception as error:
                raise AloneError(f"{what}: {error}") from error
            self._say(
                Local(rank=self.rank, what=what, unit=unit, rate=rate, attempt=attempt, sweep=sweep, like=like, cpu=cpu)
            )
        if self.ranks:
            self._begin("exchanges")
            self._exchanges(self.ranks, attempt, sweep)
            self._begin("collectives")
            self._collectives(self.ranks, attempt, sweep)

    def _solo(self) -> list[tuple[str, str, str, Callable[[], object], float]]:
        """What a rank does by itself: name, unit, what it is compared with, one call, and how much that is."""
        kind = self.device.kind
        dtype, name = (torch.float32, "fp32") if kind == "cpu" else (torch.bfloat16, "bf16")
        product, operations = rates.product(self.device, dtype, rates.rows(self.device, ROWS[kind]))
        found = [(f"matrix products, {name}", "GFLOP/s", "", product, operations / GB)]
        if kind == "cpu":
            return [*found, ("memory copies", "GB/s", "", rates.copy(self.device, COPIED[kind]), 2 * COPIED[kind] / GB)]
        forth, back = rates.pinned_copies(self.device, COPIED[kind])
        # How far a card is from the memory depends on its slot: it is compared with the same slot of other nodes.
        like, size = f"card {self.device.index}", COPIED[kind] / GB
        return [*found, ("copies to the card", "GB/s", like, forth, size), ("copies from it", "GB/s", like, back, size)]

    def _window(self, run: Callable[[], object], amount: float) -> tuple[float, float | None]:
        """The rate in a window of time, and the CPUs that this process had in it."""
        run()
        self.device.wait()
        calls, start, had = 0, time.perf_counter(), time.process_time()
        while (spent := time.perf_counter() - start) < WINDOW[self.device.kind] or not calls:
            run()
            self.device.wait()
            calls += 1
        cpu = (time.process_time() - had) / spent if self.device.kind == "cpu" and spent else None
        return amount * calls / spent, cpu

    def _exchanges(self, ranks: Ranks, attempt: int, sweep: int) -> None:
        size = SENT[self.device.kind]
        mine = torch.full((size // 4,), float(self.rank), device=self.device.torch)
        theirs = torch.empty_like(mine)
        for pairs in tournament.rounds(len(self.numbers)):
            self._meet()
            pair = next((pair for pair in pairs if self.index in pair), None)
            if pair is None:
                continue
            other = pair[1] if pair[0] == self.index else pair[0]
            partner = self.numbers[other]
            theirs.fill_(-1.0)
            try:
                times = [self._exchange(ranks, mine, theirs, other) for _ in range(EXCHANGES + 1)][1:]
            except Exception as error:
                raise PartnerError(partner, error) from error
            if not bool((theirs == float(partner)).all()):
                raise PartnerError(partner, WrongResultError(f"what came from rank {partner} is not what it sent"))
            if self.index == pair[0]:
                self._say(
                    Pair(
                        rank=self.rank,
                        partner=partner,
                        megabytes=size / 1e6,
                        seconds=statistics.median(times),
                        attempt=attempt,
                        sweep=sweep,
                        like=self._path(pair),
                    )
                )

    def _exchange(self, ranks: Ranks, mine: object, theirs: object, other: int) -> float:
        dist = ranks.dist
        start = time.perf_counter()
        operations = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, theirs, other)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self.device.wait()
        return time.perf_counter() - start

    def _path(self, pair: tuple[int, int]) -> str:
        """Pairs that are joined alike: those of cards by their slots, or whether they share a rail of the network."""
        one, other = pair
        slots = sorted((self.locals[one], self.locals[other]))
        if self.nodes[one] == self.nodes[other]:
            return "in a node" if self.device.kind == "cpu" else f"in a node, cards {slots[0]} and {slots[1]}"
        if self.device.kind == "cpu" or slots[0] == slots[1]:
            return "between nodes"
        return "between nodes, across rails"

    def _collectives(self, ranks: Ranks, attempt: int, sweep: int) -> None:
        size, count, dist = SENT[self.device.kind], len(self.numbers), ranks.dist
        data = torch.zeros(size // 4, device=self.device.torch)
        part = torch.zeros(size // 4 // count, device=self.device.torch)
        parts = [torch.empty_like(part) for _ in range(count)]
        share = (count - 1) / count

        def ring() -> None:
            following, before = (self.index + 1) % count, (self.index - 1) % count
            operations = [dist.P2POp(dist.isend, data, following), dist.P2POp(dist.irecv, other, before)]
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        other = torch.empty_like(data)
        every: list[tuple[str, Callable[[], object], float]] = [
            ("all-reduce", ranks.all_reduce(size // 4), 2 * share * size),
            ("all-gather", lambda: dist.all_gather(parts, part), share * size),
            ("ring", ring, float(size)),
        ]
        for what, run, moved in every:
            self._meet()
            seconds = ranks.seconds(run, None, COLLECTIVE)
            if self.index == 0:
                figure = moved / seconds / GB
                self._say(
                    Collective(rank=self.rank, what=what, ranks=count, busbw_gb_s=figure, attempt=attempt, sweep=sweep)
                )
        self._check_sum(ranks)
        self._meet()
        if self.neighbours is not None:
            seconds = ranks.seconds(ranks.all_reduce(size // 4, self.neighbours), self.neighbours, COLLECTIVE)
            figure = 2 * (self.members - 1) / self.members * size / seconds / GB
            if self.first:
                self._say(
                    Collective(
                        rank=self.rank,
                        what="all-reduce",
                        ranks=self.members,
                        busbw_gb_s=figure,
                        attempt=attempt,
                        sweep=sweep,
                        node=self.nodes[self.index],
                    )
                )

    def _check_sum(self, ranks: Ranks) -> None:
        """Raises WrongResultError."""
        data = torch.full((1 << 12,), float(self.index + 1), device=self.device.torch)
        ranks.dist.all_reduce(data)
        count = len(self.numbers)
        if not bool((data == count * (count + 1) / 2).all()):
            raise WrongResultError("an all-reduce of the ranks' numbers does not give their sum")

    def _clocks(self, ranks: Ranks) -> None:
        """The first rank of each node asks rank 0 for the time, one node after the other."""
        self._begin("clocks")
        dist, answer = ranks.dist, torch.zeros(1, dtype=torch.float64)
        firsts: dict[str, int] = {}
        for at, node in enumerate(self.nodes):
            firsts.setdefault(node, at)
        for at in list(firsts.values())[1:]:
            best: tuple[float, float] | None = None
            for _ in range(TRIPS):
                if self.index == at:
                    asked = time.time()
                    dist.send(answer, dst=0)
                    dist.recv(answer, src=0)
                    came = time.time()
                    trip = (came - asked) / 2, (asked + came) / 2 - float(answer)
                    best = trip if best is None or trip[0] < best[0] else best
                elif self.index == 0:
                    dist.recv(answer, src=at)
                    answer[0] = time.time()
                    dist.send(answer, dst=at)
            if best:
                self.tell(Clock(rank=self.rank, ahead_s=best[1], within_s=max(0.0, best[0])))
