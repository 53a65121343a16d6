"""Times on a second card: the committed results follow from the runs and from predictions that were made before."""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.time import second_card  # noqa: E402

RESULTS = ROOT / "benchmarks" / "time" / "results"
RUNS = ROOT / "benchmarks" / "gpu" / "results" / "h100-80gb-hbm3-2026-11-27"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return json.loads((RESULTS / "second-card.json").read_text())


def test_the_committed_column_is_what_was_predicted_before_the_run(kept: dict[str, Any]) -> None:
    predictions = json.loads((ROOT / "benchmarks" / "memory" / "predictions-second-round-h100.json").read_text())
    for row in kept["micro batches"]["rows"]:
        before = predictions["cases"][row["case"]]["seconds"]
        assert row["committed"] == pytest.approx(before, abs=1e-4), row["case"]


def test_measured_seconds_are_medians_of_the_warm_steps(kept: dict[str, Any]) -> None:
    lines = [json.loads(line) for line in (RUNS / "memory-second-round.jsonl").read_text().splitlines()]
    steps = {line["case"]: line["steps"][2:] for line in lines if line["status"] == "ok" and "steps" in line}
    for row in kept["micro batches"]["rows"]:
        for phase, seconds in row["measured"].items():
            seen = statistics.median(step[phase]["seconds"] for step in steps[row["case"]])
            assert seconds == pytest.approx(seen, abs=1e-4), row["case"]


def test_sums_follow_from_the_rows(kept: dict[str, Any]) -> None:
    for name in ("micro batches", "whole steps"):
        rows = kept[name]["rows"]
        for which in ("committed", "probed"):
            errors = [sum(row[which].values()) / sum(row["measured"].values()) - 1 for row in rows]
            sizes = [abs(error) for error in errors]
            found = kept[name][which]
            assert found["n"] == len(rows)
            assert found["mean"] == pytest.approx(statistics.mean(sizes), abs=2e-3)
            assert found["median"] == pytest.approx(statistics.median(sizes), abs=2e-3)
            assert found["worst"] == pytest.approx(max(sizes), abs=2e-3)


def test_the_readme_shows_the_same_sums(kept: dict[str, Any]) -> None:
    text = (ROOT / "benchmarks" / "time" / "README.md").read_text()
    shown = re.findall(r"^\| (micro batches|whole steps)[^|]*\| \d+ \| (assumed|as)[^|]*\| (.*) \|$", text, re.M)
    assert len(shown) == 4
    for name, which, figures in shown:
        found = kept[name]["committed" if which == "assumed" else "probed"]
        assert figures.split(" | ") == [f"{found[key]:.1%}" for key in ("median", "mean", "worst")]


def test_a_row_that_is_far_off_names_its_reason_or_says_that_none_is_known(kept: dict[str, Any]) -> None:
    text = (RESULTS / "second-card.md").read_text()
    far = [row for name in ("micro batches", "whole steps") for row in kept[name]["rows"]
           if abs(row["error, probed"]) > second_card.FAR]  # fmt: skip
    assert far
    for row in far:
        (line,) = (one for one in text.splitlines() if one.startswith(f"| {row['case']} |"))
        assert line.strip("| ").split(" | ")[-1] in (second_card.REASONS.get(row["case"]), "not known")


def test_it_is_what_the_formulas_say(kept: dict[str, Any]) -> None:
    now = json.loads(json.dumps(second_card.result()))
    assert now["micro batches"]["probed"] == pytest.approx(kept["micro batches"]["probed"], abs=1e-3)
    assert now["whole steps"] == kept["whole steps"]
