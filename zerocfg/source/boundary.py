"""The boundary of trust: the files that are read for their content, and changed.

What the user names is trusted: the repository around it, or the folder where there is no repository. What the files of
a repository point to is not: an author of a pull request would have zerocfg print a file of the machine into the log
of CI, or change it. Links are followed before it is decided. Such a file may be asked for its existence, no more.

Inside of zerocfg there is no boundary until a command, the language server or a function of the API draws one
(`reading`); the only one who asks is `disk` for what is read and `write` for what is changed.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from zerocfg.source.foreign import one_line

TYPE_CHECKING = False  # see `disk`
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Target = str | os.PathLike[str]

OPTION = "--allow-outside"
VARIABLE = "ZEROCFG_ALLOW_OUTSIDE"
"""Paths that are read though they lie outside, as in PATH; for a machine, where each command line would name them."""

_places: ContextVar[tuple[str, ...] | None] = ContextVar("zerocfg_places", default=None)
"""The real paths of what is read, with everything below; None: there is no boundary."""


@contextmanager
def reading(targets: Iterable[Target], exactly: Iterable[Target] = (), opened: Iterable[Target] = ()) -> Iterator[None]:
    """Draw the boundary around what the user names.

    ``targets`` stand for the project around them (default: the current folder), ``exactly`` for nothing else.
    ``opened``: what `--allow-outside` names.
    """
    _repositories.cache_clear()
    _is_home.cache_clear()
    named = [os.fspath(path) for path in targets] or [os.curdir]
    variable = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    places = [place for path in named for place in _around(path)]
    places += [place for path in exactly if (place := _named(os.fspath(path))) is not None]
    places += [place for path in (*opened, *variable) if (place := _real(os.path.expanduser(path))) is not None]  # noqa: PTH111
    token = _places.set(tuple(dict.fromkeys(places)))
    try:
        yield
    finally:
        _places.reset(token)


def is_drawn() -> bool:
    """Whether there is a boundary."""
    return _places.get() is not None


def places() -> tuple[str, ...] | None:
    """The real paths of what is read, with everything below; None where there is no boundary."""
    return _places.get()


def lend(path: Target) -> None:
    """Have one more file read that a repository names: of the cache of the hub, which holds no secrets."""
    places, real = _places.get(), _real(os.fspath(path))
    if places is not None and real is not None and real not in places:
        _places.set((*places, real))


@contextmanager
def lent(path: Target) -> Iterator[None]:
    """The same for as long as it takes: of settings, which are the user's own above a repository."""
    token = _places.set(_places.get())
    try:
        lend(path)
        yield
    finally:
        _places.reset(token)


def lies_inside(real: str) -> bool:
    """Whether a real path lies within the boundary."""
    places = _places.get()
    return places is None or any(_below(real, place) and not _is_of_git(real, place) for place in places)


def is_above(folder: str) -> bool:
    """Whether something of what is read lies below a folder (a real path)."""
    places = _places.get()
    return places is None or any(_below(place, folder) for place in places)


def why_outside(real: str) -> str:
    """Why a file is not read, as a clause."""
    place = next(iter(_places.get() or ()), "what was named")
    why = "it belongs to git" if _is_of_git(real, place) else f"it lies outside of {one_line(place)}"
    return f"{why}, where zerocfg reads and changes nothing; {OPTION} {one_line(real)} opens it"


def _around(target: str) -> list[str]:
    """What is read for the sake of a target: its project, and the target itself where no link leads out of that."""
    named = _named(target)
    path = os.path.abspath(target)  # noqa: PTH100
    folder = path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120
    top = next(iter(_repositories(folder)), None)
    if top is None and folder is not path:  # paths in it are relative to where the job is started
        top = here if (here := _here(path)) is not None else folder
    inside = top is not None and _real(top)
    if not inside:
        return [] if named is None else [named]
    return [inside] if named is None or _below(named, inside) else [inside, named]


def _named(target: str) -> str | None:
    """The real path of what the user names; None where a link in a project leads out of it: whoever wrote the project
    made the link."""
    real = _real(target)
    path = os.path.abspath(target)  # noqa: PTH100
    folder = os.path.dirname(path)  # noqa: PTH120
    around = [*_repositories(folder), *filter(None, [_here(path)])]
    if not around and os.path.islink(path) and not os.path.isdir(path):  # noqa: PTH112, PTH114
        around = [folder]
    return real if real is not None and all(_below(real, _real(project) or project) for project in around) else None


@lru_cache(256)
def _repositories(folder: str) -> tuple[str, ...]:
    """The folders under version control around a folder, the nearest first; asked for many files of one folder. Neither
    a home folder nor the root of the file system is a project, though it may be under version control."""
    above = os.path.dirname(folder)  # noqa: PTH120
    around = _repositories(above) if above != folder else ()
    if not os.path.lexists(os.path.join(folder, ".git")) or _is_home(folder):  # noqa: PTH118
        return around
    real = _real(folder) or folder
    # Else a link of a repository leads to another one.
    inside = all(_below(real, _real(project) or project) for project in around)
    return (folder, *around) if inside else around


def _here(path: str) -> str | None:
    """The current folder, where a path lies below it; not where that holds a home folder, and with it private files."""
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:  # it is gone
        return None
    holds_home = _is_home(here) or _below(_home() or "", here)
    return here if path != here and _below(path, here) and not holds_home else None


@lru_cache(256)
def _is_home(folder: str) -> bool:
    return folder == os.path.dirname(folder) or _real(folder) == _home()  # noqa: PTH120


def _home() -> str | None:
    return _real(os.path.expanduser("~"))  # noqa: PTH111


def _real(path: str) -> str | None:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL in the name
        return None


def _is_of_git(path: str, place: str) -> bool:
    """Whether a file below a place is one of git's own: CI services keep a token in `.git/config`."""
    return _below(path, place) and f"{os.sep}.git{os.sep}" in f"{path[len(place) :]}{os.sep}"


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)
