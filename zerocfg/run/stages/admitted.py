"""What a key is in the releases of one library that a run admits: its states, and the origin of its default.

Which releases these are, `catalog/admitted.py` says; where all of them are today's, nothing is read for it.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

from zerocfg.catalog.versions import OLDEST, Release, admits, bounds, release, text
from zerocfg.record import field, record
from zerocfg.run.config import VERSIONS, default_of
from zerocfg.run.model import Origin, Run

if TYPE_CHECKING:
    from zerocfg.catalog.history import State


@record(frozen=True, slots=True)
class AdmittedKeys:
    """``declared``: the releases that the run admits, empty where only today's counts. ``low`` and ``high`` bound those
    of them that are known; ``low`` is None where all of them are older than every known one. ``changed``: the keys that
    have changed since ``low``, which are few of those that are asked for."""

    library: str
    declared: str = ""
    low: Release | None = None
    high: Release = ()
    changed: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def origin(self) -> Origin:
        """The origin of a default of these releases."""
        if not self.declared:
            return default_of(self.library)
        if self.low is None:
            return Origin("default", f"{self.library} {OLDEST[self.library]}, the oldest known")
        one = self.low == self.high
        return Origin("default", f"{self.library} {text(self.high) if one else self.declared}")

    def any_from(self, edge: str) -> bool:
        """Whether an admitted release is at least this one."""
        return not self.declared or admits(self.declared, at_least=edge)

    def all_from(self, edge: str) -> bool:
        """Whether every admitted release is at least this one."""
        return not self.declared or (self.low is not None and self.low >= release(edge))

    def states(self, key: str) -> list[tuple[Release, State]]:
        """What a key is in the admitted releases, oldest first, each state with the release that it begins with; empty
        where it is as in today's."""
        if key not in self.changed:
            return []
        from zerocfg.catalog.history import histories  # only runs that say which releases they admit read it

        known = histories(self.library)
        edges, history = known.edges(key), known.raw[key]
        within = slice(None)
        if self.low is not None:
            within = slice(max(0, bisect_right(edges, self.low) - 1), bisect_right(edges, self.high))
        entries = [(since, state) for since, (_, state) in zip(edges[within], history[within], strict=True)]
        today = known.today(key)
        alike = all(state == today for _, state in entries)
        if alike and all(repr(state) == repr(today) for _, state in entries):  # 1 and 1.0 are not the same default
            return []
        return entries

    def newest(self, key: str) -> State:
        """What a key is in the newest admitted release; in the oldest known one where all admitted ones are older."""
        states = self.states(key)
        return states[0 if self.low is None else -1][1] if states else self.today(key)

    def changed_later(self, key: str) -> bool:
        """Whether today's release has a key otherwise than the newest admitted one."""
        return key in self.changed and self.newest(key) != self.today(key)

    def today(self, key: str) -> State:
        """What a key is in today's release."""
        from zerocfg.catalog.history import histories

        return histories(self.library).today(key)

    def false_stays_since(self, name: str) -> str | None:
        """From which admitted release on accelerate reads false in a key of its YAML as false: "" where all of them do,
        None where all of them take it for a word."""
        states = self.states(f"cluster.{name}")
        if not any("false" in (state or {}) for _, state in states):
            return ""
        return next((text(since) for since, state in states if "false" not in (state or {})), None)

    def had(self, key: str) -> bool:
        """Whether an admitted release has a key that today's has not."""
        return any(state is not None and "removed" not in state for _, state in self.states(key))

    def knows(self, key: str) -> bool:
        """Whether an admitted release has a key that today's has."""
        states = self.states(key)
        return not states or any(state is not None for _, state in states)

    def always(self, key: str) -> bool:
        """Whether every admitted release has a key that today's has."""
        return all(state is not None for _, state in self.states(key))


def admitted_of(run: Run, library: str) -> AdmittedKeys:
    """What keys were in the releases of a library that a run admits."""
    return admitted_keys(library, (run.declared(library) or ""))


def guessed(run: Run, library: str) -> str | None:
    """The release whose facts count where none of those that a run admits is known; None where one is, or where the run
    does not say which it admits."""
    limits = bounds(run.declared(library) or "")
    if limits is None:
        return None
    from zerocfg.catalog.history import histories

    known = histories(library)
    return None if known.within(limits) else text((known.admitted(limits) or known.releases)[0])


@lru_cache(maxsize=64)
def admitted_keys(library: str, declared: str) -> AdmittedKeys:
    """What keys were in the releases of a library that a declaration admits."""
    limits = bounds(declared) if declared else None
    if limits is None or limits[0] >= release(VERSIONS[library]):
        return AdmittedKeys(library)
    from zerocfg.catalog.admitted import admitted
    from zerocfg.catalog.history import histories

    among = admitted(library, declared)
    low, high = (among.releases[0], among.newest) if among is not None and among.releases else (None, ())
    return AdmittedKeys(library, declared, low, high, frozenset(histories(library).changed_since(low or ())))
