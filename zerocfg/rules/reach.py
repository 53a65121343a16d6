"""In which of the releases that a project admits a rule or a finding holds, and what a finding that needs some says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from zerocfg.catalog.release_range import ReleaseRange
from zerocfg.catalog.versions import Release, bounds
from zerocfg.rules.api import Finding, Rule, Severity
from zerocfg.rules.effects import admitted, admitting
from zerocfg.run.model import Run
from zerocfg.run.stages.admitted import admitted_of

_LIBRARY = re.compile(r"[a-z]+")
OF_HISTORIES = frozenset("ZC101 ZC102 ZC103 ZC104 ZC105 ZC106 ZC107 ZC108 ZC109 ZC110 ZC111 ZC113 ZC114 ZC115".split())
"""The rules of keys and values, which are judged by what each release reads."""


def holds(rule: Rule, run: Run) -> str | None:
    """As `among`, of the releases that a rule speaks of (``Rule.versions``)."""
    return "" if "versions" in rule.needs else among(rule.versions, run)  # such a rule compares the releases itself


def among(versions: str, run: Run) -> str | None:
    """None where no admitted release is one of ``versions`` ("deepspeed>=0.18.3"), "" where all are or nothing is said
    about releases; else those that are: "from DeepSpeed 0.18.3 on"."""
    library = library_of(versions)
    declared = run.versions.get(library) if library else None
    return _among(library, versions, declared) if declared else ""


@lru_cache(maxsize=4096)
def _among(library: str, versions: str, declared: str) -> str | None:
    admits, speaks = bounds(declared), bounds(versions.removeprefix(library))
    if admits is None or speaks is None:
        return ""
    low, high = max(admits[0], speaks[0]), min(_top(admits), _top(speaks))
    if low > high[0] or (low == high[0] and not high[1]):
        return None
    if admits[0] < speaks[0]:
        return ReleaseRange(library, since=speaks[0]).words
    return ReleaseRange(library, until=speaks[1]).words if _top(speaks) < _top(admits) else ""


def _top(limits: tuple[Release, Release, bool]) -> tuple[Release, bool]:
    return limits[1], limits[2]


UNUSED_BY = {
    "deepspeed": frozenset(("accelerate", "transformers", "trl")),
    "accelerate": frozenset(("transformers", "trl")),
    "transformers": frozenset(("trl",)),
}
"""Libraries whose releases do not matter to a run, by who reads it."""


class Asked(dict[str, str]):
    """The versions that a project states, and which others a rule has asked for: what it then finds is about the newest
    release of those."""

    def __init__(self, versions: Mapping[str, str]) -> None:
        super().__init__(versions)
        self.missing: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self.missing.add(key)
        return super().get(key, default)


def within(run: Run, rule: Rule, finding: Finding, releases: str) -> Finding | None:
    """A finding as the admitted releases have it; ``releases``: what `holds` says of its rule."""
    versions = rule.versions
    if finding.versions:
        own = among(finding.versions, run)
        if own is None:
            return None
        versions, releases = (finding.versions, own) if own else (versions, releases)
    if rule.code not in OF_HISTORIES and "versions" not in rule.needs:
        key = _of_key(run, finding)
        if key is None:
            return None
        if key and not releases:
            library, releases = key
            versions = library
    if not releases or (finding.severity or rule.severity) is Severity.NOTE:
        return finding
    return limited(run, finding, library_of(versions), releases)


def _of_key(run: Run, finding: Finding) -> tuple[str, ...] | None:
    """None where no admitted release has the key that a finding is about: those pass over it or refuse it, which
    other rules tell. Empty where all have it, else the library and those that do."""
    where = finding.location
    files = (("deepspeed", run.deepspeed), ("accelerate", run.accelerate))
    library = next((name for name, file in files if file is where.file), None)
    if library is None or not where.path or library not in run.versions:
        return ()
    from zerocfg.catalog.history import name_in  # only runs that say which releases they admit read it

    states = admitted_of(run, library).states(name_in(library, tuple(map(str, where.path))))
    having = [since for since, state in states if state is not None]
    if len(having) == len(states):
        return ()
    return (library, ReleaseRange(library, since=having[0]).words) if having else None


def limited(run: Run, finding: Finding, library: str, releases: str) -> Finding:
    """A finding that only some of the admitted releases have: a warning that names them, and without a fix."""
    finding.message += f" ({releases}; {admitted(run, library)})"
    if finding.severity is not Severity.NOTE:
        finding.severity = Severity.WARNING
    finding.related = [*finding.related, *admitting(run, library)]
    finding.fix = None
    return finding


def library_of(versions: str) -> str:
    """The library whose releases a rule or a finding names."""
    found = _LIBRARY.match(versions) if versions else None
    return found[0] if found else ""
