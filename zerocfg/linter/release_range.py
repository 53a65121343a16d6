"""In which releases a finding holds, as data and in words."""

from __future__ import annotations

from zerocfg.catalog.versions import library_name
from zerocfg.record import record


@record(frozen=True, slots=True)
class ReleaseRange:
    """The releases of ``library`` in which a finding holds: ``parts``, each by its first and last release.

    ``known``: every release of it that zerocfg knows, oldest first. Of those before ``known_from`` nothing is known;
    they stand in no part.
    """

    library: str
    parts: tuple[tuple[str, str], ...]
    known_from: str
    known: tuple[str, ...]

    @property
    def words(self) -> str:
        """``DeepSpeed 0.17.1 and later``, ``all known releases of DeepSpeed, 0.10.0 to 0.19.8``."""
        name = library_name(self.library)
        oldest, newest = self.known[0], self.known[-1]
        if not self.parts:
            return f"no known release of {name} by itself"
        if self.parts == ((oldest, newest),):
            return f"all known releases of {name}, {oldest} to {newest}"
        words = f"{name} {' and '.join(self._part(first, last) for first, last in self.parts)}"
        unknown = self.known_from != oldest and self.parts[0][0] == self.known_from
        return f"{words}; not known before" if unknown else words

    def _part(self, first: str, last: str) -> str:
        if first == last:
            return first
        if last == self.known[-1]:
            return f"{first} and later"
        if first == self.known[0]:
            return f"before {self.known[self.known.index(last) + 1]}"
        return f"{first} to {last}"
