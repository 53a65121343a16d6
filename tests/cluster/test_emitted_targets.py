"""The targets for Ray, ssh and SkyPilot, each started or read by what it is for: a real Ray of two nodes, two "hosts"
of this machine behind a stand-in for ssh, SkyPilot's own reader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.build.plans import make, written
from tests.cluster import ray_nodes
from tests.cluster.test_emitted_jobs import TRAINED, Built, build, environment
from tests.processes import ends

SSH = f"""#!{sys.executable}
# ssh OPTIONS HOST COMMAND, on this machine: standard input of the command ends when this program does.
import os, signal, subprocess, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    words = words[2:]
with open(os.environ["SSH_LOG"], "a") as log:
    log.write(words[0] + "\\n")
if words[0] == "away":
    sys.exit("ssh: connect to host away port 22: No route to host")
there = subprocess.Popen(["sh", "-c", words[1]], stdin=subprocess.PIPE, start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(255))
sys.exit(there.wait())
"""
MEET = """\
import json, os, sys, time
from pathlib import Path
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank() + 1.0)
dist.all_reduce(total)
said = {"total": total.item(), "world": dist.get_world_size(), "words": sys.argv[1:], "cwd": os.getcwd()}
said["hello"] = os.environ.get("HELLO")
Path(os.environ["REPORTS"], f"{dist.get_rank()}.json").write_text(json.dumps(said))
dist.destroy_process_group()
"""
WAIT = """\
import os, sys, time
from pathlib import Path
rank = os.environ["RANK"]
Path(os.environ["REPORTS"], f"{rank}.pid").write_text(str(os.getpid()))
other = Path(os.environ["REPORTS"], "1.pid" if rank == "0" else "0.pid")
while not other.exists():
    time.sleep(0.1)
if rank == "1" and os.environ.get("BREAK"):
    sys.exit(7)
time.sleep(600)
"""


def started(folder: Path, script: str, targets: dict[str, Any], **changes: Any) -> tuple[Path, dict[str, str]]:
    """A run of two nodes of one rank each that torchrun starts, and the variables to start it with."""
    (folder / "train.py").write_text(script)
    reports = folder / "reports"
    reports.mkdir()
    plan = make(folder, "2x1xcpu", targets, launcher="torchrun", **changes)
    return written(plan), environment(
        REPORTS=str(reports), SSH_LOG=str(folder / "ssh.log"), MAIN_PROCESS_IP="127.0.0.1"
    )


# -- ssh ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ssh(tmp_path: Path) -> dict[str, str]:
    """The PATH on which ssh is the stand-in."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.libs
def test_two_hosts_meet(tmp_path: Path, ssh: dict[str, str]) -> None:
    """Real ranks over gloo; words and setup reach them as they are."""
    target = {"ssh": {"setup": ['export HELLO="it\'s"'], "options": ["-p", "2222"]}}
    folder, variables = started(tmp_path, MEET, target)
    (tmp_path / "hosts").write_text("# two\nme@alpha slots=1\n\nbeta")
    words = [str(folder / "ssh.sh"), "a b", "it's", "$HOME"]
    merged = {**variables, **ssh, "HOSTFILE": str(tmp_path / "hosts"), "MAIN_PROCESS_PORT": "29711"}
    done = subprocess.run(words, cwd="/", env=merged, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "ssh.log").read_text().split()) == ["beta", "me@alpha"]
    for rank in (0, 1):
        assert json.loads((tmp_path / "reports" / f"{rank}.json").read_text()) == {
            "total": 3.0,
            "world": 2,
            "words": ["out/a/recipe.yaml", "a b", "it's", "$HOME"],
            "cwd": str(tmp_path),
            "hello": "it's",
        }


