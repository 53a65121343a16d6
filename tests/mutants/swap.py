"""Puts a fault into this process: a function gets other code, a constant or the severity of a rule another value."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import sys
import types
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .faults import Fault, Module


class InvisibleError(Exception):
    """The fault cannot be put into what is running: no live function or constant is made from that text."""


class UnloadableError(Exception):
    """With the fault the module could not even be imported: no test has to look at it."""


@dataclass(frozen=True)
class Live:
    """What runs in this process, looked up before the first fork. ``functions``: by file, first line and name;
    ``caches``: those of the modules that faults are put into."""

    functions: dict[tuple[str, int, str], list[types.FunctionType]]
    caches: list[Any]

    @classmethod
    def here(cls, modules: Iterable[str]) -> Live:
        names = set(modules)
        for name in names:  # commands load theirs when they are called, which is too late for the lookup below
            importlib.import_module(name)
        functions: dict[tuple[str, int, str], list[types.FunctionType]] = defaultdict(list)
        caches = []
        for one in gc.get_objects():
            if isinstance(one, types.FunctionType):
                functions[_name(one.__code__)].append(one)
            elif isinstance(one, functools._lru_cache_wrapper) and one.__module__ in names:
                caches.append(one)
        return cls(functions, caches)

    def forget(self) -> None:
        """Empties the caches: what they hold may have been made by other code, or for another test."""
        for cache in self.caches:
            cache.cache_clear()


def put(fault: Fault, module: Module, live: Live) -> None:
    """Raises InvisibleError or UnloadableError. There is no way back: the process is to end with the fault."""
    loaded = loaded_module(module)
    if fault.decorator:
        assert isinstance(fault.new, ast.Attribute)
        declared = getattr(loaded, fault.where)
        object.__setattr__(declared, "severity", type(declared.severity)[fault.new.attr])
        return
    tree = _Replace(fault.old, fault.new).visit(module.tree)
    if fault.constant is not None:
        _assign(tree, fault.constant, loaded)
    else:
        _swap(compile(tree, loaded.__file__ or "", "exec", dont_inherit=True), live)
    live.forget()


def dotted(module: Module) -> str:
    return module.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def loaded_module(module: Module) -> types.ModuleType:
    return importlib.import_module(dotted(module))


class _Replace(ast.NodeTransformer):
    """Replaces one node, known by its identity."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def _swap(code: types.CodeType, live: Live) -> None:
    """Gives the functions of a module their new code; closures that live already, too."""
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            for function in live.functions.get(_name(const), ()):
                try:
                    function.__code__ = const
                except ValueError as error:  # it binds other variables of the function around it
                    raise InvisibleError(str(error)) from None
            _swap(const, live)


def _name(code: types.CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_name


def _assign(tree: ast.Module, name: str, loaded: types.ModuleType) -> None:
    """Makes a constant anew, in its module and in those that imported it by name."""
    old = vars(loaded)[name]
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if isinstance(target, ast.Name) and target.id == name:
            assert isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None
            value = ast.fix_missing_locations(ast.Expression(statement.value))
            try:
                made = eval(compile(value, loaded.__file__ or "", "eval"), vars(loaded))
            except Exception as error:
                raise UnloadableError(str(error)) from error
            setattr(loaded, name, made)
    for module, here in importers(loaded.__name__, name):
        if vars(module).get(here) is old:
            setattr(module, here, vars(loaded)[name])


def importers(source: str, name: str) -> list[tuple[types.ModuleType, str]]:
    """The loaded modules of the same package that import a name from a module, and what they call it."""
    return [
        (module, here)
        for key, module in list(sys.modules.items())
        if _is_of(source.partition(".")[0], key) and key != source
        for origin, what, here in _imports(getattr(module, "__file__", None) or "")
        if (origin, what) == (source, name)
    ]


def _is_of(package: str, module: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@functools.cache
def _imports(path: str) -> tuple[tuple[str, str, str], ...]:
    """(module, name, name here) of every ``from ... import`` of a file."""
    if not path:
        return ()
    return tuple(
        (node.module or "", alias.name, alias.asname or alias.name)
        for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
