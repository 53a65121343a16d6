"""``docs/rules-by-release.md``: complete, and what the data set and the rules say now."""

from __future__ import annotations

import re

import pytest

from tools.facts.explained import CHANGED, LESS, MILDER, TOLD
from tools.facts.release_bound import bounds
from tools.facts.table import FILE, MEANING, TODAY, Cell, cell_of, text
from zerocfg.catalog.rule_outcomes import Outcome, rule_outcomes
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import find

ROW = re.compile(r"^\| (ZC\d+)(?:-(\d+)( good)?)? [a-z ]*\| (.+) \|$", re.M)


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str, str], list[str]]:
    """By rule, number and side, as the page has them."""
    page = FILE.read_text(encoding="utf-8")
    return {
        (row[1], row[2] or "", row[3] or ""): [cell.strip() for cell in row[4].split("|")] for row in ROW.finditer(page)
    }


def test_the_page_is_what_the_tool_writes() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "python -m tools.facts.table"


def test_every_example_of_every_rule_with_a_bound_has_a_cell_for_every_set(
    rows: dict[tuple[str, str, str], list[str]],
) -> None:
    expected: set[tuple[str, str, str]] = set()
    for rule in (bound.rule for bound in bounds()):
        page = page_of(rule)
        if rule.by_each_release:
            expected.add((rule.code, "", ""))
            continue
        expected |= {(rule.code, str(number), "") for number in range(1, len(page.bad) + 1)}
        expected |= {(rule.code, str(number), " good") for number in range(1, len(page.good) + 1)}
    assert set(rows) == expected
    words = "|".join(MEANING)
    for name, cells in rows.items():
        assert len(cells) == len(rule_outcomes().sets) + 1, name
        assert all(re.fullmatch(rf"(?:{words})(?: [a-z]+)?(?: \d+)?", cell) for cell in cells), name


def test_a_number_has_its_reason(rows: dict[tuple[str, str, str], list[str]]) -> None:
    page = FILE.read_text(encoding="utf-8").partition("## What was seen instead")[2]
    given = set(re.findall(r"^(\d+)\. .", page, re.M))
    assert given == {cell.split()[-1] for cells in rows.values() for cell in cells if cell[-1].isdigit()}


def test_it_is_readable_in_a_terminal() -> None:
    table = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("| ZC")]
    assert max(map(len, table)) <= 120


def test_rules_that_name_releases_have_a_bound() -> None:
    codes = {bound.rule.code: bound for bound in bounds()}
    assert len(codes) >= 120
    assert "declared" in codes["ZC635"].reasons and codes["ZC635"].releases == ("accelerate>=1.10",)
    assert codes["ZC101"].reasons >= {"histories"}
    assert "asked" in codes["ZC855"].reasons
    assert "ZC201" not in codes  # holds in every release, and was seen in every set
    assert {*CHANGED, *TOLD, *MILDER, *LESS} <= set(codes)


@pytest.mark.parametrize(
    ("outcome", "bad", "good"),
    [
        (None, Cell("open"), Cell("open")),
        (Outcome("same"), Cell("shown"), Cell("passes")),
        (Outcome("same", "in init"), Cell("shown", "init"), Cell("passes", "init")),
        (Outcome("runs"), Cell("not"), Cell("not")),
        (Outcome("runs", "step"), Cell("not", "step"), Cell("not", "step")),
        (Outcome("other", "x is 1"), Cell("not", why="x is 1"), Cell("not", why="x is 1")),
        (Outcome("stops", "E"), Cell("stops", why="E"), Cell("stops", why="E")),
        (Outcome("unplayable", "no card"), Cell("open", why="no card"), Cell("open", why="no card")),
    ],
)
def test_cells(outcome: Outcome | None, bad: Cell, good: Cell) -> None:
    assert cell_of(outcome, "bad") == bad
    assert cell_of(outcome, "good") == good


@pytest.mark.parametrize("code", CHANGED)
def test_a_changed_bound_is_named(code: str) -> None:
    assert find(code) is not None
    assert TODAY not in CHANGED[code]
