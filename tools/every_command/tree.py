"""The copy of a checkout: made without its history, and what a command changed in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LARGE = 256 * 1024
"""Bytes above which a binary file is copied as a hole: its name and size matter to commands, its content to none."""


@dataclass(frozen=True)
class Change:
    """A file that a command made, changed or removed; ``before`` and ``after`` are its bytes, None where it is not."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass
class Copy:
    """A checkout's copy in ``folder``. What did not change since is read in ``checkout``."""

    checkout: Path
    folder: Path
    known: dict[str, bytes | None] = field(default_factory=dict)
    stats: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def make(self) -> None:
        """Copy the checkout without its history, as the root of a repository."""
        shutil.copytree(
            self.checkout, self.folder, symlinks=True, ignore=shutil.ignore_patterns(".git"), copy_function=_copy
        )
        (self.folder / ".git").mkdir()
        self.stats = dict(_stats(self.folder))

    def changes(self) -> list[Change]:
        """What changed since the last call: only files are read whose size, time, mode or inode did."""
        before, self.stats = self.stats, dict(_stats(self.folder))
        suspects = sorted(
            path for path in before.keys() | self.stats.keys() if before.get(path) != self.stats.get(path)
        )
        changes = []
        for path in suspects:
            old = self.known[path] if path in self.known else _bytes(self.checkout / path)
            self.known[path] = new = _bytes(self.folder / path)
            if old != new or _mode(before.get(path)) != _mode(self.stats.get(path)):
                changes.append(Change(path, old if path in before else None, new))
        return changes


def _copy(source: str, target: str) -> None:
    size = Path(source).stat().st_size
    if size > LARGE and _is_binary(source):
        Path(target).touch()
        os.truncate(target, size)
    else:
        shutil.copyfile(source, target)
    shutil.copymode(source, target)


def _is_binary(path: str) -> bool:
    with Path(path).open("rb") as file:
        return b"\0" in file.read(8192)


def _stats(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of every file and link, by path: mode, size, time of change and inode."""
    for root, folders, files in os.walk(folder):
        for name in [*files, *(name for name in folders if (Path(root) / name).is_symlink())]:
            path = Path(root) / name
            stat = path.lstat()
            key = path.relative_to(folder).as_posix()
            yield key, (stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ino)


def _mode(stats: tuple[int, ...] | None) -> int | None:
    return stats[0] if stats else None


def _bytes(path: Path) -> bytes | None:
    if path.is_symlink():
        return os.fsencode(path.readlink())
    return path.read_bytes() if path.is_file() else None
