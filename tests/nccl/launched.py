"""Ranks that run a few lines, called from a module of the ranks' program or from a script of a user."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import nccl
from zerocfg.smoke.launch import process

SCRIPT = """
import faulthandler, os, sys, time
faulthandler.dump_traceback_later(60, exit=True)
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=__import__("datetime").timedelta(seconds={patience}))
{body}
sys.stdout.flush()
os._exit(0)
"""


@dataclass
class Ended:
    """What a rank printed, and the code it ended with; None where it had to be killed."""

    code: int | None
    said: str
    error: str


def ranks(
    folder: Path, own: str = "", body: str = "own.call()", size: int = 2, double: bool = True, patience: float = 30
) -> list[Ended]:
    """Run ``body`` on each rank. ``own``: the lines of a function ``call`` in a module of the ranks' program, which
    knows ``group``, ``rank``, ``torch`` and ``dist``."""
    package = process.program(folder)
    lines = "".join(f"    {line}\n" for line in own.strip("\n").splitlines())
    head = "import os, time\nfrom . import group\ndef call():\n    import torch\n    import torch.distributed as dist\n"
    rank = '    rank = int(os.environ["RANK"])\n'
    (package / "zerocfg_worker" / "own.py").write_text(head + rank + lines)
    (folder / "script.py").write_text(SCRIPT.format(patience=patience, body=f"from zerocfg_worker import own\n{body}"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    given = {**os.environ, **nccl.variables(double)}
    given["PYTHONPATH"] = os.pathsep.join([given["PYTHONPATH"], str(package)])
    started = [
        subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=folder,
            env={**given, **place, "RANK": str(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(size)
    ]
    ended = []
    for one in started:
        said, error = one.communicate(timeout=90)
        ended.append(Ended(one.returncode, said, error))
    return ended
