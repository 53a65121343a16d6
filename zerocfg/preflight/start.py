"""Starts ranks on this machine as processes and follows what they print. No process is left afterwards."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.hardware.launcher import VARIABLES
from zerocfg.hardware.measure import heeding_sigterm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PROGRAM = "zerocfg.preflight.rank"
LAST = 5.0  # seconds for the last lines of a process that has ended
LIMIT = 150.0  # seconds for everything that the ranks do
GRACE = 25.0  # seconds that the others get once one has died: they wait as long as a collective may take


@dataclass(frozen=True)
class Start:
    """A process: its whole environment, and arguments of the rank program."""

    environment: Mapping[str, str]
    arguments: Sequence[str] = ()


def fake_nodes(nodes: int, ranks: int, arguments: Sequence[str] = ()) -> list[Start]:
    """``ranks`` ranks on each of ``nodes`` nodes, all of which are this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [
        start
        for node in range(nodes)
        for start in ranks_of_node(
            node,
            nodes,
            ranks,
            "127.0.0.1",
            port,
            [*arguments, "--name", f"node{node}"] if nodes > 1 else arguments,
        )
    ]


def ranks_of_node(
    node: int, nodes: int, ranks: int, address: str, port: str, arguments: Sequence[str] = ()
) -> list[Start]:
    """The ``ranks`` ranks of one of ``nodes`` nodes; all of them meet at ``address`` and ``port`` of the first."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in VARIABLES and not name.startswith(("SLURM_", "TORCHELASTIC_"))
    }
    common = {**kept, "MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": str(nodes * ranks)}
    # As torchrun does: with all threads of all ranks they would wait for each other.
    common.setdefault("OMP_NUM_THREADS", "1")
    return [
        Start(
            {**common, "RANK": str(node * ranks + local), "LOCAL_RANK": str(local), "GROUP_RANK": str(node)}, arguments
        )
        for local in range(ranks)
    ]


def follow(
    starts: Sequence[Start],
    progress: Callable[[str, str], None] = lambda source, line: None,
    limit: float = LIMIT,
) -> list[tuple[str, str]]:
    """Start the rank program once for each of ``starts``; every line with the name of the process that printed it.

    Ends when all have ended, ``limit`` seconds later at the latest, and soon after one of them died. Raises OSError
    when no process can be started.
    """
    lines: list[tuple[str, str]] = []
    started: list[subprocess.Popen[str]] = []
    readers: list[threading.Thread] = []

    def read(source: str, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            lines.append((source, line.rstrip("\n")))
            progress(source, line)

    with heeding_sigterm():
        try:
            for number, start in enumerate(starts):
                process = subprocess.Popen(
                    [sys.executable, "-m", PROGRAM, *start.arguments],
                    env=dict(start.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
                started.append(process)
                reader = threading.Thread(target=read, args=(f"process {number}", process), daemon=True)
                reader.start()
                readers.append(reader)
            _wait(started, limit)
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.wait()
            for reader in readers:
                reader.join(LAST)  # what a rank started may hold its pipe open for ever
    return list(lines)


def _wait(started: Sequence[subprocess.Popen[str]], limit: float) -> None:
    deadline = time.monotonic() + limit
    while any(process.poll() is None for process in started) and time.monotonic() < deadline:
        if any(process.poll() not in (None, 0) for process in started):
            deadline = min(deadline, time.monotonic() + GRACE)
        time.sleep(0.1)
