"""The names of the files of a checkpoint folder."""

from __future__ import annotations

import os
from pathlib import Path

from zerocfg.budgets import FOLDER_NAMES
from zerocfg.resume.checkpoint import CheckpointError


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted. Raises CheckpointError where there are too many to be a checkpoint."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(entry.name)
                if len(found) > FOLDER_NAMES:
                    raise CheckpointError(f"'{folder}' has more than {FOLDER_NAMES} entries: no checkpoint")
    except OSError as error:
        raise CheckpointError(f"'{folder}' cannot be read: {error.strerror or error}") from None
    return sorted(found)


def names_if_readable(folder: Path) -> list[str]:
    try:
        return names_in(folder)
    except CheckpointError:
        return []