@pytest.mark.libs
@pytest.mark.parametrize("how", ["a rank fails", "terminated"])
def test_one_that_ends_ends_all(tmp_path: Path, ssh: dict[str, str], how: str) -> None:
    folder, variables = started(tmp_path, WAIT, {"ssh": {}}, hosts=["alpha", "beta"])
    merged = {**variables, **ssh, "MAIN_PROCESS_PORT": "29712", **({"BREAK": "1"} if how == "a rank fails" else {})}
    job = subprocess.Popen([str(folder / "ssh.sh")], cwd="/", env=merged, stderr=subprocess.PIPE, text=True)
    pids = [tmp_path / "reports" / f"{rank}.pid" for rank in (0, 1)]
    until = time.monotonic() + 120
    while not all(one.exists() and one.read_text() for one in pids) and time.monotonic() < until:
        time.sleep(0.1)
    if how == "terminated":
        job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=120)
    assert job.returncode == (143 if how == "terminated" else 1), said
    assert ends(*(int(one.read_text()) for one in pids))
    if how == "a rank fails":
        assert "beta ended with exit code 1; the others are ended, too\n" in said


def test_a_host_that_does_not_answer(tmp_path: Path, ssh: dict[str, str]) -> None:
    folder, variables = started(tmp_path, "", {"ssh": {"setup": ["exec sleep 60"]}}, hosts=["alpha", "away"])
    done = subprocess.run(
        [str(folder / "ssh.sh")], env={**variables, **ssh}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "No route to host" in done.stderr and "away ended with exit code 1" in done.stderr


@pytest.mark.parametrize(("lines", "told"), [("", "names 0"), ("a\n", "names 1"), ("a\nb\nc\n", "names 3")])
def test_a_hostfile_of_another_number(tmp_path: Path, ssh: dict[str, str], lines: str, told: str) -> None:
    folder, variables = started(tmp_path, "", {"ssh": {}})
    (tmp_path / "hosts").write_text(lines)
    merged = {**variables, **ssh, "HOSTFILE": str(tmp_path / "hosts")}
    done = subprocess.run([str(folder / "ssh.sh")], env=merged, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "this run has 2 node(s)" in done.stderr and told in done.stderr
    assert not (tmp_path / "ssh.log").exists()


@pytest.mark.libs
def test_zero_3_over_two_hosts(tmp_path: Path, ssh: dict[str, str]) -> None:
    """The example of two nodes, by accelerate and DeepSpeed."""
    built = build(tmp_path, {"ssh": {}})
    (tmp_path / "hosts").write_text("alpha\nbeta\n")
    more = {"HOSTFILE": str(tmp_path / "hosts"), "SSH_LOG": str(tmp_path / "ssh.log"), "MAIN_PROCESS_IP": "127.0.0.1"}
    merged = {**environment(**more, MAIN_PROCESS_PORT="29713"), **ssh}
    done = subprocess.run(
        [str(built.file("ssh.sh"))], env=merged, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert TRAINED in done.stdout and built.began


# -- Ray ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ray() -> Iterator[dict[str, str]]:
    if reason := ray_nodes.missing():
        pytest.skip(reason)
    with ray_nodes.ray_nodes() as variables:
        yield variables


def submit(script: Path, variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    merged = {**environment(), **variables}
    return subprocess.run(
        [str(script), *words], cwd="/", env=merged, capture_output=True, text=True, timeout=400, check=False
    )


@pytest.mark.libs
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize("there", [False, True], ids=["the folder travels", "the nodes have it"])
def test_two_nodes_of_ray_meet(ray: dict[str, str], tmp_path: Path, there: bool) -> None:
    reports = tmp_path / "reports"
    env_vars = {"REPORTS": str(reports), "HELLO": "it's 1", "OMP_NUM_THREADS": "1"}
    target = {
        "runtime_env": {"env_vars": env_vars, "excludes": ["/reports"]},
        **({"folder": str(tmp_path)} if there else {}),
    }
    folder, _ = started(tmp_path, MEET, {"ray": target})
    done = submit(folder / "ray_job.sh", ray, "a b", "it's")
    assert done.returncode == 0, done.stdout + done.stderr
    said = [json.loads((reports / f"{rank}.json").read_text()) for rank in (0, 1)]
    for one in said:
        assert (one["total"], one["world"], one["hello"]) == (3.0, 2, "it's 1")
        assert one["words"] == ["out/a/recipe.yaml", "a b", "it's"]
        assert (one["cwd"] == str(tmp_path)) is there


@pytest.mark.libs
@pytest.mark.xdist_group("ray")
def test_a_rank_that_fails_ends_the_job(ray: dict[str, str], tmp_path: Path) -> None:
    env_vars = {"REPORTS": str(tmp_path / "reports"), "BREAK": "1"}
    folder, _ = started(tmp_path, WAIT, {"ray": {"runtime_env": {"env_vars": env_vars}}})
    done = submit(folder / "ray_job.sh", ray)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "node 1: launch.sh ended with exit code 1" in done.stdout + done.stderr
    assert ends(*(int((tmp_path / "reports" / f"{rank}.pid").read_text()) for rank in (0, 1)))


@pytest.mark.libs
@pytest.mark.xdist_group("ray")
def test_zero_3_over_two_nodes_of_ray(ray: dict[str, str], tmp_path: Path) -> None:
    names = ("TORCH_EXTENSIONS_DIR", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", "DS_ACCELERATOR")
    env_vars = {name: value for name, value in environment().items() if name in names}
    target = {"folder": str(tmp_path / "two-nodes-cpu"), "runtime_env": {"env_vars": env_vars}}
    built: Built = build(tmp_path, {"ray": target})
    done = submit(built.file("ray_job.sh"), ray)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert TRAINED in done.stdout and built.began


# -- SkyPilot ----------------------------------------------------------------------------------------------------------

READ = """\
import json, sys
import sky
task = sky.Task.from_yaml(sys.argv[1])
(resources,) = task.resources
print(json.dumps({
    "name": task.name, "nodes": task.num_nodes, "workdir": task.workdir, "setup": task.setup, "run": task.run,
    "accelerators": resources.accelerators, "spot": resources.use_spot,
}))
"""


def skypilot() -> str:
    """A Python that has SkyPilot. It is kept apart: it brings and pins much."""
    found = os.environ.get("ZEROCFG_SKYPILOT")
    if found is None:
        pytest.skip("set ZEROCFG_SKYPILOT to a Python that has skypilot")
    return found


@pytest.mark.parametrize(
    ("hardware", "target", "accelerators", "nodes"),
    [
        (
            "2x8xH100-80GB",
            {"setup": ["pip install -r requirements.txt"], "resources": {"use_spot": True}},
            {"H100": 8},
            2,
        ),
        ("4xA100-80GB", {}, {"A100-80GB": 4}, 1),
        ("2x8xMI250", {"accelerators": "MI250"}, {"MI250": 8}, 2),
        ("3x2xcpu", {}, None, 3),
    ],
)
def test_skypilot_reads_the_task(
    tmp_path: Path, hardware: str, target: dict[str, Any], accelerators: dict[str, int] | None, nodes: int
) -> None:
    folder = written(make(tmp_path, hardware, {"skypilot": target}, name="my_run.v1"))
    words = [skypilot(), "-c", READ, "out/my_run.v1/sky.yaml"]
    home = {**os.environ, "HOME": str(tmp_path / "home"), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=home, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    task = json.loads(done.stdout.splitlines()[-1])
    assert folder.is_dir() and task["name"] == "my-run-v1" and task["nodes"] == nodes
    assert task["accelerators"] == accelerators and task["workdir"] == "."
    assert task["spot"] is bool(target.get("resources"))
    assert (task["setup"] or "").splitlines()[1:] == target.get("setup", [])
    assert task["run"].endswith("bash out/my_run.v1/launch.sh\n")


@pytest.mark.libs
def test_what_skypilot_runs_on_each_node(tmp_path: Path) -> None:
    """The task's commands with the variables that SkyPilot gives each node, started as it does: by bash, in workdir."""
    import yaml

    folder, variables = started(tmp_path, MEET, {"skypilot": {}})
    del variables["MAIN_PROCESS_IP"]
    run = yaml.safe_load((folder / "sky.yaml").read_text())["run"]
    nodes = {"SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2", "SKYPILOT_NUM_NODES": "2", "MAIN_PROCESS_PORT": "29714"}
    ranks = [
        subprocess.Popen(["bash", "-c", run], cwd=tmp_path, env={**variables, **nodes, "SKYPILOT_NODE_RANK": str(rank)})
        for rank in (0, 1)
    ]
    assert [one.wait(200) for one in ranks] == [0, 0]
    assert [json.loads((tmp_path / "reports" / f"{rank}.json").read_text())["total"] for rank in (0, 1)] == [3.0, 3.0]
