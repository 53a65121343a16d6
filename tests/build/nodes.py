"""Two nodes on one machine: network namespaces that reach each other over a pair of virtual cards and nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ADDRESSES = ("10.203.17.1", "10.203.17.2")


@dataclass(frozen=True)
class Node:
    """``name`` of the namespace, ``card`` the network interface in it."""

    rank: int
    name: str
    card: str
    address: str

    def start(self, command: list[str], environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
        """A process group in the namespace; its output goes to node-RANK.log."""
        with (folder / f"node-{self.rank}.log").open("wb") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *command],
                cwd=folder,
                env={**environment, "GLOO_SOCKET_IFNAME": self.card},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


def refused() -> str:
    """Why there can be no namespaces here; empty where there can."""
    if shutil.which("ip") is None:
        return "there is no `ip` here"
    name = f"zerocfg-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    _ip("netns", "delete", name)
    return ""


def remove_left() -> None:
    """Remove the namespaces of test runs that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False, timeout=30).stdout
    for name, process in re.findall(r"^(zerocfg-(\d+)-\w+)", listed, re.MULTILINE):
        if not Path(f"/proc/{process}").exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False, timeout=30)


@contextlib.contextmanager
def two_nodes() -> Iterator[tuple[Node, Node]]:
    """The nodes of ranks 0 and 1. Whatever happens, nothing of them is left."""
    base = os.getpid()
    nodes = tuple(
        Node(rank, f"zerocfg-{base}-{rank}", f"zc{base}n{rank}"[:15], address) for rank, address in enumerate(ADDRESSES)
    )
    remove_left()
    try:
        for node in nodes:
            _ip("netns", "add", node.name)
        cards = [["name", node.card, "netns", node.name] for node in nodes]
        _ip("link", "add", *cards[0], "type", "veth", "peer", *cards[1])
        for node in nodes:
            _ip("-n", node.name, "address", "add", f"{node.address}/24", "dev", node.card)
            _ip("-n", node.name, "link", "set", node.card, "up")
            _ip("-n", node.name, "link", "set", "lo", "up")
        yield nodes[0], nodes[1]
    finally:
        for node in nodes:  # with a namespace its card goes, and with that the other one
            subprocess.run(["ip", "netns", "delete", node.name], capture_output=True, check=False, timeout=30)


def wait(processes: list[subprocess.Popen[bytes]], seconds: float) -> list[int | None]:
    """The exit codes. As soon as one fails, or the time is up, all are ended, with everything that they started."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            codes = [process.poll() for process in processes]
            if None not in codes or any(codes):
                break
            time.sleep(0.2)
    finally:
        codes = [process.poll() for process in processes]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return codes


def shared_memory(port: int) -> list[Path]:
    """What ranks of DeepSpeed on CPUs leave behind; the port of rank 0 is part of the names."""
    return list(Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{port}_*"))


def aborted(errors: str) -> bool:
    """Whether a rank was ended by SIGABRT ("terminate called without an active exception"). Seen on machines under
    load, after the last step and with everything saved: a thread of torch that outlives the interpreter. It says
    nothing about a config; what the training left behind is judged all the same."""
    return "failed (exitcode: -6)" in errors
