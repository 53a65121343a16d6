"""What installed packages bring by entry points. Their code runs inside a lint, so only what was installed counts: a
repository that is linted brings none, neither by metadata in a folder that Python searches nor by a module that hides
an installed one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache

from zerocfg.internal_errors import in_a_line
from zerocfg.plugins import Plugin, plugins
from zerocfg.source import boundary


class RefusedPackageError(Exception):
    """A package, or something in it, is not taken; says why."""


@contextmanager
def linted() -> Iterator[None]:
    """Within, what is linted is known: without a boundary (`boundary.reading`) around it, the current folder."""
    with nullcontext() if boundary.is_drawn() else boundary.reading(()):
        yield


def installed(group: str) -> tuple[Plugin, ...]:
    """The packages with entry points of a group that are installed for what is linted."""
    found = plugins(group)
    return _installed(found, boundary.places(), _site_folders()) if found else ()


@lru_cache(maxsize=32)
def _installed(
    packages: tuple[Plugin, ...], places: tuple[str, ...] | None, folders: tuple[str, ...]
) -> tuple[Plugin, ...]:
    """``places`` and ``folders``: what the answer rests on."""
    return tuple(package for package in packages if _is_installed(package.folder))


def object_at(target: str) -> object:
    """What an entry point names ("acme.rules:RULES"): a module, or something in it. Raises RefusedPackageError where
    that is not installed, else what the import raises."""
    from importlib import import_module

    name, _, attribute = target.partition(":")
    _require_installed(name)
    value: object = import_module(name)
    for part in filter(None, attribute.split(".")):
        value = getattr(value, part)
    return value


def reason(error: BaseException) -> str:
    """Why something of a package could not be taken, in a line."""
    return str(error) if isinstance(error, RefusedPackageError) else in_a_line(error)  # type: ignore[arg-type]


def _is_installed(place: str) -> bool:
    """Whether a path lies where packages are installed, or at least not in what is linted."""
    real = os.path.realpath(place)
    return any(_lies_below(real, os.path.realpath(folder)) for folder in _site_folders()) or (
        not boundary.lies_inside(real)
    )


def _lies_below(real: str, folder: str) -> bool:
    return real == folder or real.startswith(folder.rstrip(os.sep) + os.sep)


def _site_folders() -> tuple[str, ...]:
    """Where installers put packages. A virtual environment in a repository is the user's own: it runs zerocfg."""
    import site

    return (*site.getsitepackages(), site.getusersitepackages())


def _require_installed(module: str) -> None:
    """The first folder with such a module is imported, wherever the metadata lies: refuse one of what is linted."""
    from importlib.util import find_spec

    top = module.partition(".")[0]
    if top in sys.modules:
        places = [getattr(sys.modules[top], "__file__", None) or "", *getattr(sys.modules[top], "__path__", ())]
    else:
        spec = find_spec(top)
        if spec is None:
            raise RefusedPackageError(f"there is no module {top}")
        places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    for place in filter(None, places):
        if not _is_installed(place):
            raise RefusedPackageError(f"{top} would be imported from what is linted")
