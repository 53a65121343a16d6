"""A book of what a rank holds while a library works: bytes come and go, and the worst point of each moment is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from zerocfg.memory.terms import BACKWARD, MOMENTS, Kind, Moment, Place, Term


@dataclass(frozen=True, slots=True)
class Entry:
    """What is held: the parts of a :class:`Term` that do not depend on the run."""

    name: str
    kind: Kind
    source: str
    grows: bool = False


Point = dict[Entry, int]


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

    def enter(self, moment: str) -> None:
        """What follows belongs to ``moment``: one of :data:`MOMENTS`, or a part of one ("backward: reduction")."""
        for place, held in self.held.items():
            self.ends[place, self.moment] = dict(held)
        self.moment = moment
        for place in self.held:
            self._look(place)

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

    def forget(self, keep: str = "init") -> None:
        """Start anew with the worst points of every moment but ``keep``: the steps before were a warm-up."""
        self.worst = {key: value for key, value in self.worst.items() if key[1] == keep}

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
        return tuple(_terms(sizes, holds_for))


def _is(name: str, moment: Moment) -> bool:
    return name == moment or name.startswith(f"{moment}: ")


def _terms(sizes: dict[tuple[Place, Entry], dict[Moment, int]], holds_for: str) -> Iterable[Term]:
    for (place, entry), by_moment in sizes.items():
        if entry.grows:
            # One term for all of backward: how much of it exists is for the activations' timeline to say.
            full = max(by_moment.values())
            by_moment = {moment: full if moment in BACKWARD else size for moment, size in by_moment.items()}
        for size in sorted(set(by_moment.values()), reverse=True):
            moments = frozenset(moment for moment, one in by_moment.items() if one == size)
            yield Term(entry.name, size, place, moments, entry.kind, entry.source, holds_for, entry.grows)
