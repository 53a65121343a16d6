"""The report of a fleet for people."""

from __future__ import annotations

from collections.abc import Sequence

from zerocfg.fleet.changes import Changes
from zerocfg.fleet.model import SEVERITIES, Outcome
from zerocfg.fleet.summary import Totals, rule_counts, totals
from zerocfg.report.full import Paint
from zerocfg.source.foreign import one_line
from zerocfg.terminal.table import Column, table
from zerocfg.version import __version__

_NUMBER = {"right": True}
_REPOSITORIES = (Column("repository", hangs=32), Column("errors", **_NUMBER), Column("warnings", **_NUMBER))
_NOTES = Column("notes", **_NUMBER)
_RULES = (
    Column("findings", **_NUMBER),
    Column("repositories", **_NUMBER),
    Column("rule"),
    Column("severity"),
    Column(least=24),
)
_CHANGED = (*(Column(name, **_NUMBER) for name in ("new", "gone", "same")), Column("since then", least=24))


def render_full(
    outcomes: Sequence[Outcome], changes: Changes | None, colour: bool = False, width: int | None = None
) -> str:
    """Tables of repositories and of rules, what changed, what could not be linted, and a summary."""
    blocks = [_repositories(outcomes, width), _rules(outcomes, width)]
    if changes is not None:
        blocks += _changes(changes, width)
    blocks += [_problems(outcomes), [summary(outcomes, changes, colour)]]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def render_concise(outcomes: Sequence[Outcome], changes: Changes | None, colour: bool = False) -> str:
    """A line for each finding, the repository in front; then what could not be linted, and the summary."""
    paint = Paint(colour)
    lines = [
        f"{one_line(outcome.name)}: {diagnostic['file']}:"
        f"{diagnostic['start']['line']}:{diagnostic['start']['column']}: "
        f"{paint(diagnostic['severity'], diagnostic['severity'])}[{diagnostic['code']}] {diagnostic['message']}"
        for outcome in outcomes
        for diagnostic in outcome.diagnostics
    ]
    return "\n".join([*lines, *_problems(outcomes), summary(outcomes, changes, colour)]) + "\n"


def summary(outcomes: Sequence[Outcome], changes: Changes | None, colour: bool = False) -> str:
    """``200 repositories: 12 errors and 30 warnings in 87, nothing in 110, 3 not linted. ...``"""
    paint, total = Paint(colour), totals(outcomes)
    words = [_found(total)] if total.found else []
    if total.clean:
        words.append(paint(f"nothing in {total.clean}", "green"))
    if total.problems:
        words.append(paint(f"{total.problems} not linted", "error"))
    text = f"{_count(total.repositories, 'repository', 'repositories')}: {', '.join(words)}."
    inside = sum(len(outcome.failed_inside) for outcome in outcomes)
    if inside:
        text += f" {_count(inside, 'check')} failed inside zerocfg."
    if changes is not None:
        all_of = changes.total
        text += f" Since the earlier report {all_of.new} new, {all_of.gone} gone, {all_of.same} the same."
    return text


def _found(total: Totals) -> str:
    parts = [_count(number, name) for name, number in total.findings.items() if number]
    return f"{' and '.join(filter(None, (', '.join(parts[:-1]), parts[-1])))} in {total.found}"


def _repositories(outcomes: Sequence[Outcome], width: int | None) -> list[str]:
    """Those in which something was found, the worst first."""
    counted = [(outcome, outcome.counts()) for outcome in outcomes if outcome.diagnostics]
    counted.sort(key=lambda row: [-row[1][name] for name in SEVERITIES])
    noted = any(counts["note"] for _, counts in counted)
    columns = (*_REPOSITORIES, *([_NOTES] if noted else []))
    shown = SEVERITIES if noted else SEVERITIES[:2]
    rows = [(one_line(outcome.name), *(str(counts[name] or "") for name in shown)) for outcome, counts in counted]
    return table(columns, rows, width, "")


def _rules(outcomes: Sequence[Outcome], width: int | None) -> list[str]:
    rows = [
        (str(rule_count.findings), str(rule_count.repositories), rule_count.code, rule_count.severity, rule_count.name)
        for rule_count in rule_counts(outcomes)
    ]
    return table(_RULES, rows, width, "")


def _changes(changes: Changes, width: int | None) -> list[list[str]]:
    """By rule and by repository what is new or gone; then what was not compared."""
    blocks = []
    for some, named in ((changes.rules, True), (changes.repositories, False)):
        rows = [
            (
                str(change.new or ""),
                str(change.gone or ""),
                str(change.same or ""),
                f"{change.what} {change.name}" if named else change.what,
            )
            for change in some
            if change.new or change.gone
        ]
        blocks.append(table(_CHANGED, rows, width, ""))
    return [*blocks, change_notes(changes)]


def change_notes(changes: Changes) -> list[str]:
    """What was not compared, and why the earlier report may differ for another reason than the repositories."""
    notes = [
        f"{said}: {', '.join(map(one_line, names))}"
        for said, names in (
            ("Not in the earlier report, so not compared", changes.added),
            ("Only in the earlier report", changes.removed),
            ("Not compared, as one of the two reports could not lint it", changes.not_compared),
        )
        if names
    ]
    if changes.version != __version__:
        notes.append(f"The earlier report was made by zerocfg {changes.version}; this is {__version__}.")
    return notes


def _problems(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        f"{one_line(outcome.name)}: not linted: {one_line(outcome.problem)}" for outcome in outcomes if outcome.problem
    ]
    return lines + [
        f"{one_line(outcome.name)}: failed inside zerocfg: {one_line(said)}"
        for outcome in outcomes
        for said in outcome.failed_inside
    ]


def _count(number: int, word: str, words: str = "") -> str:
    return f"{number} {word if number == 1 else words or f'{word}s'}"
