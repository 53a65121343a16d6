"""Releases of two packages that an installer puts beside each other and with which no training starts
(``python -m tools.facts.clashes`` played them and wrote ``schemas/releases/clashes.json``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from zerocfg.catalog.install_limits import Edges, install_limits
from zerocfg.catalog.schema import schema_folder
from zerocfg.catalog.versions import TOP, Bounds, Release, bounds, release, text
from zerocfg.record import record

ANY: Bounds = ((), TOP, True)


@record(frozen=True, slots=True)
class Stop:
    """Releases of the second package from ``low`` on and below ``high``: the program stops in ``phase`` with what it
    ``said``."""

    low: Release
    high: Release
    phase: str
    said: str


@record(frozen=True, slots=True)
class Row:
    """Releases of the first package from ``low`` on and below ``high``."""

    low: Release
    high: Release
    stops: tuple[Stop, ...]

    def stop_at(self, limits: Bounds) -> Stop | None:
        """What the newest of some releases of the second package stop at."""
        return next((stop for stop in self.stops if _holds_newest(stop.low, stop.high, limits)), None)

    def stops_all(self, limits: Bounds) -> bool:
        """Whether every one of some releases of the second package stops."""
        low, high, closed = limits
        reached: Release | None = None
        for stop in self.stops:  # lowest first
            if stop.low <= low < stop.high or (reached is not None and stop.low == reached):
                reached = stop.high
        return reached is not None and (high < reached or (high == reached and (not closed or high == TOP)))


@record(frozen=True, slots=True)
class Clash:
    """``certain``: all that is admitted of both stops; else the newest of both do. ``stop``: what the newest stop at;
    ``needs``: clauses of the second package that the newest of the first goes with, ``or_else``: clauses of the first
    that the newest of the second go with; each empty where none are known."""

    library: str
    other: str
    certain: bool
    stop: Stop
    needs: str
    or_else: str


Pair = tuple[str, str]


@lru_cache(maxsize=1)
def clashing() -> Mapping[Pair, tuple[Row, ...]]:
    """By pair of packages: what becomes of all releases of the first from the oldest played one on."""
    played: dict[str, dict[str, dict[str, dict[str, list[str]]]]] = _read()["pairs"]
    return {
        (library, other): tuple(_rows(rows)) for library, others in played.items() for other, rows in others.items()
    }


@lru_cache(maxsize=1)
def limits() -> Mapping[str, Mapping[str, Edges]]:
    """By package, and by what holds it back, Python among it: as `install_limits`, which it takes in."""
    found: dict[str, dict[str, Edges]] = _read()["limits"]
    return {**install_limits(), **found}


@lru_cache(maxsize=1)
def _read() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((schema_folder() / "releases" / "clashes.json").read_text(encoding="utf-8"))
    return read


def _rows(rows: Mapping[str, Mapping[str, list[str]]]) -> Iterator[Row]:
    edges = [release(since) for since in rows]
    for low, high, stops in zip(edges, [*edges[1:], TOP], rows.values(), strict=True):
        found = [(bounds(clauses) or ANY, phase, said) for clauses, (phase, said) in stops.items()]
        yield Row(low, high, tuple(Stop(limits[0], limits[1], phase, said) for limits, phase, said in found))


def clash(pair: Pair, first: Bounds, second: Bounds) -> Clash | None:
    """Whether admitted releases of two packages clash, all of them or the newest of both. None where releases of the
    first are admitted that are older than those that were played, and the newest do not clash."""
    rows = clashing()[pair]
    newest = next((row for row in rows if _holds_newest(row.low, row.high, first)), None)
    stop = newest.stop_at(second) if newest is not None else None
    if newest is None or stop is None:
        return None
    among = [row for row in rows if row.high > first[0] and (row.low < first[1] or (row.low == first[1] and first[2]))]
    certain = first[0] >= rows[0].low and all(row.stops_all(second) for row in among)
    return Clash(*pair, certain, stop, _beside(newest, stop), _instead(rows, rows.index(newest), second))


def _holds_newest(low: Release, high: Release, limits: Bounds) -> bool:
    """Whether a range has the newest admitted release: of a declaration without an end it is in the range without."""
    top, closed = limits[1], limits[2]
    if top == TOP:
        return high == TOP
    return low <= top < high if closed else low < top <= high


def _beside(row: Row, stop: Stop) -> str:
    """The releases of the second package next to those that stop that a release of the first goes with: the newer ones,
    or the older ones where all newer ones stop."""
    low, high = stop.low, stop.high
    for other in reversed(row.stops):
        low = other.low if other.high == low else low
    for other in row.stops:
        high = other.high if other.low == high else high
    if high != TOP:
        return f">={text(high)}"
    return f"<{text(low)}" if low else ""


def _instead(rows: tuple[Row, ...], at: int, second: Bounds) -> str:
    """The newer releases of the first package that all go with the newest of the second, else the older ones."""
    stops = [row.stop_at(second) is not None for row in rows]
    newer = next((row for number, row in enumerate(rows) if number > at and not any(stops[number:])), None)
    if newer is not None:
        return f">={text(newer.low)}"
    first = stops.index(True)
    return f"<{text(rows[first].low)}" if first else ""
