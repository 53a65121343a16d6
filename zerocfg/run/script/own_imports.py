"""What a script imports from modules of its own repository that do not have it: it stops before anything else."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from zerocfg.budgets import MODULES, SCRIPT_BYTES
from zerocfg.run.model import BrokenImport, Origin, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.script.imports import imports_of
from zerocfg.run.script.modules import Imported, Module, Open, located, parse, span_of
from zerocfg.source import disk
from zerocfg.source.load import read_bytes

_MAY_BIND = ("import *", "__getattr__", "globals()", "exec(", "sys.modules", "setattr(")
"""By these a module may have names that do not stand in its text."""
_NEVER_INSTALLED = frozenset({"src"})
"""Folders that are packages also without the file that makes one of them: nothing by that name is installed."""
_OF_PACKAGE = "__init__.py"
_BINDS = ("class", "def", "import", "as", "for", "global")
"""The words before a name that is bound."""
_INDENT = 60
"""Characters before a name that are looked at."""


def broken_imports(modules: Sequence[Module], open_file: Open, root: Path) -> tuple[BrokenImport, ...]:
    """Those among the own lines of a script and of the modules that these import, as far as it uses anything of them.
    ``modules``: those that the script reaches, itself first.

    Silent where a name may come about in a way that the text does not show, and about imports within `try`, `if` or a
    function, which may never run.
    """
    by_path = {module.path: module for module in modules}
    waiting = list(modules[:1])
    seen = {module.path for module in waiting}
    found: list[BrokenImport] = []
    for module in waiting:  # grows while it is gone through
        for imported, alias in imports_of(module.file, module.path)[1]:
            place = located(module, imported, root)
            if place is None:
                if _is_missing(module, imported, root):
                    found.append(_broken(module, imported, alias))
                continue
            path, name = place
            if name and _lacks(open_file(path), path, name) and not _lies_beside(path, name):
                found.append(_broken(module, imported, alias, open_file(path)))
            if path in by_path and path not in seen and len(seen) <= MODULES:
                seen.add(path)
                waiting.append(by_path[path])
    return tuple(found)


def _broken(module: Module, imported: Imported, alias: ast.alias, file: SourceFile | None = None) -> BrokenImport:
    origin = Origin("file", file=module.file, span=span_of(module, alias))
    written = f"{'.' * imported.level}{imported.module}"
    return BrokenImport(written, imported.name if file is not None else "", origin, file)


@remembered
def _text(file: SourceFile) -> str | None:
    """The text of a module in which all its names stand; None where others may come about."""
    text = file.source.text
    return None if len(text) > SCRIPT_BYTES or any(word in text for word in _MAY_BIND) else text


def _lacks(file: SourceFile, path: Path, name: str) -> bool:
    text = _text(file)
    if text is None:
        return False
    there = False
    for at in _places(text, name):
        there, head = True, text[max(0, at - _INDENT) : at].rstrip(" \t")
        if not head or head[-1] in "\n(," or head.endswith(_BINDS):
            return False  # names are bound at such places; only of others the code is looked at
    module = parse(file, path) if there else None
    return not there or (module is not None and name not in _bound(module.tree))


def _places(text: str, name: str) -> Iterator[int]:
    """Where a word stands in a text."""
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        if not (at and _is_of_word(text[at - 1])) and not (end < len(text) and _is_of_word(text[end])):
            yield at
        at = text.find(name, end)


def _is_of_word(letter: str) -> bool:
    return letter == "_" or letter.isalnum()


def _bound(tree: Iterable[ast.stmt]) -> set[str]:
    """All names that a module binds, those within its functions included."""
    found: set[str] = set()
    for statement in tree:
        for node in ast.walk(statement):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add(node.asname or node.name.partition(".")[0])
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)) and node.name:
                found.add(node.name)
            elif isinstance(node, ast.Global):
                found.update(node.names)
    return found


def _lies_beside(path: Path, name: str) -> bool:
    """Whether a package has a folder, or a module of another language, by that name."""
    return path.name == _OF_PACKAGE and name in _stems(path.parent)


def _stems(folder: Path) -> set[str]:
    """The names of a folder's entries, without what follows their first dot."""
    return {name.partition(".")[0] for names in disk.names(folder) for name in names}


def _is_missing(module: Module, imported: Imported, root: Path) -> bool:
    """Whether a package of the repository is certainly meant, and has no such module."""
    head, *inner = imported.module.split(".")
    if imported.level:
        folder = module.path.parent.joinpath(*[".."] * (imported.level - 1))
        return bool(head) and _ends_within(folder, [head, *inner], root)
    folders = [Path(base, head) for base in module.holding(head, root)]
    certain = all(head in _NEVER_INSTALLED or disk.is_file(folder / _OF_PACKAGE) for folder in folders)
    return certain and bool(folders and inner) and all(_ends_within(folder, inner, root) for folder in folders)


def _ends_within(folder: Path, parts: Sequence[str], root: Path) -> bool:
    """Whether one of the parts is not in the folder of those before it, and git does not keep it out."""
    for part in parts:
        if part not in _stems(folder):
            return not _is_ignored(folder, part, root)
        folder = folder / part
    return False


def _is_ignored(folder: Path, part: str, root: Path) -> bool:
    names = (part, f"{part}.py")
    return any(fnmatchcase(name, pattern) for place in {folder, root} for pattern in _ignored(place) for name in names)


def _ignored(folder: Path) -> Iterator[str]:
    """The last names of the patterns of a `.gitignore`."""
    place = folder / ".gitignore"
    data = read_bytes(place) if disk.is_file(place) else b""
    for line in data.decode(errors="replace").splitlines() if isinstance(data, bytes) else ():
        pattern = line.strip().rstrip("/").rpartition("/")[2]
        if pattern and not pattern.startswith(("#", "!")):
            yield pattern
