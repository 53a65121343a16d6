"""Following a job until all of its tasks are over: their states, and what their programs say."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.cluster.events import JOB, Event, Reader
from zerocfg.cluster.job import AwayError, ClusterError, State, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zerocfg.cluster.job import Engine

AWAY = 900
"""Seconds of a scheduler that does not answer, before it is given up."""
LAST = 20
"""Seconds to wait for the last words of a task that ended by itself: file servers are slow."""
SETTLE = 5
"""Seconds to wait for the scheduler's word on a task whose launch failed: somebody may have cancelled it."""


@dataclass
class Progress:
    """What is known about a task. ``events`` by the number of a node, in their order; ``hosts``: their names.

    ``log``: the end of what the launch itself printed, once it has ended; ``code`` its exit code.
    """

    state: TaskState = field(default_factory=lambda: TaskState(State.QUEUED))
    hosts: tuple[str, ...] = ()
    events: dict[int, list[Event]] = field(default_factory=dict)
    code: int | None = None
    log: str = ""
    offset: int = 0
    _reader: Reader = field(default_factory=Reader)

    def feed(self, data: bytes) -> None:
        self.offset += len(data)
        for node, event in self._reader.feed(data):
            if node != JOB:
                self.events.setdefault(node, []).append(event)
            elif event["event"] == "hosts":
                self.hosts = tuple(str(event.get("names", "")).split())
            elif event["event"] == "step":
                code = event.get("code")
                self.code = code if isinstance(code, int) else 1
                self.log = _decoded(str(event.get("log", "")))

    @property
    def over(self) -> bool:
        """Whether nothing more is to come from its programs."""
        return self.code is not None or self.state.state.over

    @property
    def reason(self) -> str:
        """Why it failed, as the scheduler says, else by the first error that the launch itself printed."""
        errors = [line for line in self.log.splitlines() if "error" in line.lower()]
        return self.state.reason or (errors[0].removeprefix("srun: error: ")[:300] if errors else "")

    def last(self, node: int, kind: str) -> Event | None:
        """The newest event of a kind that a node wrote."""
        return next((event for event in reversed(self.events.get(node, [])) if event["event"] == kind), None)

    def silent(self, nodes: int) -> list[str]:
        """The nodes that never began, by name where that is known."""
        names = [*self.hosts, *(f"number {number}" for number in range(len(self.hosts), nodes))]
        return [names[number] for number in range(nodes) if number not in self.events]


def _patience(task: Progress) -> float:
    """Seconds to wait for more about a task that is over."""
    if task.code is None:
        return LAST if task.state.state in (State.ENDED, State.FAILED) else 0
    return SETTLE if task.code and not task.state.state.over else 0


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode("utf-8", "replace")
    except ValueError:
        return ""


def follow(
    engine: Engine,
    identity: str,
    tasks: list[Progress],
    folder: Path,
    *,
    look: Callable[[str], bool],
    ended: Callable[[int], None],
) -> None:
    """Look again and again until all tasks are over; ``ended`` is called with the number of each.

    ``look`` is called after every look, with the words of a scheduler that does not answer; it says whether to go on.
    Raises ClusterError where the scheduler stays away for `AWAY` seconds.
    """
    finished: set[int] = set()
    away: float | None = None
    since: dict[int, float] = {}
    while True:
        words = ""
        try:
            states = engine.states(identity, len(tasks))
            away = None
        except AwayError as error:
            states, words = [], str(error)
            away = time.monotonic() if away is None else away
            if time.monotonic() - away > AWAY:
                raise ClusterError(f"the scheduler has not answered for {AWAY / 60:.0f} minutes: {words}") from None
        for number, task in enumerate(tasks):
            if number in finished:
                continue
            task.state = states[number] if states else task.state
            if task.state.state is State.QUEUED:
                continue
            task.feed(engine.output(identity, number, folder, task.offset))
            if task.over:
                since.setdefault(number, time.monotonic())
            if task.over and time.monotonic() - since[number] >= _patience(task):
                engine.collected(identity, number, folder)
                finished.add(number)
                ended(number)
        if not look(words) or len(finished) == len(tasks):
            return
        time.sleep(engine.poll)
