"""The lock files under which torch compiles DeepSpeed's operators.

The process that compiles keeps its lock open. torch waits forever for the lock of a process that was killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

PROC = Path("/proc")


def folder() -> Path:
    """Where torch compiles the operators."""
    # As torch does it: no error for a user without a home.
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
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
    if not (PROC / "self" / "fd").is_dir():
        return False
    try:
        wanted = lock.stat()
        if time.time() - max(path.stat().st_mtime for path in lock.parent.iterdir()) < quiet:
            return False
    except (OSError, ValueError):
        return False
    for link in PROC.glob("[0-9]*/fd/*"):
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
        if _abandoned_twice(lock) or not (PROC / "self" / "fd").is_dir():
            with contextlib.suppress(OSError):
                lock.unlink()


BETWEEN = 0.2
"""Seconds between two looks at a lock."""
LOCAL = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems that one machine has to itself."""
LONGEST = 3600.0
"""Seconds that a compilation on another machine may take."""
FIRST_NAMESPACE = 4026531836  # PROC_PID_INIT_INO (include/linux/proc_ns.h): all processes of the machine are seen


def clear() -> list[str]:
    """Remove the locks that killed compilations left on this machine; the message about each.

    One that a process may still hold stays: of another user, of another machine on a shared file system, or, seen
    from inside a container, of a process outside of it that wrote something lately.
    """
    removed: list[str] = []
    if not (PROC / "self" / "fd").is_dir():
        return removed
    for lock in find():
        if removable(lock) and _abandoned_twice(lock, 0.0 if _sees_all_processes() else QUIET):
            message = f"removed {lock}, {_left(lock)}; torch would have waited for it forever, in your training too"
            with contextlib.suppress(OSError):
                lock.unlink()
                removed.append(message)
    return removed


def removable(lock: Path) -> bool:
    """Whether a process that holds the lock would be seen here, if there is one."""
    try:
        state = lock.stat()
    except OSError:
        return False
    if state.st_uid != os.getuid():
        return False
    if file_system(lock) in LOCAL:
        return True
    started = _boot()
    return started is not None and state.st_mtime < started and time.time() - state.st_mtime > LONGEST


def file_system(path: Path) -> str | None:
    """The type of the file system that holds a path, as the kernel names it; None where it cannot be seen."""
    place = str(path.resolve())
    found: tuple[int, str] | None = None
    with contextlib.suppress(OSError):
        for line in (PROC / "mounts").read_text().splitlines():
            _, point, kind, *_ = [*line.split(), "", "", ""]
            point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point)
            inside = place == point or place.startswith(point.rstrip("/") + "/")
            if inside and (found is None or len(point) >= found[0]):
                found = len(point), kind
    return found[1] if found else None


def _boot() -> float | None:
    """When this machine was started, in seconds since 1970."""
    with contextlib.suppress(OSError):
        match = re.search(r"^btime (\d+)$", (PROC / "stat").read_text(), re.MULTILINE)
        return float(match[1]) if match else None
    return None


def _sees_all_processes() -> bool:
    try:
        return (PROC / "self" / "ns" / "pid").stat().st_ino == FIRST_NAMESPACE
    except OSError:
        return False


def _abandoned_twice(lock: Path, quiet: float = 0.0) -> bool:
    """As `abandoned`. torch closes a lock just before it removes it: what is gone at the second look was released."""
    if not abandoned(lock, quiet):
        return False
    time.sleep(BETWEEN)
    return abandoned(lock, quiet)


def describe(lock: Path) -> str:
    """The message about an abandoned lock that was not removed before the run."""
    way_out = "The next smoke-run removes it" if removable(lock) else "If no other machine compiles there, remove it"
    return f"{lock} was {_left(lock)}; torch waits for it forever, in your training too. {way_out}"


def _left(lock: Path) -> str:
    try:
        age = time.time() - lock.stat().st_mtime
    except OSError:
        age = 0.0
    old = f"{age / 86400:.0f} days" if age > 2 * 86400 else f"{age / 60:.0f} minutes" if age > 120 else f"{age:.0f} s"
    return f"left {old} ago by a process that compiled an operator of DeepSpeed and was killed"
