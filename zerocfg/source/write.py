"""Writes files atomically, so that no reader sees a partial change."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True, frozen=True)
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
            target = Path(os.path.realpath(change.path))
            _check_unchanged(target, change)
            staged.append((_stage(target, change.after), target, change))
        for name, target, change in staged:
            _check_unchanged(target, change)
            name.replace(target)
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
    if target.read_bytes() != change.before:
        raise OSError(errno.EBUSY, "the file changed while zerocfg worked; nothing was written", str(target))


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file's content so that a reader sees the old or the new bytes, never a part. Raises OSError.

    The mode is kept; of a symbolic link the target is replaced.
    """
    target = Path(os.path.realpath(path))
    name = _stage(target, data)
    try:
        name.replace(target)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def _stage(target: Path, data: bytes) -> Path:
    """The content in a temporary file beside the target, safely on the disk and with the target's mode."""
    import tempfile

    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
    try:
        with open(handle, "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            Path(name).chmod(target.stat().st_mode & 0o7777)
        else:
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)
