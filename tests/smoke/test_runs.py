"""Smoke-runs of the real launcher and libraries: what passes, what fails, how crashes and hangs end."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.nccl import path_with
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch import process, stacks
from zerocfg.smoke.launch.scratch import scratch
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.smoke import Options, smoke
from zerocfg.smoke.text import render

from .conftest import MODEL, PARAMETERS
from .standin import Hurry, report

if TYPE_CHECKING:
    from .conftest import MakeRun

pytestmark = pytest.mark.libs
# What is launched for the sake of its checks; faults and ends of processes are tried on fresh ones.
warm_python = pytest.mark.usefixtures("warm_python")

# The parts beside the planned training have tests of their own.
SHORT = Options(ranks=2, device="cpu", steps=1, parts=("train",))


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


@pytest.mark.several_ranks
def test_zero3_on_two_ranks(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Passes; the variables that turn such a run into plain DDP are kept away from it; user's files stay."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv("WORLD_SIZE", "7")
    folder = make_run(3)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    verdict = smoke(folder, replace(SHORT, steps=3, keep=tmp_path / "kept"))
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
    assert any(words.startswith("world size: 4 to 2") for words in verdict.reduced.descriptions)
    assert any(words.startswith("train_batch_size: 16 to 8") for words in verdict.reduced.descriptions)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in before} == before
    assert (tmp_path / "kept" / "weights" / "model.safetensors").is_file()
    certificate = json.loads((folder / "smoke.json").read_text())
    assert certificate["passed"] is True
    assert certificate["files"]["ds_config.json"] and certificate["files"]["zerocfg.lock"]
    assert {"torch", "deepspeed", "accelerate", "transformers", "zerocfg"} <= set(certificate["versions"])


@pytest.mark.several_ranks
@warm_python
def test_weights_that_are_not_gathered_fail(make_run: MakeRun) -> None:
    folder = make_run(3)
    path = folder / "ds_config.json"
    path.write_text(path.read_text().replace('model_save": true', 'model_save": false'))
    verdict = smoke(folder, SHORT)
    assert not verdict.passed
    checks = seen(verdict)
    assert checks["saved parameters"] == (f"{PARAMETERS:,}", "no file of weights", False)
    assert checks["ds_config.json as built"][2] is False
    assert checks["ZeRO stage"][2] is True


@pytest.fixture
def busy() -> Iterator[int]:
    """A port that somebody listens at."""
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        yield int(other.getsockname()[1])


@pytest.mark.several_ranks
@warm_python
def test_plain_data_parallel(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, busy: int) -> None:
    """With a port that somebody took meanwhile, and a certificate that cannot be written: the verdict is given."""
    free, asked = process.free_port, [busy]
    monkeypatch.setattr(process, "free_port", lambda: asked.pop() if asked else free())
    folder = make_run(None)
    (folder / "smoke.json").mkdir()
    verdict = smoke(folder, SHORT)
    assert verdict.passed and not asked, verdict.outcome
    assert seen(verdict)["engine"] == ("ddp", "ddp", True)
    assert verdict.certificate is None
    assert f"certificate: not written, {folder / 'smoke.json'}: Is a directory" in render(verdict)


def with_fsdp(folder: Path, version: int, **more: Any) -> Path:
    """The folder's run under FSDP, as a build leaves it; ``more`` goes into its section."""
    section: dict[str, Any] = {
        "fsdp_version": version,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
        "fsdp_state_dict_type": "FULL_STATE_DICT",
        "fsdp_activation_checkpointing": True,
    }
    section |= {"fsdp_sync_module_states": True, "fsdp_use_orig_params": True} if version == 1 else {}
    section |= more
    path = folder / "accelerate.yaml"
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(config | {"distributed_type": "FSDP", "fsdp_config": section}))
    lock = json.loads((folder / "zerocfg.lock").read_text())
    lock["plan"]["engine"] = "fsdp"
    lock["settings"] = {f"fsdp_config.{name}": {"value": value} for name, value in section.items()}
    lock["files"]["accelerate.yaml"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "zerocfg.lock").write_text(json.dumps(lock))
    return folder


