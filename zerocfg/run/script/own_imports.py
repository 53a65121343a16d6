"""What a script imports from modules of its own repository that do not have it: it stops before anything else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from zerocfg.budgets import MODULES, SCRIPT_BYTES
from zerocfg.run.model import BrokenImport, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.script.imports import INSTALLED, imports_of
from zerocfg.run.script.modules import Imported, Module, Open, located, parse
from zerocfg.source import disk
from zerocfg.source.load import read_bytes

_MAY_BIND = ("import *", "__getattr__", "globals()", "exec(", "sys.modules", "setattr(")
"""By these a module may have names that do not stand in its text."""
_NEVER_INSTALLED = frozenset({"src"})
"""Folders that are packages also without the file that makes one of them: nothing by that name is installed."""
_OF_PACKAGE = "__init__.py"


def broken_imports(modules: Sequence[Module], open_file: Open, root: Path) -> tuple[BrokenImport, ...]:
    """Those among the own lines of a script and of the modules that these import. ``modules``: those that the script
    reaches, itself first.

    Silent where a name may come about in a way that the text does not show, and about imports within `try`, `if` or a
    function, which may never run.
    """
    by_path = {module.path: module for module in modules}
    waiting = list(modules[:1])
    seen = {module.path for module in waiting}
    found: list[BrokenImport] = []
    for module in waiting:  # grows while it is gone through
        for imported, origin in imports_of(module.file, module.path)[1]:
            if imported.module.partition(".")[0] in INSTALLED and not imported.level:
                continue
            place = located(module, imported, root)
            if place is None:
                if _is_missing(module, imported, root):
                    found.append(BrokenImport(_written(imported), "", origin))
                continue
            path, name = place
            if name and _lacks(open_file(path), path, name) and not _lies_beside(path, name):
                found.append(BrokenImport(_written(imported), name, origin, open_file(path)))
            if path not in seen and len(seen) <= MODULES:
                seen.add(path)
                inner = by_path.get(path) or parse(open_file(path), path)
                waiting += [inner] if inner is not None else []
    return tuple(found)


def _written(imported: Imported) -> str:
    return f"{'.' * imported.level}{imported.module}"


@remembered
def _text(file: SourceFile) -> str | None:
    """The text of a module all of whose names stand in it; None where others may come about."""
    text = file.source.text
    return text if len(text) <= SCRIPT_BYTES and not any(word in text for word in _MAY_BIND) else None


def _lacks(file: SourceFile, path: Path, name: str) -> bool:
    text, word = _text(file), re.escape(name)
    if text is None or re.search(rf"(?:\b(?:class|def|import|as)[ \t]+|^){word}\b", text, re.MULTILINE):
        return False
    if re.search(rf"\b{word}\b", text) is None:
        return True
    module = parse(file, path)
    return module is not None and name not in _bound(module.tree)


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
