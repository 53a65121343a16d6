"""What the outcomes of all repositories make together: counts by rule and repository, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zerocfg.fleet.changes import Changes
from zerocfg.fleet.model import SEVERITIES, Outcome, fails
from zerocfg.record import record


@record(frozen=True)
class RuleCount:
    """How often a rule found something at a severity, and in how many repositories."""

    code: str
    name: str
    severity: str
    findings: int
    repositories: int


@record(frozen=True)
class Totals:
    """Repositories: all, with findings, without any, and not linted. ``findings`` by severity."""

    repositories: int
    found: int
    clean: int
    problems: int
    findings: dict[str, int]


def rule_counts(outcomes: Sequence[Outcome]) -> list[RuleCount]:
    """The most frequent first."""
    found: Counter[tuple[str, str, str]] = Counter()
    where: Counter[tuple[str, str, str]] = Counter()
    for outcome in outcomes:
        keys = [(diagnostic["code"], diagnostic["name"], diagnostic["severity"]) for diagnostic in outcome.diagnostics]
        found.update(keys)
        where.update(set(keys))
    order = sorted(found, key=lambda key: (-found[key], key[0], SEVERITIES.index(key[2])))
    return [RuleCount(*key, found[key], where[key]) for key in order]


def totals(outcomes: Sequence[Outcome]) -> Totals:
    linted = [outcome for outcome in outcomes if not outcome.problem]
    found = sum(bool(outcome.diagnostics) for outcome in linted)
    findings = {name: sum(outcome.counts()[name] for outcome in linted) for name in SEVERITIES}
    return Totals(len(outcomes), found, len(linted) - found, len(outcomes) - len(linted), findings)


def exit_code(outcomes: Sequence[Outcome], changes: Changes | None = None) -> int:
    """2 where a repository could not be linted or zerocfg failed inside, else 1 where a finding is grave enough for its
    repository, else 0. With ``changes`` only findings that are new to them count."""
    if any(outcome.incomplete for outcome in outcomes):
        return 2
    if changes is not None:
        return int(
            any(fails(diagnostic, outcome.fail_on) for outcome in outcomes for diagnostic in changes.new_of(outcome))
        )
    return int(any(fails(diagnostic, outcome.fail_on) for outcome in outcomes for diagnostic in outcome.diagnostics))
