"""Every rule holds what it declares: its examples, its documentation, its fix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.linter.fixing import fix_all
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Severity
from zerocfg.rules.codes import REMOVED
from zerocfg.rules.registry import ALL

from .examples import lint, lint_example, told, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.linter.engine import Result

RULES = {rule.code: rule for rule in ALL}


def cases(kind: str, only: set[str] | None = None) -> list[Any]:
    """(code, index) of each example of a kind, the code as test id."""
    return [
        pytest.param(code, at, id=f"{code}-{at + 1}")
        for code, rule in RULES.items()
        for at in range(len(getattr(page_of(rule), kind)))
        if only is None or code in only
    ]


@pytest.mark.parametrize(("code", "at"), cases("bad"))
def test_bad_example_is_found(code: str, at: int, tmp_path: Path) -> None:
    result = lint_example(page_of(RULES[code]).bad[at], tmp_path)
    found = [diagnostic for diagnostic in result.diagnostics if diagnostic.code == code]
    assert found, [(d.code, d.message) for d in result.diagnostics]
    example = page_of(RULES[code]).bad[at]
    assert [told(diagnostic, example.files) for diagnostic in found] == list(example.expected)


@pytest.mark.parametrize("code", RULES)
def test_declared_severity_is_the_gravest_that_is_shown(code: str) -> None:
    shown = {expected.severity for example in page_of(RULES[code]).bad for expected in example.expected}
    assert RULES[code].severity.value == next(level for level in ("error", "warning", "note") if level in shown)


@pytest.mark.parametrize(("code", "at"), cases("good"))
def test_good_example_is_clean(code: str, at: int, tmp_path: Path) -> None:
    result = lint_example(page_of(RULES[code]).good[at], tmp_path)
    assert [(d.code, d.message) for d in result.diagnostics if d.severity is not Severity.NOTE] == []
    assert code not in [d.code for d in result.diagnostics]


TWO_CAUSES = {
    ("ZC111", "ZC520"): "the old name, and both names at once",
    ("ZC111", "ZC523"): "the old name, and what accelerate makes of it",
    ("ZC221", "ZC315"): "a fixed loss scale, and Lamb that refuses one",
    ("ZC401", "ZC405"): "stage 3 without gathering, and a stage higher than needed",
}
"""Rules that speak of the same place, each for a reason of its own."""


@pytest.mark.parametrize(("code", "at"), cases("bad"))
def test_a_cause_is_told_by_one_rule(code: str, at: int, tmp_path: Path) -> None:
    found = lint_example(page_of(RULES[code]).bad[at], tmp_path).diagnostics
    places = {(d.span.file.name, d.span.start) for d in found if d.code == code}
    others = {d.code for d in found if d.code != code and (d.span.file.name, d.span.start) in places}
    pairs = {(min(code, other), max(code, other)) for other in others}
    assert pairs <= set(TWO_CAUSES), "say it once, or name the two causes in TWO_CAUSES"


@pytest.mark.parametrize(("code", "at"), cases("bad", {code for code, rule in RULES.items() if page_of(rule).fixable}))
def test_fix_removes_the_finding(code: str, at: int, tmp_path: Path) -> None:
    example = page_of(RULES[code]).bad[at]
    write(example, tmp_path)
    before = lint(tmp_path, example.consumer)

    def again(texts: Mapping[str, str]) -> Result:
        return lint(tmp_path, example.consumer, texts=texts)

    texts, after, count = fix_all(before, again, unsafe=True)
    assert count > 0 and texts
    assert code not in [diagnostic.code for diagnostic in after.diagnostics]


def test_codes_and_names_are_unique() -> None:
    assert len(RULES) == len(ALL)
    assert len({rule.name for rule in ALL}) == len(ALL)


def test_a_code_is_never_given_a_second_meaning() -> None:
    """`codes.txt` only grows. A new rule adds its line; one that is removed keeps it and moves to `REMOVED`."""
    lines = (Path(__file__).parent / "codes.txt").read_text(encoding="utf-8").splitlines()
    given = dict(line.split() for line in lines)
    assert lines == sorted(lines) and len(given) == len(lines)
    assert len(set(given.values())) == len(given)
    now = {**{rule.code: rule.name for rule in ALL}, **{code: gone.name for code, gone in REMOVED.items()}}
    assert {code: name for code, name in now.items() if code not in given} == {}, "new: add them to codes.txt"
    assert given == now, "a code that was given once keeps its name; a rule that goes is listed in REMOVED"
    assert not set(REMOVED) & set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_rule_is_declared(code: str) -> None:
    rule = RULES[code]
    assert re.fullmatch(r"ZC[0-9]\d\d", code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert page_of(rule).summary.endswith(".") and len(page_of(rule).summary) <= 120
    assert page_of(rule).bad and page_of(rule).good
    assert (rule.status == "deprecated") or not rule.replaced_by


def undocumented(code: str) -> list[str]:
    """What the page of a rule leaves open."""
    page = page_of(RULES[code])
    wanted = {"why it is bad": page.why, "What happens": page.happens}
    if page.proof.raises is None:
        wanted["When to ignore"] = page.ignore
    return [heading for heading, text in wanted.items() if not text]


@pytest.mark.parametrize("code", RULES)
def test_rule_is_documented(code: str) -> None:
    assert bool(undocumented(code)) is (code in UNDOCUMENTED), undocumented(code) or "take it off UNDOCUMENTED"


UNDOCUMENTED: set[str] = set()
"""Rules whose page still leaves something open."""
