"""Jobs of small programs on a real Slurm of two nodes, on this machine alone, and on two Ray nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import ends
from tools.slurm_nodes import SlurmNodes, missing, slurm_nodes
from zerocfg.cluster.job import ClusterError, Engine, Job, State, Task
from zerocfg.cluster.local import Local
from zerocfg.cluster.slurm import Slurm
from zerocfg.cluster.wait import Progress, follow

pytestmark = pytest.mark.xdist_group("slurm")

PROGRAM = "tests.cluster.programs"
FILES = {"some/file.txt": b"what travels"}


def job(*programs: tuple[str, ...], nodes: int = 2) -> Job:
    tasks = tuple(Task(" ".join(words)[:20], (PROGRAM, *words)) for words in programs)
    return Job("zerocfg-test", nodes, tasks, FILES, 120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmNodes]:
    if reason := missing():
        pytest.skip(reason)
    with slurm_nodes() as nodes:
        yield nodes


@pytest.fixture
def slurm(cluster: SlurmNodes, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    engine = Slurm()
    monkeypatch.setattr(engine, "poll", 0.3)
    return engine


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Local:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Local()


@pytest.fixture(params=["slurm", "local"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "job"
    found.mkdir()
    return found


def play(engine: Engine, what: Job, folder: Path, until: float = 90) -> list[Progress]:
    """Submit a job and follow it to its end."""
    return wait(engine, engine.submit(what, folder), len(what.tasks), folder, until)


def wait(engine: Engine, identity: str, tasks: int, folder: Path, until: float = 90) -> list[Progress]:
    found, begun = [Progress() for _ in range(tasks)], time.monotonic()

    def look(_: str) -> bool:
        assert time.monotonic() - begun < until, found
        return True

    follow(engine, identity, found, folder, look=look, ended=lambda _: None)
    return found


def begun(engine: Engine, identity: str, folder: Path, within: float = 60) -> list[int]:
    """Wait until the programs of a job of one task wait on both nodes; their processes."""
    task = Progress()
    until = time.monotonic() + within
    while time.monotonic() < until:
        task.state = engine.states(identity, 1)[0]
        task.feed(engine.output(identity, 0, folder, task.offset))
        waiting = [task.last(node, "waiting") for node in (0, 1)]
        if all(waiting):
            return [int(str(one["process"])) for one in waiting if one is not None]
        time.sleep(0.2)
    raise AssertionError(task)


def test_every_node_runs_every_task_with_its_files(engine: Engine, folder: Path) -> None:
    found = play(engine, job(("say", "one"), ("say", 'it\'s "two"\n')), folder)
    for task, text in zip(found, ("one", 'it\'s "two"\n'), strict=True):
        assert task.code == 0 and len(task.hosts) == 2
        said = [task.last(node, "said") for node in (0, 1)]
        assert [(one["text"], one["file"], one["node"], one["address"]) for one in said if one] == [
            (text, "what travels", 0, "127.0.0.1"),
            (text, "what travels", 1, "127.0.0.1"),
        ]
        # Each worked in a folder of its own, which is gone.
        places = {str(one["folder"]) for one in said if one}
        assert len(places) == 2 and not any(Path(place).exists() for place in places)


def test_a_long_event_of_each_node_arrives_whole(engine: Engine, folder: Path) -> None:
    (task,) = play(engine, job(("long", "200000")), folder)
    for node in (0, 1):
        event = task.last(node, "said")
        assert event is not None and event["text"] == "x" * 200_000


def test_a_program_that_fails(engine: Engine, folder: Path) -> None:
    (task,) = play(engine, job(("fail",)), folder)
    assert task.code == 1
    assert task.last(0, "problem") == {"event": "problem", "text": "ValueError: the program fails"}


def test_cancelling_leaves_nothing(engine: Engine, folder: Path) -> None:
    identity = engine.submit(job(("wait",), ("wait",)), folder)
    processes = begun(engine, identity, folder)
    engine.cancel(identity)
    found = wait(engine, identity, 2, folder)
    assert {task.state.state for task in found} <= {State.CANCELLED}
    assert ends(*processes)


def test_another_process_goes_on(engine: Engine, folder: Path) -> None:
    """By the identity alone, and from the beginning of what was written."""
    identity = engine.submit(job(("say", "one")), folder)
    wait(engine, identity, 1, folder)
    (task,) = wait(type(engine)(), identity, 1, folder)
    assert task.code == 0 and task.last(1, "said") is not None


def test_cards_where_slurm_manages_none(slurm: Slurm, folder: Path) -> None:
    """Slurm's own words do not say who asked for them."""
    with pytest.raises(ClusterError, match=r"\(gres\) specification; it asks for --gpus-per-node=2, .* --device cpu"):
        slurm.submit(replace(job(("say", "one")), cards=2), folder)
    with pytest.raises(ClusterError, match=r"partition") as other:
        slurm.submit(replace(job(("say", "one")), options=("--partition=none",)), folder)
    assert "gpus" not in str(other.value)


def test_a_node_whose_process_is_killed(engine: Engine, folder: Path) -> None:
    (task,) = play(engine, job(("die",)), folder)
    assert task.code != 0 and task.last(0, "waiting") and task.last(1, "waiting")


