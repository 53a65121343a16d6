"""The scripts that wait for a card: every check is listed as what it is, and what is made of measured figures."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import zerocfg.__main__
from tests.conftest import ROOT
from zerocfg.smoke.launch import sharing
from zerocfg.smoke.model.error import SmokeError

sys.path.insert(0, str(ROOT))

from benchmarks.gpu import checks, over_gloo, record, run, sweeps
from benchmarks.gpu.smoke_runs import SmokeRun, against_prediction

FOLDER = ROOT / "benchmarks" / "gpu"


def _dated(name: str) -> tuple[str, str]:
    """The date of a folder of results, and what stands behind it: a second session of that day."""
    found = re.search(r"\d{4}-\d\d-\d\d(.*)", name)
    assert found is not None, name
    return found[0][:10], found[1]


def committed_result(name: str) -> tuple[str, str, str] | None:
    """Date, card and outcome of the newest committed result of a check; None where there is none."""
    for folder in sorted((FOLDER / "results").iterdir(), key=lambda path: _dated(path.name), reverse=True):
        result = record.read_result(folder / f"{name}.json")
        lines = record.whole_lines(folder / f"{name}.jsonl")
        if lines:
            cases = sweeps.last_lines(lines).values()
            ran = sum(line["status"] == "ok" for line in cases)
            (card,) = record.find_measured_cards(folder, name)
            return _dated(folder.name)[0], card, f"{ran} of {len(cases)} cases"
        if result:
            return result["date"][:10], result["cards"][0]["name"], result["state"]
    return None


def test_the_table_lists_every_check_and_its_last_result() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|.*\| ([^|]+) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    assert [name for name, _ in rows] == [check.name for check in checks.IN_ORDER]
    for name, told in rows:
        found = committed_result(name)
        if found is None:
            assert told == "not run yet", name
        else:
            date, card, outcome = found
            assert told.startswith(f"{date}, {card.split()[1]}: {outcome}"), name


def test_the_last_results_are_told_as_they_were() -> None:
    """The oracle of the table itself: by hand from the files."""
    assert committed_result("quickstart") == ("2026-11-27", "NVIDIA H100 80GB HBM3", "passed")
    assert committed_result("plan") == ("2026-11-27", "NVIDIA H100 80GB HBM3", "11 of 51 cases")
    assert committed_result("max-batch") == ("2026-11-27", "NVIDIA H100 80GB HBM3", "failed")
    assert committed_result("sharing-ways") is None


def test_the_times_of_the_table_are_the_limits() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \|.*\| (\d+) s \| [^|]+ \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M
    )
    assert {name: int(seconds) for name, seconds in rows} == {check.name: check.limit for check in checks.IN_ORDER}


def smoke_runs_of_checks() -> list[SmokeRun]:
    found = [check.work for check in checks.IN_ORDER if isinstance(check.work, SmokeRun)]
    assert len(found) > 10
    return found


def test_the_runs_exist() -> None:
    for smoke_run in smoke_runs_of_checks():
        spec = yaml.safe_load((ROOT / smoke_run.spec).read_text())
        built = (ROOT / smoke_run.spec).parent / "built" / smoke_run.run / "zerocfg.lock"
        assert built.is_file() or smoke_run.run in spec["runs"], smoke_run
        assert "--ranks" in smoke_run.options


def test_what_a_processor_does_not_have_is_left_out() -> None:
    shared = SmokeRun("spec", "run", ("--ranks", "2", "--share-gpu"))
    assert shared.possible_options(tiny=True) == ("--ranks", "2")
    assert shared.possible_options(tiny=False) == ("--ranks", "2", "--share-gpu")
    more = SmokeRun("spec", "run", ("--ranks", "1"), on_processor=("--ranks", "2"))
    assert more.possible_options(tiny=True) == ("--ranks", "1", "--ranks", "2")
    assert more.possible_options(tiny=False) == ("--ranks", "1")


@pytest.mark.parametrize(
    ("words", "tried"), [(["smoke", "RUN", "--ranks", "2", "--share-gpu"], [(2, ("gloo",))]), (["smoke", "RUN"], [])]
)
def test_ranks_share_a_card_over_gloo_alone(
    monkeypatch: pytest.MonkeyPatch, words: list[str], tried: list[tuple[int, tuple[str, ...]]]
) -> None:
    """The smoke-run in the same process takes over what the trial found (`sharing.cached`)."""
    found: list[tuple[int, tuple[str, ...]]] = []
    started: list[list[str]] = []
    monkeypatch.setattr(sharing, "find", lambda ranks, scratch, modes: found.append((ranks, modes)))
    monkeypatch.setattr(zerocfg.__main__, "main", lambda: started.append(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", ["over_gloo.py"])
    assert over_gloo.main(words) == 0
    assert (found, started) == (tried, [words])

    def refuse(ranks: int, scratch: Path, modes: tuple[str, ...]) -> None:
        raise SmokeError("gloo: no")

    monkeypatch.setattr(sharing, "find", refuse)
    assert over_gloo.main(words) == (2 if tried else 0) and len(started) == (1 if tried else 2)


def test_without_a_card_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run, "find_cards", list)
    assert run.main(["share-gpu"]) == 0
    assert capsys.readouterr().out == "share-gpu: not run: no NVIDIA card here\n"
    assert run.main(["nothing"]) == 2


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (
            {
                "peak_memory_bytes": [100, 120],
                "step_seconds": [9.0, 0.5, 0.7, 0.6],
                "predicted": {"allocated": [90, 110, 115], "step_seconds": [0.3, 0.5, 1.0]},
            },
            {
                "allocated": {"measured": 120, "predicted": [90, 110, 115], "ratio": 1.091, "inside": False},
                "step_seconds": {"measured": 0.6, "predicted": [0.3, 0.5, 1.0], "ratio": 1.2, "inside": True},
            },
        ),
        ({"peak_memory_bytes": [None], "step_seconds": [1.0], "predicted": {"unknown": "why"}}, {}),
        ({}, {}),
    ],
)
def test_measured_beside_predicted(measured: dict[str, Any], expected: dict[str, Any]) -> None:
    assert against_prediction(measured) == expected
