"""Which of the known releases of a library a declaration admits, and in which of them something is there or holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from zerocfg.catalog.history import histories
from zerocfg.catalog.release_range import range_where
from zerocfg.catalog.versions import Release, bounds
from zerocfg.record import record


@record(frozen=True, slots=True)
class Admitted:
    """``releases``: the walked ones that a declaration admits, oldest first; for a release between two walked ones
    the one before it. ``below``: releases older than any walked one are admitted, too; where they are all that is,
    there are no ``releases``, and nothing is known."""

    releases: tuple[Release, ...]
    below: bool

    @property
    def newest(self) -> Release:
        return self.releases[-1]


@lru_cache(maxsize=64)
def admitted(library: str, declared: str | None) -> Admitted | None:
    """None where nothing is declared, or the declaration is not understood: then today's release counts."""
    limits = bounds(declared) if declared else None
    if limits is None:
        return None
    known = histories(library)
    return Admitted(tuple(known.admitted(limits)), limits[0] < known.releases[0])


@record(frozen=True, slots=True)
class Life:
    """When a library has something: from each of these releases on it is there, or not."""

    edges: tuple[tuple[Release, bool], ...]

    def at(self, release: Release) -> bool:
        """Whether it is there; as in the oldest known release for those before it."""
        state = self.edges[0][1]
        for since, there in self.edges:
            if since > release:
                break
            state = there
        return state

    def since(self, release: Release) -> Release | None:
        """The first release behind this one that has it."""
        return next((since for since, there in self.edges if there and since > release), None)

    def gone(self, release: Release) -> Release | None:
        """The release that took it away, the last one up to this; None where none did."""
        return next(
            (
                since
                for at, (since, there) in reversed(list(enumerate(self.edges)))
                if not there and at and since <= release
            ),
            None,
        )


def life(library: str, keys: Iterable[str]) -> Life | None:
    """The life of what a library has while it has one of these keys; None where it never had any."""
    known = histories(library)
    had = [key for key in keys if key in known.raw]
    if not had:
        return None
    edges: list[tuple[Release, bool]] = []
    for since in sorted({edge for key in had for edge in known.edges(key)}):
        there = any(known.state(key, since) is not None for key in had)
        if not edges or edges[-1][1] != there:
            edges.append((since, there))
    return Life(tuple(edges))


def releases_where(holds: Callable[[Release], bool], among: Admitted, library: str) -> str | None:
    """For which of the admitted releases something holds: None for none of them, "" for all, else in words, as
    ``from TRL 0.20.0 on``."""
    answers = [holds(release) for release in among.releases]
    if not any(answers):
        return None
    part = range_where(library, among.releases, answers)
    return part.words if part is not None else ""
