"""What releases of TRL themselves import from transformers, and so which releases of transformers are too new for them.

Read from the sources: a trainer's module and those that it imports as soon as it is loaded. A release of TRL counts as
broken where every one of its trainers imports a name that transformers has lost (`lost_names`).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

from tools.facts.environment import Release, releases
from tools.facts.lost_names import FILE, bound, older
from tools.facts.wheels import read_wheel
from zerocfg.catalog.versions import release

Names = list[tuple[str, str]]
"""Pairs of a module and a name in it."""


def edges() -> dict[str, str]:
    """By a release of TRL: the newest release of transformers that any TRL below it runs with, where that is not the
    newest of all."""
    lost = json.loads(FILE.read_text(encoding="utf-8"))["transformers"]["names"]
    since = {(module, name): at for module, by in lost.items() for at, names in by.items() for name in names.split()}
    known = [item.version for item in releases() if item.library == "transformers"]
    minors = [".".join(version.split(".")[:2]) for version in older("trl")]
    found: dict[str, str] = {}
    newest = ""
    for (version, _), (_, above) in zip(pairwise([*older("trl"), ""]), pairwise([*minors, ""]), strict=True):
        needed = read_wheel(Release("trl", version), Path(__file__), "needed", needed_by_trainers)
        ends = [[since[module, name] for module, name in names if (module, name) in since] for names in needed]
        if not ends or not all(ends):
            break  # what is newer runs with newer releases, too
        end = max((min(each, key=release) for each in ends), key=release)
        newest = max(newest, max((v for v in known if release(v) < release(end)), key=release, default=""), key=release)
        if above and newest:
            found[above] = newest
    return found


def needed_by_trainers(library: str, wheel: Path) -> list[Names]:
    """For each module of a trainer what it takes from transformers as soon as it is imported."""
    with ZipFile(wheel) as held:
        sources = {
            path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): held.read(path).decode()
            for path in held.namelist()
            if path.startswith(f"{library}/") and path.endswith(".py")
        }
    packages = {name for name in sources if any(other.startswith(f"{name}.") for other in sources)}
    trainers = [name for name in sources if name.startswith(f"{library}.trainer.") and name.endswith("_trainer")]
    return [list(_needed(trainer, sources, packages)) for trainer in sorted(trainers)]


def _needed(start: str, sources: Mapping[str, str], packages: set[str]) -> Iterator[tuple[str, str]]:
    waiting, seen = [start], {start}
    for module in waiting:  # grows while it is gone through
        for statement in ast.parse(sources[module]).body:
            if not isinstance(statement, ast.ImportFrom):
                continue
            origin = _absolute(statement, module, module in packages)
            if origin.partition(".")[0] == "transformers":
                yield from ((origin, item.name) for item in statement.names if item.name != "*")
            inner = [_holder(origin, item.name, sources) for item in statement.names]
            waiting += dict.fromkeys(name for name in inner if name is not None and name not in seen)
            seen.update(filter(None, inner))


def _absolute(statement: ast.ImportFrom, module: str, package: bool) -> str:
    if not statement.level:
        return statement.module or ""
    above = module.split(".")
    above = above[: len(above) - statement.level + package]
    return ".".join([*above, *filter(None, [statement.module])])


def _holder(module: str, name: str, sources: Mapping[str, str]) -> str | None:
    """The module that is loaded for a name: itself a module, or the one of a lazy package that binds it."""
    if f"{module}.{name}" in sources:
        return f"{module}.{name}"
    if module not in sources or "_LazyModule" not in sources[module]:
        return module if module in sources else None
    inner = [other for other in sources if other.startswith(f"{module}.") and name in bound(sources[other])]
    return min(inner, key=len, default=None)
