"""One build at a time in a folder: locks on the folders themselves, which end with the process."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PATIENCE = 60.0
"""Seconds that a build waits for another one: writing takes milliseconds."""
_PAUSE = 0.02


class BusyError(Exception):
    """Another process holds a folder for longer than a build takes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder}: another build of this folder is running; nothing was written")


@contextlib.contextmanager
def exclusive(folders: Iterable[Path]) -> Iterator[None]:
    """Hold the folders, which are made where they are missing; those that stay empty go away again.

    Raises BusyError, and OSError for a folder that cannot be made. File systems without locks are used without.
    """
    made: list[Path] = []
    with contextlib.ExitStack() as stack:
        try:
            for folder in sorted(set(folders)):  # in one order, so that two builds never wait for each other
                made += _make(folder)
                if fcntl is not None and (descriptor := _hold(folder)) is not None:
                    stack.callback(os.close, descriptor)
            yield
        finally:
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _make(folder: Path) -> list[Path]:
    """Make a folder; those that were missing, the outermost first."""
    missing = [folder, *folder.parents]
    missing = [path for path in missing if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]


def _hold(folder: Path) -> int | None:
    """A descriptor of the folder with a lock on it; None where there are no locks, or none of folders."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # the build that held it has removed it
            folder.mkdir(parents=True, exist_ok=True)
            continue
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() > until:
                raise BusyError(folder) from None
            time.sleep(_PAUSE)
        except OSError:
            os.close(descriptor)
            return None
        else:
            if _is_at(folder, descriptor):
                return descriptor
            os.close(descriptor)


def _is_at(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except OSError:
        return False
