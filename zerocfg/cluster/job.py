"""A job for a cluster, what becomes of it, and what an engine has to be able to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REST = 60
"""Seconds that the other nodes of a task get once the first has ended, before they are asked to end."""
REST_AFTER_FAILURE = 15
"""The same where its program failed: what the others wait for will not come. They may still say where it began."""


class ClusterError(Exception):
    """The job cannot be submitted, or nothing more can be learnt about it: a sentence for the user."""


class AwayError(Exception):
    """The scheduler does not answer at present: its own words."""


@dataclass(frozen=True)
class Task:
    """``program``: the module to run on every node, with its arguments; ``name`` as people call the task."""

    name: str
    program: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """Tasks of one shape, each on ``nodes`` machines with ``cards`` and ``cpus`` each, one process on every machine.

    ``files``: what lies in the working folder of every process, by relative path. ``seconds``: the most that a task
    may take once it runs. ``options``: further words for the scheduler; ``setup``: shell lines before the program.
    """

    name: str
    nodes: int
    tasks: tuple[Task, ...]
    files: Mapping[str, bytes] = field(repr=False)
    seconds: int
    cards: int = 0
    options: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    cpus: int = 1


class State(Enum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"
    FAILED = "failed"
    GONE = "gone"
    """The scheduler no longer knows it."""

    @property
    def over(self) -> bool:
        return self not in (State.QUEUED, State.STARTING, State.RUNNING)


@dataclass(frozen=True)
class TaskState:
    """``reason``: why it waits or failed, in the scheduler's words; ``hosts``: where it runs or ran."""

    state: State
    reason: str = ""
    hosts: str = ""


class Engine(Protocol):
    """Raises AwayError where the scheduler does not answer, which may pass, and ClusterError for what will not.

    ``poll``: seconds between two looks that it does not notice.
    """

    poll: float

    def submit(self, job: Job, folder: Path) -> str:
        """Start a job; its identity, by which another process finds it. ``folder``: empty, for the engine's files."""
        ...

    def states(self, identity: str, tasks: int) -> list[TaskState]:
        """Of every task, in their order."""
        ...

    def output(self, identity: str, task: int, folder: Path, offset: int) -> bytes:
        """What the programs of a task wrote behind the first ``offset`` bytes; empty where nothing is there yet."""
        ...

    def collected(self, identity: str, task: int, folder: Path) -> None:
        """All output of a task was read: nothing has to be kept for it."""
        ...

    def cancel(self, identity: str) -> None:
        """End all tasks that have not ended; does not wait for it."""
        ...
