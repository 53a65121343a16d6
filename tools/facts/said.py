"""What lint says of the examples of a rule with the releases of a set pinned, and which claims depend on a release."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tests.rules.examples import lint_example
from zerocfg.catalog.rule_outcomes import Side, rule_outcomes
from zerocfg.linter.engine import findings_of_each
from zerocfg.linter.selection import Selection
from zerocfg.record import replace
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.older_releases import keys_of
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Rule, Severity
from zerocfg.rules.registry import ALL
from zerocfg.run.model import Run
from zerocfg.run.resolve_settings import with_settings

Reason = Literal["declared", "histories", "example", "finding", "asked", "seen"]
REASONS: dict[Reason, str] = {
    "declared": "the rule names its releases, or compares those that a project admits",
    "histories": "it judges keys or arguments by their histories",
    "example": "an example names the releases in which its claim is seen",
    "finding": "a finding names the releases in which it holds",
    "asked": "its check asks which releases the project admits",
    "seen": "an example did something else on an older set",
}
"""What makes the claim of a rule depend on a release."""


@dataclass(frozen=True)
class Said:
    """``by_set``: the gravest severity of the rule's findings with a set pinned, None where it is silent. ``asks``,
    ``names``: whether its check asks for the releases of a run that states none, and names some in a finding."""

    by_set: Mapping[str, Severity | None]
    asks: bool
    names: bool


def said(rule: Rule, example: Example, sets: Mapping[str, Mapping[str, str]]) -> Said:
    """``sets``: by name, the releases of each library."""
    selection = Selection(select=(rule.code,))
    with tempfile.TemporaryDirectory() as folder:
        runs = [replace(run, undeclared=set()) for run in lint_example(example, Path(folder), selection).runs]
        names = any([bool(finding.versions) for run in runs for finding in rule.check(run)])
        asks = any(run.undeclared for run in runs)
        return Said({name: _gravest(rule, runs, libraries) for name, libraries in sets.items()}, asks, names)


def _gravest(rule: Rule, runs: Sequence[Run], libraries: Mapping[str, str]) -> Severity | None:
    pins = {library: f"=={release}" for library, release in libraries.items()}
    pinned = [
        with_settings(replace(run, versions=pins, version_places={}, undetermined=frozenset(), undeclared=set()))
        for run in runs
    ]
    found = (each for of_run in findings_of_each(pinned, Selection(select=(rule.code,))) for each in of_run)
    severities = [finding.severity or of.severity for of, finding in found if of.code == rule.code]
    return max(severities, key=lambda severity: severity.rank, default=None)


@dataclass(frozen=True)
class Judged:
    """A rule, why its claim depends on a release, and what is said of its examples, in their order."""

    rule: Rule
    reasons: frozenset[Reason]
    said: Mapping[Side, Sequence[Said]]


def bound_rules(sets: Mapping[str, Mapping[str, str]]) -> list[Judged]:
    """The rules with a release bound. Those about zerocfg itself have none."""
    judged = [_judged(rule, sets) for rule in ALL if page_of(rule).proof.status != "self"]
    return [one for one in judged if one.reasons]


@cache
def bound_codes() -> frozenset[str]:
    return frozenset(one.rule.code for one in bound_rules({}))


def _judged(rule: Rule, sets: Mapping[str, Mapping[str, str]]) -> Judged:
    page = page_of(rule)
    sides: dict[Side, list[Said]] = {
        "bad": [said(rule, example, sets) for example in page.bad],
        "good": [said(rule, example, sets) for example in page.good],
    }
    everything = [*sides["bad"], *sides["good"]]
    holds: dict[Reason, bool] = {
        "declared": bool(rule.versions) or "versions" in rule.needs,
        "histories": bool(rule.histories),
        "example": any(example.releases for example in (*page.bad, *page.good)),
        "finding": any(one.names for one in everything),
        "asked": any(one.asks for one in everything),
        "seen": _shows_something_else(rule),
    }
    return Judged(rule, frozenset(reason for reason in holds if holds[reason]), sides)


def _shows_something_else(rule: Rule) -> bool:
    played = rule_outcomes().rules.get(rule.code, {})
    kinds = {outcome.kind for key in keys_of(rule) for outcome in played.get(key, {}).values()}
    return bool(kinds - {"same", "unplayable"})
