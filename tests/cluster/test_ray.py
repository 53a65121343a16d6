"""Jobs of small programs on two Ray nodes of this machine, and a smoke-run through `zerocfg smoke --on ray`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.ray_nodes import missing, ray_nodes
from tests.cluster.test_jobs import begun, job, play, wait
from tests.conftest import ROOT
from tests.processes import ends
from zerocfg.cluster.job import ClusterError, State
from zerocfg.cluster.ray import Ray

pytestmark = [pytest.mark.libs, pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    if reason := missing():
        pytest.skip(reason)
    with ray_nodes() as environment:
        yield environment


@pytest.fixture
def ray(cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Ray:
    _import_leaves_nothing(monkeypatch)
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    return Ray()


def _import_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`import ray` changes both of these."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("RAY_CLIENT_MODE", "0")


def test_every_node_runs_the_task_with_its_files(ray: Ray, tmp_path: Path) -> None:
    (task,) = play(ray, job(("say", 'it\'s "two"\n')), tmp_path, 300)
    assert task.code == 0 and len(task.hosts) == 2
    said = [task.last(node, "said") for node in (0, 1)]
    assert [(one["text"], one["file"], one["node"]) for one in said if one] == [
        ('it\'s "two"\n', "what travels", 0),
        ('it\'s "two"\n', "what travels", 1),
    ]
    assert len({one["folder"] for one in said if one}) == 2


def test_one_job_plays_all_tasks(ray: Ray, tmp_path: Path) -> None:
    """More than find room at once, and one that fails costs itself."""
    programs = [("say", "one"), ("fail",), *(("say", str(number)) for number in range(2, 6))]
    identity = ray.submit(job(*programs), tmp_path)
    tasks = wait(ray, identity, len(programs), tmp_path, 300)
    assert [one.submission_id for one in ray._client.list_jobs()].count(identity) == 1
    said = [task.last(node, "said") for task in tasks for node in (0, 1)]
    texts = [one and one["text"] for one in said]
    assert texts == ["one", "one", None, None, *(str(number) for number in range(2, 6) for _ in (0, 1))]
    problem = tasks[1].last(0, "problem")
    assert problem is not None and problem["text"] == "ValueError: the program fails"
    assert all(task.code == 0 and task.state.state is State.ENDED for task in tasks)


def test_a_worker_that_is_killed_costs_its_task(ray: Ray, tmp_path: Path) -> None:
    tasks = play(ray, job(("die",), ("say", "one"), nodes=2), tmp_path, 300)
    assert tasks[0].last(0, "waiting") and tasks[0].last(1, "waiting")
    assert tasks[1].code == 0 and tasks[1].last(1, "said") is not None


def test_cancelling_leaves_nothing(ray: Ray, tmp_path: Path) -> None:
    identity = ray.submit(job(("wait",)), tmp_path)
    processes = begun(ray, identity, tmp_path, 300)
    ray.cancel(identity)
    (task,) = wait(ray, identity, 1, tmp_path, 300)
    assert task.state.state is State.CANCELLED and ends(*processes)


def test_more_nodes_than_there_are(ray: Ray, tmp_path: Path) -> None:
    (task,) = play(ray, replace(job(("say", "one"), nodes=3), seconds=5), tmp_path, 300)
    assert task.code == 1 and not task.events
    assert "has no 3 nodes with {'CPU': 1} free: 2 nodes are alive" in task.log


def test_options_of_slurm_are_refused(ray: Ray, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="Ray knows no option --partition=gpu"):
        ray.submit(replace(job(("say", "one")), options=("--partition=gpu",)), tmp_path)


def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := missing():
        pytest.skip(reason)
    _import_leaves_nothing(monkeypatch)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at http://127\.0\.0\.1:9"):
        Ray()


def test_a_smoke_run_over_both(cluster: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/two-nodes-cpu", tmp_path / "spec")
    words = ["smoke", "built/nodes", "--on", "ray", "--steps", "2", "--device", "cpu", "--output-format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "zerocfg", *words],
        cwd=tmp_path / "spec",
        env={**os.environ, **cluster},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["passed"] is True and run["ranks"] == 2
    certificate = json.loads((tmp_path / "spec/built/nodes/smoke.json").read_text())
    assert certificate["passed"] is True and "on 2 nodes" in certificate["proven"][0]
