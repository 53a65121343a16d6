"""Jobs on this machine: one task after another, a process for each "node", in a session that outlives its client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING

from zerocfg.cluster.job import REST, REST_AFTER_FAILURE, ClusterError, Job, State, Task, TaskState
from zerocfg.cluster.on_node import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATE = "state"
KILL = 10
"""Seconds that the processes of a cancelled task have to clean up."""


class Local:
    """`zerocfg.cluster.job.Engine`. The identity is the number of the supervisor's process and its start time, so that
    a later process of that number is never taken for it."""

    poll = 0.5

    def submit(self, job: Job, folder: Path) -> str:
        if job.options or job.setup:
            raise ClusterError("--on local: there is no scheduler that takes options")
        (folder / "files").write_bytes(packed(job.files))
        described = {"nodes": job.nodes, "tasks": [asdict(task) for task in job.tasks]}
        (folder / "job.json").write_text(json.dumps(described), encoding="utf-8")
        with (folder / "supervisor.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "zerocfg.cluster.local", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return f"{process.pid}:{_started(process.pid)}:{folder}"

    def states(self, identity: str, tasks: int) -> list[TaskState]:
        number, began, folder = identity.split(":", 2)
        lost = State.GONE if _started(int(number)) != began else None
        return [_read(Path(folder) / f"{task}.{_STATE}", lost) for task in range(tasks)]

    def output(self, identity: str, task: int, folder: Path, offset: int) -> bytes:
        with contextlib.suppress(FileNotFoundError), (folder / f"{task}.events").open("rb") as file:
            file.seek(offset)
            return file.read()
        return b""

    def collected(self, identity: str, task: int, folder: Path) -> None:
        pass

    def cancel(self, identity: str) -> None:
        number, began, _ = identity.split(":", 2)
        if _started(int(number)) == began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGTERM)


def _started(process: int) -> str:
    """When a process began, in ticks since boot; empty where it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _read(path: Path, lost: State | None) -> TaskState:
    try:
        state = State(path.read_text())
    except (OSError, ValueError):
        state = State.QUEUED
    return TaskState(lost if lost is not None and not state.over else state, "", socket.gethostname())


class _Supervisor:
    """Runs the tasks of a job, and ends them when it is asked to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ending = threading.Event()
        self.running: list[subprocess.Popen[bytes]] = []
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.ending.set()

    def run(self) -> None:
        job = json.loads((self.folder / "job.json").read_text(encoding="utf-8"))
        tasks = [Task(item["name"], tuple(item["program"])) for item in job["tasks"]]
        for number, task in enumerate(tasks):
            if self.ending.is_set():
                self._tell(number, State.CANCELLED)
                continue
            self._tell(number, State.RUNNING)
            code = self._task(number, task, job["nodes"])
            self._tell(number, State.CANCELLED if self.ending.is_set() else State.FAILED if code else State.ENDED)

    def _tell(self, number: int, state: State) -> None:
        path = self.folder / f"{number}.{_STATE}"
        path.with_suffix(".new").write_text(state.value)
        path.with_suffix(".new").replace(path)

    def _task(self, number: int, task: Task, nodes: int) -> int:
        """Run a task; its exit code."""
        lock = threading.Lock()
        port = _free_port()
        with (self.folder / f"{number}.events").open("wb", buffering=0) as events:
            names = " ".join([socket.gethostname()] * nodes)
            events.write(b"*: " + json.dumps({"event": "hosts", "names": names}).encode() + b"\x1e\n")
            with self._started(task, nodes, port, number) as processes:
                threads = [
                    threading.Thread(target=_copy, args=(process.stdout, node, events, lock))
                    for node, process in enumerate(processes)
                ]
                for thread in threads:
                    thread.start()
                codes = self._wait(processes)
                for thread in threads:
                    thread.join()
            code = next((item for item in codes if item), 0)
            events.write(b"*: " + json.dumps({"event": "step", "code": code, "log": ""}).encode() + b"\x1e\n")
        return code

    @contextlib.contextmanager
    def _started(self, task: Task, nodes: int, port: int, number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        environment = {**os.environ, "MAIN_PROCESS_IP": "127.0.0.1", "MAIN_PROCESS_PORT": str(port)}
        command = [sys.executable, "-m", "zerocfg.cluster.on_node", *task.program]
        with contextlib.ExitStack() as open_files:
            log = open_files.enter_context((self.folder / f"{number}.log").open("wb"))
            yield [
                subprocess.Popen(
                    command,
                    env={**environment, "MACHINE_RANK": str(node)},
                    stdin=open_files.enter_context((self.folder / "files").open("rb")),
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
                for node in range(nodes)
            ]

    def _wait(self, processes: list[subprocess.Popen[bytes]]) -> list[int]:
        """Wait until all have ended, or the time that they have left is over; their exit codes."""
        first = kill = float("inf")
        while None in (codes := [process.poll() for process in processes]):
            now = time.monotonic()
            if any(code is not None for code in codes):
                first = min(first, now)
            patience = REST_AFTER_FAILURE if any(codes) else REST
            if kill == float("inf") and (self.ending.is_set() or now > first + patience):
                kill = now + KILL
                for process in processes:
                    process.terminate()
            if now > kill:
                for process in processes:
                    process.kill()
            time.sleep(0.1)
        return [process.returncode for process in processes]


def _copy(out: IO[bytes], node: int, events: IO[bytes], lock: threading.Lock) -> None:
    for line in out:
        with lock:
            events.write(b"%d: %s" % (node, line))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


if __name__ == "__main__":
    _Supervisor(Path(sys.argv[1])).run()
