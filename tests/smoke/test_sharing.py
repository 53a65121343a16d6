"""Several ranks on one card: the mapping, the trial of the modes, the refusals; what a processor can run of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from zerocfg.cli.commands.smoke import command
from zerocfg.smoke import smoke as smoking
from zerocfg.smoke.launch import process, sharing
from zerocfg.smoke.launch.job_folder import prepare, variables
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.size import GIB
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.worker import sharing as ranks_part
from zerocfg.smoke.worker.job import MODES, Job

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import MakeRun

CARD = Device("cuda", "NVIDIA H200", 1, 140 * GIB, 139 * GIB)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_FOUND", {})


def answers(monkeypatch: pytest.MonkeyPatch, failures: dict[str, str | None]) -> list[dict[str, Any]]:
    """Trials that end as ``failures`` says, by mode; the jobs and environments that they were given."""
    seen: list[dict[str, Any]] = []

    def run(command: list[str], folder: Path, ranks: int, device: str, limit: float, *rest: Any) -> Outcome:
        job = json.loads((folder / "job.json").read_text())
        seen.append({**job, "command": command, "variables": rest[-1], "ranks": ranks, "limit": limit})
        return Outcome([{}] * ranks, failures[job["mode"]])

    monkeypatch.setattr(process, "run", run)
    return seen


def test_the_first_way_that_works_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "DistBackendError: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 18000"
    seen = answers(monkeypatch, {"nccl": refused, "gloo": None})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    found = sharing.find(2, tmp_path)
    assert found == sharing.Sharing("gloo", {"nccl": refused})
    assert [one["mode"] for one in seen] == ["nccl", "gloo"]
    for one in seen:
        assert one["variables"]["CUDA_VISIBLE_DEVICES"] == "3", "all ranks see the same card"
        assert one["command"][-2:-1] == ["zerocfg_worker.sharing"] and "--nproc_per_node" in one["command"]
        assert (one["ranks"], one["limit"], one["device"]) == (2, sharing.PATIENCE, "cuda")
    assert sharing.cached(2) == found and sharing.cached(3) is None
    assert str(found.reduction(2, "NVIDIA H200")).startswith(
        "shared card: 2 ranks on one NVIDIA H200, collectives by gloo"
    )


def test_where_no_way_works_every_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, {mode: f"{mode} says no" for mode in MODES})
    with pytest.raises(SmokeError) as refusal:
        sharing.find(3, tmp_path)
    said = str(refusal.value)
    assert said.startswith("3 ranks cannot share a card here. ") and "--ranks 1" in said
    assert all(f"{mode}: {mode} says no" in said for mode in MODES)


def test_a_processor_is_no_card(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoking, "_require", lambda _: None)
    with pytest.raises(SmokeError, match="--share-gpu needs an NVIDIA card"):
        smoking.launch_once(read(make_run(3)), smoking.Options(device="cpu", share_gpu=True))


def test_a_command_starts_its_own_ranks() -> None:
    result = CliRunner().invoke(command, ["--command", "python train.py", "--share-gpu"])
    assert result.exit_code == 2 and "--share-gpu is for zerocfg's own launch" in result.output


def test_a_rank_becomes_the_first_of_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for mode in MODES.values() for name in mode}
    for name in (*names, "LOCAL_RANK"):
        monkeypatch.setenv(name, "before")
    monkeypatch.setenv("RANK", "1")
    ranks_part.join("nccl as hosts", device="cpu")
    assert os.environ["LOCAL_RANK"] == "0"
    assert os.environ["NCCL_HOSTID"] == "rank1", "NCCL compares the cards of ranks of one host only"
    assert os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] == "before"
    ranks_part.join("nccl", device="cpu")
    assert os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"


def test_ranks_that_share_are_launched_so(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks on one card: their number, memory, variables and the job; the run itself is not started."""
    answers(monkeypatch, {"nccl": None})
    launched: dict[str, Any] = {}

    def play(command: list[str], folder: Path, ranks: int, device: str, *rest: Any, **_: Any) -> Outcome:
        if (folder / "job.json").exists() and "mode" in json.loads((folder / "job.json").read_text()):
            return Outcome([{}] * ranks)
        launched.update(job=Job.read(folder / "job.json"), ranks=ranks, variables=rest[-1])
        return Outcome([{}] * ranks, "stopped here")

    monkeypatch.setattr(process, "run", play)
    monkeypatch.setattr(smoking, "_require", lambda _: None)
    monkeypatch.setattr(smoking, "choose", lambda _: CARD)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    verdict = smoking.launch_once(read(make_run(3)), smoking.Options(share_gpu=True))
    assert launched["ranks"] == verdict.reduced.ranks == 2
    assert launched["job"].share == "nccl"
    assert launched["job"].memory_limit == 139 * GIB // 2 - GIB
    assert launched["variables"]["CUDA_VISIBLE_DEVICES"] == "0"
    assert any(words.startswith("shared card: 2 ranks on one NVIDIA H200") for words in verdict.reduced.descriptions)
    with pytest.raises(SmokeError, match="or --share-gpu"):
        smoking.launch_once(verdict.run, smoking.Options(ranks=2))


def test_others_are_launched_as_ever(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    prepare(run, reduce(run, CARD, 1, tmp_path), CARD, 3, tmp_path)
    assert Job.read(tmp_path / "job.json").share is None


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_the_trial_with_gloo(tmp_path: Path) -> None:
    """Every collective gives the right result in both precisions; a mode that this torch does not have is refused."""
    found = sharing.find(2, tmp_path, device="cpu", modes=("nccl", "gloo"))
    assert found.mode == "gloo"
    assert "NCCL" in found.refused["nccl"] or "nccl" in found.refused["nccl"]
    for rank in range(2):
        report = json.loads((tmp_path / "sharing-1" / "reports" / f"rank{rank}.json").read_text())
        worked = report["seen"]["worked"]
        assert report["done"] and len(worked) == 13 and worked[-1] == "barrier"
        assert "reduce_scatter_tensor in bfloat16" in worked and "all_gather_into_tensor in float32" in worked


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_the_libraries_take_the_group_that_the_ranks_made(make_run: MakeRun, tmp_path: Path) -> None:
    """ZeRO-3 by accelerate with every rank the first of its machine: still two ranks, each with its part."""
    run, device = read(make_run(3)), Device("cpu", "cpu")
    reduced = reduce(run, device, 2, tmp_path)
    command = prepare(run, reduced, device, 1, tmp_path, share="gloo")
    outcome = process.run(command, tmp_path, 2, "cpu", 200, None, variables(tmp_path))
    assert outcome.failure is None, outcome
    for report in outcome.reports:
        assert (report["seen"]["world_size"], report["seen"]["stage"]) == (2, 3)
        assert report["seen"]["partitioned"] > 0
