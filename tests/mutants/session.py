"""One pytest session that collects once and forks a process a fault."""

from __future__ import annotations

import ast
import random
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from zerocfg.rules.api import Rule

from . import forks, reach, swap
from .faults import SEVERITY, Fault, Module, faults_of

NOTICED = {
    "time": "the time limit",
    "blocked": "waiting without end",
    "SIGSEGV": "the death of the process",
    "SIGABRT": "the death of the process",
}
"""How the process of a fault may end without a failing test, and still nobody could miss it."""


@dataclass(frozen=True)
class Wanted:
    """``groups``: rows of the table, each with its modules. ``sample``: faults drawn a group, as many severities again;
    None: all. ``kinds``: of faults; empty: all. ``budget``: CPU seconds of tests tried on one fault. ``near``: of rules
    only their own examples."""

    root: Path
    groups: dict[str, list[Path]]
    tests: tuple[str, ...]
    sample: int | None = 100
    kinds: tuple[str, ...] = ()
    seed: int = 0
    jobs: int = 2
    budget: float = 3.0
    near: bool = False


@dataclass(frozen=True)
class Outcome:
    """What the tests said to one fault. ``by``: the test that failed, the import, or "time". ``tried`` of ``seen``
    tests that run the line were run. ``ended``: why there is no answer."""

    group: str
    fault: Fault
    by: str | None
    tried: int
    seen: int
    seconds: float
    ended: str | None = None

    @property
    def killed(self) -> bool:
        return self.by is not None


