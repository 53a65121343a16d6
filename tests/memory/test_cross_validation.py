"""The cross-validation of published rows: scales and factors worked out by hand, and results that are what they say."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory import cross_validation as cv  # noqa: E402
from zerocfg.memory.measured_spread import MEASURED  # noqa: E402
from zerocfg.memory.spread import COVERED, ENDS, Spread  # noqa: E402

SIZE = 10**12
Group = tuple[str, str, str]


def row(name: str, deviation: float, source: str = "a", activations: int = 0) -> cv.Row:
    """A row whose measured peak is e^deviation times what is predicted."""
    group = (source, "ZeRO-2", "all weights")
    return cv.Row(name, group, "allocated", round(SIZE * math.exp(deviation)), SIZE, activations, 0.0, 0)


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cv.RESULTS / "cross-validation.json").read_text())
    return found


def published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cv.PUBLISHED.read_text())
    return found


# -- scales ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0.05, 0.1, 0.2])
def test_rows_that_are_all_equally_far_off_give_that_scale(size: float) -> None:
    """The likeliest scale s of t with 2 degrees solves sum of 3 x^2 / (2 s^2 + x^2) = number of rows: s = x."""
    rows = [row("1", size), row("2", -size), row("3", size)]
    assert cv.fitted(rows, []).states == pytest.approx(size, rel=0.01)
    traced = [replace(one, activations=SIZE) for one in rows]
    assert cv.fitted(traced, []).activations == pytest.approx(size, rel=0.01)


def test_rows_that_are_unequally_far_off() -> None:
    """0.1 and 0.3, three of each: 2 u^2 - 0.1 u - 0.0036 = 0 with u = 2 s^2, so s = 0.19267."""
    rows = [row(str(at), size) for at, size in enumerate((0.1, -0.1, 0.1, 0.3, -0.3, 0.3))]
    assert cv.fitted(rows, []).states == pytest.approx(0.19267, rel=0.01)


def test_what_one_run_reserved_and_allocated_gives_the_scale_of_the_reserve() -> None:
    ratios = [cv.Ratio(("a", "", ""), 1.12 * math.exp(0.06)), cv.Ratio(("a", "", ""), 1.12 * math.exp(-0.06))]
    assert cv.fitted([row("1", 0.1), row("2", -0.1)], ratios).reserve == pytest.approx(0.06, rel=0.01)


def test_the_factor_is_what_the_rows_that_were_left_out_ask_for() -> None:
    """Groups of three that are off by 0.1, 0.1 and 0.3. Judged by the first two, the last one is 3 scales off, and has
    to be held: of nine rows 90% and the one to come are all nine. 3 / 2.91999 = 1.0274."""
    rows = [row(f"{source}{at}", size * (-1) ** at, source) for source, size in zip("abc", (0.1, 0.1, 0.3), strict=True)
            for at in range(3)]  # fmt: skip
    spread, factor = cv.calibrated(rows, [])
    assert factor == pytest.approx(1.0274, rel=0.01)
    # All rows, u = 2 s^2: 6 * 0.03 / (u + 0.01) + 3 * 0.27 / (u + 0.09) = 9, so u = 0.04772 and s = 0.15447.
    assert spread.states == pytest.approx(1.0274 * 0.15447, rel=0.01)


def test_whole_sources_that_were_left_out_are_asked_as_well() -> None:
    """Two groups of source a are off by 0.3, one of b and one of c by 0.1. Without one group of a, the other one still
    says 0.3; without source a nobody does, its rows are 3 scales off, and all of twelve rows have to be held:
    3 / 2.91999 = 1.0274."""
    sizes = (("a", "ZeRO-2", 0.3), ("a", "ZeRO-3", 0.3), ("b", "ZeRO-2", 0.1), ("c", "ZeRO-2", 0.1))
    rows = [
        replace(row(f"{source}{engine}{at}", size * (-1) ** at, source), group=(source, engine, "all weights"))
        for source, engine, size in sizes
        for at in range(3)
    ]
    assert cv.widening(rows, []) < 1.0
    assert cv.widening(*cv.by_source(rows, [])) == pytest.approx(1.0274, rel=0.01)
    assert cv.calibrated(rows, [])[1] == pytest.approx(1.0274, rel=0.01)


def test_bands_are_never_narrowed() -> None:
    rows = [row(f"{source}{at}", 0.1 * (-1) ** at, source) for source in "abc" for at in range(3)]
    assert cv.calibrated(rows, [])[1] == 1.0


def test_a_row_has_no_say_in_its_own_band() -> None:
    rows = [row(f"{source}{at}", size * (-1) ** at, source) for source, size in zip("abc", (0.1, 0.2, 0.3), strict=True)
            for at in range(3)]  # fmt: skip
    ratios = [cv.Ratio(("a", "", ""), 1.3), cv.Ratio(("b", "", ""), 1.2)]
    before = {one.row.name: one.spread for one in cv.cross_validated(rows, ratios)}
    changed = [replace(one, measured=5 * SIZE) if one.group[0] == "a" else one for one in rows]
    after = {one.row.name: one.spread for one in cv.cross_validated(changed, [cv.Ratio(("a", "", ""), 2.0), ratios[1]])}
    assert all(before[f"a{at}"] == after[f"a{at}"] for at in range(3))
    assert all(before[f"b{at}"] != after[f"b{at}"] for at in range(3))


def test_a_source_has_no_say_in_its_own_bands() -> None:
    groups = [("a", "ZeRO-2"), ("a", "ZeRO-3"), ("b", "ZeRO-2"), ("c", "ZeRO-2")]
    rows = [
        replace(row(f"{source}{engine}{at}", size * (-1) ** at, source), group=(source, engine, "all weights"))
        for (source, engine), size in zip(groups, (0.1, 0.3, 0.2, 0.25), strict=True)
        for at in range(3)
    ]
    ratios = [cv.Ratio(("a", "", ""), 1.3), cv.Ratio(("b", "", ""), 1.2)]
    before = {one.row.name: one.spread for one in cv.cross_validated_by_source(rows, ratios)}
    assert list(before) == [one.name for one in rows]
    changed = [replace(one, measured=5 * SIZE) if one.group[1] == "ZeRO-3" else one for one in rows]
    others = [cv.Ratio(("a", "", ""), 2.0), ratios[1]]
    after = {one.row.name: one.spread for one in cv.cross_validated_by_source(changed, others)}
    assert all((before[name] == after[name]) is name.startswith("a") for name in before)
    assert before["aZeRO-20"] == before["aZeRO-30"] == cv.calibrated(rows[6:], ratios[1:])[0]


@pytest.mark.parametrize(("end", "held"), [(0.9999, True), (1.0001, False)])
@pytest.mark.parametrize("side", [1, -1])
def test_a_row_is_held_up_to_the_ends_of_its_band(end: float, held: bool, side: int) -> None:
    spread = Spread(0.1, 0.1, 0.1, 0.1)
    assert cv.Judged(row("1", side * end * 0.1 * ENDS), spread).held is held


# -- rows --------------------------------------------------------------------------------------------------------------


def line(name: str, **more: Any) -> dict[str, Any]:
    found = {"row": name, "group": "open", "error": 0.1, "publisher": "x", "engine": "ZeRO-3", "kind": "all weights"}
    found |= {"counter": "device", "measured": 11, "allocated": 10, "activations": 4, "activations_error": 0.0}
    return found | {"beside": 1} | more


def test_rows_without_a_figure_and_quarantined_ones_are_no_rows() -> None:
    without = {name: value for name, value in line("3").items() if name != "error"}
    rows = [line("1"), line("2", group="quarantined"), without, line("4", group="clean"), line("5", group="verdict")]
    assert [one.name for one in cv.rows_of(rows)] == ["1", "4"]


@pytest.mark.parametrize(
    ("about", "apart"),
    [
        ({}, ""),
        ({"publisher": "LitGPT", "engine": "FSDP 1", "kind": "adapters"}, "LitGPT's adapters"),
        ({"engine": "FSDP 1", "kind": "adapters"}, ""),
        ({"engine": "FSDP 1"}, ""),
        ({"kind": "adapters"}, ""),
        ({"publisher": "InternEvo"}, "InternEvo"),
    ],
)
def test_rows_that_stand_apart(about: dict[str, str], apart: str) -> None:
    (found,) = cv.rows_of([line("1", **about)])
    assert found.no_verdict == apart and (not apart or apart in cv.NO_VERDICT)


def test_the_ratio_of_a_run_is_that_of_its_two_counters() -> None:
    rows = cv.rows_of([line("A03", counter="reserved", measured=124), line("A11", counter="allocated", measured=100)])
    assert [one.value for one in cv.ratios_of(rows)] == [1.24]
    assert cv.ratios_of(rows[:1]) == []


# -- results say what they are -----------------------------------------------------------------------------------------


def test_the_results_follow_from_the_published_rows() -> None:
    found, again = results(), json.loads(json.dumps(cv.result(published())))
    keys = ("formulas", "all", "groups", "sources", "a source at a time", "apart", "every row", "below")
    assert {key: found[key] for key in keys} == {key: again[key] for key in keys}
    assert (cv.RESULTS / "cross-validation.md").read_text() == cv.report(found)


def test_the_scales_of_zerocfg_are_those_of_the_results() -> None:
    assert Spread(**results()["spread"]) == MEASURED
    assert cv.SCALES.read_text() == cv.scales(results())


def test_nine_of_ten_rows_lie_in_the_band_that_others_give_them() -> None:
    every = results()["all"]
    held = [one["band"][0] <= one["measured"] <= one["band"][2] for one in results()["rows"] if not one["no verdict"]]
    assert every["held"] == sum(held) and every["rows"] == len(held) >= 40
    sources = results()["a source at a time"]
    assert sources["rows"] == every["rows"] == sum(one["rows"] for one in results()["sources"])
    for found in (every, sources):
        assert COVERED <= found["held"] / found["rows"] < 1


def test_the_chance_is_as_often_right_as_it_says() -> None:
    """46 rows: a share of 0.5 has a standard error of 7 points. Fewer sources give wider bands than all do, so that
    fewer rows lie far out than they say."""
    for level, by_groups, by_sources in results()["below"]:
        assert abs(by_groups - level) < 0.1, level
        assert abs(by_sources - 0.5) >= abs(level - 0.5) - 0.07, level


def test_the_documents_say_what_the_results_say() -> None:
    found, every = results(), results()["all"]
    share = f"{every['held']} of {every['rows']}"
    errors = [f"{every[word]:.1%}" for word in ("mean", "median", "worst")]
    for page in ("benchmarks/memory/README.md", "docs/memory.md"):
        text = (ROOT / page).read_text()
        assert share in text and all(figure in text for figure in errors), page
        for which in ("every row", "a source at a time"):
            assert f"{found[which]['held']} of {found[which]['rows']}" in " ".join(text.split()), page
    text = (ROOT / "benchmarks/memory/README.md").read_text()
    assert cv.group_table(found) in text and cv.source_table(found) in text
