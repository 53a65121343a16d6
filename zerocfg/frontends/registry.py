"""Every front end: zerocfg's own, and those of other installed packages behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from zerocfg.frontends import axolotl, llamafactory, swift, unread
from zerocfg.frontends.api import FrontEnd, Lowered, Written
from zerocfg.plugins import FRONT_ENDS, plugins
from zerocfg.source.launch.programs import Programs

if TYPE_CHECKING:
    from zerocfg.frontends.outside import OutsideFrontEnds
    from zerocfg.source.launch.line import LaunchLine

_OWN = (llamafactory.FRONT_END, axolotl.FRONT_END, swift.FRONT_END, *unread.FRONT_ENDS)
OWN_NAMES = tuple(item.name for item in _OWN if item.lower is not None)
"""Those of zerocfg that are lowered."""
OWN_PACKAGES = tuple(item.facts.package for item in _OWN if item.facts is not None)
"""What is installed for them."""


def front_ends() -> tuple[FrontEnd, ...]:
    """All of them, zerocfg's own first."""
    return _together(_outside().front_ends) if plugins(FRONT_ENDS) else _OWN


def problems() -> tuple[str, ...]:
    """What of other packages could not be taken or failed, and why."""
    if not plugins(FRONT_ENDS):
        return ()
    from zerocfg.frontends.outside import failures

    return (*_outside().problems, *failures())


def front_end(name: str | None) -> FrontEnd | None:
    """The front end that reads the configs of a run, by the run's consumer; None where that is one of the libraries."""
    return _readers(front_ends()).get(name or "")


def names() -> tuple[str, ...]:
    """The names of those that are lowered. Of other packages their metadata tells: nothing is imported."""
    return (*OWN_NAMES, *(name for package in plugins(FRONT_ENDS) for name, _ in package.entry_points))


# --- claims -----------------------------------------------------------------------------------------------------------


def recognise(data: Mapping[Any, Any]) -> str | None:
    """The front end whose recipe this is, by combinations of keys that no other one has."""
    return next((item.name for item in front_ends() if _says(item, item.claims.recipe, data)), None)


def started_by_line(line: LaunchLine, options: Mapping[str, object]) -> str | None:
    """The front end that a launch line starts: its program, its module, its script, or options that are its own."""
    if front_end(line.launcher) is not None:
        return line.launcher
    return started_module(line) or next(
        (item.name for item in front_ends() if _says(item, item.claims.options, options)), None
    )


def started_module(line: LaunchLine) -> str | None:
    """The front end whose module, or script, a launch line starts."""
    return programs().training_of(line.script.value if line.script is not None else None, line.module)


def ships_config(name: str | None, path: object) -> bool:
    """Whether a DeepSpeed config named in this way comes with the framework, so that it need not lie here."""
    found = front_end(name)
    if found is None or not isinstance(path, str):
        return False
    inside, claims = path.replace("\\", "/"), found.claims
    return inside in claims.presets or any(
        inside.startswith(start) or f"/{start}" in inside for start in claims.shipped
    )


def programs() -> Programs:
    """What starts them, for who reads launch lines."""
    return _programs(front_ends())


def calls() -> Mapping[str, str]:
    """The front end that a call of Python code shows."""
    return _calls(front_ends())


def modules() -> frozenset[str]:
    """The packages of these calls."""
    return _modules(front_ends())


def markers() -> tuple[bytes, ...]:
    """Words that recipes hold and no config of a library does."""
    return _markers(front_ends())


def foreign_keys() -> frozenset[str]:
    """Keys of recipes that are none of the Trainer's own."""
    return _foreign_keys(front_ends())


# --- lowering ---------------------------------------------------------------------------------------------------------


def has_defaults(name: str | None) -> bool:
    """Whether a training argument that is not written has the default of TrainingArguments."""
    found = front_end(name)
    return found is None or found.defaults


def lowered(found: FrontEnd, recipe: Written, options: Written) -> Lowered:
    """What of a recipe and of the options of a line reaches the Trainer. One of another package that fails lowers
    nothing, and `problems` says so."""
    if found.lower is None:
        return Lowered()
    if not found.package:
        return found.lower(recipe, options)
    from zerocfg.frontends.outside import lowered_by

    return lowered_by(found, recipe, options)


# --- tables of a set of front ends, made once -------------------------------------------------------------------------


def _outside() -> OutsideFrontEnds:
    from zerocfg.frontends.outside import outside_front_ends  # hardly anybody has such packages

    return outside_front_ends(_OWN)


def _says(item: FrontEnd, claim: Callable[[Written], bool] | None, keys: Mapping[Any, Any]) -> bool:
    if claim is None or item.lower is None:
        return False
    if not item.package:
        return claim(keys)
    from zerocfg.frontends.outside import claims

    return claims(item, claim, keys)


@cache
def _together(others: tuple[FrontEnd, ...]) -> tuple[FrontEnd, ...]:
    return _OWN + others


@cache
def _readers(every: tuple[FrontEnd, ...]) -> Mapping[str, FrontEnd]:
    return {item.name: item for item in every if item.lower is not None}


@cache
def _programs(every: tuple[FrontEnd, ...]) -> Programs:
    read = [item for item in every if item.lower is not None]
    return Programs(
        {name: (item.name, commands) for item in read for name, commands in item.claims.programs.items()},
        {module: item.name for item in read for module in item.claims.modules},
        tuple(word for item in read for word in item.claims.words),
        tuple(item.unread for item in every if item.unread is not None),
    )


@cache
def _calls(every: tuple[FrontEnd, ...]) -> Mapping[str, str]:
    return {call: item.name for item in every if item.lower is not None for call in item.claims.calls}


@cache
def _modules(every: tuple[FrontEnd, ...]) -> frozenset[str]:
    return frozenset(call.partition(".")[0] for call in _calls(every))


@cache
def _markers(every: tuple[FrontEnd, ...]) -> tuple[bytes, ...]:
    return tuple(word.encode() for item in every if item.lower is not None for word in item.claims.markers)


@cache
def _foreign_keys(every: tuple[FrontEnd, ...]) -> frozenset[str]:
    return frozenset(key for item in every for key in item.claims.keys)
