"""The program that measures on a card, played on a processor: the same code path with tiny models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory import compare_gpu, gpu  # noqa: E402
from benchmarks.memory.cases import CASES, SECOND_ROUND  # noqa: E402
from tests import warm  # noqa: E402

GPU = ROOT / "benchmarks" / "memory" / "gpu.py"
TRIED = ("z3-both-ckpt", "z2-accumulation", "torch-autocast")


def run(out: Path, *arguments: str) -> list[dict[str, Any]]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [warm.python(), str(GPU), "--out", str(out), "--device", "cpu", "--tiny", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.libs
def test_three_cases_through_the_code_path_of_the_card(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    lines = run(tmp_path / "out.jsonl", "--only", *TRIED)
    assert [line["case"] for line in lines] == ["machine", *sorted(TRIED, key=[c.name for c in CASES].index)]
    machine, *cases = lines
    assert machine["status"] == "ok" and machine["torch"] and machine["tiny"]
    for line in cases:
        assert line["status"] == "ok", line.get("error") or line.get("log")
        assert len(line["steps"]) == 5 and line["rest"] > 0
        seen = compare_gpu.measured(line)
        # Weights and moments; what is there only within a phase is not seen without an allocator that counts.
        assert seen["allocated"] >= 12 * line["parameters"]
        assert all(step[phase]["peak"] > 0 for step in line["steps"] for phase in compare_gpu.PHASES)


def supervised(tmp_path: Path, limit: float) -> dict[str, Any]:
    arguments = Namespace(processes="fork", device="cpu", tiny=True)
    return gpu.supervise("z2", arguments, tmp_path, limit)


def test_a_case_that_takes_too_long_keeps_what_it_had_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def child(name: str, device: str, small: bool, path: Path) -> None:
        path.with_name("half").write_text(json.dumps({"status": "failed", "steps": [1]}))
        path.with_name("half").replace(path)
        time.sleep(60)
        path.write_text(json.dumps({"status": "failed", "steps": [1, 2]}))

    monkeypatch.setattr(gpu, "child", child)
    # By a clock that stands still until there is something to keep.
    clock = SimpleNamespace(monotonic=lambda: 1.0 * (tmp_path / "z2.json").exists(), sleep=time.sleep)
    monkeypatch.setattr(gpu, "time", clock)
    found = supervised(tmp_path, 1.0)
    assert (found["case"], found["status"], found["steps"]) == ("z2", "timeout", [1])


def test_a_case_whose_program_is_asked_to_end_is_killed_and_keeps_what_it_had_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def child(name: str, device: str, small: bool, path: Path) -> None:
        path.with_name("half").write_text(json.dumps({"status": "failed", "steps": [1]}))
        path.with_name("half").replace(path)
        (tmp_path / "pid").write_text(str(os.getpid()))
        (tmp_path / "ready").touch()
        time.sleep(60)

    stop: list[int] = []
    monkeypatch.setattr(gpu, "child", child)
    monkeypatch.setattr(gpu, "stop", stop)
    waiting = SimpleNamespace(
        monotonic=time.monotonic,
        sleep=lambda seconds: (time.sleep(seconds), stop.append(15) if (tmp_path / "ready").exists() else None),
    )
    monkeypatch.setattr(gpu, "time", waiting)
    found = supervised(tmp_path, 60)
    assert (found["status"], found["steps"]) == ("killed", [1]) and found["wall_s"] < 30
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_a_case_that_dies_is_a_failed_one_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def child(*_: object) -> None:
        raise RuntimeError("nothing works")

    monkeypatch.setattr(gpu, "child", child)
    found = supervised(tmp_path, 20)
    assert found["status"] == "failed" and "nothing works" in found["log"]


def phases(forward: int, backward: int, step: int) -> dict[str, Any]:
    sizes = {"forward": forward, "backward": backward, "step": step}
    return {name: {"peak": size, "reserved": size + 10, "now": size} for name, size in sizes.items()} | {"seconds": 1.0}


def lines_of(tmp_path: Path) -> Path:
    """A run as gpu.py writes it: the first step is larger than all others and does not count."""
    found = [
        {"case": "machine", "status": "ok", "torch": "0", "card": "a card"},
        {
            "case": "z2",
            "status": "ok",
            "parameters": 7,
            "steps": [phases(9999, 9999, 9999), phases(100, 400, 300), phases(110, 390, 300)],
            "device_used": 900,
        },
        {"case": "z3", "status": "oom"},
        {"case": "z0-ckpt", "status": "not reached"},
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in found))
    return path


def predictions() -> dict[str, Any]:
    def one(allocated: int, word: str) -> dict[str, Any]:
        bands = {name: [0, allocated, 2 * allocated] for name in ("allocated", "reserved", "device")}
        sizes = {"forward": 110, "backward": allocated, "step": 270}
        found = {
            "allocated": allocated,
            "phases": sizes,
            "bands": bands,
            "word": word,
            "parameters": 7,
            "moment": "step",
        }
        return found

    cases = {"z2": one(440, "fits"), "z3": one(500, "fits"), "z0-ckpt": one(500, "fits")}
    return {"formulas": "0" * 16, "capacity": 1000, "cases": cases}


def test_errors_and_verdicts_of_a_run(tmp_path: Path) -> None:
    machine, lines = compare_gpu.load(lines_of(tmp_path))
    rows = compare_gpu.compared(predictions(), lines)
    row = rows[0]
    assert row["measured"] == 400 and row["error"] == pytest.approx(0.1)
    assert row["phases"] == {"forward": pytest.approx(0.0), "backward": pytest.approx(0.1), "step": pytest.approx(-0.1)}
    assert row["reserved"] == 410 and row["outside"] == 490 and not row["in_device_band"]
    found = compare_gpu.verdicts(rows)
    assert found["said to fit, out of memory"] == ["z3"] == found["below 90% of the card, out of memory"]
    assert found["not reached"] == ["z0-ckpt"]
    text = compare_gpu.report(machine, predictions(), rows)
    assert "1 rows: mean 10.0%" in text and "a card" in text


def test_plots_of_a_run_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "predictions.json"
    given.write_text(json.dumps(predictions()))
    command = ["compare_gpu.py", str(lines_of(tmp_path)), "--predictions", str(given), "--write", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    assert compare_gpu.main() == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "gpu.json",
        "gpu.md",
        "gpu-scatter.svg",
        "gpu-phases.svg",
    }
    assert json.loads((tmp_path / "out" / "gpu.json").read_text())["statistics"]["rows"] == 1


def test_every_case_has_its_own_name_and_the_set_covers_what_was_promised() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) >= 24
    stages = {getattr(case.options, "stage", None) for case in CASES}
    assert {0, 2, 3, None} <= stages
    works = [case.workload for case in CASES]
    assert {work.gradient_checkpointing for work in works} == {True, False}
    assert min(work.sequence_length for work in works) <= 512 and max(work.sequence_length for work in works) >= 8192
    assert min(work.micro_batch for work in works) == 1 and max(work.micro_batch for work in works) >= 16
    assert any(getattr(case.options, "offload_optimizer", "none") == "cpu" for case in CASES)
    vocabularies = {case.config["vocab_size"] for case in CASES}
    assert 32000 in vocabularies and max(vocabularies) >= 128000


def predictions_of(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "memory" / f"{name}.json").read_text())


def words_by_the_rule(content: dict[str, Any]) -> dict[str, str]:
    words = {}
    for name, one in content["cases"].items():
        low, expected, high = one["bands"]["device"]
        word = "fits" if high <= content["capacity"] else "likely" if expected <= content["capacity"] else "unlikely"
        words[name] = "does not fit" if low > content["capacity"] else word
    return words


def test_both_cards_have_predictions_of_every_case() -> None:
    """A case that an H100 cannot hold is said not to fit it."""
    h200, h100 = (predictions_of(f"predictions{end}") for end in ("", "-h100"))
    assert (h200["card"], h100["card"]) == ("H200-SXM-141GB", "H100-SXM-80GB")
    assert h200["cases"].keys() == h100["cases"].keys() == {case.name for case in CASES}
    words = {name: one["word"] for name, one in h100["cases"].items()}
    assert words == words_by_the_rule(h100) and words["z2-7b-tight"] == "does not fit"


def test_the_second_round_has_what_the_first_did_not_reach_and_new_cases() -> None:
    """By the same formulas on both cards; a tensor takes as much on either."""
    h200, h100 = (predictions_of(f"predictions-second-round{end}") for end in ("", "-h100"))
    assert h200["formulas"] == h100["formulas"]
    new = [case for case in SECOND_ROUND if not case.near]
    assert len(new) >= 30 and not {case.name for case in new} & {case.name for case in CASES}
    for content in (h200, h100):
        left = content["cases"].keys() - {case.name for case in SECOND_ROUND}
        assert len(left) == 11 and left < {case.name for case in CASES}
        assert {case.name for case in new} < content["cases"].keys()
        assert {name: one["word"] for name, one in content["cases"].items()} == words_by_the_rule(content)
        near = [content["cases"][case.name] for case in SECOND_ROUND if case.name in content["cases"] and case.near]
        shares = [case["bands"]["device"][1] / content["capacity"] for case in near]
        assert any(share < 1 for share in shares) and any(share > 1 for share in shares)
        assert all(0.85 <= share <= 1.15 for share in shares)
    for name in h100["cases"].keys() & h200["cases"].keys():
        assert h100["cases"][name]["allocated"] == h200["cases"][name]["allocated"], name
