"""The code that a run starts, by its hashes: what a certificate was made for besides the configs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from zerocfg.budgets import BOUND_MODULES
from zerocfg.emit import lock as lockfile
from zerocfg.run.discover import Files
from zerocfg.run.script.modules import Imported, located, parse
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.paths import relative
from zerocfg.source.text import BOM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from zerocfg.emit.lock import Lock


def code_hashes(folder: Path, lock: Lock) -> dict[str, str]:
    """SHA-256 of the script of the build in ``folder`` and of every module of the repository that it imports, these of
    theirs; by path from the folder of the spec. Nothing is executed. Empty where the script is not there.
    """
    if not lock.script or lock.spec_folder is None or "\0" in lock.script + lock.spec_folder:
        return {}
    root = (folder / lock.spec_folder).resolve()
    hashes = {}
    for path in _modules((root / lock.script).resolve(), _repository(root)):
        data = read_bytes(path)
        if not isinstance(data, Problem):
            hashes[relative(path, root)] = lockfile.sha256(data)
    return dict(sorted(hashes.items()))


def _repository(folder: Path) -> Path:
    """The repository that a folder lies in; without one the folder."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def _modules(script: Path, root: Path) -> list[Path]:
    """The files that Python would read, the script first."""
    files = Files()
    found = {script: None}
    waiting = [script]
    while waiting and len(found) < BOUND_MODULES:
        path = waiting.pop()
        module = parse(files.open(path), path)
        if module is None:
            continue
        for imported in _imports(module.spans.text):
            place = located(module, imported, root)
            if place is not None and (file := place[0].resolve()) not in found:
                found[file] = None
                waiting.append(file)
    return list(found)


def _imports(text: str) -> Iterator[Imported]:
    """Every import statement, wherever it stands."""
    for node in ast.walk(ast.parse(text.removeprefix(BOM))):
        if isinstance(node, ast.Import):
            yield from (Imported(name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Imported(node.module or "", name.name, node.level) for name in node.names if name.name != "*")
            yield Imported(node.module or "", "", node.level)
