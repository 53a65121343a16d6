"""The names that a script imports from libraries as soon as it is started, whatever it does later."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from zerocfg.catalog.lost_names import LIBRARIES
from zerocfg.run.model import ImportedName, Origin, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.script.modules import Imported, Module, parse, span_of


def imported_names(modules: Sequence[Module], root: Path) -> tuple[ImportedName, ...]:
    """What the own lines of a script and of the modules that these import take from the libraries whose lost names are
    known. ``modules``: those that the script reaches, itself first.

    An import within `try`, `if` or a function may be meant for another release, or may never run.
    """
    by_path = {module.path: module for module in modules}
    waiting = list(modules[:1])
    seen = {module.path for module in waiting}
    found: list[ImportedName] = []
    for module in waiting:  # grows while it is gone through
        names, others = _imports(module.file, module.path)
        found += names
        for imported in others:
            place = module.places.get((imported, str(root)))
            inner = by_path.get(place[0]) if place is not None else None
            if inner is not None and inner.path not in seen:
                seen.add(inner.path)
                waiting.append(inner)
    return tuple(found)


@remembered
def _imports(file: SourceFile, path: Path) -> tuple[tuple[ImportedName, ...], tuple[Imported, ...]]:
    """The names that a module takes from these libraries, and what it imports from elsewhere."""
    module = parse(file, path)
    assert module is not None  # a script reaches only what could be parsed
    names, others = [], []
    for imported, alias in _unconditional(module):
        if imported.level or imported.module.partition(".")[0] not in LIBRARIES:
            others.append(imported)
        else:
            origin = Origin("file", file=file, span=span_of(module, alias))
            names.append(ImportedName(imported.module, imported.name, origin))
    return tuple(names), tuple(others)


def _unconditional(module: Module) -> Iterator[tuple[Imported, ast.alias]]:
    """The imports among a module's outermost statements."""
    for statement in module.tree:
        if isinstance(statement, ast.Import):
            yield from ((Imported(alias.name), alias) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                name = "" if alias.name == "*" else alias.name
                yield Imported(statement.module or "", name, statement.level), alias
