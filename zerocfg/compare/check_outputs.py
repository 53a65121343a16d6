"""Checks the outputs on disk against a fresh build. Nothing is written."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from zerocfg.compare.lock_diff import Change, changes, sources
from zerocfg.compare.lock_table import table
from zerocfg.compare.values import ABSENT, flat, importance, same, shown
from zerocfg.emit import lock as lockfile
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.emit.files import Emitted

DIFF_LINES = 12
FILE_STATES = {
    "missing": "is missing",
    "edited": "was edited since it was built",
    "outdated": "is out of date",
    "stale": "is no longer emitted",
    "unreadable": "cannot be read",
    "unknown": "is not what the build gives (no lock tells how it was built)",
}
"""The states of a file, as printed behind its name."""


@dataclass(slots=True)
class FileState:
    """A file that differs from the build.

    ``state``: "missing", "edited" (changed by hand since it was built), "outdated" (as it was built, from other
    sources), "stale" (no longer emitted), "unreadable", "unknown" (differs, and no lock tells how it was built).
    ``details`` say what differs: by meaning in configs, as lines in other files.
    """

    name: str
    state: str
    details: list[str] = field(default_factory=list)


@dataclass(slots=True)
class OutputCheck:
    """One run. ``state`` is "up to date", "differs", "not built" or "gone" (the spec has no such run any more).

    ``sources`` are what changed since it was built.
    """

    name: str
    folder: Path
    state: str
    changes: list[Change] = field(default_factory=list)
    files: list[FileState] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


def check_run(emitted: Emitted) -> OutputCheck:
    """One run against its folder. Raises `zerocfg.emit.lock.LockError` for a lock that cannot be read."""
    found = OutputCheck(emitted.plan.name, emitted.folder, "differs")
    path = emitted.folder / lockfile.NAME
    old = lockfile.load(path) if path.exists() or path.is_symlink() else None
    new = lockfile.parse(emitted.files[lockfile.NAME], path)
    if old is None and not any((emitted.folder / name).exists() for name in emitted.files):
        found.state = "not built"
        return found
    built = old.files if old else {}
    before = {row.name: row.value for row in table(old).values()} if old else {}
    found.files = [
        state
        for name, data in emitted.files.items()
        if name != lockfile.NAME and (state := _file(emitted.folder / name, data, built.get(name), before)) is not None
    ]
    for name in sorted(set(built) - set(emitted.files)):
        if _is_plain(name) and (emitted.folder / name).exists():
            found.files.append(FileState(name, "stale"))
    if old is None:
        found.files.append(FileState(lockfile.NAME, "missing"))
    else:
        found.changes = changes(old, new)
        found.sources = sources(old, new)
        if _but_release(old) != _but_release(new) and not found.changes and not found.files:
            found.files.append(FileState(lockfile.NAME, "outdated", ["no value is another one"]))
    if not found.changes and not found.files:
        found.state = "up to date"
    return found


def gone_runs(out: Path, spec_folder: Path, spec_name: str, names: set[str]) -> list[OutputCheck]:
    """Builds below ``out`` of runs that this spec no longer has. A lock that cannot be read is somebody else's."""
    found = []
    for folder in sorted(path for path in out.iterdir() if path.is_dir()) if out.is_dir() else []:
        lock = lockfile.read(folder)
        start = lock.spec_folder if lock else None
        if lock is None or lock.run in names or start is None or "\0" in start:
            continue
        if lock.source("spec") == spec_name and (folder / start).resolve() == spec_folder:
            found.append(OutputCheck(lock.run, folder, "gone"))
    return found


def _but_release(lock: lockfile.Lock) -> dict[str, object]:
    """The lock's content without zerocfg's own release, which alone is no difference."""
    return {key: value for key, value in lock.content.items() if key != "zerocfg"}


def _is_plain(name: str) -> bool:
    """A lock may have been tampered with: only names inside the folder count."""
    return name not in ("", ".", "..") and "/" not in name and "\\" not in name and "\0" not in name


def _file(path: Path, data: bytes, built: object, before: dict[str, object]) -> FileState | None:
    """What is wrong with a file; ``built`` is its hash when it was built, ``before`` the values of that build."""
    name = path.name
    if not path.exists():
        return FileState(name, "missing")
    there = read_bytes(path)
    if isinstance(there, Problem):
        return FileState(name, "unreadable", [there.why])
    if there == data:
        return None
    if built is None:
        state = "unknown"
    else:
        state = "outdated" if lockfile.sha256(there) == built else "edited"
    return FileState(name, state, differences(name, there, data, before if state == "edited" else {}))


def differences(name: str, there: bytes, given: bytes, before: dict[str, object]) -> list[str]:
    """How a file on disk differs from the build: key by key for configs, else as lines of a diff.

    Values of a config that are as in ``before`` were not edited; that they changed is said elsewhere.
    """
    new = _mapping(name, given)
    if isinstance(new, dict):
        old = _mapping(name, there)
        if not isinstance(old, dict):
            return [old]
        names = sorted({*old, *new}, key=importance)
        pairs = [(key, old.get(key, ABSENT), new.get(key, ABSENT)) for key in names]
        pairs = [(key, pair, other) for key, pair, other in pairs if not same(pair, other)]
        if not pairs:
            return ["the same values, written otherwise (order, spaces or comments)"]
        differ = [_pair(key, pair, other) for key, pair, other in pairs if not same(pair, before.get(key, ABSENT))]
        return differ or ["the values of the build before, written otherwise (order, spaces or comments)"]
    lines = list(
        difflib.unified_diff(
            there.decode(errors="replace").splitlines(),
            given.decode(errors="replace").splitlines(),
            "there",
            "the build",
            lineterm="",
            n=0,
        )
    )[2:]
    lines = [line for line in lines if not line.startswith("@@")]
    more = len(lines) - DIFF_LINES
    return lines if more <= 0 else [*lines[:DIFF_LINES], f"... {more} more lines"]


def _mapping(name: str, data: bytes) -> dict[str, object] | str:
    """The values of a config by dotted names, or in words why there are none."""
    if not name.endswith((".json", ".yaml")):
        return "it is no config"
    try:
        text = data.decode()
        content = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        return f"cannot be read: {' '.join(str(error).split())}"
    return flat(content) if isinstance(content, dict) else "holds no mapping"


def _pair(key: str, there: object, given: object) -> str:
    if there is ABSENT:
        return f"{key} is not there, the build gives {shown(given)}"
    return f"{key} is {shown(there)} there, the build " + (
        "does not write it" if given is ABSENT else f"gives {shown(given)}"
    )
