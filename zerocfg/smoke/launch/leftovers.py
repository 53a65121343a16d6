"""Finds and removes what a smoke-run leaves behind: processes, shared memory, its scratch folder.

Also a program of its own, which imports nothing of zerocfg: ``python leftovers.py SCRATCH [FOLDER]...`` waits for
the end of its standard input, which comes when zerocfg dies, whatever the way, and then removes all that is left of the
run: its processes, its shared memory, and these folders.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "ZEROCFG_SMOKE_RUN"
"""Environment variable that every process of a run inherits; its value is the run's scratch folder."""
SHARED = Path("/dev/shm")
PROC = Path("/proc/self")
"""Processes whose mark can be read."""
# Made by torch, DeepSpeed, NCCL, Python's multiprocessing and OpenMP; whatever else lies there is the user's.
SEGMENTS = re.compile(r"(torch_\d+_|deepspeed_allreduce_buffer_|nccl-|psm_|sem\.|__KMP_REGISTERED_LIB_)[^/]*")


def marked(mark: str) -> set[int]:
    """Processes that inherited the mark; torchrun puts each rank into a session of its own.

    Empty on systems without /proc, where the ranks' own reports have to do.
    """
    wanted = f"{MARK}={mark}".encode()
    members = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in entry.read_bytes().split(b"\0"):
                members.add(int(entry.parent.name))
    return members - {os.getpid()}


def is_marked(process: int, mark: str) -> bool:
    """Whether the process has the mark; assumed where it cannot be read (no /proc)."""
    if not PROC.is_dir():
        return True
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def kill(mark: str, patience: float = 5.0) -> set[int]:
    """Kill every process with the mark, also those that they start meanwhile; those that were seen."""
    seen: set[int] = set()
    deadline = time.monotonic() + patience
    while (left := marked(mark)) and time.monotonic() < deadline:
        seen |= left
        for member in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        time.sleep(0.02)
    return seen


class Segments:
    """Shared memory that a run makes: of the names that its libraries give, not there before, seen with its ranks.

    The kernel keeps such a file when the process that made it is killed.
    """

    def __init__(self) -> None:
        self.before = self._names()
        self.seen: set[str] = set()
        self.processes: set[int] = set()

    def look(self, processes: Iterable[int]) -> None:
        """Record what these processes have mapped or open."""
        for process in processes:
            self.processes.add(process)
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{process}/maps").read_text(errors="replace")
                self.seen.update(re.findall(rf"{SHARED}/([^/\s]+)$", maps, re.MULTILINE))
            with contextlib.suppress(OSError):
                for link in Path(f"/proc/{process}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        target = link.readlink()
                        if target.parent == SHARED:
                            self.seen.add(target.name)

    def remove(self, port: int | None = None) -> list[str]:
        """Remove what is left of them; DeepSpeed's buffers also by the run's ``port``, which their names hold."""
        removed = []
        for name in sorted(self._names() - self.before):
            if not SEGMENTS.fullmatch(name) or not (name in self.seen or self._named(name, port)):
                continue
            with contextlib.suppress(OSError):
                if (SHARED / name).lstat().st_uid == os.geteuid():
                    (SHARED / name).unlink()
                    removed.append(name)
        return removed

    def _named(self, name: str, port: int | None) -> bool:
        buffer = port is not None and f"_{port}_" in name and name.startswith("deepspeed_allreduce_buffer_")
        return buffer or any(name.startswith(f"torch_{process}_") for process in self.processes)

    @staticmethod
    def _names() -> set[str]:
        try:
            return set(os.listdir(SHARED))  # noqa: PTH208
        except OSError:
            return set()


def main() -> None:
    scratch = sys.argv[1]
    segments = Segments()
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    for _ in range(2):  # a process that was just being started has its mark a moment later
        segments.look(marked(scratch))
        kill(scratch)
        time.sleep(0.3)
    segments.remove()
    for folder in sys.argv[1:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
