"""The page about many repositories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocfg.fleet.model import SEVERITIES, Outcome
from zerocfg.fleet.summary import rule_counts, totals
from zerocfg.fleet.text import change_notes
from zerocfg.page.findings import RulePage, rule_pages
from zerocfg.page.formatting import count
from zerocfg.page.html import html
from zerocfg.page.page import Tile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.fleet.changes import Change, Changes

GENERATOR = "zerocfg lint --repos"
BAR = 160
"""Pixels of the longest bar."""


@dataclass(frozen=True, slots=True)
class Row:
    place: str
    code: str
    severity: str
    message: str
    help: str
    new: bool


@dataclass(frozen=True, slots=True)
class Group:
    """The findings of a repository. ``standard``: none of them is what `FleetPage.only` asks for."""

    name: str
    about: str
    standard: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class RuleBar:
    code: str
    name: str
    severity: str
    findings: int
    repositories: int
    length: float


@dataclass(frozen=True, slots=True)
class Trend:
    about: str
    rules: list[list[str]]
    repositories: list[list[str]]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class FleetPage:
    """``only``: which repositories are left when the page is asked to show fewer."""

    name: str
    about: str
    tiles: list[Tile]
    problems: list[tuple[str, str]]
    changes: Trend | None
    counts: list[RuleBar]
    repositories: list[Group]
    rules: list[RulePage]
    only: str
    files: tuple[str, ...] = ()


def render(page: FleetPage) -> str:
    """Raises PageError where an extra is missing."""
    return html("fleet.html", GENERATOR, page=page)


def fleet_page(outcomes: Sequence[Outcome], changed: Changes | None) -> FleetPage:
    total = totals(outcomes)
    counts = rule_counts(outcomes)
    most = counts[0].findings if counts else 1
    bars = [
        RuleBar(
            rule_count.code,
            rule_count.name,
            rule_count.severity,
            rule_count.findings,
            rule_count.repositories,
            max(1.0, round(BAR * rule_count.findings / most, 1)),
        )
        for rule_count in counts
    ]
    return FleetPage(
        "Lint of " + (count(1, "repository") if total.repositories == 1 else f"{total.repositories} repositories"),
        f"{sum(total.findings.values()):,} findings in {total.found}, nothing in {total.clean}",
        _tiles(outcomes, changed),
        [*_problems(outcomes)],
        _trend(changed) if changed is not None else None,
        bars,
        _groups(outcomes, changed),
        rule_pages(rule_count.code for rule_count in counts),
        "only repositories with errors" if changed is None else "only repositories with new findings",
    )


def _tiles(outcomes: Sequence[Outcome], changed: Changes | None) -> list[Tile]:
    total = totals(outcomes)
    tiles = [
        Tile(
            "Errors",
            f"{total.findings['error']:,}",
            _in(outcomes, "error"),
            "bad" * bool(total.findings["error"]),
            "by-rule",
        ),
        Tile(
            "Warnings",
            f"{total.findings['warning']:,}",
            _in(outcomes, "warning"),
            "warn" * bool(total.findings["warning"]),
            "by-rule",
        ),
        Tile(
            "Clean",
            f"{total.clean:,}",
            f"of {total.repositories:,} repositories",
            "good" * bool(total.clean),
            "by-rule",
        ),
        Tile(
            "Not linted",
            f"{total.problems:,}",
            "missing, unreadable, or over time",
            "bad" * bool(total.problems),
            "problems" if total.problems else "by-rule",
        ),
    ]
    if changed is not None:
        new = changed.total.new
        tiles.append(
            Tile("New", f"{new:,}", f"{changed.total.gone:,} gone since then", "warn" if new else "good", "changes")
        )
    return tiles


def _in(outcomes: Sequence[Outcome], severity: str) -> str:
    some = sum(bool(outcome.counts()[severity]) for outcome in outcomes)
    return f"in {some} {'repository' if some == 1 else 'repositories'}"


def _problems(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    lost = [(outcome.name, outcome.problem) for outcome in outcomes if outcome.problem]
    return lost + [
        (outcome.name, f"failed inside zerocfg: {said}") for outcome in outcomes for said in outcome.failed_inside
    ]


def _trend(changed: Changes) -> Trend:
    total = changed.total
    return Trend(
        f"{total.new} new, {total.gone} gone, {total.same} the same, in repositories that both reports have.",
        [[rule.what, rule.name, *_figures(rule)] for rule in changed.rules if rule.new or rule.gone],
        [
            [repository.what, *_figures(repository)]
            for repository in changed.repositories
            if repository.new or repository.gone
        ],
        change_notes(changed),
    )


def _figures(change: Change) -> list[str]:
    return [str(change.new), str(change.gone), str(change.same)]


def _groups(outcomes: Sequence[Outcome], changed: Changes | None) -> list[Group]:
    """Those in which something was found, the worst first."""
    found = [(outcome, outcome.counts()) for outcome in outcomes if outcome.diagnostics]
    found.sort(key=lambda row: [-row[1][name] for name in SEVERITIES])
    groups = []
    for outcome, counts in found:
        new = {diagnostic["fingerprint"] for diagnostic in changed.new_of(outcome)} if changed is not None else set()
        rows = sorted((_row(each, new) for each in outcome.diagnostics), key=lambda row: SEVERITIES.index(row.severity))
        about = ", ".join(count(number, name) for name, number in counts.items() if number)
        standard = not new if changed is not None else not counts["error"]
        groups.append(Group(outcome.name, about, standard, tuple(rows)))
    return groups


def _row(item: dict[str, Any], new: set[str]) -> Row:
    place = f"{item['file']}:{item['start']['line']}:{item['start']['column']}"
    return Row(place, item["code"], item["severity"], item["message"], item["help"] or "", item["fingerprint"] in new)