def test_a_supervisor_that_is_killed(local: Local, folder: Path) -> None:
    """Its job is gone, and so are the processes."""
    identity = local.submit(job(("wait",)), folder)
    processes = begun(local, identity, folder)
    os.kill(int(identity.partition(":")[0]), signal.SIGKILL)
    (task,) = wait(local, identity, 1, folder)
    assert task.state.state is State.GONE and ends(*processes)


def test_a_controller_that_is_restarted(cluster: SlurmNodes, slurm: Slurm, folder: Path) -> None:
    identity = slurm.submit(job(("wait",)), folder)
    processes = begun(slurm, identity, folder)
    cluster.end("controller")
    words: list[str] = []
    found = [Progress()]

    def look(away: str) -> bool:
        words.append(away)
        if len(words) == 3:
            cluster.start_controller()
        if words[-1] == "" and len(words) > 3:
            slurm.cancel(identity)
        return len(words) < 200

    follow(slurm, identity, found, folder, look=look, ended=lambda _: None)
    assert any("controller" in one for one in words), words
    assert found[0].state.state is State.CANCELLED and ends(*processes)


def test_a_node_that_never_comes(cluster: SlurmNodes, slurm: Slurm, folder: Path) -> None:
    cluster.end("n2")
    try:
        (task,) = play(slurm, job(("say", "one")), folder)
    finally:
        cluster.start_node(2)
        _idle(cluster)
    assert task.hosts == ("n1", "n2") and "n2" in task.silent(2) and task.code != 0
    assert "failed on node n2" in task.log


def _idle(cluster: SlurmNodes) -> None:
    until = time.monotonic() + 60
    while cluster.run("sinfo", "--noheader", "--Node", "--format=%t").stdout.split() != ["idle", "idle"]:
        assert time.monotonic() < until
        if time.monotonic() > until - 40:  # a node that did not answer is taken for down
            cluster.run("scontrol", "update", "NodeName=n2", "State=RESUME")
        time.sleep(0.5)


def _may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def test_nodes_that_share_no_folder_with_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they write is fetched through a step of the job, which then ends and leaves nothing."""
    if reason := missing():
        pytest.skip(reason)
    if not _may_mount():
        pytest.skip("only root can mount a small file system")
    folder, there = tmp_path / "job", tmp_path / "there"
    folder.mkdir()
    there.mkdir()
    hide = f"mount -t tmpfs none {folder}"
    with slurm_nodes(2, {1: hide, 2: hide}) as nodes:
        for name, value in nodes.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("TMPDIR", str(there))
        engine = Slurm()
        (task,) = play(engine, job(("say", "one")), folder)
        assert [task.last(node, "said") is not None for node in (0, 1)] == [True, True]
        assert sorted(one.name for one in folder.iterdir()) == ["job.sbatch", "token"]
        until = time.monotonic() + 30
        while list(there.iterdir()) and time.monotonic() < until:
            time.sleep(0.5)
        assert not list(there.iterdir())
        while nodes.run("squeue", "--noheader").stdout.strip() and time.monotonic() < until:
            time.sleep(0.5)
        assert not nodes.run("squeue", "--noheader").stdout.strip()


def test_a_full_disk_on_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := missing():
        pytest.skip(reason)
    if not _may_mount():
        pytest.skip("only root can mount a small file system")
    folder, there = tmp_path / "job", tmp_path / "there"
    folder.mkdir()
    there.mkdir()
    with slurm_nodes(2, {2: f"mount -t tmpfs -o size=64k none {there}"}) as nodes:
        for name, value in nodes.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("TMPDIR", str(there))
        big = replace(job(("say", "one")), files=FILES | {"large": os.urandom(100_000)})
        (task,) = play(Slurm(), big, folder)
    problem = task.last(1, "problem")
    assert problem is not None and "No space left on device" in str(problem["text"])
    assert task.last(0, "said") is not None and task.last(0, "problem") is None


def test_a_python_without_zerocfg(slurm: Slurm, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = tmp_path / "python"
    empty.write_text("#!/bin/sh\necho 'No module named zerocfg' >&2\nexit 1\n")
    empty.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(empty))
    (task,) = play(slurm, job(("say", "one")), folder)
    problem = task.last(0, "problem")
    assert problem is not None and str(problem["text"]).startswith(f"{empty} cannot import zerocfg here")


def preflight(cluster: SlurmNodes, folder: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "zerocfg", "preflight", "--on", "slurm", "--nodes", "2", "--device", "cpu", *words],
        cwd=folder,
        env={**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.libs
def test_a_preflight_of_both_nodes(cluster: SlurmNodes, tmp_path: Path) -> None:
    code, out, err = preflight(cluster, tmp_path, "--ranks", "2", "--passing", "passing.txt")
    assert code == 0 and "preflight: 2 nodes, 4 ranks" in out, out + err
    assert (tmp_path / "passing.txt").read_text() == "n1\nn2\n"
    assert not list((tmp_path / ".zerocfg/jobs").iterdir())


@pytest.mark.libs
def test_a_preflight_names_the_node_that_never_comes(cluster: SlurmNodes, tmp_path: Path) -> None:
    cluster.end("n2")
    try:
        code, out, err = preflight(cluster, tmp_path, "--wait", "5")
    finally:
        cluster.start_node(2)
        _idle(cluster)
    assert code == 2 and "n2 never started: Task launch for " in err, out + err
    assert "--on-option=--exclude=n2" in err
