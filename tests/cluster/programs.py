"""Programs for the nodes of a test's job: `zerocfg.cluster.on_node` runs them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from zerocfg.cluster.events import Channel


def run(arguments: list[str], tell: Channel) -> None:
    """`say TEXT`: what lies in the folder and where this runs. `long N`: an event of N characters. `wait`: until the
    process is asked to end. `die`: as by the kernel, on node 1; others wait. `fail`: an exception. `write N`: bytes."""
    word, *rest = arguments
    node = int(os.environ.get("SLURM_NODEID") or os.environ.get("MACHINE_RANK") or 0)
    if word == "say":
        print("this is not an event")
        tell(
            "said",
            text=rest[0],
            file=Path("some/file.txt").read_text(),
            node=node,
            address=os.environ.get("MAIN_PROCESS_IP"),
            folder=str(Path.cwd()),
        )
    elif word == "long":
        tell("said", text="x" * int(rest[0]), node=node)
    elif word == "wait":
        tell("waiting", process=os.getpid())
        time.sleep(300)
    elif word == "die":
        tell("waiting", process=os.getpid())
        if node == 1:
            os.kill(os.getpid(), 9)
        time.sleep(5)
    elif word == "fail":
        raise ValueError("the program\nfails")
    elif word == "write":
        Path("big").write_bytes(b"0" * int(rest[0]))
