"""What a lint worked out that the next lint of the same files may use again: the settings and the findings of runs.

An editor lints after every edit, and of hundreds of runs one has changed. A run is settled, and its rules are asked,
from the files that it is linked to and from what the disk answers. So both are kept with the run as it was linked:
files compare by identity, and a file that was edited is another one. Whoever keeps this across lints forgets it
(`forget`) when the disk answers otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from zerocfg.linter.reader_agreement import Readers
from zerocfg.record import field, record
from zerocfg.rules.api import Finding, Rule
from zerocfg.run.discover import Files
from zerocfg.run.link import Links
from zerocfg.run.model import Run

Findings = list[tuple[Rule, Finding]]
Content = tuple[object, ...]
"""The fields of a run as it was linked; not what it was asked for since."""
_content: Callable[[Run], Content] = attrgetter(*(name for name in Run.__slots__ if name != "undeclared"))


@record
class Kept:
    """Of each lint only what it used is there for the next. ``settled`` and ``checked`` count what was worked out."""

    links: Links = field(default_factory=Links)
    readers: Readers | None = None
    settled: int = 0
    checked: int = 0
    _before: dict[str, list[tuple[Content, Run]]] = field(default_factory=dict)
    _now: dict[str, list[tuple[Content, Run]]] = field(default_factory=dict)
    _findings_before: dict[int, tuple[Run, Sequence[Rule], Findings]] = field(default_factory=dict)
    _findings_now: dict[int, tuple[Run, Sequence[Rule], Findings]] = field(default_factory=dict)

    def begin(self, files: Files) -> None:
        """Another lint begins."""
        self.links.begin(files)
        self._before, self._now = self._now, {}
        self._findings_before, self._findings_now = self._findings_now, {}

    def forget(self) -> None:
        self.links.forget()
        self.readers = None
        for store in (self._before, self._now, self._findings_before, self._findings_now):
            store.clear()

    def settling(self, settle: Callable[[Run], Run]) -> Callable[[Run], Run]:
        """The function, which is not called for a run that was linked as it is now."""

        def call(linked: Run) -> Run:
            content = _content(linked)
            known = next((pair for pair in self._before.get(linked.name, ()) if pair[0] == content), None)
            if known is None:
                self.settled += 1
                known = content, settle(linked)
            self._now.setdefault(linked.name, []).append(known)
            return known[1]

        return call

    def findings(self, run: Run, rules: Sequence[Rule]) -> Findings | None:
        """What these rules found in a run; None where they were not asked."""
        known = self._findings_before.get(id(run))
        if known is None or known[0] is not run or known[1] != rules:
            return None
        self._findings_now[id(run)] = known
        return known[2]

    def keep(self, run: Run, rules: Sequence[Rule], findings: Findings) -> None:
        self.checked += 1
        self._findings_now[id(run)] = run, rules, findings
