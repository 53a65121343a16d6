"""Bandwidth of a drive: a short run of large blocks past the page cache (O_DIRECT), in a file that has no name.

The file is unlinked as soon as it is open, so that it is gone whatever ends this process. A short run on an empty part
of a drive shows its cache as well: sustained writing of many gigabytes can be slower.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.hardware.devices import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
BLOCK = 4 * MIB  # O_DIRECT wants multiples of the sector (512 or 4096 bytes) in memory, length and offset
SIZE = 256 * MIB
SHARE = 0.02  # of the free space, at most
SECONDS = 3.0  # for each direction, at most
WORKERS = 4  # blocks in flight: one at a time leaves a fast drive idle


@dataclass(frozen=True)
class Speed:
    """GB/s of one drive."""

    read_gb_s: float
    write_gb_s: float


def measure(folder: Path, size: int = SIZE, seconds: float = SECONDS) -> Speed | str:
    """The speed of the drive under ``folder``, or why there is none, in words. Never raises an OSError."""
    if not hasattr(os, "O_DIRECT"):
        return "this system has no O_DIRECT"
    try:
        room = os.statvfs(folder)
        size = min(size, int(room.f_bavail * room.f_frsize * SHARE)) // BLOCK * BLOCK
        if size < WORKERS * BLOCK:
            return "too little free space for a test file"
        file = _nameless(folder)
    except OSError as error:
        return _refusal(error)
    try:
        # Space is taken beforehand: what is measured is writing, not the search for free blocks.
        with suppress(OSError):
            os.posix_fallocate(file, 0, size)
        written = _run(file, size, seconds, write=True)
        return Speed(write_gb_s=written, read_gb_s=_run(file, size, seconds, write=False))
    except OSError as error:
        return _refusal(error)
    finally:
        os.close(file)


def _refusal(error: OSError) -> str:
    """EINVAL is how a file system refuses O_DIRECT."""
    return "its file system refuses O_DIRECT" if error.errno == 22 else error.strerror or describe_error(error)


def _nameless(folder: Path) -> int:
    """A file that nobody else can open and that is gone when it is closed."""
    handle, name = tempfile.mkstemp(prefix=".zerocfg-probe-", dir=folder)
    try:
        return os.open(name, os.O_RDWR | os.O_DIRECT)
    finally:
        os.unlink(name)  # noqa: PTH108 - the name of a file that is open beside it
        os.close(handle)


def _run(file: int, size: int, seconds: float, write: bool) -> float:
    """GB/s of one direction over the first ``size`` bytes, or over as many as ``seconds`` allow."""
    stop = threading.Event()
    start = time.perf_counter()

    def work(worker: int) -> int:
        done = 0
        with mmap.mmap(-1, BLOCK) as buffer:  # pages, and so aligned
            if write:
                buffer.write(os.urandom(BLOCK))  # some drives and file systems compress
            begin.wait()
            for offset in range(worker * BLOCK, size, WORKERS * BLOCK):
                if stop.is_set() or time.perf_counter() - start > seconds:
                    break
                done += _whole(os.pwritev if write else os.preadv, file, buffer, offset)
        return done

    begin = threading.Barrier(WORKERS + 1)
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            running = [pool.submit(work, worker) for worker in range(WORKERS)]
            begin.wait()
            start = time.perf_counter()
            done = sum(future.result() for future in running)
            if write:
                os.fsync(file)
        finally:
            stop.set()
    return round(done / (time.perf_counter() - start) / 1e9, 3)


def _whole(call: Callable[[int, list[mmap.mmap], int], int], file: int, buffer: mmap.mmap, offset: int) -> int:
    """One block; the kernel may take it in parts only at the end of a full drive, which is an error then."""
    moved = call(file, [buffer], offset)
    if moved != BLOCK:
        raise OSError(28, os.strerror(28))
    return moved
