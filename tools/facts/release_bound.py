"""Which rules have a claim that depends on a release, and what says so."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tests.rules.examples import lint_example
from zerocfg.catalog.rule_outcomes import rule_outcomes
from zerocfg.linter.selection import Selection
from zerocfg.record import replace
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.older_releases import keys_of
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Rule
from zerocfg.rules.registry import ALL

Reason = Literal["declared", "histories", "example", "finding", "asked", "seen"]
REASONS: dict[Reason, str] = {
    "declared": "the rule names its releases, or compares those that a project admits",
    "histories": "the rule judges keys or arguments by their histories",
    "example": "an example names the releases in which its claim is seen",
    "finding": "a finding names the releases in which it holds",
    "asked": "the check asks which releases the project admits",
    "seen": "a bad example did something else on an older set",
}
"""What makes the claim of a rule depend on a release."""


@dataclass(frozen=True)
class Bound:
    """``releases``: those that rule, examples and findings name, as clauses ("deepspeed>=0.19.3")."""

    rule: Rule
    reasons: frozenset[Reason]
    releases: tuple[str, ...]


@cache
def bounds() -> tuple[Bound, ...]:
    """Of the rules that have one, by code. Rules about zerocfg itself have none."""
    found = (_bound(rule) for rule in ALL if page_of(rule).proof.status != "self")
    return tuple(sorted((item for item in found if item.reasons), key=lambda bound: bound.rule.code))


def _bound(rule: Rule) -> Bound:
    page = page_of(rule)
    asks = False
    named: list[str] = []
    for example in (*page.bad, *page.good):
        asked, found = _while_checking(rule, example)
        asks = asks or asked
        named += found
    of_examples = [example.releases for example in (*page.bad, *page.good) if example.releases]
    holds: dict[Reason, bool] = {
        "declared": bool(rule.versions) or "versions" in rule.needs,
        "histories": bool(rule.histories),
        "example": bool(of_examples),
        "finding": bool(named),
        "asked": asks,
        "seen": _shows_something_else(rule),
    }
    releases = dict.fromkeys(filter(None, [rule.versions, *of_examples, *named]))
    return Bound(rule, frozenset(reason for reason in holds if holds[reason]), tuple(releases))


def _while_checking(rule: Rule, example: Example) -> tuple[bool, list[str]]:
    """Whether the check asks for the releases of a run that states none, and those that its findings name."""
    asks = False
    named: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for stated in lint_example(example, Path(folder), Selection(select=(rule.code,))).runs:
            run = replace(stated, undeclared=set())
            named += [finding.versions for finding in rule.check(run) if finding.versions]
            asks = asks or bool(run.undeclared)
    return asks, named


def _shows_something_else(rule: Rule) -> bool:
    played = rule_outcomes().rules.get(rule.code, {})
    kinds = {outcome.kind for key in keys_of(rule) for outcome in played.get(key, {}).values()}
    return bool(kinds - {"same", "unplayable"})
