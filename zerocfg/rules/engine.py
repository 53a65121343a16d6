"""Running the rules over runs: findings become diagnostics, selected, suppressed, sorted, told once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch

from zerocfg.rules.api import Finding, Fix, Location, Rule, Severity
from zerocfg.rules.registry import ALL
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.node import dotted
from zerocfg.source.text import Place

IGNORE = re.compile(r"#\s*zerocfg:\s*(ignore-file|ignore)(?:\[([A-Za-z0-9, ]*)\])?")
URL = "https://zerocfg.readthedocs.io/rules/"


@dataclass(frozen=True, slots=True)
class Spot:
    """A place made concrete: name of the file, key path, start and end as an editor shows them."""

    file: SourceFile
    path: str
    start: Place
    end: Place
    label: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One reported finding."""

    code: str
    name: str
    severity: Severity
    message: str
    help: str
    spot: Spot
    related: tuple[Spot, ...] = ()
    fix: Fix | None = None
    run: str = ""

    @property
    def url(self) -> str:
        return f"{URL}{self.code.lower()}/"


@dataclass(frozen=True)
class Selection:
    """Which rules count. Codes may be prefixes ("ZC2"); ``per_file`` maps file patterns, optionally with ``:key.path``,
    to codes."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def wants(self, rule: Rule) -> bool:
        if rule.status == "removed":
            return False
        chosen = _longest(rule, self.select) if self.select else 0
        return chosen >= 0 and chosen >= _longest(rule, self.ignore)

    def ignores(self, diagnostic: Diagnostic) -> bool:
        for pattern, codes in self.per_file:
            files, _, keys = pattern.partition(":")
            if not fnmatch(diagnostic.spot.file.name, files) and not fnmatch(diagnostic.spot.file.name, f"*/{files}"):
                continue
            if keys and not fnmatch(diagnostic.spot.path, keys):
                continue
            if any(diagnostic.code.startswith(code) or code == "ALL" for code in codes):
                return True
        return False


def _longest(rule: Rule, codes: Iterable[str]) -> int:
    """Length of the most exact entry that covers a rule; a rule's name counts as exact; -1 when none does."""
    lengths = [0 if code == "ALL" else len(code) for code in codes if code == "ALL" or rule.code.startswith(code)]
    lengths += [99 for code in codes if code == rule.name]
    return max(lengths, default=-1)


@dataclass
class Result:
    diagnostics: list[Diagnostic] = field(default_factory=list)
    suppressed: int = 0
    files: int = 0


def lint_runs(runs: Sequence[Run], selection: Selection | None = None, asked: set[int] | None = None) -> Result:
    """Diagnostics of all runs, each told once, in the order of files and lines.

    ``asked`` limits them to findings that touch one of these source files (by id); None means all.
    """
    selection = selection or Selection()
    rules = [rule for rule in ALL if selection.wants(rule)]
    seen: set[tuple[str, str, Place, str]] = set()
    result = Result(files=len({file.name for run in runs for file in run.files}))
    for run in runs:
        for rule in rules:
            if rule.consumers and run.consumer not in rule.consumers:
                continue
            for finding in rule.check(run):
                diagnostic = diagnose(rule, finding, run)
                if asked is not None and not _touches(finding, asked):
                    continue
                key = (
                    diagnostic.code,
                    diagnostic.spot.file.name,
                    diagnostic.spot.start,
                    diagnostic.spot.path,
                )
                if key in seen:
                    continue
                seen.add(key)
                if selection.ignores(diagnostic) or _suppressed(diagnostic):
                    result.suppressed += 1
                else:
                    result.diagnostics.append(diagnostic)
    result.diagnostics.sort(key=lambda d: (d.spot.file.name, d.spot.start, d.code))
    return result


def diagnose(rule: Rule, finding: Finding, run: Run) -> Diagnostic:
    """Make a finding concrete."""
    return Diagnostic(
        code=rule.code,
        name=rule.name,
        severity=finding.severity or rule.severity,
        message=finding.message,
        help=finding.help,
        spot=spot(finding.location),
        related=tuple(spot(location) for location in finding.related),
        fix=finding.fix,
        run=run.name,
    )


def spot(location: Location) -> Spot:
    """Line and column of a symbolic place."""
    span = location.concrete()
    source = location.file.source
    start = source.place(span.start)
    return Spot(location.file, dotted(location.path), start, max(start, source.place(span.end)), location.label)


def _touches(finding: Finding, asked: set[int]) -> bool:
    locations = [finding.location, *finding.related]
    return any(id(location.file.reread_of or location.file) in asked for location in locations)


def _suppressed(diagnostic: Diagnostic) -> bool:
    """True when a comment on the line, on the line above, or for the whole file names the code."""
    source = diagnostic.spot.file.source
    if "zerocfg:" not in source.text:
        return False
    line = diagnostic.spot.start.line
    lines = [source.line(line)]
    above = source.line(line - 1)
    if above.lstrip().startswith("#"):
        lines.append(above)
    if any(_names(diagnostic, match) for text in lines for match in IGNORE.finditer(text) if match[1] == "ignore"):
        return True
    return any(_names(diagnostic, match) for match in IGNORE.finditer(source.text) if match[1] == "ignore-file")


def _names(diagnostic: Diagnostic, match: re.Match[str]) -> bool:
    if match[2] is None:
        return True
    return diagnostic.code in {code.strip().upper() for code in match[2].split(",")}
