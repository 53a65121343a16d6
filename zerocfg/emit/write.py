"""Writes the emitted files atomically, and never over files that zerocfg did not write."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import FILE_BYTES
from zerocfg.emit import lock as lockfile
from zerocfg.emit.exclusive import exclusive
from zerocfg.emit.lenient_json import mapping
from zerocfg.source import disk
from zerocfg.source.write import write_atomic

if TYPE_CHECKING:
    from zerocfg.emit.files import Emitted

EXECUTABLE = (".sh", ".sbatch")
JOURNAL = ".zerocfg.building"
"""The SHA-256 of what a build is about to write, by name. It is there while files are written and the lock still speaks
of others, so that the next build knows what one that was killed has written."""


@dataclass(eq=False)
class RefusedError(Exception):
    """A file that is in the way; nothing was written."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def check(emitted: list[Emitted], *, force: bool = False) -> None:
    """Raise RefusedError when writing would replace a file that is not as an earlier build left it."""
    _check_folders(emitted)
    for item in emitted:
        folder = item.folder
        lock, begun = lockfile.read(folder), _begun(folder)
        for name, data in item.files.items():
            path = folder / name
            if path.is_dir():
                raise RefusedError(path, "is a folder")
            if force or not (path.exists() or path.is_symlink()):
                continue
            try:
                old = disk.whole(path, FILE_BYTES)
            except OSError as error:
                raise RefusedError(path, error.strerror or str(error)) from None
            if (
                old == data
                or (lock is not None and _is_ours(lock, name, old))
                or begun.get(name) == lockfile.sha256(old)
            ):
                continue
            why = "was changed since zerocfg wrote it" if lock and name in lock.files else "was not written by zerocfg"
            raise RefusedError(path, f"{why}; --force replaces it")


def _check_folders(emitted: list[Emitted]) -> None:
    for item in emitted:
        for parent in (item.folder, *item.folder.parents):
            if parent.is_dir():
                break
            if parent.exists() or parent.is_symlink():
                raise RefusedError(parent, "is not a folder")
        try:
            disk.check_inside(item.folder)
        except OSError as error:
            raise RefusedError(item.folder, error.strerror or str(error)) from None


def _is_ours(lock: lockfile.Lock, name: str, data: bytes) -> bool:
    return name == lockfile.NAME or lock.files.get(name) == lockfile.sha256(data)


def write(emitted: list[Emitted], *, force: bool = False) -> list[Path]:
    """Write every file, the locks last, so that a lock never speaks of files that are not there yet.

    Raises RefusedError as `check` does, with nothing written. A build of the same folders that is under way is waited
    for, then its files are what is there: BusyError where it does not end.

    A build that is killed leaves old and new files, each of them whole; the next one replaces both.
    Files that an earlier build wrote, that nobody changed since and that are no longer emitted go away: a batch script
    of before would still start the job, for another number of nodes.
    """
    _check_folders(emitted)
    with exclusive(item.folder for item in emitted):
        check(emitted, force=force)
        return _write(emitted)


def _write(emitted: list[Emitted]) -> list[Path]:
    written = []
    for item in emitted:
        outdated = _outdated(item)
        journal = item.folder / JOURNAL
        hashes = {name: lockfile.sha256(data) for name, data in item.files.items()}
        write_atomic(journal, json.dumps({**_begun(item.folder), **hashes}).encode())
        for name in sorted(item.files, key=lambda name: (name == lockfile.NAME, name)):
            path = item.folder / name
            write_atomic(path, item.files[name], 0o755 if name.endswith(EXECUTABLE) else 0o644)
            written.append(path)
        for path in outdated:
            path.unlink(missing_ok=True)
        journal.unlink(missing_ok=True)
    return written


def _begun(folder: Path) -> dict[str, object]:
    """What a build that did not end was about to write."""
    try:
        return mapping(json.loads(disk.whole(folder / JOURNAL, FILE_BYTES)))
    except (OSError, ValueError, RecursionError):
        return {}


def _outdated(emitted: Emitted) -> list[Path]:
    """Files in the folder that the lock there speaks of, unchanged, and that are not emitted any more."""
    lock = lockfile.read(emitted.folder)
    if lock is None:
        return []
    found = []
    for name in sorted(set(lock.files) - set(emitted.files)):
        path = emitted.folder / name
        if path.name == name and path.is_file() and not path.is_symlink():
            with suppress(OSError):
                if _is_ours(lock, name, disk.whole(path, FILE_BYTES)):
                    found.append(path)
    return found
