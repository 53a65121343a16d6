"""Which repositories a fleet has: a list of folders, or a folder of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from zerocfg.fleet.model import Repository


class ListError(Exception):
    """Why there is no list, in a sentence."""


def below(folder: Path) -> list[Repository]:
    """Every folder in a folder, but for hidden ones, by name. Raises ListError."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise ListError(f"'{folder}' cannot be read: {error.strerror or error}") from None
    if not names:
        raise ListError(f"no folder is in '{folder}'")
    return [Repository(name, str(folder.absolute() / name)) for name in names]


def listed(lines: Iterable[str], start: Path) -> list[Repository]:
    """A path a line, relative to ``start``; empty lines and those that begin with # are passed over. Each path counts
    once. Raises ListError where there is none."""
    found = dict.fromkeys(line.strip() for line in lines)
    names = [name for name in found if name and not name.startswith("#")]
    if not names:
        raise ListError("the list names no repository")
    return [Repository(name, os.path.normpath(start.absolute() / Path(name).expanduser())) for name in names]
