"""Which releases of the training libraries a project admits, read from its own files and never from what is installed.

Of the folders from a run's files up to the repository's root the nearest that says something about a library counts.
In a folder a lock file wins; otherwise everything that an installation always takes (pyproject.toml, setup.cfg,
requirements.txt, environment.yml) holds together. Extras, groups and other requirement files are alternatives: they
count where nothing firm names the library, and only when they agree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.run.discover import display_name
from zerocfg.run.effective import admitting
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.source.load import decode, load_as, read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.text import SourceText

if TYPE_CHECKING:
    from zerocfg.source.requirements import Requirement

    Items = list[tuple[Requirement, SourceFile]]
    Stated = dict[str, Items]
    """By library: what the files say of it."""

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torch")
_ALIASES = {"pytorch": "torch"}
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock")
_FIRM = ("pyproject.toml", "setup.cfg", "requirements.txt", "environment.yml", "environment.yaml")


def with_versions(runs: Iterable[Run], settled: Mapping[str, str]) -> list[Run]:
    """The runs with the versions that their projects state. ``settled`` (zerocfg's settings) wins, the run's own wins
    over both."""
    known: dict[Path, dict[str, tuple[str, Origin]]] = {}
    found = []
    for run in runs:
        read = _of_run(run, known)
        own = {**settled, **run.versions}
        versions = {**{name: text for name, (text, _) in read.items()}, **own}
        places = {name: origin for name, (_, origin) in read.items() if name not in own}
        found.append(admitting(run, versions, places) if versions else run)
    return found


def _of_run(run: Run, known: dict[Path, dict[str, tuple[str, Origin]]]) -> dict[str, tuple[str, Origin]]:
    """Files of different folders may see different projects: what they do not agree about is not known."""
    found: dict[str, tuple[str, Origin]] = {}
    doubtful: set[str] = set()
    paths = [Path(os.path.realpath(file.path)) for file in run.files if file.path is not None]
    for folder in dict.fromkeys(path.parent for path in paths):
        if folder not in known:
            known[folder] = versions_for(folder)
        for name, (text, origin) in known[folder].items():
            if found.setdefault(name, (text, origin))[0] != text:
                doubtful.add(name)
    return {name: value for name, value in found.items() if name not in doubtful}


def versions_for(folder: Path) -> dict[str, tuple[str, Origin]]:
    """By library: the clauses that the nearest project states, and where."""
    found: dict[str, tuple[str, Origin] | None] = {}
    for above in _upwards(folder):
        for name, value in _of_folder(above).items():
            found.setdefault(name, value)
    return {name: value for name, value in found.items() if value is not None}


def _upwards(folder: Path) -> Iterator[Path]:
    """From a folder to the root of its repository; outside of one, to the current folder, else no further."""
    chain = [folder, *folder.parents]
    top = next((above for above in chain if os.path.lexists(above / ".git")), None)
    if top is None:
        here = Path.cwd()
        top = here if here in chain and here != Path.home() else folder
    yield from chain[: chain.index(top) + 1]


def _of_folder(folder: Path) -> dict[str, tuple[str, Origin] | None]:
    """What the files of one folder say; None: named, but nobody can tell the release."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return {}
    locked: Stated = {}
    firm: Stated = {}
    loose: Stated = {}
    for name in names:
        kind = _kind(name)
        for item, file in _read_file(folder / name, kind) if kind else ():
            group = {"lock": locked, "firm": loose if item.optional else firm}.get(kind, loose)
            group.setdefault(item.name, []).append((item, file))
    found: dict[str, tuple[str, Origin] | None] = {}
    for name in LIBRARIES:
        if any(_limits(group.get(name, [])) for group in (locked, firm, loose)):
            found[name] = _verdict(locked.get(name, []), firm.get(name), loose.get(name, []))
    return found


def _kind(name: str) -> str:
    if name in _LOCKS:
        return "lock"
    if name in _FIRM:
        return "firm"
    return "loose" if name == "requirements" or re.fullmatch(r"requirements.*\.txt", name) else ""


def _verdict(locked: Items, firm: Items | None, loose: Items) -> tuple[str, Origin] | None:
    if len({item.versions for item, _ in locked}) == 1 and locked[0][0].versions is not None:
        return _stated(locked)
    if firm is not None:
        return _stated(_limits(firm))
    return _stated(loose) if len({item.versions for item, _ in loose}) == 1 else None


def _limits(items: Items) -> Items:
    return [pair for pair in items if pair[0].versions != ""]


def _stated(items: Items) -> tuple[str, Origin] | None:
    """All clauses together, at the place of the first; several that hold under conditions are unknown."""
    texts = list(dict.fromkeys(item.versions for item, _ in items))
    if not texts or "" in texts or None in texts or (len(texts) > 1 and any(item.conditional for item, _ in items)):
        return None
    item, file = items[0]
    text = ",".join(str(text) for text in texts)
    return text, Origin("file", file=file, span=item.span)


def _read_file(path: Path, kind: str) -> Items:
    try:
        state = path.stat()
        if path.name == "requirements":
            return [pair for inner in sorted(path.glob("*.txt")) for pair in _read_file(inner, kind)]
    except OSError:
        return []
    return _read_once(path, kind, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)
def _read_once(path: Path, kind: str, changed: int, size: int) -> Items:
    return list(_read(path, kind, set()))


def _read(path: Path, kind: str, seen: set[str]) -> Iterator[tuple[Requirement, SourceFile]]:
    real = os.path.realpath(path)
    if real in seen:
        return
    seen.add(real)
    data = read_bytes(path)
    source = data if isinstance(data, Problem) else decode(display_name(path), data)
    if isinstance(source, Problem):
        return
    file = SourceFile(source.name, "other", source, None, path)
    items, includes = _requirements(path.name, kind, source)
    for item in items:
        name = _ALIASES.get(item.name, item.name)
        if name in LIBRARIES:
            yield item._replace(name=name), file
    for include in includes:
        if "://" not in include:
            yield from _read(path.parent / include, "", seen)


def _requirements(name: str, kind: str, source: SourceText) -> tuple[list[Requirement], list[str]]:
    from zerocfg.source.requirements import (  # needed by few configs: most lie in no project
        read_environment,
        read_lock,
        read_pyproject,
        read_requirements,
        read_setup_cfg,
    )

    if kind == "lock":
        return read_lock(source.text, LIBRARIES), []
    if name == "pyproject.toml":
        named = any(library in source.text.lower() for library in LIBRARIES)
        return (read_pyproject(source.text) if named else []), []
    if name == "setup.cfg":
        return read_setup_cfg(source.text), []
    if name.endswith((".yml", ".yaml")):
        return read_environment(source.text, load_as(source, "yaml").data())
    return read_requirements(source.text)
