"""Writes files atomically, so that no reader sees a partial change."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import FILE_BYTES
from zerocfg.record import record
from zerocfg.source.disk import check_inside, whole

if TYPE_CHECKING:
    from collections.abc import Iterable


_SUFFIX = ".zerocfg"
_ABANDONED = 600
"""Seconds after which a temporary file is one of a process that was killed, wherever that ran."""


@record(slots=True, frozen=True)
class Change:
    """New content for a file; ``before`` is what it held when it was read, None when there was no file."""

    path: Path
    before: bytes | None
    after: bytes


def write_together(changes: Iterable[Change]) -> None:
    """Write all files or none. Raises OSError, with nothing written, when one of them cannot be replaced.

    A file that is not what it was when it was read is left alone, and so are then the others.
    """
    staged: list[tuple[Path, Path, Change]] = []
    done: list[tuple[Path, Change]] = []
    try:
        for change in changes:
            check_inside(change.path)
            target = Path(os.path.realpath(change.path))
            _check_unchanged(target, change)
            staged.append((_stage(target, change.after), target, change))
        for name, target, change in staged:
            _check_unchanged(target, change)
            _put(name, target)
            done.append((target, change))
    except BaseException:
        for target, change in reversed(done):
            if change.before is None:
                target.unlink(missing_ok=True)
            else:
                write_atomic(target, change.before)
        raise
    finally:
        for name, _, _ in staged:
            name.unlink(missing_ok=True)


def _check_unchanged(target: Path, change: Change) -> None:
    if change.before is None:
        if target.exists():
            message = "the file was made while zerocfg worked; nothing was written"
            raise FileExistsError(errno.EEXIST, message, str(target))
        return
    if not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only; nothing was written", str(target))
    if whole(target, max(FILE_BYTES, len(change.before))) != change.before:
        raise OSError(errno.EBUSY, "the file changed while zerocfg worked; nothing was written", str(target))


def write_atomic(path: str | os.PathLike[str], data: bytes, mode: int | None = None, *, anywhere: bool = False) -> None:
    """Replace a file's content so that a reader sees the old or the new bytes, never a part. Raises OSError.

    Owner and mode are kept, unless a ``mode`` is given, of which the process's mask is taken; of a symbolic link the
    target is replaced. A file with several hard links is written in place instead, so that all of them get the content.
    ``anywhere``: no file of a repository has a say in where it is, so the boundary of trust does not matter.
    """
    if not anywhere:
        check_inside(path)
    target = Path(os.path.realpath(path))
    name = _stage(target, data, mode)
    try:
        _put(name, target)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def _put(staged: Path, target: Path) -> None:
    if not target.exists() or target.stat().st_nlink == 1:
        staged.replace(target)
        return
    data = staged.read_bytes()
    with target.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    staged.unlink()


def _stage(target: Path, data: bytes, mode: int | None = None) -> Path:
    """The content in a temporary file beside the target, safely on the disk, with the target's owner and mode."""
    import tempfile

    prefix = f".{target.name[:100]}."
    _sweep(target.parent, prefix)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f"{prefix}{_host()}-{os.getpid()}.", suffix=_SUFFIX)
    except OSError as error:
        error.filename = str(target)
        raise
    try:
        with open(handle, "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            about = target.stat()
            if hasattr(os, "chown"):
                with contextlib.suppress(PermissionError):  # only root may give a file away
                    os.chown(name, about.st_uid, about.st_gid)
            kept = about.st_mode & 0o7777
        else:
            kept = _masked(0o666)
        Path(name).chmod(kept if mode is None else _masked(mode))
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):  # of a full disk it names no file
            error.filename = str(target)
        raise
    return Path(name)


def _masked(mode: int) -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mode & ~mask


def _sweep(folder: Path, prefix: str) -> None:
    """Remove what killed processes left of this file."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(prefix) and path.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    writer = path.name.removeprefix(prefix).partition(".")[0]
                    if _ended(writer) or time.time() - path.stat().st_mtime > _ABANDONED:
                        path.unlink()


def _ended(writer: str) -> bool:
    """Whether a process, written as host and number, ran on this machine and runs no more."""
    host, _, number = writer.partition("-")
    if os.name != "posix" or host != _host() or not (number.isascii() and number.isdigit()) or len(number) > 9:
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # somebody else's
    return False


def _host() -> str:
    """This machine and its space of process numbers, which containers have of their own."""
    import platform
    from zlib import crc32

    try:
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        space = ""
    return f"{crc32(f'{platform.node()} {space}'.encode('utf-8', 'replace')):08x}"
