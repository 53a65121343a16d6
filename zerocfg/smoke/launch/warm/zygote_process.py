"""Starts the zygote and writes the executables that stand for its Python."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).resolve().parent
IMPORTS = HERE / "imports.py"
REFUSED = "refused"
ROOM = 100_000
"""Bytes for the environment of a program, see `zygote.show`."""
LONGEST_SOCKET = 107
LONGEST_SHEBANG = 127
PROGRAMS = {
    "accelerate": "accelerate.commands.accelerate_cli",
    "torchrun": "torch.distributed.run",
    "deepspeed": "deepspeed.launcher.runner",
}


def obstacle(folder: Path) -> str:
    """Why no zygote can be started with its files in ``folder``; empty when one can."""
    if not hasattr(os, "pidfd_open") or not hasattr(socket, "recv_fds") or not Path("/proc/self/environ").is_file():
        return "this system has no process handles (pidfd), which Linux has since 5.3"
    if len(str(folder / "socket")) > LONGEST_SOCKET:
        return f"the path of the temporary folder is too long for a socket: {folder}"
    if " " in sys.executable or len(shebang().encode()) > LONGEST_SHEBANG:
        return f"the path of Python is too long, or has a space: {sys.executable}"
    return ""


def shebang() -> str:
    return f"#!{sys.executable} -IS\n"


def start(
    folder: Path, environment: Mapping[str, str], imports: Path = IMPORTS, any_environment: bool = False
) -> subprocess.Popen[bytes]:
    """Start a zygote that runs the file ``imports`` and whose Python is ``folder / "python"``.

    ``any_environment``: fork programs also where they would have imported the libraries in another environment.
    The programs of PROGRAMS lie beside it, for scripts that find them by PATH. The zygote and what it has forked end
    when its standard input is closed, and so with this process. Raises OSError where it cannot be started.
    """
    executable = folder / "python"
    executable.write_text(shebang() + (HERE / "interpreter.py").read_text(encoding="utf-8"))
    for name, module in PROGRAMS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {executable} -m {module} "$@"\n')
    for program in folder.iterdir():
        program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:  # requests wait here until the libraries are imported
        listening.bind(str(folder / "socket"))
        listening.listen(64)
        words = [str(folder), str(listening.fileno()), str(imports), "any" if any_environment else "same"]
        return subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), *words],
            env={**environment, "ROOM": "-" * ROOM},
            pass_fds=[listening.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,  # Python's streams would remember of a file that its position can be set
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
