"""``zerocfg probe`` as users start it: alone, with ``--check``, and as the ranks of torchrun on two nodes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zerocfg.models.hardware import HardwareProfile

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


def clean(**more: str) -> dict[str, str]:
    """This process's environment without the variables of launchers."""
    kept = {
        name: value for name, value in os.environ.items() if name not in LAUNCHERS and not name.startswith("SLURM_")
    }
    return kept | {"OMP_NUM_THREADS": "1"} | more


def zerocfg(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zerocfg", "probe", *arguments]
    return subprocess.run(command, env=clean(**more), capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("probe") / "hw.json"
    assert zerocfg("-o", str(path)).returncode == 0
    profile: dict[str, Any] = json.loads(path.read_text())
    return profile


def test_check_of_the_same_machine(here: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "hw.json"
    path.write_text(json.dumps(here))
    done = zerocfg("--check", str(path))
    assert (done.returncode, done.stdout) == (0, f"{path}: this machine is as described\n")


def test_check_of_another_and_an_old_machine(here: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "hw.json"
    path.write_text(json.dumps({**here, "date": "2020-02-02", "host": {**here["host"], "cpus": 4096}}))
    done = zerocfg("--check", str(path))
    assert done.returncode == 1
    assert done.stdout.startswith(f"{path}: CPUs that a process may use: the profile says 4096, this machine has ")
    assert "days old" in done.stderr
    path.write_text(json.dumps({**here, "date": "2020-02-02"}))
    assert zerocfg("--check", str(path)).returncode == 0, "age alone is a note"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--check", "no.json"], "no.json: cannot be read"),
        (["--check", "no.json", "--measure"], "goes with neither --out nor --measure"),
    ],
)
def test_wrong_use(arguments: list[str], words: str) -> None:
    done = zerocfg(*arguments)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_a_launcher_without_an_address() -> None:
    done = zerocfg(RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
    assert done.returncode == 2 and "MASTER_ADDR is not set" in done.stderr


@pytest.mark.libs
def test_two_nodes_under_torchrun(tmp_path: Path) -> None:
    """Two launchers, as on two machines; one node with a limit that the other has not."""
    path = tmp_path / "hw.json"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = []
    for number in (0, 1):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        place = ["--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port", str(port)]
        command = [*torchrun, *place, "-m", "zerocfg", "probe", "--measure", "-o", str(path)]
        if number == 1:
            command = ["bash", "-c", 'ulimit -l 64 && exec "$@"', "bash", *command]
        nodes.append(
            subprocess.Popen(command, env=clean(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    logs = [node.communicate(timeout=240)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], logs
    profile = HardwareProfile.model_validate_json(path.read_bytes())
    assert (profile.name, profile.nodes, profile.world_size) == ("2x1xcpu", 2, 2)
    link = profile.link_between_nodes
    assert link and link.busbw_gb_s and link.latency_us
    assert profile.accelerator.measured_tflops["fp32"] > 0
    assert profile.host and profile.host.memlock == 65536
    assert any("limit of locked memory" in note and "node 1" in note for note in profile.notes), profile.notes
    assert "hw.json: 2x1xcpu" in logs[0] and "hw.json" not in logs[1]
