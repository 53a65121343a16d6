"""What a rank tells of its node, who meets whom, and the lines themselves."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from zerocfg.hardware import nvml
from zerocfg.hardware.launcher import Place
from zerocfg.preflight import facts, tournament
from zerocfg.preflight.messages import Facts, Local, Stage, line, read

TOKEN = "hf_" + "A1b2" * 8


def test_variables_that_change_a_training() -> None:
    found = facts.variables(
        {
            "NCCL_ALGO": "Ring",
            "OMP_NUM_THREADS": "8",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "HF_HOME": "/data",
            "TORCH_TOKEN": TOKEN,
            "DS_API_KEY": "0123456789abcdef0123",
            "HOME": "/root",
            "HF_TOKEN": TOKEN,
            "SLURM_JOB_ID": "1",
            "XNCCL_ALGO": "Tree",
        }
    )
    assert found == {
        "DS_API_KEY": "***",
        "HF_HOME": "/data",
        "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "8",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TORCH_TOKEN": "***",
    }


def test_a_release_of_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "deepspeed-0.0.7.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.0.7\n")
    broken = tmp_path / "trl-1.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Name: trl\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = facts.releases()
    assert found["deepspeed"] == "0.0.7" and "trl" not in found and found["python"].count(".") == 2


def test_room_where_a_job_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    working, temporary = facts.folders()
    assert (working.role, working.path) == ("working folder", str(tmp_path))
    assert (temporary.role, temporary.path) == ("temporary folder", str(tmp_path))
    status = os.statvfs(tmp_path)
    assert working.free_gib == pytest.approx(status.f_bavail * status.f_frsize / 2**30, rel=0.05)


def test_the_node_is_told_by_its_first_rank() -> None:
    first, second = facts.gather(Place(2, 0, 4, "1"), "node7"), facts.gather(Place(3, 1, 4, "1"), "node7")
    assert first.facts is not None and second.facts is None
    assert (first.host, first.node, first.rank, first.world) == ("node7", "1", 2, 4)
    assert facts.gather(Place(3, 1, 4, "1"), environment={"SLURMD_NODENAME": "n2"}).host == "n2"
    assert read(line(first)) == first


def test_lines() -> None:
    told = Stage(rank=3, name="alone", step=7)
    assert read(f"7: {line(told)}\n") == told
    assert read(line(told)[:-1]) is None and read("alone") is None
    assert read(line(told).replace('"rank":3', '"rank":-3')) is None
    later = line(told).replace("{", '{"more":1,', 1)
    assert read(later) == told, "a newer release may say more"
    assert not isinstance(read(line(told)), Facts)


@pytest.mark.parametrize("rate", ["0", "-1", "1e999", "NaN", "null", '"fast"'])
def test_a_figure_that_is_none(rate: str) -> None:
    good = line(Local(rank=0, what="copies", unit="GB/s", rate=7.5, attempt=0, sweep=0))
    assert read(good) is not None and read(good.replace("7.5", rate)) is None


def test_free_memory_of_cards() -> None:
    gib = 1 << 30
    memory = {
        0: SimpleNamespace(free=70 * gib, total=80 * gib, reserved=gib),
        1: SimpleNamespace(free=gib, total=2 * gib),
    }
    library = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda handle, version=None: memory[handle],
    )
    assert nvml.free_memory(lambda: library) == [(70.0, 79.0), (1.0, 2.0)]  # type: ignore[arg-type, return-value]

    def none() -> object:
        raise ImportError("pynvml")

    assert nvml.free_memory(none) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 16, 17, 64, 100])
def test_rounds(ranks: int) -> None:
    """Each rank has one partner in a round; neighbours in the ring meet; no two meet twice."""
    rounds = tournament.rounds(ranks)
    for one in rounds:
        members = list(itertools.chain.from_iterable(one))
        assert len(members) == len(set(members)) and set(members) <= set(range(ranks))
    pairs = list(itertools.chain.from_iterable(rounds))
    assert len(pairs) == len(set(pairs)) and all(one < other for one, other in pairs)
    neighbours = {tuple(sorted((rank, (rank + 1) % ranks))) for rank in range(ranks)} if ranks > 1 else set()
    assert neighbours <= set(pairs)
    if ranks <= 10:
        assert len(pairs) == ranks * (ranks - 1) // 2
    else:
        assert len(rounds) <= 2 * math.ceil(math.log2(ranks)) + 3
