"""Files that a run depends on without being made of them: what states its releases, the checkpoint's state that it
resumes from, and the model and hardware that its spec names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from zerocfg.run.hub import CONFIG
from zerocfg.run.model import Kind, Run, SourceFile
from zerocfg.run.releases import release_files
from zerocfg.run.requirements.declared import COG, LOOSE, OF_CONDA, Projects
from zerocfg.run.trainer_state import STATE_FILE
from zerocfg.source import disk
from zerocfg.source.paths import is_image

_NO_DOCUMENTS = re.compile(rf"pyproject\.toml|setup\.cfg|Pipfile|.*\.lock|pylock\.toml|\.python-version|{LOOSE}")
_OTHERS = re.compile(rf"setup\.py|{re.escape(COG)}|{OF_CONDA}|conda-lock\.yml|.*\.(?:txt|in)")
"""Names of files that state releases, or that a requirements file includes, and that other files have as well."""


def states_releases(path: Path) -> bool:
    """Whether a file has a name that only files have in which projects state releases."""
    return _is_of_releases(path.name)


@lru_cache(maxsize=1024)  # most documents of an editor have one of a few names
def _is_of_releases(name: str) -> bool:
    return is_image(name) or _NO_DOCUMENTS.fullmatch(name) is not None


def may_be_consulted(path: Path, kind: Kind | None) -> bool:
    """Whether a run may consult a file. ``kind``: of what it was read as, if it was."""
    if kind in ("model", "hardware", "launch") or path.name == STATE_FILE:
        return True
    return states_releases(path) or _OTHERS.fullmatch(path.name) is not None


def may_be_included(path: Path) -> bool:
    """Whether requirements files include files of such a name, which any text may have."""
    return path.suffix in (".txt", ".in")


def decides_releases(path: Path) -> bool:
    """Whether the releases of what lies around a file are read from it."""
    if not states_releases(path) and not _OTHERS.fullmatch(path.name):
        return False
    real = disk.real(path)
    with disk.reading() as read:
        Projects().nearest(Path(real).parent)
    return real in map(disk.real, read)


class Consulted:
    """The files that runs consult, each project's read once."""

    def __init__(self) -> None:
        self._releases: dict[object, frozenset[str]] = {}
        self._named: dict[int, tuple[SourceFile, frozenset[str]]] = {}

    def any_of(self, wanted: Collection[str], run: Run) -> bool:
        """Whether a run consults one of these files, which are real paths."""
        if run.resumed is not None and disk.real(run.resumed.file) in wanted:
            return True
        if run.spec is not None and not self._of_spec(run.spec).isdisjoint(wanted):
            return True
        return not release_files(run, self._releases).isdisjoint(wanted)

    def _of_spec(self, spec: SourceFile) -> frozenset[str]:
        if id(spec) not in self._named:
            folder = spec.path.parent if spec.path is not None else Path()
            paths = (folder / text for text in _texts(spec.data()) if "\0" not in text)
            named = frozenset(disk.real(path) for file in paths for path in (file, file / CONFIG))
            self._named[id(spec)] = spec, named
        return self._named[id(spec)][1]


def _texts(data: Any) -> Iterator[str]:
    """The texts of a document, at any depth."""
    ahead = [data]
    while ahead:
        value = ahead.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            ahead += value.values()
        elif isinstance(value, list):
            ahead += value
