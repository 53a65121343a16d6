"""What the driver of a Ray job writes, as its client reads it: no Ray is needed."""

from __future__ import annotations

import base64
import json

import pytest

from zerocfg.cluster.job import State, TaskState
from zerocfg.cluster.ray import _state
from zerocfg.cluster.ray_driver import of_task
from zerocfg.cluster.wait import Progress


def said(task: int, who: str, **event: object) -> str:
    return f"{task}/{who}: {json.dumps(event)}\x1e\n"


HOSTS = said(1, "*", event="hosts", names="a b")
WORD = said(1, "0", event="said", text="hosts step")
STEP = said(1, "*", event="step", code=0, log="")
FAILED = said(1, "*", event="step", code=1, log=base64.b64encode(b"error: a: gone").decode())
OTHER = said(11, "*", event="step", code=0, log="") + said(0, "0", event="said", text="x")


def test_every_task_gets_its_own_lines() -> None:
    log = f"a warning of Ray's\n{OTHER}{HOSTS}{WORD}"
    task = Progress()
    task.feed(of_task(log, 1).encode())
    assert task.hosts == ("a", "b") and task.events == {0: [{"event": "said", "text": "hosts step"}]}
    assert of_task(log, 2) == ""


def test_a_line_that_is_not_whole_yet_is_left_for_later() -> None:
    """What was read once stands at the same place in the next look's log."""
    for cut in range(len(WORD)):
        first = of_task(HOSTS + WORD[:cut], 1)
        assert of_task(HOSTS + WORD, 1).startswith(first)
        assert first == HOSTS.removeprefix("1/")


@pytest.mark.parametrize(
    ("log", "job", "state"),
    [
        ("", TaskState(State.QUEUED, "no worker"), TaskState(State.QUEUED, "no worker")),
        (OTHER, TaskState(State.RUNNING), TaskState(State.QUEUED, "waits for free nodes")),
        (HOSTS + WORD, TaskState(State.RUNNING), TaskState(State.RUNNING)),
        (HOSTS + STEP, TaskState(State.RUNNING), TaskState(State.ENDED)),
        (HOSTS + FAILED, TaskState(State.RUNNING), TaskState(State.FAILED)),
        # Another task failed, and the driver with it.
        (HOSTS + STEP, TaskState(State.FAILED, "code 1"), TaskState(State.ENDED)),
        (HOSTS + WORD, TaskState(State.FAILED, "the driver died"), TaskState(State.FAILED, "the driver died")),
        (HOSTS + WORD, TaskState(State.CANCELLED), TaskState(State.CANCELLED)),
        (OTHER, TaskState(State.CANCELLED), TaskState(State.CANCELLED)),
    ],
)
def test_the_state_of_a_task(log: str, job: TaskState, state: TaskState) -> None:
    assert _state(of_task(log, 1), job) == state
