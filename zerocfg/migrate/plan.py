"""The source and target releases of the migration of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from zerocfg.catalog.versions import Release, library_name, release
from zerocfg.migrate.releases import pinned_release
from zerocfg.run.model import Run


@dataclass(frozen=True)
class Plan:
    """``new``: the releases to come, by library. ``old``: those that the files are written for, where that is known."""

    new: Mapping[str, str]
    old: Mapping[str, str]

    @cached_property
    def target(self) -> dict[str, Release]:
        return {library: release(version) for library, version in self.new.items()}

    @cached_property
    def source(self) -> dict[str, Release]:
        """The old release of each library that is migrated forwards, where it is known."""
        found = {library: release(version) for library, version in self.old.items()}
        return {library: at for library, at in found.items() if library in self.target}

    def called(self, library: str) -> str:
        """``transformers 5.23.0``."""
        return f"{library_name(library)} {self.new[library]}"


def plan_of(run: Run, new: Mapping[str, str], old: Mapping[str, str]) -> Plan:
    """The plan of a run. ``old``: what the command line says of the releases so far, before what the project pins."""
    pinned = {library: version for library in new if (version := pinned_release(run, library)) is not None}
    return Plan(new, {**pinned, **old})
