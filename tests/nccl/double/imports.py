"""Calls a function when a module has been imported, at once where it has been already, or before its code runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Call = Callable[[ModuleType], object]


class Finder:
    """Finds modules as the others do, and has their loader call `before` and `after`."""

    def __init__(self) -> None:
        self.before: dict[str, Call] = {}
        """By package: for it and all of its modules."""
        self.after: dict[str, Call] = {}
        self._searching: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        before, after = self.before.get(name.partition(".")[0]), self.after.get(name)
        if (before is None and after is None) or name in self._searching:
            return None
        self._searching.add(name)
        try:
            for other in sys.meta_path:
                spec = other.find_spec(name, path, target) if other is not self else None
                if spec is not None:
                    _wrap(spec, before, after)
                    return spec
            return None
        finally:
            self._searching.discard(name)


FINDER = Finder()


def after(name: str, call: Call) -> None:
    if name in sys.modules:
        call(sys.modules[name])
        return
    FINDER.after[name] = call
    _enlist()


def before(package: str, call: Call) -> None:
    FINDER.before[package] = call
    _enlist()


def _enlist() -> None:
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)


def _wrap(spec: ModuleSpec, before: Call | None, after: Call | None) -> None:
    loader = spec.loader
    if loader is None:
        return
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del vars(loader)["exec_module"]
        if before is not None:
            before(module)
        run(module)
        if after is not None:
            after(module)

    vars(loader)["exec_module"] = exec_module
