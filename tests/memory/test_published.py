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

from benchmarks.memory import freeze, published, unprinted  # noqa: E402
from benchmarks.memory.errors import percent, spoken, summary  # noqa: E402
from benchmarks.memory.estimators import cookbook_estimate, others  # noqa: E402
from benchmarks.memory.readings import LEFT_OUT, LITGPT_TABLE, READINGS, SHAPES, points, points_file  # noqa: E402
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
    found: dict[str, Any] = json.loads((published.RESULTS / "published.json").read_text())
    return found


# -- results say what they are ----------------------------------------------------------------------------------------


def test_no_result_is_said_to_be_of_the_present_formulas_when_it_is_not() -> None:
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


@pytest.mark.parametrize(
    ("code", "same"),
    [
        ('"""Another docstring."""\nA = f(1, "b")  # why\n', True),
        ("A = f(\n    1,\n    'b',\n)\n\"What A is.\"\r\n", True),
        ('A = f(1, "c")\n', False),
        ('A = f(1.0, "b")\n', False),
        ('A = f(True, "b")\n', False),
        ('A = f(b="b")\n', False),
        ('A = f(1, "b", None)\n', False),
        ('A = f(1, "b", "c")\n', False),
        ('A: int = f(1, "b")\n', False),
        ('A = f(1, "b")\nA = None\n', False),
    ],
)
def test_words_change_no_hash_and_every_value_does(tmp_path: Path, code: str, same: bool) -> None:
    path = tmp_path / "a.py"
    path.write_text('A = f(1, "b")\n')
    before = freeze.formula_hash(tmp_path, ["a.py"])
    path.write_text(code)
    assert (freeze.formula_hash(tmp_path, ["a.py"]) == before) is same


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
    rows = set()
    for path in (table, LITGPT_TABLE):
        with path.open(newline="") as lines:
            rows |= {line["id"] for line in csv.DictReader(lines) if not line["id"].startswith("C")}
    assert rows == set(BY_ROW) | set(LEFT_OUT)
    assert not set(BY_ROW) & set(LEFT_OUT)
    assert all(reading.why for reading in READINGS)


def test_groups_are_those_of_the_protocol() -> None:
    assert [row for row, reading in BY_ROW.items() if reading.group == "clean"] == CLEAN
    assert {row for row, reading in BY_ROW.items() if reading.group == "quarantined"} == {
        *("G08", "G09", "G11", "L04"),
        *("N13", "N14", "N15"),
    }


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
    said = [(word, ran) for word in ("fits", "likely", "unlikely", "does not fit", "unknown") for ran in (True, False)]
    rows = [{"word": word, "ran": ran} for word, ran in said]
    wrong = [(row["word"], row["ran"]) for row in published.wrong_verdicts(rows)]
    assert wrong == [("fits", False), ("does not fit", True)]


# -- what the source of the G rows does not print ---------------------------------------------------------------------


def zero_3(row: str, measured: int, without: int, group: str = "clean") -> dict[str, Any]:
    gathered = {"gathered": [1, 20], "without_gathered": without, "as_deepspeed_chat": 0.0}
    return {"row": row, "group": group, "measured": measured, "error": (without + 20) / measured - 1} | gathered


def test_an_estimate_never_looks_at_its_own_row() -> None:
    rows = [zero_3("a", 105, 100), zero_3("b", 57, 50), zero_3("c", 92, 80)]
    assert unprinted.leave_one_out(rows) == {"a": 9, "b": 8, "c": 6}
    assert unprinted.errors(rows)["left_out"] == {
        "a": pytest.approx(109 / 105 - 1),
        "b": pytest.approx(58 / 57 - 1),
        "c": pytest.approx(86 / 92 - 1),
    }
    changed = [zero_3("a", 115, 100), *rows[1:]]
    assert unprinted.leave_one_out(changed)["a"] == 9


def test_an_estimate_stays_within_what_the_settings_can_give() -> None:
    rows = [zero_3("a", 100, 100), zero_3("b", 150, 50)]
    assert unprinted.leave_one_out(rows) == {"a": 20, "b": 1}


def test_only_clean_rows_have_a_say_and_one_alone_has_no_estimate() -> None:
    rows = [zero_3("a", 105, 100), zero_3("b", 57, 50, "open"), {"row": "c", "group": "clean", "error": 0.1}]
    assert unprinted.leave_one_out(rows) == {}
    found = unprinted.errors(rows)
    assert set(found["literal"]) == {"a", "c"}
    assert found["left_out"] == found["literal"]
    assert found["deepspeed_chat"] == {"a": 0.0, "c": 0.1}


