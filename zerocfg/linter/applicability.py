"""Whether a rule and its findings apply to the releases that a project admits."""

from __future__ import annotations

import re

from zerocfg.catalog.release_range import ReleaseRange
from zerocfg.record import replace
from zerocfg.rules.api import Finding, Rule, Severity
from zerocfg.rules.release_scope import among, library_of, limited
from zerocfg.run.model import Run
from zerocfg.run.stages.admitted import admitted_of

UNUSED_BY = {
    "deepspeed": frozenset(("accelerate", "transformers", "trl")),
    "accelerate": frozenset(("transformers", "trl")),
    "transformers": frozenset(("trl",)),
}
"""Libraries whose releases do not matter to a run, by who reads it."""


_BEFORE_THE_SCRIPT = re.compile(r"ZC0|ZC7[0-4]|ZC876|ZC879|ZC880")
"""Codes of rules about what is read or started before the script, about its imports and its packages."""


def behind_start(run: Run, rule: Rule, finding: Finding) -> Finding:
    """A finding as it is where the script stops at an import of its own repository, or with every release of its
    packages: one about what comes later is a note, until the script gets there."""
    stops = (run.script is not None and run.script.broken) or any(clash.certain for clash in run.release_clashes)
    if not stops or _BEFORE_THE_SCRIPT.match(rule.code):
        return finding
    return replace(finding, severity=Severity.NOTE, fix=None)


def holds(rule: Rule, run: Run) -> str | None:
    """As `among`, of the releases that a rule speaks of (``Rule.versions``)."""
    return "" if "versions" in rule.needs else among(rule.versions, run)  # such a rule compares the releases itself


def within(run: Run, rule: Rule, finding: Finding, releases: str) -> Finding | None:
    """A finding as the admitted releases have it; ``releases``: what `holds` says of its rule."""
    versions = rule.versions
    if finding.versions:
        own = among(finding.versions, run)
        if own is None:
            return None
        versions, releases = (finding.versions, own) if own else (versions, releases)
    if not rule.by_each_release:
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
