"""The driver of a task on a Ray cluster: ``python -m zerocfg.cluster.ray_driver`` in a folder of `PLACES` and `FILES`.

It places one process on every node, and copies what they write to its own output, which Ray keeps for the client.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = "places.json"
FILES = "files.txt"


@dataclass(frozen=True)
class Places:
    """``nodes`` machines with ``cards`` and ``cpus`` each; ``program`` on each, behind the shell lines of ``setup``.
    ``seconds``: how long to wait for the machines, and the most that the program may take."""

    nodes: int
    cards: int
    program: list[str]
    setup: list[str]
    seconds: int
    cpus: int = 1


def on_node(places: Places, files: bytes, environment: dict[str, str]) -> Iterator[bytes]:
    """What the program writes on this node, line by line."""
    python = "python" if places.setup else sys.executable
    start = " && ".join([*places.setup, "exec " + join([python, "-m", "zerocfg.cluster.on_node", *places.program])])
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


def main() -> int:
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    places = Places(**json.loads(Path(PLACES).read_text(encoding="utf-8")))
    files = Path(FILES).read_bytes()
    ray.init(log_to_driver=False)
    needed = {"CPU": places.cpus, **({"GPU": places.cards} if places.cards else {})}
    group = placement_group([needed] * places.nodes, strategy="STRICT_SPREAD" if places.nodes > 1 else "PACK")
    if not group.wait(places.seconds):
        alive = sum(1 for node in ray.nodes() if node["Alive"])
        return _ended([f"error: the cluster has no {places.nodes} nodes with {needed} free: {alive} nodes are alive"])

    def there(function: Any, node: int, **options: Any) -> Any:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
        remote = ray.remote(**{"num_cpus": places.cpus, "num_gpus": places.cards, "max_retries": 0, **options})(
            function
        )
        return remote.options(scheduling_strategy=strategy)

    found = ray.get([there(address, node).remote() for node in range(places.nodes)])
    _say("*", {"event": "hosts", "names": " ".join(name for name, _, _ in found)})
    meeting = {"MAIN_PROCESS_IP": found[0][1], "MAIN_PROCESS_PORT": str(found[0][2])}
    lock = threading.Lock()
    problems: list[str] = []

    def copy(node: int) -> None:
        lines = there(on_node, node, num_returns="streaming")
        try:
            for line in lines.remote(places, files, {**meeting, "MACHINE_RANK": str(node)}):
                text = ray.get(line).decode("ascii", "replace")
                with lock:
                    print(f"{node}: {text}", end="", flush=True)
        except Exception as error:
            problems.append(f"error: {found[node][0]}: {' '.join(str(error).split())[:500]}")

    threads = [threading.Thread(target=copy, args=(node,)) for node in range(places.nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _ended(problems)


def _ended(problems: list[str]) -> int:
    """Say that the task is over, and why it failed; the exit code."""
    log = base64.b64encode("\n".join(problems).encode()).decode()
    _say("*", {"event": "step", "code": int(bool(problems)), "log": log})
    return int(bool(problems))


def _say(who: str, event: dict[str, object]) -> None:
    print(f"{who}: {json.dumps(event)}\x1e", flush=True)


if __name__ == "__main__":
    sys.exit(main())
