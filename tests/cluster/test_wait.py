"""Following a job: what is asked of the engine, when a task is over, and a scheduler that goes away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerocfg.cluster import wait
from zerocfg.cluster.job import AwayError, ClusterError, Job, State, TaskState
from zerocfg.cluster.wait import Progress, follow

QUEUED, RUNNING, ENDED = TaskState(State.QUEUED, "Resources"), TaskState(State.RUNNING), TaskState(State.ENDED)
CANCELLED = TaskState(State.CANCELLED)
AWAY = "away"


class Played:
    """An engine whose looks are given: the states, what is written until then, or `AWAY`."""

    poll = 0.0

    def __init__(self, *looks: tuple[list[TaskState], list[bytes]] | str) -> None:
        self.looks = list(looks)
        self.written: list[bytes] = []
        self.asked: list[str] = []

    def submit(self, job: Job, folder: Path) -> str:
        raise NotImplementedError

    def states(self, identity: str, tasks: int) -> list[TaskState]:
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, str):
            raise AwayError("no route to host")
        states, self.written = look
        return states

    def output(self, identity: str, task: int, folder: Path, offset: int) -> bytes:
        self.asked.append(f"output {task} from {offset}")
        return self.written[task][offset:]

    def collected(self, identity: str, task: int, folder: Path) -> None:
        self.asked.append(f"collected {task}")

    def cancel(self, identity: str) -> None:
        raise NotImplementedError


def said(node: str, **event: object) -> bytes:
    return f"{node}: {json.dumps(event)}\x1e\n".encode()


def play(engine: Played, tasks: int = 1, looks: int = 50) -> tuple[list[Progress], list[int], list[str]]:
    found, ended, words = [Progress() for _ in range(tasks)], [], []

    def look(away: str) -> bool:
        words.append(away)
        return len(words) < looks

    follow(engine, "7", found, Path(), look=look, ended=ended.append)
    return found, ended, words


STEP = said("*", event="step", code=0, log="")


def test_a_task_is_over_when_its_launch_ended() -> None:
    first, rest = said("0", event="began"), said("0", event="verdict", passed=True) + STEP
    engine = Played(([QUEUED], [b""]), ([RUNNING], [first]), ([RUNNING], [first + rest]))
    (task,), ended, _ = play(engine)
    assert ended == [0] and task.code == 0
    assert task.last(0, "verdict") == {"event": "verdict", "passed": True} and task.last(1, "verdict") is None
    # A task that waits has written nothing, so it is not asked for.
    assert engine.asked == ["output 0 from 0", f"output 0 from {len(first)}", "collected 0"]


def test_tasks_end_one_by_one() -> None:
    engine = Played(([RUNNING, QUEUED], [STEP, b""]), ([ENDED, RUNNING], [STEP, b""]), ([ENDED, ENDED], [STEP, STEP]))
    _, ended, _ = play(engine, 2)
    assert ended == [0, 1] and engine.asked.count("collected 0") == 1


def test_a_task_that_ended_without_a_word_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("zerocfg.cluster.wait.time.monotonic", lambda: now[0])
    monkeypatch.setattr("zerocfg.cluster.wait.time.sleep", lambda _: now.__setitem__(0, now[0] + 1))
    engine = Played(([TaskState(State.FAILED, "a node failed")], [b""]))
    (task,), ended, words = play(engine)
    assert ended == [0] and task.code is None and task.state.reason == "a node failed"
    assert len(words) == wait.LAST + 1  # the first look, and those until the patience is over


def test_a_launch_that_failed_is_asked_for_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scancel` ends the launch before the scheduler says that the job was cancelled."""
    now = [0.0]
    monkeypatch.setattr("zerocfg.cluster.wait.time.monotonic", lambda: now[0])
    monkeypatch.setattr("zerocfg.cluster.wait.time.sleep", lambda _: now.__setitem__(0, now[0] + 1))
    failed = said("*", event="step", code=143, log="")
    (task,), _, words = play(Played(([RUNNING], [failed]), ([RUNNING], [failed]), ([CANCELLED], [failed])))
    assert task.state is CANCELLED and len(words) == 3
    (task,), _, words = play(Played(([RUNNING], [failed])))
    assert task.state is RUNNING and len(words) == wait.SETTLE + 1  # one that waits to be collected


def test_a_scheduler_that_comes_back() -> None:
    engine = Played(([RUNNING], [b""]), AWAY, AWAY, ([RUNNING], [STEP]))
    (task,), ended, words = play(engine)
    assert ended == [0] and task.state is RUNNING
    assert words == ["", "no route to host", "no route to host", ""]


def test_a_scheduler_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("zerocfg.cluster.wait.time.monotonic", lambda: now[0])
    monkeypatch.setattr("zerocfg.cluster.wait.time.sleep", lambda _: now.__setitem__(0, now[0] + 60))
    with pytest.raises(ClusterError, match="has not answered for 15 minutes: no route to host"):
        play(Played(AWAY))
    assert now[0] == wait.AWAY + 60


def test_looking_can_be_stopped() -> None:
    _, ended, words = play(Played(([RUNNING], [b""])), looks=3)
    assert not ended and len(words) == 3


def test_nodes_that_never_began_are_named() -> None:
    task = Progress()
    task.feed(said("*", event="hosts", names="n1 n2 n3") + said("1", event="began"))
    assert task.silent(3) == ["n1", "n3"]
    unknown = Progress()
    unknown.feed(said("0", event="began"))
    assert unknown.silent(2) == ["number 1"]


def test_the_log_of_the_launch() -> None:
    task = Progress()
    task.feed(said("*", event="step", code=3, log="c3J1bjogZXJyb3I="))
    assert task.over and task.code == 3 and task.log == "srun: error"
    broken = Progress()
    broken.feed(said("*", event="step", code="x", log="%"))
    assert broken.code == 1 and broken.log == ""
