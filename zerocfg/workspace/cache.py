"""The outcome of a lint, kept in the user's cache folder and printed again while nothing that it rests on has changed.

An outcome belongs to a command line, the folder and terminal it ran in, and this zerocfg (`_asked`). With it are kept
the questions that the lint asked the file system, each with its answer (`zerocfg/source/disk.py`): contents by their
hash, folders by what lies in them, what paths lead to. It counts while all of them are answered alike. Whether a file
changed is not told by its times, which tools set at will.

What lies in the cache is not trusted: it is data of the form written here or it is nothing, it can make zerocfg look at
files and print text, which is made harmless as all text is. Reading an outcome imports neither rules nor readers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from zerocfg.budgets import CACHE_BYTES, CACHED_BYTES
from zerocfg.plugins import FRONT_ENDS, RULES, plugins
from zerocfg.source import disk
from zerocfg.source.boundary import VARIABLE
from zerocfg.source.foreign import harmless
from zerocfg.terminal.streams import columns
from zerocfg.version import __version__

TYPE_CHECKING = False  # see `disk`
if TYPE_CHECKING:
    from typing import Any

FORM = 1
"""Counts up with every change of what is kept."""
_VARIABLES = (
    "NO_COLOR",
    "FORCE_COLOR",
    "TERM",
    "COLUMNS",
    "GITHUB_WORKSPACE",
    "CI_PROJECT_DIR",
    "HOME",
    "USERPROFILE",
    VARIABLE,
)
"""What a lint reads of the environment; of the homes, where a search upwards ends."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

_of_this_process: str | None = None
"""The file for the outcome of this process; None where it is not kept."""


class Recording:
    """What a lint asks while it runs."""

    def __init__(self, notes: disk.Notes) -> None:
        self._notes = notes

    def keep(self, text: str, code: int, *, exactly: bool) -> None:
        """Keep the report with the exit code. ``exactly``: it is for a program (`write_exactly`). One that holds
        commands to a CI runner is not kept: none that a cache holds is printed."""
        if _of_this_process is not None and harmless(text, coloured=True) == text:
            entry = {"asked": _asked(sys.argv[1:]), "notes": self._notes, "text": text, "code": code}
            _write(_of_this_process, json.dumps({**entry, "exactly": exactly}).encode())


@contextmanager
def recording() -> Iterator[Recording]:
    """Note what is asked from here on; a lint that is no process of its own is not kept."""
    if _of_this_process is None:
        yield Recording({})
    else:
        with disk.looking() as notes:
            yield Recording(notes)


def kept_outcome(words: Sequence[str]) -> tuple[str, bool, int] | None:
    """The kept outcome of a command line: the report, whether it is for a program, the exit code. None where there is
    none that counts."""
    global _of_this_process
    if words[:1] != ["lint"] or "--no-cache" in words or sys.stdout is None:
        return None
    try:
        asked, folder = _asked(words), _folder()
    except OSError:  # the current folder is gone
        return None
    if folder is None or plugins(RULES) or plugins(FRONT_ENDS):  # what those rest on is not known
        return None
    name = disk.digest("\0".join(asked).encode("utf-8", "surrogateescape"))
    _of_this_process = os.path.join(folder, f"{name}.json")  # noqa: PTH118
    entry = _read(_of_this_process, asked)
    if entry is None or not disk.repeats(entry["notes"]):
        return None
    with suppress(OSError):  # a cache that may only be read
        os.utime(_of_this_process)
    return harmless(entry["text"], coloured=True), entry["exactly"], entry["code"]


def _folder() -> str | None:
    """Where outcomes are kept: below ``$XDG_CACHE_HOME``, else ``~/.cache``; None without a home."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return os.path.join(home, "zerocfg", "lint") if os.path.isabs(home) else None  # noqa: PTH117, PTH118


def _asked(words: Sequence[str]) -> list[str]:
    """All that an outcome depends on besides the file system."""
    terminal = f"{sys.stdout.isatty()} {columns(sys.stdout)}"
    variables = [f"{name}={os.environ.get(name)}" for name in _VARIABLES]
    return [str(FORM), __version__, _build(), _yaml(), sys.version, *variables, terminal, os.getcwd(), *words]  # noqa: PTH109


def _build() -> str:
    """Which zerocfg this is: its installation's record, or, where it is no installation, its files."""
    record = os.path.join(os.path.dirname(_PACKAGE), f"zerocfg-{__version__}.dist-info", "RECORD")  # noqa: PTH118, PTH120
    try:
        return _stamp(os.stat(record))  # noqa: PTH116
    except OSError:
        return "\n".join(_stamps(_PACKAGE))


def _yaml() -> str:
    """Which PyYAML would read the files."""
    places = (os.path.join(folder, "yaml", "__init__.py") for folder in sys.path)  # noqa: PTH118
    found = next(filter(os.path.isfile, places), None)
    return _stamp(os.stat(found)) if found is not None else ""  # noqa: PTH116


def _stamps(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            if not entry.is_dir():
                yield f"{entry.name} {_stamp(entry.stat())}"
            elif entry.name != "__pycache__":
                yield from _stamps(entry.path)


def _stamp(about: os.stat_result) -> str:
    return f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}"


def _read(path: str, asked: list[str]) -> dict[str, Any] | None:
    """An entry that answers what is asked; None for everything else that may lie there."""
    try:
        size, data = disk.content(path, CACHED_BYTES, 0)
        entry = json.loads(data) if size <= CACHED_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.keys() != {"asked", "notes", "text", "code", "exactly"}:
        return None
    notes = entry["notes"]
    answers = [*notes.values()] if isinstance(notes, dict) else [None]
    sound = (
        entry["asked"] == asked
        and all(
            isinstance(answer, dict) and all(isinstance(text, str) for text in answer.values()) for answer in answers
        )
        and isinstance(entry["text"], str)
        and isinstance(entry["exactly"], bool)
        and type(entry["code"]) is int
        and entry["code"] in (0, 1)
    )
    return entry if sound else None


def _write(path: str, data: bytes) -> None:
    """Replace an entry as a whole; without a word where that cannot be done."""
    if len(data) > CACHED_BYTES:
        return
    folder = os.path.dirname(path)  # noqa: PTH120
    staged = f"{path}.{os.getpid()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
            file.write(data)
        os.replace(staged, path)  # noqa: PTH105
        _sweep(folder)
    except OSError:
        pass


def _sweep(folder: str) -> None:
    """Remove what was used longest ago until the rest is small enough, with what killed processes left."""
    with os.scandir(folder) as entries:
        found = sorted(
            ((entry.stat(follow_symlinks=False), entry.path) for entry in entries), key=lambda item: -item[0].st_mtime
        )
    total = 0
    for about, path in sorted(found, key=lambda item: item[0].st_mtime, reverse=True):
        total += about.st_size
        if total > CACHE_BYTES:
            os.unlink(path)  # noqa: PTH108
