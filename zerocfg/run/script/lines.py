"""The statements of one function, or of a module that is started, in the order of the text, each with its blocks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from zerocfg.record import record
from zerocfg.run.script.modules import Module
from zerocfg.run.script.reachable import Owner, Reach

_BLOCKS = ("body", "orelse", "finalbody")

Path = tuple[tuple[int, str], ...]
"""The blocks around a statement, outer ones first: the identity of a compound statement, and which of its parts."""


@record(frozen=True, slots=True)
class Scope:
    """``lines``: without those of functions and classes within it, which have other names and are run at other times.
    ``tests``: by the identity of an `if` or a `while`, what it asks."""

    module: Module
    owner: Owner
    lines: Sequence[tuple[ast.stmt, Path]]
    tests: Mapping[int, ast.expr]


def scopes(found: Reach, word: str) -> Iterator[Scope]:
    """Those whose module has a word: the lines of the script that is started, and the functions that it reaches and in
    which a library is called or a parser is asked."""
    reached = {id(call.owner) for call in found.calls} | {id(owner) for owner, _ in found.given}
    for module in found.modules:
        if word not in module.file.source.text:
            continue
        if module is found.modules[0]:
            yield _scope(module, None, module.tree)
        for definition in module.definitions.values():
            for item in definition.body if isinstance(definition, ast.ClassDef) else [definition]:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and id(item) in reached:
                    yield _scope(module, item, item.body)


def own_nodes(line: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of the statements within it."""
    found: list[ast.AST] = [line]
    for node in found:  # grows while it is gone through
        yield node
        found += [item for item in ast.iter_child_nodes(node) if not isinstance(item, (ast.stmt, ast.ExceptHandler))]


def _scope(module: Module, owner: Owner, body: Sequence[ast.stmt]) -> Scope:
    lines = list(_flat(body, ()))
    return Scope(
        module, owner, lines, {id(line): line.test for line, _ in lines if isinstance(line, (ast.If, ast.While))}
    )


def _flat(body: Sequence[ast.stmt], path: Path) -> Iterator[tuple[ast.stmt, Path]]:
    for line in body:
        if isinstance(line, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield line, path
        for name in _BLOCKS:
            # what stands within `with` is as sure as what stands around it
            inner = path if isinstance(line, (ast.With, ast.AsyncWith)) else (*path, (id(line), name))
            yield from _flat(getattr(line, name, ()), inner)
        for part in (*getattr(line, "handlers", ()), *getattr(line, "cases", ())):
            yield from _flat(part.body, (*path, (id(part), "body")))
