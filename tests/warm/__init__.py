"""A Python for tests that start many processes with the training libraries: those are imported before it starts.

``warm.python()`` is the path of an executable that is given in place of ``sys.executable``. What is started by it runs
as from any Python: a process of its own, with the arguments, environment, folder and open files that it was given, and
with ``sys.executable`` the same executable, so that a launcher starts its ranks by it as well. It only is forked from a
process that has imported torch, DeepSpeed, accelerate, transformers and trl, once for all tests of a pytest process.
Beside it lie ``accelerate``, ``torchrun`` and ``deepspeed``, for scripts that find them by PATH.

A fresh Python is needed where the start itself is what is tested: libraries that are missing, broken or changed on
import, memory of a process counted from its beginning, programs that are started in another network. Unlike launches
of zerocfg itself (`zerocfg.smoke.launch.warm`), a program is forked whatever its environment variables are.
"""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from pathlib import Path

from zerocfg.smoke.launch.warm import zygote_process

IMPORTS = Path(__file__).with_name("imports.py")
# Nothing else of the caller's: the libraries read some variables when they are imported.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "CC", "CXX", "LD_LIBRARY_PATH", "TORCH_EXTENSIONS_DIR")
IMPORTED_WITH = {
    "DS_ACCELERATOR": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@functools.cache
def python() -> str:
    """The executable. The zygote behind it imports the libraries in the meantime, and ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="zerocfg-warm-", dir="/tmp"))  # a socket's path has 107 characters at most
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | IMPORTED_WITH
    environment |= {"HF_HOME": str(folder / "hf")}  # no default config of accelerate, no token
    zygote = zygote_process.start(folder, environment, IMPORTS, any_environment=True)
    atexit.register(zygote.communicate)  # which ends its standard input first, as the death of this process does
    return str(folder / "python")
