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
            one.code,
            one.name,
            one.severity,
            one.findings,
            one.repositories,
            max(1.0, round(BAR * one.findings / most, 1)),
        )
        for one in counts
    ]
    return FleetPage(
        "Lint of " + (count(1, "repository") if total.repositories == 1 else f"{total.repositories} repositories"),
        f"{sum(total.findings.values()):,} findings in {total.found}, nothing in {total.clean}",
        _tiles(outcomes, changed),
        [*_problems(outcomes)],
        _trend(changed) if changed is not None else None,
        bars,
        _groups(outcomes, changed),
        rule_pages(one.code for one in counts),
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
    some = sum(bool(one.counts()[severity]) for one in outcomes)
    return f"in {some} {'repository' if some == 1 else 'repositories'}"


def _problems(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    lost = [(one.name, one.problem) for one in outcomes if one.problem]
    return lost + [(one.name, f"failed inside zerocfg: {said}") for one in outcomes for said in one.failed_inside]


def _trend(changed: Changes) -> Trend:
    total = changed.total
    return Trend(
        f"{total.new} new, {total.gone} gone, {total.same} the same, in repositories that both reports have.",
        [[one.what, one.name, *_figures(one)] for one in changed.rules if one.new or one.gone],
        [[one.what, *_figures(one)] for one in changed.repositories if one.new or one.gone],
        change_notes(changed),
    )


def _figures(one: Change) -> list[str]:
    return [str(one.new), str(one.gone), str(one.same)]


def _groups(outcomes: Sequence[Outcome], changed: Changes | None) -> list[Group]:
    """Those in which something was found, the worst first."""
    found = [(one, one.counts()) for one in outcomes if one.diagnostics]
    found.sort(key=lambda row: [-row[1][name] for name in SEVERITIES])
    groups = []
    for one, counts in found:
        new = {diagnostic["fingerprint"] for diagnostic in changed.new_of(one)} if changed is not None else set()
        rows = sorted((_row(each, new) for each in one.diagnostics), key=lambda row: SEVERITIES.index(row.severity))
        about = ", ".join(count(number, name) for name, number in counts.items() if number)
        standard = not new if changed is not None else not counts["error"]
        groups.append(Group(one.name, about, standard, tuple(rows)))
    return groups


def _row(one: dict[str, Any], new: set[str]) -> Row:
    place = f"{one['file']}:{one['start']['line']}:{one['start']['column']}"
    return Row(place, one["code"], one["severity"], one["message"], one["help"] or "", one["fingerprint"] in new)