def test_the_literal_errors_stand_first_in_every_table() -> None:
    found = results()
    text = (published.RESULTS / "published.md").read_text()
    assert f"## Clean rows\n\nzerocfg, {spoken(found['statistics']['clean']['zerocfg'])}." in text
    head = [line.split(" | ") for line in text.splitlines() if line.startswith("| row | what | measured | ")]
    assert [cells[3] for cells in head] == [unprinted.NAMES["literal"]]
    for row in found["rows"]:
        if row["group"] == "clean":
            lines = [line.split(" | ") for line in text.splitlines() if line.startswith(f"| {row['row']} | ")]
            assert [cells[5] for cells in lines if len(cells) == 9] == [percent(row["error"])]
            assert [cells[3] for cells in lines if len(cells) == 6] == [percent(row["error"])]


def test_the_readme_says_what_the_results_say() -> None:
    found = results()
    text = (published.RESULTS.parent / "README.md").read_text()
    told = [line for line in text.splitlines() if line.startswith("| ") and line.count("%") == len(CLEAN) + 2]
    by_reading = unprinted.errors(found["rows"])
    sums = found["statistics"]["other readings of the clean rows"]
    for line, (name, here) in zip(told, by_reading.items(), strict=True):
        figures = [percent(here[row]) for row in CLEAN] + [f"{sums[name][word]:.1%}" for word in ("mean", "worst")]
        assert line.strip("| ").split(" | ")[1:] == figures, name


# -- the claim --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clean() -> dict[str, dict[str, Any]]:
    """The clean rows by name, predicted now."""
    pytest.importorskip("deepspeed")
    pytest.importorskip("transformers")
    path = points_file()
    if path is None:
        pytest.skip("no memory_points.csv here (set ZEROCFG_MEMORY_POINTS)")
    return {row["row"]: row for row in published.compute(path, [BY_ROW[row] for row in CLEAN])}


@pytest.mark.libs
def test_clean_rows(clean: dict[str, dict[str, Any]]) -> None:
    """Rows whose settings are all known: within 5%. ZeRO-3 rows: what is measured lies between the two ends of the
    settings that are not printed; the lower end, with nothing kept gathered, is at most 5.2% below."""
    for name in ("G03", "G04", "L01"):
        assert abs(clean[name]["error"]) <= 0.05, (name, clean[name]["error"])
    for name in ("G06", "G07", "G10"):
        assert clean[name]["if_released"] <= 0.05 and clean[name]["error"] >= -0.05, name
        assert abs(clean[name]["if_released"]) <= 0.052, (name, clean[name]["if_released"])
    for tool in published.NAMES:
        theirs = [row for row in clean.values() if row["errors_of_others"][tool] is not None]
        assert (
            summary(row["error"] for row in theirs)["mean"]
            < summary(row["errors_of_others"][tool] for row in theirs)["mean"]
        )
    assert len(clean) == len(CLEAN)


@pytest.mark.libs
def test_the_claim_holds_only_with_what_is_kept_gathered_taken_from_other_rows(
    clean: dict[str, dict[str, Any]],
) -> None:
    """Mean 2%, worst 5%: not with the defaults, but with one number that the two other ZeRO-3 rows give."""
    found = unprinted.statistics(list(clean.values()))
    assert found["literal"] == summary(row["error"] for row in clean.values())
    assert set(found["kept_gathered"]) == {"G06", "G07", "G10"}
    assert found["left_out"]["rows"] == len(CLEAN)
    assert found["left_out"]["mean"] <= 0.02 and found["left_out"]["worst"] <= 0.05, found["left_out"]
    assert found["literal"]["mean"] > 0.02, "the claim holds as read: README.md says that it does not"


@pytest.mark.libs
def test_deepspeed_chat_lets_autograd_keep_the_weights_without_checkpointing(table: Path) -> None:
    pytest.importorskip("transformers")
    (row,) = published.compute(table, [BY_ROW["G05"]])
    weights = 2 * (6_738_415_616 - 32000 * 4096)  # all but the embedding
    at_loss = (row["predicted"] - row["gathered"][1] + weights) / row["measured"] - 1
    # The peak is no longer where the loss is taken: early in backward a little more than the weights is held.
    assert at_loss < row["as_deepspeed_chat"] < at_loss + 0.015
    assert abs(row["as_deepspeed_chat"]) < 0.05 < abs(row["error"])
