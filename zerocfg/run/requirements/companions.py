"""Which releases of a library remain where a project limits a package that it needs, or Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from zerocfg.catalog.versions import admits, exact, only_below, release
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Origin
from zerocfg.run.requirements.declared import HELD_BACK, LIBRARIES, WANTED, Declared

if TYPE_CHECKING:
    from zerocfg.catalog.install_limits import Edges

PYTHON = "python"


def limited_releases(
    found: Mapping[str, Declared], python: Callable[[Declared], Declared | None]
) -> Iterator[tuple[str, Declared]]:
    """By library: what the packages that one file states beside it leave of it, and the Python that the project asks
    for, which is looked for where it may matter: never beside a pin, which nothing narrows."""
    ranges = {
        name: item.clauses or ""
        for name, item in found.items()
        if name in HELD_BACK and item.places and item.clauses is not None and not exact(item.clauses)
    }
    if not ranges:
        return
    from zerocfg.catalog.install_limits import install_limits

    for library, packages in install_limits().items():
        if library not in ranges:
            continue
        base = found[library]
        for package, edges in packages.items():
            if not _beyond(ranges[library], edges):
                continue
            stated = python(base) if package == PYTHON else found.get(package)
            if stated is None or not stated.clauses or not (package == PYTHON or _files(base) <= _files(stated)):
                continue
            newest = next((newest for below, newest in edges.items() if only_below(stated.clauses, below)), None)
            if newest is not None:
                yield library.partition("[")[0], Declared(f"<={newest}", stated.places)


def unreachable_newest(
    found: Mapping[str, Declared], python: Callable[[Declared], Declared | None]
) -> Iterator[tuple[str, Declared]]:
    """The libraries that no file names, and of which only releases before today's major one go with what the files do
    state, or with the Python that the project asks for: nobody knows which one is installed then."""
    if not any(item.clauses for item in found.values()):
        return
    from zerocfg.catalog.install_limits import install_limits

    for library, packages in install_limits().items():
        if library in found or library not in LIBRARIES:
            continue
        for package, edges in packages.items():
            stated = python(Declared("")) if package == PYTHON else found.get(package)
            clauses = stated.clauses if stated is not None else None
            newest = next((newest for below, newest in edges.items() if clauses and only_below(clauses, below)), None)
            if stated is not None and newest is not None and release(newest)[0] < release(VERSIONS[library])[0]:
                yield library, Declared(None, stated.places)
                break


_PACKAGES = frozenset((*WANTED, PYTHON))


def limiting_package(place: Origin, library: str) -> str:
    """The package that is stated at a place that bounds a library, as people write it; "" where that is the library."""
    if place.note == library or place.note not in _PACKAGES:
        return ""
    return "Python" if place.note == PYTHON else place.note


def limiting_import(place: Origin) -> str:
    """What is imported at a place that bounds a library, because newer releases lack it; "" where nothing is."""
    return place.note if place.kind == "computed" and place.file is not None else ""


def _beyond(clauses: str, edges: Edges) -> bool:
    """Whether a declaration admits a release behind the oldest of these, so that a bound may matter."""
    oldest = next(iter(edges.values()))
    return not clauses or admits(clauses, at_least=f"{oldest}.1")


def _files(declared: Declared) -> set[str]:
    return {place.file.name for place in declared.places if place.file is not None}
