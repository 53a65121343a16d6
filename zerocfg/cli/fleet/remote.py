"""The lint of a fleet on the workers of a cluster: one task each, which lints its share.

The repositories do not travel: a worker has to see them under the same paths. One that it does not see is told as any
other that is not there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from zerocfg.cli.fleet.node import Share, outcome_of
from zerocfg.cluster import submission as records
from zerocfg.cluster.job import AwayError, ClusterError, Job, Task
from zerocfg.cluster.wait import Progress, follow
from zerocfg.fleet.model import Outcome, Repository
from zerocfg.fleet.shares import shares, weight
from zerocfg.record import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zerocfg.cli.fleet.one import How
    from zerocfg.cluster.job import Engine

PROGRAM = "zerocfg.cli.fleet.node"
EACH = 60
"""Seconds of a task's time limit for each repository that one of its processes lints."""
CANCEL = 60
"""Seconds to wait for a job that was cancelled to end."""


@record(frozen=True)
class Workers:
    """``count`` workers, each with ``jobs`` processes; ``words``: options of the user's for the scheduler."""

    count: int
    jobs: int
    limit: float
    words: tuple[str, ...] = ()


def lint_on(
    engine: Engine,
    repositories: Sequence[Repository],
    how: How,
    workers: Workers,
    look: Callable[[list[Progress], list[int], str], None],
) -> list[Outcome]:
    """The outcomes of all. ``look`` is called at every look at the job: with what is known of each worker, how many
    repositories each has, and the words of a scheduler that does not answer. Raises ClusterError."""
    shared = shares(repositories, [weight(repository.path) for repository in repositories], workers.count)
    folder = records.new_folder()
    try:
        identity = engine.submit(_job(shared, how, workers), folder)
        tasks = [Progress() for _ in shared]
        sizes = [len(share) for share in shared]

        def go_on(words: str) -> bool:
            look(tasks, sizes, words)
            return True

        try:
            follow(engine, identity, tasks, folder, look=go_on, ended=lambda _: None)
        except BaseException:
            _cancel(engine, identity, len(tasks))
            raise
    except AwayError as error:
        raise ClusterError(f"the scheduler does not answer: {error}") from None
    finally:
        records.discard(folder)
    return [outcome for task, share in zip(tasks, shared, strict=True) for outcome in _outcomes(task, share)]


def _job(shared: list[list[Repository]], how: How, workers: Workers) -> Job:
    files = {
        _file(number): Share(share, how, workers.jobs, workers.limit).text().encode()
        for number, share in enumerate(shared)
    }
    return Job(
        name="zerocfg-lint",
        nodes=1,
        tasks=tuple(Task(f"worker {number + 1}", (PROGRAM, _file(number))) for number in range(len(shared))),
        files=files,
        seconds=int(workers.limit + EACH * -(-max(map(len, shared)) // workers.jobs)),
        cpus=workers.jobs,
        options=workers.words,
    )


def _file(number: int) -> str:
    return f"share-{number}.json"


def _outcomes(task: Progress, share: list[Repository]) -> list[Outcome]:
    outcomes: dict[str, Outcome] = {}
    for event in task.events.get(0, []):
        if event["event"] == "outcome":
            try:
                outcome = outcome_of(event)
            except ValueError:
                continue
            outcomes[outcome.name] = outcome
    return [
        outcomes.get(repository.name) or Outcome(repository.name, repository.path, problem=_why(task))
        for repository in share
    ]


def _why(task: Progress) -> str:
    """Why a worker says nothing of a repository."""
    where = f"the worker on {task.hosts[0]}" if task.hosts else "its worker"
    problem = task.last(0, "problem")
    why = str(problem.get("text", "")) if problem is not None else task.reason
    began = "did not answer" if 0 in task.events else "never started"
    return f"{where} {began}" + (f": {why}" if why else "")


def done(task: Progress) -> int:
    """How many repositories a worker has linted."""
    return sum(event["event"] == "outcome" for event in task.events.get(0, []))


def _cancel(engine: Engine, identity: str, tasks: int) -> None:
    """End the job of somebody who pressed Ctrl-C, and wait a while until its workers are gone."""
    until, asked = time.monotonic() + CANCEL, False
    while time.monotonic() < until:
        try:
            if not asked:
                engine.cancel(identity)
                asked = True
            if all(state.state.over for state in engine.states(identity, tasks)):
                return
        except (AwayError, ClusterError):
            pass
        time.sleep(min(1.0, engine.poll))
