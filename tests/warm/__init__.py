"""A Python for tests that start many processes with the training libraries: those are imported before it starts.

``warm.python()`` is the path of an executable that is given in place of ``sys.executable``. What is started by it runs
as from any Python: a process of its own, with the arguments, environment, folder and open files that it was given, and
with ``sys.executable`` the same executable, so that a launcher starts its ranks by it as well. It only is forked from a
process that has imported torch, DeepSpeed, accelerate, transformers and trl, once for all tests of a pytest process.
Beside it lie ``accelerate``, ``torchrun`` and ``deepspeed``, for scripts that find them by PATH.

A fresh Python is needed where the start itself is what is tested: libraries that are missing, broken or changed on
import, memory of a process counted from its beginning, programs that are started in another network.
"""

from __future__ import annotations

import atexit
import functools
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Nothing else of the caller's: the libraries read some variables when they are imported.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "CC", "CXX", "LD_LIBRARY_PATH", "TORCH_EXTENSIONS_DIR")
IMPORTED_WITH = {
    "DS_ACCELERATOR": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
PROGRAMS = {
    "accelerate": "accelerate.commands.accelerate_cli",
    "torchrun": "torch.distributed.run",
    "deepspeed": "deepspeed.launcher.runner",
}
ROOM = 100_000  # bytes for the environment of a process, see zygote.show


@functools.cache
def python() -> str:
    """The executable. The zygote behind it imports the libraries in the meantime, and ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="zerocfg-warm-", dir="/tmp"))  # a socket's path has 107 characters at most
    executable = folder / "python"
    executable.write_text(f"#!{sys.executable} -IS\n{(HERE / 'interpreter.py').read_text(encoding='utf-8')}")
    for name, module in PROGRAMS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {executable} -m {module} "$@"\n')
    for program in folder.iterdir():
        program.chmod(0o755)
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | IMPORTED_WITH
    environment |= {"HF_HOME": str(folder / "hf"), "ROOM": "-" * ROOM}  # no default config of accelerate, no token
    with socket.socket(socket.AF_UNIX) as listening:  # from now on: who asks before the libraries are there waits
        listening.bind(str(folder / "socket"))
        listening.listen(64)
        zygote = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), str(folder), str(listening.fileno())],
            env=environment,
            pass_fds=[listening.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,  # Python's streams would remember of a file that one can seek in it
            stderr=subprocess.STDOUT,
        )
    atexit.register(zygote.communicate)  # which ends its standard input first, as the death of this process does
    return str(executable)
