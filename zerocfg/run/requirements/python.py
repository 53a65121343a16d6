"""The Python that a project requires, where it excludes releases of the training libraries.

Environment files, images, `.python-version` and the commands of READMEs and setup scripts each set one up: the newest
of them may be used. What the package itself requires (`requires-python`) bounds it further. The nearest folder that
says something counts, as for the libraries (`declared`), up to the one that states the library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from zerocfg.budgets import ENVIRONMENT_BYTES
from zerocfg.catalog.versions import TOP, Release, both, bounds
from zerocfg.run.model import SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.requirements.declared import (
    PAGE,
    SETTING_UP,
    Declared,
    all_of,
    for_shell,
    form_of,
    one_of,
    read_text,
    upwards,
)
from zerocfg.source import disk
from zerocfg.source.paths import is_image, names
from zerocfg.source.requirements.pip import Requirement
from zerocfg.source.requirements.python import PYTHON, read_image, read_setup, read_version_file

_REQUIRES = frozenset(("pyproject.toml", "setup.py", "setup.cfg"))
_ENVIRONMENTS = frozenset(("environment.yml", "environment.yaml", "Pipfile"))
_VERSION_FILES = frozenset((".python-version", "runtime.txt"))
_MAKES_ONE = re.compile(r"\b(?:conda|mamba|micromamba|uv|virtualenv|pyenv)[ \t]|python3\.\d+[ \t]+-m[ \t]+v")


def required_python(folder: Path, stated: Sequence[Path], read: dict[Path, Declared | None]) -> Declared | None:
    """What the nearest folder says, from this one upwards to one that holds a file of ``stated``: what stands above
    sets up other things, too. None where none does. ``read``: folders that were read."""
    for above in upwards(folder):
        if above not in read:
            read[above] = _of_folder(above)
        if read[above] is not None or any(path.is_relative_to(above) for path in stated):
            return read[above]
    return None


@remembered
def installed_python(file: SourceFile) -> Declared | None:
    """What the commands of a script, page or notebook set up, or a Dockerfile has."""
    image = is_image(file.name.rpartition("/")[2])
    return _newest([one_of(item, file) for item in (read_image(file.source) if image else _commands(file))])


def _of_folder(folder: Path) -> Declared | None:
    required: list[Declared] = []
    chosen: list[Declared] = []
    for name in names(folder):
        if not _speaks(name):
            continue
        file = read_text(disk.real(folder / name))
        items = [one_of(item, file) for item in _stated(file, name)] if file is not None else []
        (required if name in _REQUIRES else chosen).extend(items)
    newest = _newest(chosen)
    bound = all_of(required) if required else None
    if newest is None or bound is None or not newest.clauses or not bound.clauses:
        return bound if newest is None or not newest.clauses else newest
    if both([newest.clauses, bound.clauses]) is None:  # what sets up too old a Python is out of date
        return bound
    return min(bound, newest, key=_highest)


def _newest(chosen: list[Declared]) -> Declared | None:
    """The widest of several alternatives; an undeterminable one may be wider than any."""
    return max(chosen, key=_highest, default=None)


def _highest(stated: Declared) -> tuple[Release, bool]:
    limits = bounds(stated.clauses) if stated.clauses else None
    return (TOP, True) if limits is None else limits[1:]


def _speaks(name: str) -> bool:
    if name in _REQUIRES or name in _ENVIRONMENTS or name in _VERSION_FILES:
        return True
    lower = name.lower()
    return is_image(name) or PAGE.fullmatch(lower) is not None or SETTING_UP.fullmatch(lower) is not None


def _stated(file: SourceFile, name: str) -> Iterator[Requirement]:
    if name in _VERSION_FILES:
        yield from read_version_file(file.source)
    elif name in _REQUIRES or name in _ENVIRONMENTS:
        if PYTHON in file.source.text:
            yield from (item for item in _items(file, name) if item.name == PYTHON)
    elif is_image(name):
        yield from read_image(file.source)
    elif for_shell(name, file.source.text):
        yield from _commands(file)


def _items(file: SourceFile, name: str) -> list[Requirement]:
    if name == "pyproject.toml":
        from zerocfg.source.requirements.manifests import read_pyproject

        return read_pyproject(file.source.text)[0]
    return form_of(name)(file)[0]


def _commands(file: SourceFile) -> list[Requirement]:
    text = file.source.text
    return read_setup(file.source) if len(text) <= ENVIRONMENT_BYTES and _MAKES_ONE.search(text) else []
