"""The driver of a job on a Ray cluster: ``python -m zerocfg.cluster.ray_driver`` in a folder of `PLACES` and `FILES`.

It is started once for all tasks of the job, because that costs some seconds. Each task gets its nodes as soon as they
are free, one process on each; what they write is copied to the driver's output, which Ray keeps for the client. Every
line there begins with the number of its task (`of_task`).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from zerocfg.cluster.events import END

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLACES = "places.json"
FILES = "files.txt"
JOB = "*"
"""In place of a node's number, in front of what the driver itself says of a task."""
_OUT = threading.Lock()
"""Held while a line is written."""


@dataclass(frozen=True)
class Places:
    """For each of ``programs``, a task: ``nodes`` machines with ``cards`` and ``cpus`` each, and the program on each,
    behind the shell lines of ``setup``. ``seconds``: the most that a program may take, and how long a task waits for
    its machines while none of the others runs or ends."""

    nodes: int
    cards: int
    programs: list[list[str]]
    setup: list[str]
    seconds: int
    cpus: int = 1


def of_task(log: str, task: int) -> str:
    """The whole lines that a driver wrote for a task."""
    start = f"{task}/"
    *lines, _ = log.split("\n")  # the end of an event is a line boundary to `splitlines`
    return "".join(f"{line.removeprefix(start)}\n" for line in lines if line.startswith(start))


def on_node(setup: list[str], program: list[str], files: bytes, environment: dict[str, str]) -> Iterator[bytes]:
    """What the program writes on this node, line by line."""
    python = "python" if setup else sys.executable
    start = " && ".join([*setup, "exec " + join([python, "-m", "zerocfg.cluster.on_node", *program])])
    process = subprocess.Popen(
        ["bash", "-c", start],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(files)
        process.stdin.close()
        # Not `yield from`: Ray drives the generator, and a file takes no `send`.
        while line := process.stdout.readline():
            yield line
    finally:
        process.terminate()
        process.wait()


def address() -> tuple[str, str, int]:
    """Name and address of this node, and a free port of it."""
    import socket

    import ray

    with socket.socket() as one:
        one.bind(("", 0))
        return socket.gethostname(), ray.util.get_node_ip_address(), one.getsockname()[1]


class _Waiting:
    """How long nothing of the job has moved: no task of it runs, began or ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._since = time.monotonic()

    def moved(self, by: int) -> None:
        """One more task runs, or one less."""
        with self._lock:
            self._running += by
            self._since = time.monotonic()

    def seconds(self) -> float:
        with self._lock:
            return 0.0 if self._running else time.monotonic() - self._since


class _Task:
    """A task: its place in the cluster, and what its processes say."""

    def __init__(self, number: int, places: Places, files: bytes, waiting: _Waiting) -> None:
        self.number, self.places, self.files, self.waiting = number, places, files, waiting
        self.problems: list[str] = []

    def play(self) -> None:
        """From the wait for its nodes to its last word; what goes wrong is among its ``problems``."""
        try:
            self._placed()
        except Exception as error:
            self.problems.append(f"error: {_words(error)}")
        log = base64.b64encode("\n".join(self.problems).encode()).decode()
        self._say(JOB, _event("step", code=int(bool(self.problems)), log=log))

    def _placed(self) -> None:
        import ray
        from ray.util.placement_group import placement_group, remove_placement_group

        places = self.places
        needed = {"CPU": places.cpus, **({"GPU": places.cards} if places.cards else {})}
        group = placement_group([needed] * places.nodes, strategy="STRICT_SPREAD" if places.nodes > 1 else "PACK")
        try:
            while not group.wait(1):
                if self.waiting.seconds() > places.seconds:
                    alive = sum(1 for node in ray.nodes() if node["Alive"])
                    self.problems.append(
                        f"error: the cluster has no {places.nodes} nodes with {needed} free: {alive} nodes are alive"
                    )
                    return
            self.waiting.moved(1)
            try:
                self._run(group)
            finally:
                self.waiting.moved(-1)
        finally:
            remove_placement_group(group)  # its nodes are the next task's

    def _run(self, group: Any) -> None:
        import ray

        found = ray.get([self._there(group, address, node).remote() for node in range(self.places.nodes)])
        self._say(JOB, _event("hosts", names=" ".join(name for name, _, _ in found)))
        meeting = {"MAIN_PROCESS_IP": found[0][1], "MAIN_PROCESS_PORT": str(found[0][2])}

        def copy(node: int) -> None:
            program = self.places.programs[self.number]
            lines = self._there(group, on_node, node, num_returns="streaming")
            try:
                environment = {**meeting, "MACHINE_RANK": str(node)}
                for line in lines.remote(self.places.setup, program, self.files, environment):
                    self._say(str(node), ray.get(line).decode("ascii", "replace"))
            except Exception as error:
                self.problems.append(f"error: {found[node][0]}: {_words(error)}")

        _together([partial(copy, node) for node in range(self.places.nodes)])

    def _there(self, group: Any, function: Any, node: int, **options: Any) -> Any:
        """A function as a task of Ray's on a node of the group."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
        asked = {"num_cpus": self.places.cpus, "num_gpus": self.places.cards, "max_retries": 0, **options}
        return ray.remote(**asked)(function).options(scheduling_strategy=strategy)

    def _say(self, who: str, line: str) -> None:
        with _OUT:
            print(f"{self.number}/{who}: {line}", end="", flush=True)


def main() -> int:
    import ray

    places = Places(**json.loads(Path(PLACES).read_text(encoding="utf-8")))
    files = Path(FILES).read_bytes()
    ray.init(log_to_driver=False)
    waiting = _Waiting()
    tasks = [_Task(number, places, files, waiting) for number in range(len(places.programs))]
    _together([task.play for task in tasks])
    return int(any(task.problems for task in tasks))


def _together(pieces: list[Callable[[], None]]) -> None:
    """Run all at the same time, and wait for their ends."""
    threads = [threading.Thread(target=piece) for piece in pieces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def _event(kind: str, **data: object) -> str:
    return json.dumps({"event": kind, **data}) + f"{END}\n"


if __name__ == "__main__":
    sys.exit(main())
