"""The temporary folder that a smoke-run works in; nothing of it outlives the run, also when zerocfg is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.smoke.launch import leftovers
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.memory_files import SHARED_MEMORY
from zerocfg.source import boundary

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "zerocfg-smoke-"
LOCK = "alive"
"""A file that zerocfg keeps locked as long as it lives; the kernel unlocks it when it dies."""
OWNER = "owner"
"""In a folder in memory: the file that names the scratch folder, which marks the processes of the run."""
LONGEST = 70
"""Characters of a folder in which sockets (at most 107) can still be made by Python's multiprocessing."""

_twin_locks: dict[Path, int] = {}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A new folder, removed at the end. Folders of runs whose zerocfg is dead are removed too.

    A small process, the guard, removes the folder and ends the ranks when zerocfg dies before it can.
    Raises SmokeError when the folder cannot be made or written.
    """
    try:
        sweep()
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise SmokeError(_refused(error)) from None
    lock = guard = None
    try:
        lock = _lock(folder / LOCK)
        guard = _guard(folder)
        with boundary.lent(folder):
            yield folder
    except OSError as error:
        if error.errno not in FULL and not str(error.filename or "").startswith(str(folder)):
            raise
        raise SmokeError(_refused(error, folder)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder in _twin_locks:
            shutil.rmtree(twin(folder), ignore_errors=True)
            os.close(_twin_locks.pop(folder))
        if guard is not None:
            guard.kill()
            guard.communicate()
        if lock is not None:
            os.close(lock)


def temporary(folder: Path, sockets: bool = False) -> dict[str, str]:
    """Variables that put the temporary files of launcher and ranks into ``folder`` too.

    ``sockets``: programs that make sockets there, as the workers of a data loader do; then none for a long path.
    """
    if sockets and len(str(folder)) > LONGEST:
        return {}
    (folder / "tmp").mkdir(exist_ok=True)
    return dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder / "tmp"))


def twin(folder: Path) -> Path:
    """The folder in the host's memory that belongs to a scratch folder, where one was made."""
    return SHARED_MEMORY / folder.name


def make_twin(folder: Path) -> Path | None:
    """Make the folder in memory, which is removed with ``folder``; None where that cannot be done."""
    made = twin(folder)
    try:
        made.mkdir(mode=0o700)
        lock = _lock(made / LOCK)
        (made / OWNER).write_text(str(folder))
    except OSError:
        return None
    if lock is not None:
        _twin_locks[folder] = lock
    return made


def _refused(error: OSError, folder: Path | None = None) -> str:
    where = f" ({error.filename or folder})" if error.filename or folder else ""
    return (
        f"a smoke-run works in a temporary folder, and that cannot be written: {error.strerror or error}{where}; "
        "make room, or name another place by TMPDIR"
    )


def _lock(path: Path) -> int | None:
    if fcntl is None:
        return None
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: the folder is never taken for a dead run's
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, b"locked\n")
    return handle


def _guard(folder: Path) -> subprocess.Popen[bytes]:
    # Signals of the terminal go to its group, not to a session of its own.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", leftovers.__file__, str(folder), str(twin(folder))],
        cwd="/" if os.name == "posix" else None,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def sweep() -> list[Path]:
    """Remove what is left of runs whose zerocfg and guard are both dead; the folders removed."""
    if fcntl is None:
        return []
    removed = []
    for place in {Path(tempfile.gettempdir()), SHARED_MEMORY}:
        for folder in place.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if folder.lstat().st_uid == os.geteuid() and _dead(folder / LOCK):
                    owner = folder / OWNER
                    leftovers.kill(owner.read_text() if owner.is_file() else str(folder))
                    shutil.rmtree(folder, ignore_errors=True)
                    removed.append(folder)
    return removed


def _dead(lock: Path) -> bool:
    """Whether the lock was taken once and no process holds it now."""
    handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.read(handle, 1) != b""
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
