"""A copy of a repository's tree that may be changed: files are linked, and whoever changes one writes it anew."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """The copy, without history but with a `.git`, so that its root is found."""
    with TemporaryDirectory() as place:
        copy = Path(place) / "tree"
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".git"), symlinks=True)
        (copy / ".git").mkdir()
        yield copy


def changed(tree: Path, copy: Path) -> list[str]:
    """The files of the copy that hold something else than those of the tree."""
    found = []
    for folder, _, names in os.walk(copy):
        for name in names:
            new = Path(folder) / name
            old = tree / new.relative_to(copy)
            if new.is_symlink() or (old.exists() and new.samefile(old)):
                continue
            if not old.exists() or old.read_bytes() != new.read_bytes():
                found.append(new.relative_to(copy).as_posix())
    return sorted(found)
