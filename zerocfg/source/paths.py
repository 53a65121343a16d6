"""Paths as text, on every system with forward slashes."""

from __future__ import annotations

import os.path as system
from pathlib import PurePath


def relative(path: PurePath, folder: PurePath) -> str:
    """``path`` as seen from ``folder``, both absolute; whole where it lies on another drive."""
    try:
        found = system.relpath(path, folder)
    except ValueError:  # Windows knows no way from one drive to another
        found = str(path)
    return found.replace(system.sep, "/")
