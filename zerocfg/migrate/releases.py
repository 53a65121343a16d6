"""Releases as the command line names them: ``deepspeed==0.19.8,transformers==5.23.0``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from zerocfg.catalog.history import histories
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.versions import bounds, release, text
from zerocfg.run.model import Run
from zerocfg.run.requirements.declared import LIBRARIES
from zerocfg.run.resolve_settings import with_settings

Releases = Mapping[str, str]
"""By library: one release, "0.19.8"."""


class ReleasesError(ValueError):
    """The text is no list of known releases; the message says what is known."""


def parse_releases(words: str) -> dict[str, str]:
    """The releases of a comma list. Raises NamedError."""
    found: dict[str, str] = {}
    for part in filter(None, (word.strip() for word in words.split(","))):
        library, sign, version = (item.strip() for item in part.partition("=="))
        if not sign or not version:
            raise ReleasesError(f"'{part}' names no release; write LIBRARY==RELEASE, as deepspeed==0.19.8")
        library = library.lower()
        if library not in LIBRARIES:
            near = closest(library, LIBRARIES)
            hint = f"; did you mean {near}?" if near else f"; known are {', '.join(LIBRARIES)}"
            raise ReleasesError(f"'{library}' is no library whose releases are known{hint}")
        if library in found:
            raise ReleasesError(f"'{library}' is named twice")
        found[library] = _known(library, version)
    if not found:
        raise ReleasesError(f"'{words}' names no release; write LIBRARY==RELEASE, as deepspeed==0.19.8")
    return found


def _known(library: str, version: str) -> str:
    """The release as the catalog calls it. Of torch no release changes what a config says."""
    if library == "torch":
        return version
    names = histories(library).names
    at = release(version)
    same = next((name for name in names if release(name) == at and version[:1].isdigit()), None)
    if same is not None:
        return same
    below = [name for name in names if release(name) < at]
    above = [name for name in names if release(name) > at]
    near = [*below[-1:], *above[:1]]
    hint = f"; did you mean {' or '.join(near)}?" if at and near else ""
    every = names[0] if len(names) == 1 else f"{len(names)} releases from {names[0]} to {names[-1]}"
    raise ReleasesError(f"{library} {version} is not known{hint} (known: {every})")


def at_releases(runs: Iterable[Run], releases: Releases) -> list[Run]:
    """The runs with these releases in the place of what their projects admit; a library that is not named keeps what
    its project says."""
    pinned = {library: f"=={version}" for library, version in releases.items()}
    return [_pinned(run, pinned) for run in runs]


def at_stated_releases(runs: Iterable[Run], old: Releases, unknown: Releases) -> list[Run]:
    """The runs at the releases that their files are for: ``old``, else what their projects state, else ``unknown``."""
    found = []
    for run in runs:
        assumed = {library: version for library, version in unknown.items() if not run.versions.get(library)}
        found += at_releases([run], {**assumed, **old})
    return found


def oldest(libraries: Iterable[str]) -> dict[str, str]:
    """The oldest known releases."""
    return {library: histories(library).names[0] for library in libraries if library != "torch"}


def _pinned(run: Run, pinned: Mapping[str, str]) -> Run:
    places = {library: place for library, place in run.version_places.items() if library not in pinned}
    return with_settings(replace(run, versions={**run.versions, **pinned}, version_places=places))


def pinned_releases(runs: Collection[Run], libraries: Iterable[str]) -> dict[str, str]:
    """What projects pin of some libraries; of one that runs pin differently all their releases, oldest first."""
    every = {library: {pin for run in runs if (pin := pinned_release(run, library))} for library in libraries}
    return {library: ", ".join(sorted(pins, key=release)) for library, pins in every.items() if pins}


def pinned_release(run: Run, library: str) -> str | None:
    """The one release of a library that a run admits; None where it admits several, or nothing is said."""
    declared = run.versions.get(library)
    limits = bounds(declared) if declared else None
    if limits is None or limits[0] != limits[1] or not limits[2]:
        return None
    return text(limits[0])
