"""In which of the releases that a project admits a rule or a finding holds, and what a finding that needs some says."""

from __future__ import annotations

from functools import lru_cache

from zerocfg.catalog.history import histories
from zerocfg.catalog.release_range import ReleaseRange
from zerocfg.catalog.versions import OLDEST, Release, bounds, release
from zerocfg.patterns import pattern
from zerocfg.rules.api import Finding, Severity
from zerocfg.rules.effects import admitted, admitting, stopped_by, under_trainer
from zerocfg.run.model import Run

_LIBRARY = pattern(r"[a-z]+")


def among(versions: str, run: Run) -> str | None:
    """None where no admitted release is one of ``versions`` ("deepspeed>=0.18.3"), "" where all are or nothing is said
    about releases; else those that are: "from DeepSpeed 0.18.3 on".

    Where nothing is said about them the run itself may: a release that stops at one of its training arguments never
    comes to what a rule speaks of.
    """
    library = library_of(versions)
    declared = run.declared(library) if library else None
    if declared:
        return _among(library, versions, declared)
    if library in OLDEST and run.new_install_stop is not None and _among(library, versions, f">={OLDEST[library]}"):
        return None  # an older release than the newest, and nothing tells which
    removed = None
    if library == "transformers" and run.consumer in ("transformers", "trl"):
        removed = _removed(frozenset(run.arguments))
    return None if removed is not None and _among(library, versions, f"<{removed}") is None else ""


@lru_cache(maxsize=1024)
def _removed(arguments: frozenset[str]) -> str | None:
    """The first release of transformers that has not all of these training arguments; None where the newest has."""
    known = histories("transformers").raw if arguments else {}
    gone = [known[name][-1] for name in arguments if name in known]
    return min((since for since, state in gone if state is None), key=release, default=None)


@lru_cache(maxsize=1024)
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


def uses_plugin(run: Run) -> bool:
    """Whether accelerate may see the DeepSpeed config of a run, and refuse it. The Trainer of transformers before 4.30
    hands it to DeepSpeed itself."""
    return not under_trainer(run) or among("transformers>=4.30", run) is not None


def _top(limits: tuple[Release, Release, bool]) -> tuple[Release, bool]:
    return limits[1], limits[2]


def limited(run: Run, finding: Finding, library: str, releases: str) -> Finding:
    """A finding with the place that admits the releases. One that only some of them have, which ``releases`` names, is
    a warning without a fix: a new install may bring them. It is a note where the script does not start with one."""
    stop = run.new_install_stop if releases and library in OLDEST else None
    said = [releases, admitted(run, library), stopped_by(stop) if stop is not None else ""]
    finding.message += f" ({'; '.join(filter(None, said))})"
    finding.related = [*finding.related, *admitting(run, library)]
    if releases:
        finding.fix = None
        graver = stop is None and finding.severity is not Severity.NOTE
        finding.severity = Severity.WARNING if graver else Severity.NOTE
    return finding


def library_of(versions: str) -> str:
    """The library whose releases a rule or a finding names."""
    found = _LIBRARY.match(versions) if versions else None
    return found[0] if found else ""
