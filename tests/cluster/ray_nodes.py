"""A Ray cluster of two nodes on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT


def missing() -> str:
    """Why there can be no cluster here; empty where there can."""
    return "" if importlib.util.find_spec("ray") else "Ray is not installed"


@contextlib.contextmanager
def ray_nodes(cpus: int = 2) -> Iterator[dict[str, str]]:
    """The variables by which a client finds it. Each node has so many ``cpus``; it is a `ray start --block`, which ends
    with its processes."""
    head, dashboard, client, *agents = _free_ports(5)
    ray = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--block",
        f"--num-cpus={cpus}",
        "--disable-usage-stats",
    ]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    # The entry point of a job is "python".
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": programs,
        "PYTHONPATH": path,
        "RAY_DISABLE_MEMORY_MONITOR": "1",
        # By default (15) Ray's workers give way to everything else that the machine does.
        "RAY_worker_niceness": "0",
        "DS_ACCELERATOR": "cpu",
    }
    with tempfile.TemporaryDirectory(prefix="zerocfg-ray-", ignore_cleanup_errors=True) as folder:
        first = ["--head", f"--port={head}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"]
        # Of two agents at one port, which by default they share, the second takes no job.
        first_agent, second_agent = (f"--dashboard-agent-listen-port={port}" for port in agents)
        commands = (
            [*ray, *first, first_agent, f"--temp-dir={folder}"],
            [*ray, second_agent, f"--address=127.0.0.1:{head}"],
        )
        processes: list[subprocess.Popen[bytes]] = []
        address = f"http://127.0.0.1:{dashboard}"
        try:
            for command in commands:
                with (Path(folder) / "start.log").open("ab") as log:
                    processes.append(
                        subprocess.Popen(
                            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                        )
                    )
                _await(address, len(processes))
            yield {"RAY_API_SERVER_ADDRESS": address}
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _await(address: str, nodes: int) -> None:
    """Wait until so many nodes are alive."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{address}/nodes?view=summary", timeout=10) as answer,
        ):
            if answer.read().decode().count('"ALIVE"') >= nodes:
                return
        time.sleep(0.5)
    raise RuntimeError(f"no {nodes} Ray nodes at {address} after 120 s")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