@pytest.mark.several_ranks
@pytest.mark.parametrize("version", [1, 2])
def test_fsdp_shards_on_a_processor(make_run: MakeRun, version: int) -> None:
    """Every rank holds half of the parameters of the live model, and trains what one process alone would."""
    verdict = smoke(with_fsdp(make_run(None), version), replace(SHORT, steps=2))
    assert verdict.passed, (verdict.outcome, [one for one in verdict.checks if one.ok is False])
    checks = seen(verdict)
    assert checks["engine"] == ("fsdp", "fsdp", True)
    half = f"{PARAMETERS // 2:,} of {PARAMETERS:,}"
    assert checks["parameters of a rank"] == ("1/2", half, True)
    assert checks["fsdp_config.fsdp_activation_checkpointing"] == ("True", "True", True)
    assert checks["parameters alike on all ranks"][2] is True
    saved = (f"{PARAMETERS:,}", f"{PARAMETERS:,} in model.safetensors", True)
    assert checks.get("saved parameters") == (saved if version == 2 else None)
    text = render(verdict)
    assert "each of 2 ranks holds its shard of the parameters" in text
    assert ("the saved weights: left out: torch ends with a segmentation fault" in text) is (version == 1)


def test_fsdp_needs_two_ranks(make_run: MakeRun) -> None:
    with pytest.raises(SmokeError, match="needs two ranks"):
        smoke(with_fsdp(make_run(None), 2), replace(SHORT, ranks=1))


@pytest.mark.several_ranks
@warm_python
def test_fsdp_offloads_nothing_on_a_processor(make_run: MakeRun) -> None:
    verdict = smoke(with_fsdp(make_run(None), 2, fsdp_offload_params=True), replace(SHORT, steps=2))
    assert verdict.passed, (verdict.outcome, [one for one in verdict.checks if one.ok is False])
    told = "fsdp_offload_params: True to False: host and device are one memory on a processor"
    assert told in verdict.reduced.descriptions
    assert seen(verdict)["fsdp_config.fsdp_offload_params"] == ("False", "False", True)
    assert "FSDP's offload of parameters to the host: it was off" in render(verdict)


@warm_python
def test_another_engine_than_planned_fails(make_run: MakeRun) -> None:
    """A plan of stage 2 whose config says 1: told with both values, and only there."""
    folder = make_run(2)
    lock = json.loads((folder / "zerocfg.lock").read_text())
    lock["plan"]["zero_optimization.stage"] = 1
    (folder / "zerocfg.lock").write_text(json.dumps(lock))
    verdict = smoke(folder, replace(SHORT, ranks=1))
    assert [one.name for one in verdict.checks if one.ok is False] == ["ZeRO stage"]
    assert seen(verdict)["ZeRO stage"] == ("1", "2", False)


@warm_python
@pytest.mark.several_ranks
def test_an_error_of_the_libraries_is_told_in_its_own_words(make_run: MakeRun) -> None:
    folder = make_run(2, model={"config": MODEL | {"num_attention_heads": 5}, "facts": {"parameters": PARAMETERS}})
    verdict = smoke(folder, SHORT)
    assert not verdict.passed and verdict.outcome.rank in (0, 1)
    assert verdict.outcome.kind == "error", "not the time limit"
    assert "5" in (verdict.outcome.failure or "") and "64" in (verdict.outcome.failure or "")
    assert verdict.outcome.detail
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
    monkeypatch.setenv("PYTHONPATH", path_with(tmp_path / "site"))


