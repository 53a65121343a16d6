"""Submits smoke-runs and follows them until all is gathered, in the process that submitted them or in a later one."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.cluster import submission as records
from zerocfg.cluster.job import AwayError, ClusterError
from zerocfg.cluster.submission import Submission
from zerocfg.cluster.wait import Progress, follow
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.remote.gather import RemoteResult, certified, gather
from zerocfg.smoke.remote.request import Wanted, job_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.cluster.job import Engine
    from zerocfg.smoke.smoke import Options

KIND = "smoke"


def submit(
    engine: Engine, name: str, runs: list[Path], options: Options, wanted: Wanted, before: list[Path]
) -> Submission:
    """Submit one job with a task for each build. ``before``: builds of the same sweep that are certified already, for
    the comparison in the end. Raises SmokeError or ClusterError."""
    job = job_of([read(path) for path in runs], options, wanted, name)
    folder = records.new_folder()
    try:
        identity = engine.submit(job, folder)
    except AwayError as error:
        records.discard(folder)
        raise ClusterError(f"the scheduler does not answer: {error}") from None
    except ClusterError:
        records.discard(folder)
        raise
    made = Submission(
        name,
        identity,
        tuple({"name": task.name, "path": str(path.resolve())} for task, path in zip(job.tasks, runs, strict=True)),
        {
            "kind": KIND,
            "nodes": job.nodes,
            "sign": str(options.sign.resolve()) if options.sign else "",
            "before": [str(path.resolve()) for path in before],
        },
        folder,
    )
    made.write()
    return made


def gather_all(
    engine: Engine,
    made: Submission,
    *,
    look: Callable[[list[Progress], str], bool],
    ended: Callable[[RemoteResult], None],
) -> list[RemoteResult] | None:
    """Follow the job until all of its tasks are over, and gather each as it ends; None where ``look`` said to stop.

    ``look`` is called at every look with what is known of the tasks, and with the words of a scheduler that does not
    answer. The record is removed in the end, unless something is left in it that explains a failure.
    """
    tasks = [Progress() for _ in made.tasks]
    results: dict[int, RemoteResult] = {}
    nodes = made.options.get("nodes")
    sign = made.options.get("sign")

    def over(number: int) -> None:
        results[number] = _gathered(made, number, tasks[number], nodes if isinstance(nodes, int) else 1, sign)
        ended(results[number])

    follow(engine, made.identity, tasks, made.folder, look=lambda words: look(tasks, words), ended=over)
    if len(results) < len(tasks):
        return None
    gathered = [results[number] for number in range(len(tasks))]
    if all(item.problem is None for item in gathered):
        made.remove()
    else:
        replace(made, options={**made.options, "gathered": True}).write()
    return gathered


def earlier(made: Submission) -> list[RemoteResult]:
    """The builds of the sweep that were certified before the job, and still are."""
    paths = made.options.get("before")
    return certificates([Path(str(path)) for path in paths] if isinstance(paths, list) else [])


def certificates(paths: list[Path]) -> list[RemoteResult]:
    """What the certificates of these builds say, of those that have one of what is there now."""
    found = []
    for path in paths:
        with contextlib.suppress(SmokeError):
            found.append(certified(read(path)))
    return [item for item in found if item is not None]


def _gathered(made: Submission, number: int, task: Progress, nodes: int, sign: object) -> RemoteResult:
    path = Path(made.tasks[number]["path"])
    try:
        run = read(path)
    except SmokeError as error:
        return RemoteResult(path, made.tasks[number]["name"], problem=str(error))
    return gather(run, task, nodes, Path(sign) if isinstance(sign, str) and sign else None)


def cancel(engine: Engine, made: Submission, patience: Callable[[], bool]) -> bool:
    """End a job; whether it is over. ``patience`` waits a moment, and says whether to wait any longer."""
    asked = False
    while True:
        try:
            if not asked:
                engine.cancel(made.identity)
                asked = True
            if all(state.state.over for state in engine.states(made.identity, len(made.tasks))):
                made.remove()
                return True
        except AwayError:
            pass
        if not patience():
            return False
