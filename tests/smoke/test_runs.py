"""Smoke-runs of the real launcher and libraries: what passes, what fails, how crashes and hangs end."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.smoke import Options, smoke
from zerocfg.smoke.verdict import Verdict

from .conftest import MODEL, PARAMETERS

if TYPE_CHECKING:
    from .conftest import MakeRun

pytestmark = [pytest.mark.libs, pytest.mark.xdist_group("smoke")]


def seen(verdict: Verdict) -> dict[str, tuple[str, str, bool | None]]:
    return {one.name: (one.planned, one.seen, one.ok) for one in verdict.checks}


TEST = "ZEROCFG_TEST_FOLDER"


def left_over(test: str) -> list[str]:
    """Processes of a smoke-run of this test that are still there; other tests smoke at the same time."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = entry.read_bytes()
            if b"ZEROCFG_SMOKE_RUN=" in environment and f"{TEST}={test}\0".encode() in environment:
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def clean_up_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No process and no temporary folder outlives a smoke-run, however it ended."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv(TEST, str(tmp_path))
    yield
    assert not list(scratch.glob("zerocfg-smoke-*"))
    assert not left_over(str(tmp_path))


def test_zero3_on_two_ranks(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Passes; the variables that turn such a run into plain DDP are kept away from it; user's files stay."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv("WORLD_SIZE", "7")
    folder = make_run(3)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    verdict = smoke(folder, Options(ranks=2, device="cpu", keep=tmp_path / "kept"))
    assert verdict.passed, verdict.outcome
    checks = seen(verdict)
    assert checks["engine"] == ("deepspeed", "deepspeed", True)
    assert checks["ZeRO stage"] == ("3", "3", True)
    assert checks["world size"] == ("2", "2", True)
    assert checks["gradient accumulation"] == ("2", "2", True)
    assert checks["gradient clipping"] == ("0.5", "0.5", True)
    assert checks["precision"] == ("bf16", "bf16", True)
    assert checks["saved parameters"] == (f"{PARAMETERS:,}", f"{PARAMETERS:,} in model.safetensors", True)
    assert all(report["seen"]["partitioned"] > 0 for report in verdict.outcome.reports)
    losses = verdict.outcome.reports[0]["losses"]
    assert len(losses) == 6 and losses[-1] < losses[0], "a repeated batch is learnt"
    assert any(words.startswith("world size: 4 to 2") for words in verdict.reduced.words)
    assert any(words.startswith("train_batch_size: 16 to 8") for words in verdict.reduced.words)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in before} == before
    assert (tmp_path / "kept" / "weights" / "model.safetensors").is_file()
    certificate = json.loads((folder / "smoke.json").read_text())
    assert certificate["passed"] is True
    assert certificate["files"]["ds_config.json"] and certificate["files"]["zerocfg.lock"]
    assert {"torch", "deepspeed", "accelerate", "transformers", "zerocfg"} <= set(certificate["versions"])


def test_weights_that_are_not_gathered_fail(make_run: MakeRun) -> None:
    folder = make_run(3)
    path = folder / "ds_config.json"
    path.write_text(path.read_text().replace('model_save": true', 'model_save": false'))
    verdict = smoke(folder, Options(ranks=2, device="cpu"))
    assert not verdict.passed
    checks = seen(verdict)
    assert checks["saved parameters"] == (f"{PARAMETERS:,}", "no file of weights", False)
    assert checks["ds_config.json as built"][2] is False
    assert checks["ZeRO stage"][2] is True


def test_plain_data_parallel(make_run: MakeRun) -> None:
    verdict = smoke(make_run(None), Options(ranks=2, device="cpu", steps=1))
    assert verdict.passed, verdict.outcome
    assert seen(verdict)["engine"] == ("ddp", "ddp", True)