@pytest.mark.several_ranks
def test_a_killed_rank_is_named(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(tmp_path, monkeypatch, "SIGKILL")
    verdict = smoke(make_run(3), replace(SHORT, steps=200))
    assert not verdict.passed and verdict.outcome.kind == "killed", "not the time limit"
    assert verdict.outcome.rank == 1, "\n".join([str(verdict.outcome.failure), *verdict.outcome.detail])
    assert "rank 1 was killed by signal 9" in (verdict.outcome.failure or "")


@pytest.mark.several_ranks
def test_a_hang_ends_at_the_time_limit(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(tmp_path, monkeypatch, "SIGSTOP")

    def stopped() -> bool:
        (folder,) = (tmp_path / "scratch").glob("zerocfg-smoke-*")
        return stacks.stopped(report(folder, 1).get("pid", 0))

    with Hurry(300, ("init", "step 1"), stopped) as progress:
        verdict = smoke(make_run(3), replace(SHORT, steps=100000), progress)
    assert not verdict.passed and verdict.outcome.rank == 1
    assert "not finished within 300 s" in (verdict.outcome.failure or "")
    assert re.search(r"rank 1 in '\w+[^']*' \(stopped\)", verdict.outcome.failure or ""), verdict.outcome
    assert [line.split(" waits in ")[0] for line in verdict.outcome.detail] == ["rank 0"]


def test_interrupted(make_run: MakeRun) -> None:
    """Ctrl-C while the ranks run: a certificate that says so, nothing else left behind."""

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
        verdict = smoke(folder, SHORT, progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert verdict.outcome.interrupted and not verdict.passed
    certificate = json.loads((folder / "smoke.json").read_text())
    assert (certificate["verdict"], certificate["failure"]["message"]) == ("failed", "interrupted")


def torchrun(ranks: int, port: int, folder: Path, code: str) -> list[str]:
    (folder / "train.py").write_text(code)
    words = process.launcher(False, ranks, port)
    return [*words[: words.index("-m", 3)], str(folder / "train.py")]


DEADLOCK = """
from pathlib import Path
import torch, torch.distributed as dist
from zerocfg_worker.report import Report
report = Report(Path("reports"))
report.phase("init")
dist.init_process_group("gloo")
report.phase("step 1")
def synchronise():
    dist.all_reduce(torch.ones(4))
def fetch():
    dist.recv(torch.ones(4), src=0)
synchronise() if report.rank == 0 else fetch()
"""


def wait_for_each_other(folder: Path) -> bool:
    """Whether each rank has come to its operation, as its stack says."""
    reports = [report(folder, rank) for rank in (0, 1)]
    if not all(one.get("phase") == "step 1" for one in reports):
        return False
    frames = stacks.ask(folder / "reports", reports, {one["pid"] for one in reports})
    return all(words in " ".join(frames.get(rank, [])) for rank, words in enumerate((" in all_reduce", " in recv")))


@pytest.mark.several_ranks
def test_a_deadlock_shows_the_operations_that_wait_for_each_other() -> None:
    """One rank skips a collective operation of the real library."""
    with scratch() as folder:
        words = torchrun(2, process.free_port(), folder, DEADLOCK)
        variables = {"PYTHONPATH": path_with(process.program(folder))}
        with Hurry(60, ("step 1",), lambda: wait_for_each_other(folder)) as progress:
            outcome = process.run(words, folder, 2, "cpu", 60, progress, variables)
    assert outcome.failure == "not finished within 60 s: rank 0 in 'step 1', rank 1 in 'step 1'"
    first, second = outcome.detail
    assert "torch/distributed/distributed_c10d.py" in first and "in all_reduce" in first and "in synchronise" in first
    assert "in recv" in second and "in fetch" in second


def test_torchrun_on_a_port_that_is_taken(busy: int) -> None:
    with scratch() as folder:
        outcome = process.run(torchrun(2, busy, folder, "print()"), folder, 2, "cpu", 60)
    assert outcome.kind == "port", outcome
    assert outcome.failure == "another program uses the rendezvous port"


def test_a_library_that_is_broken_on_import(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site" / "transformers").mkdir(parents=True)
    said = "libcudart.so.13: cannot open shared object file: No such file or directory"
    (tmp_path / "site" / "transformers" / "__init__.py").write_text(f"raise ImportError({said!r})")
    monkeypatch.setenv("PYTHONPATH", path_with(tmp_path / "site"))
    verdict = smoke(make_run(3), SHORT)
    assert verdict.outcome.failure == f"ImportError: {said}", verdict.outcome
    assert verdict.outcome.rank in (0, 1) and len(verdict.outcome.detail) < 15


@pytest.mark.several_ranks
@warm_python
def test_two_at_the_same_time(make_run: MakeRun) -> None:
    """Of the same folder: each has its own verdict; the certificate is that of one of them, whole."""
    folder = make_run(3)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: smoke(folder, SHORT), range(2))
    assert first.passed and second.passed, (first.outcome, second.outcome)
    assert json.loads((folder / "smoke.json").read_text())["passed"] is True
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


@pytest.mark.several_ranks
def test_zerocfg_is_killed(make_run: MakeRun, tmp_path: Path) -> None:
    """The real ranks end and its temporary folder goes, though nobody waits for them any more."""
    folder, own = make_run(3), tmp_path / "scratch"
    words = [sys.executable, "-m", "zerocfg", "smoke", str(folder), "--device", "cpu", "--ranks", "2"]
    zerocfg = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(own)}, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any("world_size" in path.read_text() for path in own.glob("zerocfg-smoke-*/reports/rank1.json")):
        assert time.monotonic() < deadline and zerocfg.poll() is None
        time.sleep(0.1)
    assert len(left_over(str(tmp_path))) >= 3
    zerocfg.kill()
    zerocfg.wait()
    while left_over(str(tmp_path)) or list(own.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
