"""``zerocfg smoke --on slurm`` on two Slurm nodes of this machine: ZeRO-3 over both, a sweep, detaching, Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.slurm_nodes import SlurmNodes, missing, slurm_nodes

pytestmark = [pytest.mark.libs, pytest.mark.xdist_group("slurm")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmNodes]:
    if reason := missing():
        pytest.skip(reason)
    with slurm_nodes() as nodes:
        yield nodes


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples/two-nodes-cpu", tmp_path / "two")
    return tmp_path / "two"


def command(cluster: SlurmNodes, folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "zerocfg", "smoke", *words],
        cwd=folder,
        env={**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_as_in_a_terminal,
    )


def _as_in_a_terminal() -> None:
    """The first is ignored below a shell's `&`, the second below nohup."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def run(cluster: SlurmNodes, folder: Path, *words: str) -> tuple[int, str, str]:
    process = command(cluster, folder, *words)
    out, err = process.communicate(timeout=900)
    return process.returncode, out, err


def left(folder: Path) -> list[str]:
    jobs = folder / ".zerocfg/jobs"
    return sorted(path.name for path in jobs.iterdir()) if jobs.is_dir() else []


def test_two_nodes_train_one_run(cluster: SlurmNodes, spec: Path) -> None:
    """Submitted by one process and gathered by another; the build's own folder has the certificate."""
    code, out, err = run(cluster, spec, "built/nodes", "--on", "slurm", "--steps", "2", "--device", "cpu", "--detach")
    assert code == 0, err
    (name,) = left(spec)
    assert out == f"submitted as {name}; to wait for it: zerocfg smoke attach {name}\n"
    code, out, err = run(cluster, spec, "--attach", "--output-format", "json")
    assert code == 0, out + err
    (one,) = json.loads(out)["runs"]
    assert one["passed"] is True and one["ranks"] == 2 and one["path"] == str(spec / "built/nodes")
    assert "ZeRO-3 trains 2 optimizer steps in bf16 on 2 ranks of a processor on 2 nodes" in one["proven"][0]
    certificate = json.loads((spec / "built/nodes/smoke.json").read_text())
    assert certificate["passed"] is True and set(certificate["files"]) >= {"ds_config.json", "zerocfg.lock"}
    assert left(spec) == []
    code, out, err = run(cluster, spec, "--attach")
    assert code == 2 and "waits to be gathered" in err
    # What is certified is not tried again.
    code, out, err = run(cluster, spec, "built/nodes", "--on", "slurm", "--uncertified")
    assert (code, out, err) == (0, "", "1 of 1 builds are certified already\n")


def test_a_sweep_is_one_array(cluster: SlurmNodes, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/stages", tmp_path / "stages")
    shutil.copytree(ROOT / "examples/quickstart", tmp_path / "quickstart")
    names = [f"stage-zero{stage}" for stage in range(4)]
    builds = [f"built/{name}" for name in names]
    words = ["--on", "slurm", "--nodes", "1", "--steps", "2", "--device", "cpu"]
    code, out, err = run(cluster, tmp_path / "stages", *builds, *words)
    assert code == 0, out + err
    table = out[out.rindex("\nrun ") + 1 :].splitlines()
    assert table[0].split() == ["run", "verdict", "s/step", "tokens/s", "peak", "GiB"]
    rows = [line.split() for line in table[1:]]
    assert [row[:2] for row in rows] == [[name, "passed"] for name in names]
    assert [row[-1] for row in rows].count("fastest") == 1
    assert all((tmp_path / "stages" / build / "smoke.json").is_file() for build in builds)
    # A sweep that stopped goes on with what is missing, and compares all of it.
    measured = {row[0]: row[2:5] for row in rows}
    (tmp_path / "stages" / builds[2] / "smoke.json").unlink()
    code, out, err = run(cluster, tmp_path / "stages", *builds, *words, "--uncertified")
    assert code == 0 and err == "3 of 4 builds are certified already\n", out + err
    again = [line.split() for line in out[out.rindex("\nrun ") + 1 :].splitlines()[1:]]
    assert [row[:2] for row in again] == [
        *([name, "certified"] for name in (names[0], names[1], names[3])),
        [names[2], "passed"],
    ]
    assert all(row[2:5] == measured[row[0]] for row in again[:3])
    assert [row[-1] for row in again].count("fastest") == 1
    # Nothing is left to run, and the comparison is still to be had.
    code, out, err = run(cluster, tmp_path / "stages", *builds, *words, "--uncertified")
    assert code == 0 and err == "4 of 4 builds are certified already\n", out + err
    known = [line.split() for line in out.splitlines()[1:]]
    assert [row[:2] for row in known] == [[name, "certified"] for name in names]
    assert sorted(row[2:5] for row in known) == sorted(row[2:5] for row in again)


def test_ctrl_c_ends_the_job(cluster: SlurmNodes, spec: Path) -> None:
    process = command(cluster, spec, "built/nodes", "--on", "slurm", "--device", "cpu")
    until = time.monotonic() + 120
    while " R" not in cluster.run("squeue", "--noheader", "--format=%i %t").stdout and time.monotonic() < until:
        time.sleep(0.5)
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "cancelled" in err, out + err
    assert cluster.run("squeue", "--noheader").stdout.strip() == "" and left(spec) == []
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "zerocfg.smoke.remote.node" not in listed
    assert not (spec / "built/nodes/smoke.json").exists()


def test_a_client_that_is_killed_leaves_a_job_to_attach_to(cluster: SlurmNodes, spec: Path) -> None:
    process = command(cluster, spec, "built/nodes", "--on", "slurm", "--steps", "2", "--device", "cpu")
    until = time.monotonic() + 120
    while not cluster.run("squeue", "--noheader").stdout.strip() and time.monotonic() < until:
        time.sleep(0.5)
    os.killpg(process.pid, signal.SIGHUP)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGHUP
    code, out, err = run(cluster, spec, "--attach")
    assert code == 0 and out.rstrip().endswith(f"certificate: {spec / 'built/nodes/smoke.json'}"), out + err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--on", "slurm", "--compare", "0,1"), "--on takes builds"),
        (("--on", "slurm", "--command", "python x.py"), "--on takes builds"),
        (("--detach",), "give --on as well"),
        (("--attach", "x", "--on", "slurm"), "name no RUN and no --on"),
    ],
)
def test_options_that_do_not_go_together(cluster: SlurmNodes, spec: Path, words: tuple[str, ...], told: str) -> None:
    runs = () if "--attach" in words else ("built/nodes",)
    code, _, err = run(cluster, spec, *runs, *words)
    assert code == 2 and told in err


def test_a_partition_that_is_not_there(cluster: SlurmNodes, spec: Path) -> None:
    code, _, err = run(cluster, spec, "built/nodes", "--on", "slurm", "--on-option=--partition=none")
    assert code == 2 and "invalid partition specified: none" in err and left(spec) == []
