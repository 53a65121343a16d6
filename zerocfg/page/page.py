"""Everything that the page shows, ready to be set."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.compare.lock_table import changed_sources
from zerocfg.page.changes import Changes, changes
from zerocfg.page.findings import Finding, RulePage, findings, rule_pages
from zerocfg.page.memory import NO_TIME, Memory, memory
from zerocfg.page.settings import Group, settings
from zerocfg.page.smoke import Smoke, smoke
from zerocfg.page.time import Time, time
from zerocfg.page.words import count, size
from zerocfg.resolve.explain.forecast import Forecast
from zerocfg.resolve.explain.plan_summary import describe_engine
from zerocfg.run.discover import display_name

if TYPE_CHECKING:
    from zerocfg.page.subject import Subject


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure of the summary. ``mood`` is "good", "warn", "bad" or "" (nothing is known or to be judged)."""

    label: str
    value: str
    note: str
    mood: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a section has no content, and the command that makes it; ``short`` is for the summary."""

    why: str
    command: str = ""
    short: str = ""


@dataclass(slots=True)
class Page:
    """Sections that are a `Missing` say what to do about it."""

    name: str
    about: str
    files: list[str]
    problems: list[tuple[str, str, str, str]] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    hidden: str = ""
    rules: list[RulePage] = field(default_factory=list)
    memory: Memory | Missing | None = None
    time: Time | Missing | None = None
    smoke: Smoke | Missing | None = None
    changes: Changes | Missing | None = None
    changed_sources: list[str] = field(default_factory=list)
    settings: list[Group] = field(default_factory=list)
    build: str = ""


def page(subject: Subject) -> Page:
    """Gather what is known of a run."""
    found = Page(subject.name, _about(subject), _files(subject))
    found.build = display_name(subject.build) if subject.build is not None else ""
    if subject.built is not None:
        found.problems = list(
            dict.fromkeys(
                (str(one.place or subject.spec), one.key, one.message, one.help) for one in subject.built.problems
            )
        )
    if subject.found is not None:
        found.findings = findings(subject.found)
        found.rules = rule_pages(found.findings)
        by = ", ".join(f"{number} by {what}" for what, number in sorted(subject.found.suppressed_by.items()))
        found.hidden = f"Not shown, because they are suppressed: {by}." if by else ""
    found.memory, found.time = _predicted(subject)
    found.smoke = _smoke(subject)
    found.changes = _changes(subject)
    if subject.built is None and subject.lock is not None and subject.build is not None:
        found.changed_sources = changed_sources(subject.lock, subject.build)
    found.settings = settings(subject)
    found.tiles = _tiles(found, subject)
    return found


def command(*words: str) -> str:
    """A command line that a shell reads as it is meant."""
    return shlex.join(("zerocfg", *words))


def _about(subject: Subject) -> str:
    plan = subject.built.plan if subject.built is not None else None
    if plan is not None:
        parts = [plan.consumer, f"on {plan.hardware}"]
    elif subject.lock is not None:
        parts = [subject.lock.consumer or "", f"on {subject.lock.hardware_name}"]
    else:
        parts = [(subject.run.consumer if subject.run is not None else None) or "consumer unknown"]
    if isinstance(subject.forecast, Forecast):
        parts += [describe_engine(subject.forecast.setup.options), subject.forecast.setup.precision]
    return " · ".join(part for part in parts if part)


def _files(subject: Subject) -> list[str]:
    names = [file.name for file in subject.run.files] if subject.run is not None else []
    return list(dict.fromkeys(names))


def _predicted(subject: Subject) -> tuple[Memory | Missing, Time | Missing]:
    one = subject.forecast
    if isinstance(one, Forecast):
        known = time(one)
        why = next((note for note in one.notes if note.startswith(NO_TIME)), "")
        why = why or "no time can be predicted without a model, a batch and hardware"
        return memory(one, subject.alternatives), known or Missing(f"{why[:1].upper()}{why[1:]}.")
    if isinstance(one, str):
        missing = Missing(f"Nothing can be predicted: {one}.")
    elif subject.built is not None:
        missing = Missing("The run does not resolve, so nothing is predicted.", command("plan", subject.spec))
    elif subject.lock is not None:
        missing = Missing("The spec of this build is not where the lock says; nothing is predicted without it.")
    else:
        missing = Missing("No spec says which model, hardware and batch this run has. Write one:", command("init"))
    return missing, missing


def _smoke(subject: Subject) -> Smoke | Missing:
    if subject.builds:
        return Missing(_several(subject))
    if subject.build is None:
        return Missing("There is no build that could have been tried." if subject.spec else "No smoke-run is recorded.")
    found = smoke(subject.build)
    again = command("smoke", display_name(subject.build))
    if isinstance(found, str):
        return Missing(
            f"The certificate in {display_name(subject.build)} cannot be read: {found}. Make it anew:", again
        )
    return found or Missing("This build was never tried on the real libraries.", again)


def _changes(subject: Subject) -> Changes | Missing:
    if subject.builds:
        return Missing(_several(subject))
    if subject.checked is not None:
        return changes(subject.checked)
    if not subject.spec:
        why = "No spec is known that this run is built from."
        return Missing(why) if subject.lock is not None else Missing(f"{why} Write one:", command("init"))
    if subject.build is None:
        return Missing("This run was not built yet.", command("build", subject.spec, "-o", "OUT"), "not built")
    why = "The sources do not build at present, so they cannot be compared with the build."
    return Missing(why, command("build", subject.spec, "-o", "OUT", "--check"), "the sources do not build")


def _several(subject: Subject) -> str:
    names = ", ".join(display_name(one) for one in subject.builds)
    return f"Several builds of this run lie here: {names}. Name one with --build."


_MOODS = {"fits": "good", "tight": "warn", "does not fit": "bad"}


def _tiles(found: Page, subject: Subject) -> list[Tile]:
    tiles = [_findings_tile(found, subject)]
    if isinstance(found.memory, Memory):
        held = found.memory
        note = f"of {held.limit}, {held.verdict}" if held.limit and held.verdict != "unknown" else "of a device"
        tiles.append(Tile("Memory", size(held.expected), note, _MOODS.get(held.verdict, ""), "memory"))
    else:
        tiles.append(Tile("Memory", "–", "not predicted", "", "memory"))
    if isinstance(found.time, Time):
        tiles.append(Tile("Step", found.time.step, f"{found.time.tokens} tokens/s", "", "time"))
    else:
        tiles.append(Tile("Step", "–", "not predicted", "", "time"))
    if isinstance(found.smoke, Smoke):
        seen = found.smoke
        ok = sum(one.ok is True for one in seen.checks) + seen.further
        note = f"{seen.failed} checks failed" if seen.failed else f"{count(ok, 'check')} on {count(seen.ranks, 'rank')}"
        note = "of other files than those here" if seen.stale and seen.passed else note
        mood = "bad" if not seen.passed else "warn" if seen.stale else "good"
        tiles.append(Tile("Smoke-run", "passed" if seen.passed else "failed", note, mood, "smoke"))
    else:
        tiles.append(Tile("Smoke-run", "–", "not run", "", "smoke"))
    if isinstance(found.changes, Changes):
        moved = found.changes
        value = "up to date" if moved.same else count(len(moved.changes), "change")
        note = "the build is what the sources give" if moved.same else "since the last build"
        tiles.append(Tile("Build", value, note, "good" if moved.same else "warn", "changes"))
    else:
        short = found.changes.short if found.changes is not None else ""
        tiles.append(Tile("Build", "–", short or "nothing to compare", "", "changes"))
    return tiles


def _findings_tile(found: Page, subject: Subject) -> Tile:
    if found.problems and not found.findings:
        return Tile("Lint", count(len(found.problems), "problem"), "the run does not resolve", "bad", "findings")
    if subject.found is None:
        return Tile("Lint", "–", "not linted", "", "findings")
    numbers = {name: sum(one.severity == name for one in found.findings) for name in ("error", "warning", "note")}
    worst = next((name for name, number in numbers.items() if number), "")
    if not worst:
        return Tile("Lint", "clean", f"{count(subject.found.files, 'file')} read", "good", "findings")
    rest = ["the run does not resolve"] if found.problems else []
    rest += [count(number, name) for name, number in numbers.items() if number and name != worst]
    mood = {"error": "bad", "warning": "warn"}.get(worst, "")
    return Tile("Lint", count(numbers[worst], worst), ", ".join(rest), mood, "findings")