class Session:
    """A pytest plugin: instead of running the tests it runs them against faults. ``heard`` gets each outcome."""

    def __init__(
        self,
        wanted: Wanted,
        told: Callable[[str], None] = print,
        heard: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self.wanted, self.told, self.heard = wanted, told, heard
        self.outcomes: list[Outcome] = []
        self.counted: dict[tuple[str, bool], int] = {}
        self.done = False

    def run(self) -> None:
        """Starts pytest around it. ``done`` says afterwards whether it came to an end."""
        with tempfile.TemporaryDirectory() as base:
            options = [
                "-s",
                "-q",
                "-m",
                "not libs",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-p",
                "no:rerunfailures",
                "--no-header",
            ]
            options += ["--no-summary", "-o", "tmp_path_retention_policy=failed", f"--basetemp={base}/tests"]
            pytest.main([*options, f"--rootdir={self.wanted.root}", *self.wanted.tests], plugins=[self])

    def pytest_configure(self, config: pytest.Config) -> None:
        """Tests carry marks of plugins that are off here; unknown ones would be refused."""
        for mark in ("xdist_group(name): of one worker", "flaky(reruns): tried again"):
            config.addinivalue_line("markers", mark)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        root = self.wanted.root
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all forks
        modules = {path: Module.read(root, path) for paths in self.wanted.groups.values() for path in paths}
        by_name = {module.name: module for module in modules.values()}
        items = {item.nodeid: item for item in self._items(session.items, list(modules.values()))}
        self.told(f"{len(items)} tests; which lines they run is recorded once")
        live = swap.Live.here([swap.dotted(module) for module in modules.values()])
        seen = reach.of(list(items.values()), root, list(by_name), live.forget, self.wanted.jobs)
        for name in seen.broken:
            self.told(f"fails without any fault, and is left out: {name}")
        drawn = [one for group, paths in self.wanted.groups.items() for one in self._drawn(group, modules, paths, seen)]
        work = [
            _Work(group, fault, by_name[fault.module], *self._tests(fault, seen, by_name)) for group, fault in drawn
        ]

        def judge(one: _Work) -> str | None:
            return _judge(one, [items[test] for test in one.tests], live, seen)

        for one, answer in forks.each(work, judge, self.wanted.jobs):
            by, ended = answer.value, answer.ended
            if ended in NOTICED:
                by, ended = NOTICED[ended], None
            self.outcomes.append(Outcome(one.group, one.fault, by, len(one.tests), one.seen, answer.seconds, ended))
            self.heard(self.outcomes[-1])
        self.done = True
        return True

    def _items(self, items: Sequence[pytest.Item], modules: Sequence[Module]) -> list[pytest.Item]:
        """All tests; of some modules of rules, no other rules' examples."""
        if not self.wanted.near:
            return list(items)
        codes = set().union(*map(_codes, modules))
        return [item for item in items if not codes or not _named(item.name) or _named(item.name) & codes]

    def _drawn(
        self, group: str, modules: dict[Path, Module], paths: Sequence[Path], seen: reach.Reach
    ) -> list[tuple[str, Fault]]:
        """A random sample of a group's faults and of its severities."""
        pick = random.Random(f"{self.wanted.seed} {group}")
        loading = _loading(modules.values())
        every = [
            fault
            for path in paths
            for fault in faults_of(modules[path])
            if self._is_used(fault, modules) and not self._is_over(fault, loading, seen)
        ]
        drawn: list[Fault] = []
        for severe in (False, True):
            some = [fault for fault in every if (fault.kind == SEVERITY) is severe and self._is_wanted(fault)]
            self.counted[group, severe] = len(some)
            size = len(some) if self.wanted.sample is None else min(self.wanted.sample, len(some))
            drawn += pick.sample(some, size)
        return [(group, fault) for fault in drawn]

    def _is_wanted(self, fault: Fault) -> bool:
        return not self.wanted.kinds or fault.kind in self.wanted.kinds

    def _is_used(self, fault: Fault, modules: dict[Path, Module]) -> bool:
        by_name = {module.name: module for module in modules.values()}
        return fault.constant is None or bool(_uses(fault, by_name))

    def _is_over(self, fault: Fault, loading: set[str], seen: reach.Reach) -> bool:
        """Whether the function has done its work, as making an example, when a module has been loaded: what is put in
        afterwards changes nothing, whatever the tests are worth."""
        name = fault.where.rpartition(".")[2]
        return fault.constant is None and name in loading and not seen.is_run(fault.module, fault.lines)

    def _tests(self, fault: Fault, seen: reach.Reach, modules: dict[str, Module]) -> tuple[list[str], int]:
        """The tests to try on a fault, those named after its rules before all others, and how many could be."""
        places = [(fault.module, fault.lines)] if fault.constant is None else _uses(fault, modules)
        around = [(fault.module, _around(fault, modules[fault.module]))] if fault.constant is None else places
        codes = _codes(modules[fault.module], fault.where) or _codes(modules[fault.module])
        tests = sorted(seen.tests(places, around), key=lambda test: not codes & _named(test))
        if fault.decorator:  # tests of what a rule declares need not run a line of it
            named = sorted((test for test in seen.seconds if codes & _named(test)), key=lambda test: seen.seconds[test])
            tests = list(dict.fromkeys([*named, *tests]))
        return reach.within(tests, seen, self.wanted.budget), len(tests)


@dataclass(frozen=True)
class _Work:
    group: str
    fault: Fault
    module: Module
    tests: list[str]
    seen: int


def _judge(one: _Work, items: Sequence[pytest.Item], live: swap.Live, seen: reach.Reach) -> str | None:
    """The first test that fails with the fault, or the import of its module. Runs in a process of its own."""
    try:
        swap.put(one.fault, one.module, live)
    except swap.UnloadableError:
        return f"the import of {one.fault.module}"
    for at, item in enumerate(items):
        forks.limit(10 * seen.seconds[item.nodeid] + 2)
        reports: list[Any] = runtestprotocol(item, nextitem=items[at + 1] if at + 1 < len(items) else None, log=False)
        if any(report.failed for report in reports):
            return item.nodeid
    return None


def _codes(module: Module, name: str | None = None) -> set[str]:
    """The codes of the rules of a module, or of the one of this name."""
    found = vars(swap.loaded_module(module))
    return {one.code for key, one in found.items() if isinstance(one, Rule) and name in (None, key)}


def _named(test: str) -> set[str]:
    """The codes in a test's name."""
    return set(re.findall(r"ZC\d{3}", test))


def _loading(modules: Iterable[Module]) -> set[str]:
    """The names that modules use while they are loaded: outside of functions, or as decorators."""
    found: set[str] = set()
    for module in modules:
        todo: list[ast.AST] = [module.tree]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Name):
                found.add(node.id)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                todo += [*node.decorator_list, node.args]
            elif not isinstance(node, ast.Lambda):
                todo += ast.iter_child_nodes(node)
    # What these functions call in turn has done its work as well.
    functions = {
        node.name: node for module in modules for node in module.tree.body if isinstance(node, ast.FunctionDef)
    }
    todo = [functions[name] for name in found if name in functions]
    while todo:
        new = {node.id for node in ast.walk(todo.pop()) if isinstance(node, ast.Name)} - found
        found |= new
        todo += [functions[name] for name in new if name in functions]
    return found


def _around(fault: Fault, module: Module) -> range:
    """The lines of the function that a fault is in."""
    node: ast.AST = module.tree
    for name in fault.where.split("."):
        node = next(one for one in ast.iter_child_nodes(node) if getattr(one, "name", None) == name)
    return range(node.lineno, (node.end_lineno or 0) + 1)  # type: ignore[attr-defined]


def _uses(fault: Fault, modules: dict[str, Module]) -> list[tuple[str, range]]:
    """Where functions of the modules look at a constant."""
    assert fault.constant is not None
    own = swap.loaded_module(modules[fault.module])
    names = {own.__name__: fault.constant}
    names |= {module.__name__: here for module, here in swap.importers(own.__name__, fault.constant)}
    return [
        (module.name, range(node.lineno, node.lineno + 1))
        for module in modules.values()
        for node in _loads(module.tree, names.get(swap.dotted(module)))
    ]


def _loads(tree: ast.Module, name: str | None) -> list[ast.Name]:
    """Where functions read a name of their module."""
    return [
        node
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
