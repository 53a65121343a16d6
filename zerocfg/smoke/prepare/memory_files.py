"""Checkpoints and saved weights in the host's memory, which is faster than a disk: whether there is room."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from zerocfg.hardware import linux

SHARED_MEMORY = Path("/dev/shm")
CHOSEN_BY = ("TMPDIR", "TEMP", "TMP")
"""Environment variables by which users choose the place of temporary files themselves."""
SHARE = 0.8
"""Of the free space of a file system in memory; shared memory of the ranks lies there as well."""
LEAST = 256 << 20
"""Bytes of files that are worth it; fewer stay in the page cache anyway."""


def memory_folder(root: Path = Path("/")) -> Path | None:
    """The folder of a file system in memory that files may be put into; None where there is none, or where the user
    has chosen another place."""
    folder = root / SHARED_MEMORY.relative_to("/")
    mounts = (line.split() for line in (linux.read_text(root / "proc/mounts") or "").splitlines())
    kinds = [fields[2] for fields in mounts if len(fields) > 2 and fields[1] == str(SHARED_MEMORY)]
    if any(os.environ.get(name) for name in CHOSEN_BY) or kinds[-1:] != ["tmpfs"]:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def memory_room(root: Path = Path("/")) -> int:
    """Bytes of files that may be put there; they are also bytes of the host's memory."""
    folder = memory_folder(root)
    try:
        return int(shutil.disk_usage(folder).free * SHARE) if folder is not None else 0
    except OSError:
        return 0
