"""A book of what a rank holds while a library works: bytes come and go, and the worst point of each moment is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zerocfg.memory.terms import BACKWARD, MOMENTS, BackwardCourse, Handover, Kind, Moment, Place, Term


@dataclass(frozen=True, slots=True)
class Entry:
    """What is held: the parts of a :class:`Term` that do not depend on the run."""

    name: str
    kind: Kind
    source: str


Point = dict[Entry, int]
REDUCTION = "backward: reduction"
"""What an engine still does inside `engine.backward` when all gradients are there (engine.py: _backward_epilogue)."""


@dataclass
class Stretch:
    """The worst point of the device between two events of backward."""

    size: int
    point: Point


@dataclass
class Arrival:
    """A gradient of one backward pass: ``elements`` and bytes of it, and what is held around it."""

    elements: int
    gradient: int
    before: Stretch
    during: Stretch


@dataclass
class Ledger:
    """Bytes by entry and place.

    ``cpu``: as on DeepSpeed's CPU accelerator, to be compared with a run there. Device and host are one memory, copies
    from one to the other do not happen, and gloo's own copies do.
    """

    cpu: bool = False
    moment: str = "init"
    held: dict[Place, Point] = field(default_factory=lambda: {"device": {}, "host": {}, "nvme": {}})
    worst: dict[tuple[Place, str], tuple[int, Point]] = field(default_factory=dict)
    ends: dict[tuple[Place, str], Point] = field(default_factory=dict)
    passes: list[list[Arrival]] = field(default_factory=list)
    stretch: Stretch = field(default_factory=lambda: Stretch(0, {}))
    before: Stretch | None = None

    def enter(self, moment: str) -> None:
        """What follows belongs to ``moment``: one of :data:`MOMENTS`, or a part of one ("backward: reduction")."""
        for place, held in self.held.items():
            self.ends[place, self.moment] = dict(held)
        if self._in_backward() and moment == REDUCTION:
            self.arrives()
        elif self._in_backward() and moment not in BACKWARD:
            self.taken(0, 0)
        elif moment == "head backward":
            self.passes.append([])
            self._begin_stretch()
        self.moment = moment
        for place in self.held:
            self._look(place)

    def _in_backward(self) -> bool:
        return self.moment in BACKWARD or self.moment == REDUCTION

    def _begin_stretch(self) -> Stretch:
        """Start a new stretch; returns the one that ends."""
        ended, here = self.stretch, self.held["device"]
        self.stretch = Stretch(sum(here.values()), dict(here))
        return ended

    def arrives(self) -> None:
        """Backward has computed a gradient, and the engine takes it over: what follows is its doing."""
        self.before = self._begin_stretch()

    def taken(self, elements: int, gradient: int) -> None:
        """The engine has taken over a gradient of so many elements and bytes; zero: the end of backward."""
        ended = self._begin_stretch()
        self.passes[-1].append(Arrival(elements, gradient, self.before or ended, ended))
        self.before = None

    def hold(self, entry: Entry, size: int, place: Place = "device") -> None:
        """Allocate ``size`` bytes."""
        place = "device" if self.cpu and place == "host" else place
        if size > 0:
            here = self.held[place]
            here[entry] = here.get(entry, 0) + size
            self._look(place)

    def free(self, entry: Entry, size: int | None = None, place: Place = "device") -> None:
        """Give back ``size`` bytes; None: all of the entry."""
        here = self.held["device" if self.cpu and place == "host" else place]
        left = 0 if size is None else here.get(entry, 0) - size
        if left < 0:
            raise AssertionError(f"{entry.name}: more freed than held")
        if left:
            here[entry] = left
        else:
            here.pop(entry, None)

    def brief(self, entry: Entry, size: int, place: Place = "device") -> None:
        """Allocate and give back at once."""
        self.hold(entry, size, place)
        if size > 0:
            self.free(entry, size, place)

    def _look(self, place: Place) -> None:
        here = self.held[place]
        total = sum(here.values())
        key = (place, self.moment)
        if key not in self.worst or total > self.worst[key][0]:
            self.worst[key] = (total, dict(here))
        if place == "device" and total > self.stretch.size:
            self.stretch = Stretch(total, dict(here))

    def forget(self, keep: str = "init") -> None:
        """Start anew with the worst points of every moment but ``keep``: the steps before were a warm-up."""
        self.worst = {key: value for key, value in self.worst.items() if key[1] == keep}
        self.passes = []

    def peak(self, moment: str, place: Place = "device") -> int:
        return self.worst.get((place, moment), (0, {}))[0]

    def terms(self, holds_for: str) -> tuple[Term, ...]:
        """The worst point of each moment as terms; one of a part of a moment where that is worse."""
        sizes: dict[tuple[Place, Entry], dict[Moment, int]] = {}
        for place in self.held:
            for moment in MOMENTS:
                points = [value for (where, name), value in self.worst.items() if where == place and _is(name, moment)]
                for entry, size in max(points, key=lambda point: point[0])[1].items() if points else ():
                    sizes.setdefault((place, entry), {})[moment] = size
        course = self._course(holds_for)
        return tuple(_terms(sizes, holds_for, course))

    def _course(self, holds_for: str) -> BackwardCourse | None:
        """The worst of all passes, gradient by gradient."""
        if not self.passes:
            return None
        merged = [_worst(same) for same in zip(*self.passes, strict=True)]
        entries = list(
            dict.fromkeys(entry for one in merged for part in (one.before, one.during) for entry in part.point)
        )
        produced, handovers = 0, []
        for one in merged:
            before, during = (tuple(part.point.get(entry, 0) for entry in entries) for part in (one.before, one.during))
            handovers.append(Handover(produced, one.gradient, before, during))
            produced += one.elements
        terms = (Term(one.name, 0, "device", BACKWARD, one.kind, one.source, holds_for) for one in entries)
        return BackwardCourse(tuple(terms), tuple(handovers))


def _worst(arrivals: Sequence[Arrival]) -> Arrival:
    """What the worst of several passes holds around the same gradient."""
    before, during = (max((getattr(one, part) for one in arrivals), key=_size) for part in ("before", "during"))
    return Arrival(arrivals[0].elements, min(one.gradient for one in arrivals), before, during)


def _size(stretch: Stretch) -> int:
    return stretch.size


def _is(name: str, moment: Moment) -> bool:
    return name == moment or name.startswith(f"{moment}: ")


def _terms(
    sizes: dict[tuple[Place, Entry], dict[Moment, int]], holds_for: str, course: BackwardCourse | None
) -> Iterable[Term]:
    for (place, entry), by_moment in sizes.items():
        along = course if place == "device" else None
        for size in sorted(set(by_moment.values()), reverse=True):
            moments = frozenset(moment for moment, one in by_moment.items() if one == size)
            yield Term(entry.name, size, place, moments, entry.kind, entry.source, holds_for, course=along)
