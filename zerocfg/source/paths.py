"""Paths as text, on every system with forward slashes; and what lies in a folder."""

from __future__ import annotations

import os.path as system
from pathlib import Path, PurePath

from zerocfg.source import disk


def relative(path: PurePath, folder: PurePath) -> str:
    """``path`` as seen from ``folder``, both absolute; whole where it lies on another drive."""
    try:
        found = system.relpath(path, folder)
    except ValueError:  # Windows knows no way from one drive to another
        found = str(path)
    return found.replace(system.sep, "/")


def is_image(name: str) -> bool:
    """Whether a file of this name says how an image of a container is built."""
    lower = name.lower()
    return lower.startswith(("dockerfile", "containerfile")) or lower.endswith(".dockerfile")


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, sorted by name; nothing where it cannot be listed (it is none, or belongs to somebody
    else: a volume of a container)."""
    return [folder / name for name in names(folder)]


def names(folder: Path) -> list[str]:
    """The same without the folder."""
    try:
        inner, others = disk.names(folder)
    except OSError:
        return []
    return sorted((*inner, *others))
