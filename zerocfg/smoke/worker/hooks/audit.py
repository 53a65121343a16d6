"""Which files the processes of a user's command read and write, by Python's own audit events.

Read: files of the run that is to be proven, told by a file ``read-<number>`` in the folder of the reports.
Written: what a rank writes by itself, past the libraries that are redirected; it is told and not prevented.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

FILES = "ZEROCFG_SMOKE_FILES"
"""The variable with the absolute paths whose reading is reported."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.mkdir": 2, "os.remove": 1, "os.rename": 2, "os.rmdir": 1, "shutil.rmtree": 1}
"""Events: where they carry the open folder that a relative path is meant from, -1 for the current one."""
CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def report_reads(reports: str) -> None:
    """From now on report when this process reads one of the files in `FILES`."""
    files = {file: number for number, file in enumerate(os.environ.get(FILES, "").split(os.pathsep)) if file}
    names = {os.path.basename(file) for file in files}  # noqa: PTH119 - runs in every Python process
    if not files:
        return

    def hook(event: str, words: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(words[0], (str, os.PathLike)):
            return
        path = os.fspath(words[0])
        if isinstance(path, str) and os.path.basename(path) in names:  # noqa: PTH119
            real = os.path.realpath(path)
            if real in files:
                os.close(os.open(f"{reports}/read-{files.pop(real)}", os.O_WRONLY | os.O_CREAT))

    sys.addaudithook(_harmless(hook))


def report_writes(report: Callable[[Literal["wrote", "removed"], str], None], scratch: str) -> None:
    """From now on report what this process changes outside of ``scratch``, caches and system folders.

    ``report`` gets "wrote" or "removed", and the path; nothing of what this process had written itself before.
    """
    spared = [scratch, "/dev", "/proc", "/sys", sys.prefix, *map(os.path.expanduser, ("~/.cache", "~/.triton"))]
    spared += [os.environ[name] for name in CACHES if os.environ.get(name)]
    known: set[str] = set()

    def hook(event: str, words: tuple[object, ...]) -> None:
        if event == "open":
            if not isinstance(words[2], int) or not words[2] & WRITING:
                return
        elif event not in CHANGES or words[CHANGES[event]] not in (-1, None):
            return  # below an open folder: a tree that is removed as a whole, and told so
        if not isinstance(words[0], (str, os.PathLike)):
            return
        path = os.path.abspath(os.fspath(words[0]))  # noqa: PTH100
        if not isinstance(path, str) or path in known or "__pycache__" in path:
            return
        wrote = event in ("open", "os.mkdir")
        if not wrote and not os.path.lexists(path):
            return
        known.add(path)
        if not any(path == place or path.startswith(place.rstrip("/") + "/") for place in spared):
            report("wrote" if wrote else "removed", path)

    sys.addaudithook(_harmless(hook))


def _harmless(hook: Callable[[str, tuple[object, ...]], None]) -> Callable[[str, tuple[object, ...]], None]:
    """The hook, without its exceptions: they would be raised in the script's own `open`."""

    def fenced(event: str, words: tuple[object, ...]) -> None:
        with contextlib.suppress(Exception):
            hook(event, words)

    return fenced
