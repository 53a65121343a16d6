"""The lock files under which torch compiles DeepSpeed's operators.

The maker keeps its lock open as long as it compiles. torch waits for ever for a lock whose maker was killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


def folder() -> Path:
    """Where torch compiles the operators."""
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path(caches, "torch_extensions"))


def find() -> list[Path]:
    """Every lock that exists."""
    root = folder()
    return [*root.glob("*/lock"), *root.glob("*/*/lock")]


QUIET = 180.0
"""Seconds; another machine that compiles in the same folder writes something there more often than that."""


def abandoned(lock: Path, quiet: float = 0.0) -> bool:
    """Whether no process of this machine has the lock open, and nothing was written beside it for ``quiet`` seconds.

    False where that cannot be seen.
    """
    if not Path("/proc/self/fd").is_dir():
        return False
    try:
        wanted = lock.stat()
        if time.time() - max(one.stat().st_mtime for one in lock.parent.iterdir()) < quiet:
            return False
    except (OSError, ValueError):
        return False
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if link.readlink().name == lock.name:
                found = link.stat()
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return False
    return lock.exists()


def snapshot() -> set[tuple[Path, int, int]]:
    """The present locks, each with what distinguishes it from a later one of the same path."""
    found = set()
    for lock in find():
        with contextlib.suppress(OSError):
            state = lock.stat()
            found.add((lock, state.st_ino, state.st_mtime_ns))
    return found


def remove(before: set[tuple[Path, int, int]]) -> None:
    """Remove locks that were not there ``before`` and that no process holds: a rank was killed while it compiled.

    Older ones and those of other runs are left alone.
    """
    for lock, *_ in snapshot() - before:
        if abandoned(lock) or not Path("/proc/self/fd").is_dir():
            with contextlib.suppress(OSError):
                lock.unlink()


def describe(lock: Path) -> str:
    """The message about an abandoned lock."""
    try:
        age = time.time() - lock.stat().st_mtime
    except OSError:
        age = 0.0
    old = f"{age / 86400:.0f} days" if age > 2 * 86400 else f"{age / 60:.0f} minutes" if age > 120 else f"{age:.0f} s"
    return (
        f"{lock} was left {old} ago by a process that compiled an operator of DeepSpeed and was killed; torch waits "
        "for it for ever, in your training as here. If no other machine compiles there, remove it"
    )
