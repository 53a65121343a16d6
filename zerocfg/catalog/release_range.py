"""A range of the releases of a library that a project admits, as data and in words."""

from __future__ import annotations

from collections.abc import Sequence

from zerocfg.catalog.versions import Release, library_name, text
from zerocfg.record import record


@record(frozen=True, slots=True)
class ReleaseRange:
    """Releases from one on (``since``) or before one (``until``); neither where they are not contiguous."""

    library: str
    since: Release | None = None
    until: Release | None = None

    @property
    def words(self) -> str:
        """``from DeepSpeed 0.18.3 on``."""
        name = library_name(self.library)
        if self.since is not None:
            return f"from {name} {text(self.since)} on"
        return f"with some releases of {name}" if self.until is None else f"before {name} {text(self.until)}"


def range_where(library: str, among: Sequence[Release], holds: Sequence[bool]) -> ReleaseRange | None:
    """The range of releases, oldest first, in which something holds, at least one; None where it holds in all."""
    if all(holds):
        return None
    first, last = holds.index(True), len(holds) - 1 - holds[::-1].index(True)
    if all(holds[first:]):
        return ReleaseRange(library, since=among[first])
    return ReleaseRange(library, until=among[last + 1]) if all(holds[: last + 1]) else ReleaseRange(library)
