"""Everything that the page shows, ready to be set."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.compare.lock_table import changed_sources
from zerocfg.page.changes import Changes, changes
from zerocfg.page.findings import Finding, RulePage, findings, rule_pages
from zerocfg.page.formatting import count, size
from zerocfg.page.memory import Memory, memory
from zerocfg.page.settings import Group, settings
from zerocfg.page.smoke import Smoke, smoke
from zerocfg.page.time import Time, time
from zerocfg.resolve.explain.forecast import Forecast
from zerocfg.resolve.explain.plan_summary import describe_engine
from zerocfg.run.discover import display_name

if TYPE_CHECKING:
    from zerocfg.page.report_input import ReportInput


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


def page(report_input: ReportInput) -> Page:
    """Gather what is known of a run."""
    found = Page(report_input.name, _about(report_input), _files(report_input))
    found.build = display_name(report_input.build) if report_input.build is not None else ""
    if report_input.built is not None:
        found.problems = list(
            dict.fromkeys(
                (str(problem.place or report_input.spec), problem.key, problem.message, problem.help)
                for problem in report_input.built.problems
            )
        )
    if report_input.found is not None:
        found.findings = findings(report_input.found)
        found.rules = rule_pages(finding.code for finding in found.findings)
        by = ", ".join(f"{number} by {what}" for what, number in sorted(report_input.found.suppressed_by.items()))
        found.hidden = f"Not shown, because they are suppressed: {by}." if by else ""
    found.memory, found.time = _predicted(report_input)
    found.smoke = _smoke(report_input)
    found.changes = _changes(report_input)
    if report_input.built is None and report_input.lock is not None and report_input.build is not None:
        found.changed_sources = changed_sources(report_input.lock, report_input.build)
    found.settings = settings(report_input)
    found.tiles = _tiles(found, report_input)
    return found


def command(*words: str) -> str:
    """A command line that a shell reads as it is meant."""
    return shlex.join(("zerocfg", *words))


def _about(report_input: ReportInput) -> str:
    plan = report_input.built.plan if report_input.built is not None else None
    if plan is not None:
        parts = [plan.consumer, f"on {plan.hardware}"]
    elif report_input.lock is not None:
        parts = [report_input.lock.consumer or "", f"on {report_input.lock.hardware_name}"]
    else:
        parts = [(report_input.run.consumer if report_input.run is not None else None) or "consumer unknown"]
    if isinstance(report_input.forecast, Forecast):
        parts += [describe_engine(report_input.forecast.setup.options), report_input.forecast.setup.precision]
    return " · ".join(part for part in parts if part)


def _files(report_input: ReportInput) -> list[str]:
    names = [file.name for file in report_input.run.files] if report_input.run is not None else []
    return list(dict.fromkeys(names))


def _predicted(report_input: ReportInput) -> tuple[Memory | Missing, Time | Missing]:
    one = report_input.forecast
    if isinstance(one, Forecast):
        known = time(one)
        why = "No time can be predicted without a model, a batch and hardware"
        why = f"No time is predicted: {one.no_time}" if one.no_time else why
        return memory(one, report_input.alternatives), known or Missing(f"{why}.")
    if isinstance(one, str):
        missing = Missing(f"Nothing can be predicted: {one}.")
    elif report_input.built is not None:
        missing = Missing("The run does not resolve, so nothing is predicted.", command("plan", report_input.spec))
    elif report_input.lock is not None:
        missing = Missing("The spec of this build is not where the lock says; nothing is predicted without it.")
    else:
        missing = Missing("No spec says which model, hardware and batch this run has. Write one:", command("init"))
    return missing, missing


def _smoke(report_input: ReportInput) -> Smoke | Missing:
    if report_input.builds:
        return Missing(_several(report_input))
    if report_input.build is None:
        return Missing(
            "There is no build that could have been tried." if report_input.spec else "No smoke-run is recorded."
        )
    found = smoke(report_input.build)
    again = command("smoke", display_name(report_input.build))
    if isinstance(found, str):
        return Missing(
            f"The certificate in {display_name(report_input.build)} cannot be read: {found}. Make it anew:", again
        )
    return found or Missing("This build was never tried on the real libraries.", again)


def _changes(report_input: ReportInput) -> Changes | Missing:
    if report_input.builds:
        return Missing(_several(report_input))
    if report_input.checked is not None:
        return changes(report_input.checked)
    if not report_input.spec:
        why = "No spec is known that this run is built from."
        return Missing(why) if report_input.lock is not None else Missing(f"{why} Write one:", command("init"))
    if report_input.build is None:
        return Missing("This run was not built yet.", command("build", report_input.spec, "-o", "OUT"), "not built")
    why = "The sources do not build at present, so they cannot be compared with the build."
    return Missing(why, command("build", report_input.spec, "-o", "OUT", "--check"), "the sources do not build")


def _several(report_input: ReportInput) -> str:
    names = ", ".join(display_name(build) for build in report_input.builds)
    return f"Several builds of this run lie here: {names}. Name one with --build."


_MOODS = {"fits": "good", "likely": "warn", "unlikely": "bad", "does not fit": "bad"}


def _tiles(found: Page, report_input: ReportInput) -> list[Tile]:
    tiles = [_findings_tile(found, report_input)]
    if isinstance(found.memory, Memory):
        needs = found.memory
        note = f"of {needs.limit}, {needs.said}" if needs.limit and needs.verdict.word != "unknown" else "of a device"
        tiles.append(Tile("Memory", size(needs.expected), note, _MOODS.get(needs.verdict.word, ""), "memory"))
    else:
        tiles.append(Tile("Memory", "–", "not predicted", "", "memory"))
    if isinstance(found.time, Time):
        tiles.append(Tile("Step", found.time.step, f"{found.time.tokens} tokens/s", "", "time"))
    else:
        tiles.append(Tile("Step", "–", "not predicted", "", "time"))
    if isinstance(found.smoke, Smoke):
        seen = found.smoke
        ok = sum(check.ok is True for check in seen.checks) + seen.further
        note = f"{seen.failed} checks failed" if seen.failed else f"{count(ok, 'check')} on {count(seen.ranks, 'rank')}"
        note = "of other files than those here" if seen.stale and seen.passed else note
        note = f"not measured: {', '.join(seen.unmeasured)}" if seen.unmeasured else note
        mood = "warn" if seen.unmeasured else "bad" if not seen.passed else "warn" if seen.stale else "good"
        word = "incomplete" if seen.unmeasured else "passed" if seen.passed else "failed"
        tiles.append(Tile("Smoke-run", word, note, mood, "smoke"))
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


def _findings_tile(found: Page, report_input: ReportInput) -> Tile:
    if found.problems and not found.findings:
        return Tile("Lint", count(len(found.problems), "problem"), "the run does not resolve", "bad", "findings")
    if report_input.found is None:
        return Tile("Lint", "–", "not linted", "", "findings")
    numbers = {
        name: sum(finding.severity == name for finding in found.findings) for name in ("error", "warning", "note")
    }
    worst = next((name for name, number in numbers.items() if number), "")
    if not worst:
        return Tile("Lint", "clean", f"{count(report_input.found.files, 'file')} read", "good", "findings")
    rest = ["the run does not resolve"] if found.problems else []
    rest += [count(number, name) for name, number in numbers.items() if number and name != worst]
    mood = {"error": "bad", "warning": "warn"}.get(worst, "")
    return Tile("Lint", count(numbers[worst], worst), ", ".join(rest), mood, "findings")
