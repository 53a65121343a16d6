"""Which releases of the libraries a framework around them allows, by its own release (`Facts.requires`)."""

from __future__ import annotations

from zerocfg.catalog.versions import TOP, bounds, either, release, text
from zerocfg.frontends.api import Facts


def allowed(facts: Facts, declared: str | None, library: str) -> tuple[str, str] | None:
    """The clauses on a library of every admitted release of a framework together, and that release in words. Where
    nobody says which release it is, the newest known tells how far up the library may be, and none how far down.

    None where it says nothing, or no known release is admitted.
    """
    known, package = facts.requires, facts.package
    if not declared:
        newest = list(known)[-1]
        clauses = _up_to(known[newest].get(library, ""))
        return (clauses, f"{package} up to {newest}") if clauses else None
    limits = bounds(declared)
    if limits is None:
        return None
    low, high, closed = limits
    admitted = [name for name in known if low <= (at := release(name)) and (at < high or (closed and at == high))]
    joined = either(known[name].get(library, "") for name in admitted) if admitted else None
    said = f"{package} {admitted[0] if len(admitted) == 1 else f'{admitted[0]} to {admitted[-1]}'}" if admitted else ""
    return (joined, said) if joined else None


def _up_to(clauses: str) -> str:
    limits = bounds(clauses) if clauses else None
    return f"<{'=' * limits[2]}{text(limits[1])}" if limits is not None and limits[1] != TOP else ""
