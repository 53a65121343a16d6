"""Jobs on a Ray cluster, through Ray's job API: one driver (`zerocfg.cluster.ray_driver`) places the processes of all
tasks on their nodes. The files travel with the job; output comes back through Ray's own log, which tells the state of
each task as well."""

from __future__ import annotations

import json
import logging
import os
import secrets
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocfg.cluster.events import Reader
from zerocfg.cluster.job import AwayError, ClusterError, Job, State, TaskState
from zerocfg.cluster.on_node import packed
from zerocfg.cluster.ray_driver import FILES, JOB, PLACES, Places, of_task

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = "http://127.0.0.1:8265"
"""Of the dashboard that serves the job API, where RAY_ADDRESS or RAY_API_SERVER_ADDRESS name none."""

STARTING = 60
"""Seconds that a cluster which has just started gets to be able to take jobs."""
_NO_AGENT = "No available agent to submit job"
"""Of Ray's answer; it has no code of its own for it."""
_STATES = {
    "PENDING": State.QUEUED,
    "RUNNING": State.RUNNING,
    "SUCCEEDED": State.ENDED,
    "FAILED": State.FAILED,
    "STOPPED": State.CANCELLED,
}


class Ray:
    """`zerocfg.cluster.job.Engine`."""

    poll = 1.0

    def __init__(self) -> None:
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError:
            raise ClusterError("--on ray: Ray's job client is not installed: pip install 'ray[default]'") from None
        for module in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
            logging.getLogger(module).setLevel(logging.WARNING)  # they tell of every upload
        address = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or ADDRESS
        self._log = ""
        try:
            self._client: Any = JobSubmissionClient(address)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ClusterError(f"no Ray cluster answers at {address}: {_words(error)}") from None

    def submit(self, job: Job, folder: Path) -> str:
        if job.options:
            raise ClusterError(f"--on ray: Ray knows no option {job.options[0]}")
        identity = f"{job.name}-{secrets.token_hex(4)}"
        programs = [list(task.program) for task in job.tasks]
        places = Places(job.nodes, job.cards, programs, list(job.setup), job.seconds, job.cpus)
        with tempfile.TemporaryDirectory(prefix="zerocfg-") as files:
            (Path(files) / FILES).write_bytes(packed(job.files))
            (Path(files) / PLACES).write_text(json.dumps(places.__dict__), encoding="utf-8")
            self._submit(
                partial(
                    self._client.submit_job,
                    entrypoint="python -m zerocfg.cluster.ray_driver",
                    submission_id=identity,
                    runtime_env={"working_dir": files},
                )
            )
        return identity

    def _submit(self, job: Callable[[], Any]) -> None:
        """Ask until the cluster takes it: one that has just started has no agent yet that could."""
        until = time.monotonic() + STARTING
        while True:
            try:
                self._ask(job)
                return
            except ClusterError as error:
                if _NO_AGENT not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(1)

    def states(self, identity: str, tasks: int) -> list[TaskState]:
        try:
            info = self._ask(partial(self._client.get_job_info, identity))
        except ClusterError:
            return [TaskState(State.GONE)] * tasks
        state = _STATES.get(str(getattr(info.status, "value", info.status)), State.RUNNING)
        reason = _reason(str(info.message or "")) if state in (State.QUEUED, State.FAILED) else ""
        # Asked for behind the state, so that the log of a job that is over is whole.
        self._log = "" if state is State.QUEUED else self._written(identity)
        return [_state(of_task(self._log, number), TaskState(state, reason)) for number in range(tasks)]

    def _written(self, identity: str) -> str:
        """What the driver has written so far."""
        try:
            return str(self._ask(partial(self._client.get_job_logs, identity)))
        except ClusterError:
            return ""

    def output(self, identity: str, task: int, folder: Path, offset: int) -> bytes:
        """As of the last look at the states: one log has it for all tasks."""
        return of_task(self._log, task).encode("utf-8", "replace")[offset:]

    def collected(self, identity: str, task: int, folder: Path) -> None:
        pass

    def cancel(self, identity: str) -> None:
        try:
            info = self._ask(partial(self._client.get_job_info, identity))
        except ClusterError:
            return  # Ray no longer knows it
        if not info.status.is_terminal():
            self._ask(partial(self._client.stop_job, identity))

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except ConnectionError as error:
            raise AwayError(_words(error)) from None
        except OSError as error:  # requests' own errors are some
            raise AwayError(_words(error)) from None
        except (RuntimeError, ValueError) as error:
            raise ClusterError(f"Ray: {_words(error)}") from None


def _state(said: str, job: TaskState) -> TaskState:
    """Of a task, by what its driver ``said`` of it; ``job`` is the state of the driver."""
    about = "".join(f"{line}\n" for line in said.split("\n") if line.startswith(f"{JOB}: "))
    events = {str(event["event"]): event for _, event in Reader().feed(about.encode())}
    if "step" in events:
        return TaskState(State.FAILED if events["step"].get("code") else State.ENDED)
    if job.state is State.RUNNING and "hosts" not in events:
        return TaskState(State.QUEUED, "waits for free nodes")
    return job


def _reason(message: str) -> str:
    """Of a failed entry point the last line that it wrote: the whole log stands behind Ray's own words."""
    first, has_log, log = message.partition(", last available logs")
    lines = [line for line in log.splitlines() if line.strip()]
    return " ".join((f"{first}: {lines[-1]}" if has_log and lines else message).split())[:300]


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
