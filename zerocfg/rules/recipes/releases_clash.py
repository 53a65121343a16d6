"""ZC879: releases of two packages that a project admits, with which its script cannot train."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.versions import TOP, bounds
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, at, rule
from zerocfg.rules.effects import stopped_by, written_at
from zerocfg.run.model import Origin, ReleaseClash, Run


@rule("ZC879", "releases-clash", Severity.ERROR, WHOLE_RUN, needs={"versions"})
def releases_clash(run: Run) -> Iterator[Finding]:
    for clash in run.release_clashes:
        place = _bounded(clash)
        location = at(place) if place is not None else None
        if location is None:
            continue
        # what is imported before, and is gone, stops it already
        stop = run.new_install_stop if run.lost_imports and not clash.certain else None
        more = f"; {stopped_by(stop)}" if stop is not None else ""
        others = [one for one in (*clash.places, *clash.beside_places) if one is not place]
        finding = Finding(
            location,
            f"{_subject(clash)} `{clash.phase}` stops with `{clash.said}` ({_stated(clash)}{more})",
            f"require {' or '.join(_cures(clash))}",
            [found for one in others if (found := at(one, "what it clashes with")) is not None],
        )
        if not clash.certain:
            finding.severity = Severity.WARNING if stop is None else Severity.NOTE
        yield finding


def _bounded(clash: ReleaseClash) -> Origin | None:
    """The place of what keeps the newest release of one of the two away; of both, that of the first."""
    sides = ((clash.declared, clash.places), (clash.beside, clash.beside_places))
    return next((places[0] for clauses, places in sides if places and not _open(clauses)), None)


def _open(clauses: str) -> bool:
    limits = bounds(clauses) if clauses else None
    return limits is None or limits[1] == TOP


def _subject(clash: ReleaseClash) -> str:
    library, other = _plain(clash.library, clash.declared), _plain(clash.other, clash.beside)
    if clash.certain:
        return f"{library} and {other} do not go together:"
    held, brought = (library, clash.other) if _open(clash.beside) else (other, clash.library)
    if _open(clash.beside) or _open(clash.declared):
        return f"a new install of {held} brings a release of {brought} that does not go with it:"
    return f"a new install brings releases of {library} and {other} that do not go together:"


def _stated(clash: ReleaseClash) -> str:
    first = _side(clash.library, clash.declared, clash.places)
    return f"{first}, {_side(clash.other, clash.beside, clash.beside_places)}"


def _side(package: str, clauses: str, places: tuple[Origin, ...]) -> str:
    where = " and ".join(written_at(place) for place in places[:2])
    if not clauses:
        return f"{where} names {package} without a release" if where else f"no release of {package} is declared"
    stated = _plain(package, clauses)
    return f"{where} admit{'s' * (len(places[:2]) == 1)} {stated}" if where else stated


def _plain(package: str, clauses: str) -> str:
    return package + clauses.replace(" ", "")


def _cures(clash: ReleaseClash) -> Iterator[str]:
    if clash.needs:
        yield f"{clash.other}{clash.needs}"
    if clash.or_else:
        yield f"{clash.library}{clash.or_else}"
