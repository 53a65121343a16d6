"""``python -m tools.facts.needed_names``: the newest release of transformers that old releases of TRL can be imported
with, to ``schemas/releases/trl-imports.json``.

Read from the sources: a trainer's module and those that it imports as soon as it is loaded. A release of TRL cannot be
used where every one of its trainers imports a name that transformers has lost (`lost_names`).
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

from tools.facts.environment import HERE, Release, releases
from tools.facts.lost_names import FILE, bound, older
from tools.facts.wheels import read_wheel
from zerocfg.catalog.versions import release

WRITTEN = HERE.parent.parent / "schemas" / "releases" / "trl-imports.json"
Names = list[tuple[str, str]]
"""Pairs of a module and a name in it."""


def edges() -> dict[str, str]:
    """By a minor release of TRL: the newest release of transformers that any TRL below it runs with, where that is not
    the newest of all."""
    names: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))["transformers"]["names"]
    lost = {(module, name): at for module, by in names.items() for at, every in by.items() for name in every.split()}
    known = [item.version for item in releases() if item.library == "transformers"]
    versions = older("trl")
    found: dict[str, str] = {}
    newest = known[0]
    for version, above in pairwise([*versions, importlib.metadata.version("trl")]):
        needed = read_wheel(Release("trl", version), Path(__file__), "needed", needed_by_trainers)
        ends = [[lost[module, name] for module, name in each if (module, name) in lost] for each in needed]
        if not all(ends):
            break  # a trainer runs with any release, and so do those of newer ones, as far as is known
        end = max((min(each, key=release) for each in ends), key=release, default=known[0])
        newest = max([newest, *(item for item in known if release(item) < release(end))], key=release)
        found[".".join(above.split(".")[:2])] = newest
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
    return [sorted(set(_needed(trainer, sources, packages))) for trainer in sorted(trainers)]


def _needed(start: str, sources: Mapping[str, str], packages: set[str]) -> Iterator[tuple[str, str]]:
    parts = start.split(".")
    waiting = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]  # the packages above it are imported first
    seen = set(waiting)
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


def main() -> int:
    WRITTEN.write_text(json.dumps({"transformers": edges()}) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
