"""The harness for published rows: readings, other estimators, statistics, and that results say what they are."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory import freeze, published  # noqa: E402
from benchmarks.memory.errors import summary  # noqa: E402
from benchmarks.memory.estimators import cookbook_estimate, others  # noqa: E402
from benchmarks.memory.readings import LEFT_OUT, READINGS, SHAPES, points, points_file  # noqa: E402
from zerocfg.memory.options import TorchOptions, Workload  # noqa: E402
from zerocfg.models.model_facts import from_config  # noqa: E402

GIB = 1 << 30
BY_ROW = {reading.row: reading for reading in READINGS}
CLEAN = ["G03", "G04", "G06", "G07", "G10", "L01"]


@pytest.fixture
def table() -> Path:
    path = points_file()
    if path is None:
        pytest.skip("no memory_points.csv here (set ZEROCFG_MEMORY_POINTS)")
    return path


def results() -> dict[str, Any]:
    path = published.RESULTS / "published.json"
    if not path.is_file():
        pytest.skip("no results committed yet")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# -- results say what they are ----------------------------------------------------------------------------------------


def test_no_result_is_said_to_be_of_the_present_formulas_when_it_is_not() -> None:
    if not freeze.STATE.is_file():
        pytest.skip("nothing stated yet")
    untrue = freeze.untrue(json.loads(freeze.STATE.read_text()), freeze.states())
    assert not untrue, f"run `python benchmarks/memory/freeze.py --write`: stale are {', '.join(untrue)}"


def test_the_hash_follows_every_formula(tmp_path: Path) -> None:
    for folder in freeze.FORMULAS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("A = 1\n")
    first = freeze.formula_hash(tmp_path)
    assert first == freeze.formula_hash(tmp_path)
    (tmp_path / freeze.FORMULAS[0] / "a.py").write_text("A = 2\n")
    second = freeze.formula_hash(tmp_path)
    (tmp_path / freeze.FORMULAS[1] / "b.py").write_text("")
    assert len({first, second, freeze.formula_hash(tmp_path)}) == 3


def test_a_claim_of_freshness_that_became_false_is_found() -> None:
    now = {"published": "formulas changed since", "predictions": "present formulas"}
    assert freeze.untrue({"published": "present formulas", "predictions": "formulas changed since"}, now) == [
        "published"
    ]
    assert freeze.untrue(now, now) == []


def test_statistics_of_the_results_follow_from_their_rows() -> None:
    found = results()
    assert found["statistics"] == json.loads(json.dumps(published.statistics(found["rows"])))
    text = (published.RESULTS / "published.md").read_text()
    assert text == published.report(found)


# -- readings ---------------------------------------------------------------------------------------------------------


def test_every_row_but_throughput_is_read_or_left_out_with_a_reason(table: Path) -> None:
    with table.open(newline="") as lines:
        rows = {line["id"] for line in csv.DictReader(lines) if not line["id"].startswith("C")}
    assert rows == set(BY_ROW) | set(LEFT_OUT)
    assert not set(BY_ROW) & set(LEFT_OUT)
    assert all(reading.why for reading in READINGS)


def test_groups_are_those_of_the_protocol() -> None:
    assert [row for row, reading in BY_ROW.items() if reading.group == "clean"] == CLEAN
    assert {row for row, reading in BY_ROW.items() if reading.group == "quarantined"} == {"G08", "G09", "G11", "L04"}


def test_measured_sizes_of_the_results_are_those_of_the_table(table: Path) -> None:
    found = points(table)
    for row in results()["rows"]:
        assert row["measured"] == found[row["row"]].measured, row["row"]


def test_units_and_totals(table: Path) -> None:
    found = points(table)
    assert found["G03"].measured == int(16.9 * GIB)
    assert found["L01"].measured == int(14.1e9)
    assert found["Q04-256"].measured == int(139.2e9 / 2)  # printed for both cards together
    assert found["L07"].measured is None and not found["L07"].ran


# -- other people's estimators ----------------------------------------------------------------------------------------


@pytest.mark.libs
def test_estimators_on_rows_that_were_computed_by_hand() -> None:
    pytest.importorskip("deepspeed")
    pytest.importorskip("accelerate")
    facts = from_config(SHAPES["llama-7b"])
    expected = {  # GiB, worked out from the formulas as their sources print them
        "G03": {"DeepSpeed": 12.55, "EleutherAI cookbook": None},
        "G04": {"DeepSpeed": 26.67, "EleutherAI cookbook": 94.0},
        "G06": {"DeepSpeed": 14.61, "EleutherAI cookbook": 50.9},
        "G07": {"DeepSpeed": 2.06, "EleutherAI cookbook": None},
    }
    for row, tools in expected.items():
        found = others(facts, BY_ROW[row].options, BY_ROW[row].workload)
        assert found["accelerate"] == 8 * (facts.parameters or 0)
        for tool, size in tools.items():
            given = found[tool]
            assert (given is None) == (size is None)
            if given is not None:
                assert given / GIB == pytest.approx(size, rel=0.002), (row, tool)


def test_the_cookbook_knows_no_adapters() -> None:
    facts = from_config(SHAPES["llama-7b"])
    single, work = TorchOptions("single", 1), Workload(1, 512)
    assert cookbook_estimate(facts, single, work)
    assert cookbook_estimate(facts.model_copy(update={"trainable_parameters": 1000}), single, work) is None


# -- statistics -------------------------------------------------------------------------------------------------------


def test_summary() -> None:
    assert summary([0.1, -0.3, 0.0]) == {
        "rows": 3,
        "mean": pytest.approx(0.4 / 3),
        "median": 0.1,
        "worst": 0.3,
    }
    assert summary([]) == {"rows": 0}


def test_only_a_clear_answer_that_was_wrong_counts_as_wrong() -> None:
    said = [(word, ran) for word in ("fits", "tight", "does not fit", "unknown") for ran in (True, False)]
    rows = [{"word": word, "ran": ran} for word, ran in said]
    wrong = [(row["word"], row["ran"]) for row in published.wrong_verdicts(rows)]
    assert wrong == [("fits", False), ("does not fit", True)]


# -- the claim --------------------------------------------------------------------------------------------------------


@pytest.mark.libs
def test_clean_rows(table: Path) -> None:
    """Rows whose settings are all known: within 5%. ZeRO-3 rows: what is measured lies between the two ends of the
    settings that are not printed, give or take 5%."""
    pytest.importorskip("deepspeed")
    pytest.importorskip("transformers")
    rows = {row["row"]: row for row in published.compute(table, [BY_ROW[row] for row in CLEAN])}
    for name in ("G03", "G04", "L01"):
        assert abs(rows[name]["error"]) <= 0.05, (name, rows[name]["error"])
    for name in ("G06", "G07", "G10"):
        assert rows[name]["if_released"] <= 0.05 and rows[name]["error"] >= -0.05, name
        assert abs(rows[name]["if_released"]) <= 0.05, (name, rows[name]["if_released"])
    ours = summary(row["error"] for row in rows.values())
    for tool in published.NAMES:
        theirs = [row for row in rows.values() if row["errors_of_others"][tool] is not None]
        assert (
            summary(row["error"] for row in theirs)["mean"]
            < summary(row["errors_of_others"][tool] for row in theirs)["mean"]
        )
    assert ours["rows"] == len(CLEAN)
