"""The names that a script imports from libraries as soon as it is started, before any of its options is looked at."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from zerocfg.budgets import MODULES, SCRIPT_BYTES
from zerocfg.catalog.lost_names import LIBRARIES
from zerocfg.patterns import pattern
from zerocfg.run.model import ImportedName, Origin, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.script.modules import Imported, Module, Open, located, parse, span_of
from zerocfg.source.text import Span

_ANY_LIBRARY = "|".join(map(re.escape, sorted(LIBRARIES)))
_FROM = pattern(rf"(?m)^from[ \t]+((?:{_ANY_LIBRARY})(?:\.\w+)*)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n(]+))")
"""An import that begins its line, so that it is within no block."""
INSTALLED = frozenset((*sys.stdlib_module_names, "torch", "numpy", "tqdm", "datasets", "peft", "wandb", "PIL"))
"""Packages that scripts import most; no file of the repository is looked for by their names."""
_NAME = pattern(r"(\w+|\*)(?:\s+as\s+\w+)?")
_WHOLE = pattern(r"(?m)^import[ \t]+(\w+)[ \t]*$")
_CLASS = pattern(r"(?m)^class[ \t]+\w+\(([^()\n]*)\)[ \t]*:")
"""A class that begins its line, so that it is within no block."""
_BASE = pattern(rf"(?<![\w.])({_ANY_LIBRARY})\.(\w+)(?![\w.])")
_COMMENT = pattern(r"#[^\n]*")


def imported_names(modules: Sequence[Module], open_file: Open, root: Path) -> tuple[ImportedName, ...]:
    """What the own lines of a script and of the modules that these import take from the libraries whose lost names are
    known. ``modules``: those that the script reaches, itself first.

    An import within `try`, `if` or a function may be meant for another release, or may never run. Of a module that is
    imported and of which the script reaches nothing the text is looked at, and no further ones.
    """
    by_path = {module.path: module for module in modules}
    waiting = list(modules[:1])
    seen = {module.path for module in waiting}
    found: list[ImportedName] = []
    for module in waiting:  # grows while it is gone through
        names, others = imports_of(module.file, module.path)
        found += names
        for imported, _ in others:
            place = located(module, imported, root)
            if place is None or place[0] in seen or len(seen) > MODULES:
                continue
            seen.add(place[0])
            inner = by_path.get(place[0])
            if inner is not None:
                waiting.append(inner)
                continue
            found += _in_text(open_file(place[0]))
    return tuple(found)


@remembered
def imports_of(file: SourceFile, path: Path) -> tuple[tuple[ImportedName, ...], tuple[tuple[Imported, ast.alias], ...]]:
    """The names that a module takes from these libraries, and what it imports from elsewhere."""
    module = parse(file, path)
    assert module is not None  # a script reaches only what could be parsed
    names, others = [], []
    for imported, alias in _unconditional(module):
        head = imported.module.partition(".")[0]
        if imported.level or head not in LIBRARIES:
            if imported.level or head not in INSTALLED:
                others.append((imported, alias))
        else:
            origin = Origin("file", file=file, span=span_of(module, alias))
            names.append(ImportedName(imported.module, imported.name, origin))
    return (*names, *_derived_from(file)), tuple(others)


def _unconditional(module: Module) -> Iterator[tuple[Imported, ast.alias]]:
    """The imports among a module's outermost statements."""
    for statement in module.tree:
        if isinstance(statement, ast.Import):
            yield from ((Imported(alias.name), alias) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                name = "" if alias.name == "*" else alias.name
                yield Imported(statement.module or "", name, statement.level), alias


@remembered
def _in_text(file: SourceFile) -> tuple[ImportedName, ...]:
    """What a module that is not parsed takes from these libraries."""
    text = file.source.text
    found = []
    for statement in _FROM.finditer(text) if len(text) <= SCRIPT_BYTES else ():
        group = 2 if statement[2] is not None else 3
        listed = _COMMENT.sub(lambda comment: " " * len(comment[0]), statement[group])
        for name in _NAME.finditer(listed):
            start = statement.start(group) + name.start(1)
            origin = Origin("file", file=file, span=Span(start, start + len(name[1])))
            found.append(ImportedName(statement[1], "" if name[1] == "*" else name[1], origin))
    return (*found, *_derived_from(file))


@remembered
def _derived_from(file: SourceFile) -> tuple[ImportedName, ...]:
    """The classes of these libraries from which a module's own derive by `library.Name`."""
    text = file.source.text
    if len(text) > SCRIPT_BYTES or "\nclass " not in text:
        return ()
    found = []
    whole = set(_WHOLE.findall(text))
    for statement in _CLASS.finditer(text):
        for base in _BASE.finditer(text, statement.start(1), statement.end(1)):
            if base[1] in whole:
                span = Span(base.start(2), base.end(2))
                found.append(ImportedName(base[1], base[2], Origin("file", file=file, span=span)))
    return tuple(found)
