"""Front ends of other packages (`zerocfg.installed`), and what one costs that fails: a sentence in `failures`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from zerocfg.catalog.schema import load_schema
from zerocfg.frontends.api import FrontEnd, Lowered, Value, Written
from zerocfg.installed import RefusedPackageError, installed, linted, object_at, reason
from zerocfg.plugins import FRONT_ENDS, Plugin
from zerocfg.record import record, replace

_NAME = r"[a-z][a-z0-9]*([-_][a-z0-9]+)*"
_LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torchrun", "python")
"""Readers and launchers that are zerocfg's own."""

_failures: dict[str, str] = {}
"""By package, what failed first; such a front end is not asked again."""


@record(frozen=True, slots=True)
class OutsideFrontEnds:
    """``problems``: what could not be taken, and why, in a sentence each."""

    front_ends: tuple[FrontEnd, ...] = ()
    problems: tuple[str, ...] = ()


def outside_front_ends(own: tuple[FrontEnd, ...]) -> OutsideFrontEnds:
    """Those of the packages that are installed. ``own``: zerocfg's, whose names are given."""
    with linted():
        return _loaded(own, installed(FRONT_ENDS))


def failures() -> tuple[str, ...]:
    """Which of them failed when they were asked, and how."""
    return tuple(_failures.values())


@lru_cache(maxsize=32)
def _loaded(own: tuple[FrontEnd, ...], packages: tuple[Plugin, ...]) -> OutsideFrontEnds:
    names = {**dict.fromkeys(_LIBRARIES, "zerocfg"), **dict.fromkeys((item.name for item in own), "zerocfg")}
    found: list[FrontEnd] = []
    problems: list[str] = []
    for package in packages:
        for name, target in package.entry_points:
            try:
                item = object_at(target)
                _require_front_end(item, name, names)
            except (Exception, SystemExit) as error:
                problems.append(f"the front end of {package.name} is not loaded: `{target}`: {reason(error)}")
                continue
            assert isinstance(item, FrontEnd)
            names[item.name] = package.name
            found.append(replace(item, package=package.name))
    return OutsideFrontEnds(tuple(found), tuple(problems))


def _require_front_end(item: object, name: str, names: Mapping[str, str]) -> None:
    if not isinstance(item, FrontEnd):
        raise RefusedPackageError(f"{type(item).__name__} is no front end")
    if not re.fullmatch(_NAME, item.name):
        raise RefusedPackageError(f"`{item.name}` is no name: small letters, digits and dashes")
    if item.name != name:
        raise RefusedPackageError(f"it is called `{item.name}`, its entry point `{name}`")
    if item.lower is None:
        raise RefusedPackageError("it lowers nothing")
    if item.name in names:
        raise RefusedPackageError(f"`{item.name}` is a reader of {names[item.name]}")


def claims(item: FrontEnd, claim: Callable[[Written], bool], keys: Mapping[Any, Any]) -> bool:
    """Whether a claim says yes; no where it fails."""
    if item.package in _failures:
        return False
    try:
        return claim(keys) is True
    except Exception as error:
        _note(item, error)
        return False


def lowered_by(item: FrontEnd, recipe: Written, options: Written) -> Lowered:
    """What it lowers; nothing where it fails, or returns what no run can take."""
    if item.package in _failures or item.lower is None:
        return Lowered()
    try:
        found = item.lower(recipe, options)
        _require_lowered(found, recipe, options)
        return found
    except Exception as error:
        _note(item, error)
        return Lowered()


def _require_lowered(found: object, recipe: Written, options: Written) -> None:
    if not isinstance(found, Lowered):
        raise RefusedPackageError(f"it lowers to {type(found).__name__}, not to Lowered")
    for name in found.arguments:
        if name not in load_schema("training-arguments").root.keys:
            raise RefusedPackageError(f"TrainingArguments has no field `{name}`")
    processes = [("num_processes", found.processes)] if found.processes is not None else []
    for name, value in (*found.arguments.items(), *found.deepspeed.items(), *processes):
        if not isinstance(value, Value) or value.key not in (options if value.option else recipe):
            raise RefusedPackageError(f"`{name}` is no Value of a key that is written")
    if found.section is not None and found.section not in recipe:
        raise RefusedPackageError(f"`{found.section}` is no key that is written")
    if found.section is not None and found.deepspeed:
        raise RefusedPackageError("a DeepSpeed config is either a section or made of keys")
    within = next((name for name in found.deepspeed for other in found.deepspeed if name.startswith(f"{other}.")), None)
    if within is not None:
        raise RefusedPackageError(f"`{within}` is a key of a DeepSpeed config inside of a value")


def _note(item: FrontEnd, error: Exception) -> None:
    if isinstance(error, MemoryError):
        raise error
    _failures.setdefault(
        item.package, f"the front end {item.name} of the package {item.package} failed: {reason(error)}"
    )