@pytest.mark.parametrize(("consumer", "stage"), [("accelerate", 3), ("deepspeed", 2)])
def test_own_loops(consumer: str, stage: int, make_run: MakeRun) -> None:
    verdict = smoke(make_run(stage, consumer=consumer), Options(ranks=2, device="cpu"))
    assert verdict.passed, verdict.outcome
    assert seen(verdict)["engine"] == ("deepspeed", "deepspeed", True)


def test_another_engine_than_planned_fails(make_run: MakeRun) -> None:
    """A plan of stage 2 whose config says 1: told with both values, and only there."""
    folder = make_run(2)
    lock = json.loads((folder / "zerocfg.lock").read_text())
    lock["plan"]["zero_optimization.stage"] = 1
    (folder / "zerocfg.lock").write_text(json.dumps(lock))
    verdict = smoke(folder, Options(ranks=1, device="cpu", steps=1))
    assert [one.name for one in verdict.checks if one.ok is False] == ["ZeRO stage"]
    assert seen(verdict)["ZeRO stage"] == ("1", "2", False)


def test_an_error_of_the_libraries_is_told_in_its_own_words(make_run: MakeRun) -> None:
    folder = make_run(2, model={"config": MODEL | {"num_attention_heads": 5}, "facts": {"parameters": PARAMETERS}})
    start = time.monotonic()
    verdict = smoke(folder, Options(ranks=2, device="cpu"))
    assert not verdict.passed and verdict.outcome.rank in (0, 1)
    assert "5" in (verdict.outcome.failure or "") and "64" in (verdict.outcome.failure or "")
    assert verdict.outcome.detail
    assert time.monotonic() - start < 200, "well before the time limit"
    assert json.loads((folder / "smoke.json").read_text())["failure"]["message"] == verdict.outcome.failure


def disturb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """Send rank 1 a signal as soon as its report says that it trains, by way of a module that Python imports itself."""
    code = f"""
import os, sys, threading, time, json, signal, pathlib
def watch():
    while True:
        time.sleep(0.05)
        try:
            job = json.loads(pathlib.Path("job.json").read_text())
            report = json.loads((pathlib.Path(job["reports"]) / "rank1.json").read_text())
        except (OSError, ValueError):
            continue
        if report["phase"].startswith("step") or report["phase"] == "init":
            os.kill(os.getpid(), signal.{sign})
if os.environ.get("RANK") == "1":
    threading.Thread(target=watch, daemon=True).start()
"""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


def test_a_killed_rank_is_named(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(tmp_path, monkeypatch, "SIGKILL")
    start = time.monotonic()
    verdict = smoke(make_run(3), Options(ranks=2, device="cpu", steps=200))
    assert not verdict.passed
    assert verdict.outcome.rank == 1, "\n".join([str(verdict.outcome.failure), *verdict.outcome.detail])
    assert "rank 1 was killed by signal 9" in (verdict.outcome.failure or "")
    assert time.monotonic() - start < 200, "well before the time limit"


def test_a_hang_ends_at_the_time_limit(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(tmp_path, monkeypatch, "SIGSTOP")
    start = time.monotonic()
    verdict = smoke(make_run(3), Options(ranks=2, device="cpu", steps=100000, limit=20))
    assert not verdict.passed
    assert "not finished within 20 s" in (verdict.outcome.failure or "")
    assert "rank 1 in '" in (verdict.outcome.failure or "")
    assert time.monotonic() - start < 40


def test_interrupted(make_run: MakeRun) -> None:
    """Ctrl-C while the ranks run: no certificate, nothing left behind."""

    def interrupt(phase: str) -> None:
        # Any phase of the ranks will do: on a busy machine the first ones may pass between two looks.
        if phase != "launch" and not sent:
            sent.append(phase)
            os.kill(os.getpid(), 2)

    # A shell starts background jobs, such as a whole test run, with Ctrl-C ignored.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    sent: list[str] = []
    folder = make_run(3)
    try:
        verdict = smoke(folder, Options(ranks=2, device="cpu"), progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert verdict.outcome.interrupted and not verdict.passed
    assert not (folder / "smoke.json").exists()
