"""Which file of the repository a launch line starts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from zerocfg.source.launch import LaunchLine


def started(line: LaunchLine, bases: Iterable[Path]) -> tuple[Path, Path] | None:
    """The script or module of a launch line, and the first of the folders that holds it; None where none does."""
    name = line.script.value if line.script is not None else None
    if not name or "\n" in name:
        return None
    names = [name]
    if line.module:
        stem = name.replace(".", "/")
        names = [f"{stem}.py", f"{stem}/__main__.py"]
    for base in bases:
        for one in names:
            try:
                path = base / one
                if path.is_file():
                    return path, base
            except (OSError, ValueError):
                continue
    return None
