"""Python modules of a repository as trees: what their names mean, and which of them import each other.

Nothing is executed. A file that Python could not parse has no tree, and says nothing.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from zerocfg.budgets import SCRIPT_BYTES
from zerocfg.frontends import registry
from zerocfg.record import field, record
from zerocfg.run.model import SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.script.code import Code, code_of
from zerocfg.run.script.comparisons import decisions
from zerocfg.source import disk
from zerocfg.source.python_spans import PythonSpans
from zerocfg.source.text import BOM, Span

LIBRARIES = frozenset(
    "transformers trl accelerate deepspeed lightning pytorch_lightning lightning_fabric optimum torch peft argparse "
    "fire click tyro jsonargparse hydra omegaconf trlx sat".split()
)
"""Packages whose names are never looked for in the repository, which may be a copy of one."""


def is_library(package: str) -> bool:
    return package in LIBRARIES or package in registry.modules()


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Open = Callable[[Path], SourceFile]


class Imported(NamedTuple):
    """What an imported name stands for: a thing of a module. ``name`` empty: the module itself.

    ``level``: how many dots the import starts with.
    """

    module: str
    name: str = ""
    level: int = 0


_BLOCKS = ("body", "orelse", "finalbody")
_PARTS = ("handlers", "cases")
"""Fields of a statement that hold statements, and those whose nodes do."""


def _imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports within some statements, those of functions and classes included."""
    found = list(body)
    for statement in found:  # grows while it is gone through
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement
        elif "body" in statement._fields or "cases" in statement._fields:  # most statements hold no others
            for name in _BLOCKS:
                found += getattr(statement, name, ())
            for name in _PARTS:
                for part in getattr(statement, name, ()):
                    found += part.body


@record(slots=True, eq=False)
class Module:
    """One parsed file. ``body``: what runs when it is started or imported, definitions aside. ``spans``: places in its
    code, and ``at`` where each character of that stands in the file, None where the file is the code. ``tree``: its
    statements as they are written."""

    file: SourceFile
    path: Path
    spans: PythonSpans
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, Imported] = field(default_factory=dict)
    stars: list[Imported] = field(default_factory=list)
    body: list[ast.stmt] = field(default_factory=list)
    at: Sequence[int] | None = None
    tree: Sequence[ast.stmt] = ()
    codes: dict[Definition | bool, Code] = field(default_factory=dict)
    """By definition; by whether the module is started where it is its own lines."""
    places: dict[tuple[Imported, str], tuple[Path, str] | None] = field(default_factory=dict)
    heads: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def code(self, of: Definition | None, *, started: bool = True) -> Code:
        """What stands in a function, in a class outside of its methods, or in the module's own lines (None); looked at
        once, however many scripts reach it. Unless it is ``started``, `if __name__ == "__main__":` does not run."""
        key = started if of is None else of
        found = self.codes.get(key)
        if found is None:
            body: Sequence[ast.stmt] = self.body if of is None else of.body
            if isinstance(of, ast.ClassDef):
                body = [item for item in body if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
            elif of is None and not started:
                body = [item for item in body if not (isinstance(item, ast.If) and is_main(item))]
            found = self.codes[key] = code_of(body)
            if not isinstance(of, ast.ClassDef):  # `body` has lost the conditions of the module's own lines
                found.decisions = tuple(decisions(self.tree if of is None else of.body, started=started))
            self._only_telling(found)
        return found

    def _only_telling(self, code: Code) -> None:
        """Leave out names that stand for nothing outside of the code: each script that reaches it would ask again."""

        def known(name: str) -> bool:
            return name in self.imports or name in self.definitions

        def telling(function: ast.expr) -> bool:
            while isinstance(function, ast.Attribute):
                function = function.value
            return isinstance(function, ast.Name) and (known(function.id) or function.id in code.aliases)

        if not self.stars:
            code.names = {name: None for name in code.names if known(name)}
            code.members = {member: None for member in code.members if member[0] in self.imports}
            code.calls = [call for call in code.calls if telling(call.func)]

    def holding(self, head: str, root: Path) -> tuple[str, ...]:
        """The folders that have a module or package of this name; most imports are of packages that are installed."""
        key = (head, str(root))
        found = self.heads.get(key)
        if found is None:
            found = self.heads[key] = tuple(
                base
                for base in _above(self.path.parent, root)
                if disk.is_dir(f"{base}/{head}") or disk.is_file(f"{base}/{head}.py")
            )
        return found

    def dotted(self, expression: ast.expr, base_of: ast.ClassDef | None = None) -> str:
        """The name of a library's thing as the library has it ("accelerate.Accelerator"); empty for anything else.

        ``base_of``: the class that derives from the expression. Only there a name that the class takes over from its
        import (`class Trainer(Trainer)`) still means what was imported.
        """
        own = base_of.name if base_of is not None else ""
        if isinstance(expression, ast.Name) and expression.id != own and self._replaces_import(expression.id):
            return ""
        names: list[str] = []
        while isinstance(expression, ast.Attribute):
            names.append(expression.attr)
            expression = expression.value
        found = self.imports.get(expression.id) if isinstance(expression, ast.Name) else None
        if found is None or found.level:
            return ""
        parts = [*found.module.split("."), *([found.name] if found.name else []), *reversed(names)]
        return f"{parts[0]}.{parts[-1]}" if is_library(parts[0]) and len(parts) > 1 else ""

    def _replaces_import(self, name: str) -> bool:
        """Whether the module defines a class that derives from an imported class of its own name."""
        definition = self.definitions.get(name)
        return isinstance(definition, ast.ClassDef) and any(
            name == (base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else "")
            for base in definition.bases
        )


@remembered
def parse(file: SourceFile, path: Path) -> Module | None:
    """The module of a file; None where Python could not parse it."""
    text, at = file.source.text, None
    if path.suffix == ".ipynb":
        from zerocfg.source.launch.notebook import python_of  # few scripts are notebooks

        text, at, _ = python_of(file.source)
    if len(text) > SCRIPT_BYTES:
        return None
    try:
        tree = ast.parse(text.removeprefix(BOM))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module = Module(file, path, PythonSpans(text), at=at, tree=tree.body)
    for statement in _flat(tree.body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            module.definitions[statement.name] = statement
        else:
            module.body.append(statement)
    # Imports within functions mean the same; that another function may not see them does not matter here.
    for node in _imports(tree.body):
        if isinstance(node, ast.Import):
            for name in node.names:
                whole = name.name if name.asname else name.name.partition(".")[0]
                module.imports[name.asname or whole] = Imported(whole)
        else:
            for name in node.names:
                if name.name == "*":
                    module.stars.append(Imported(node.module or "", "", node.level))
                else:
                    module.imports[name.asname or name.name] = Imported(node.module or "", name.name, node.level)
    return module


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those within `try` and `if` too where these hold definitions."""
    for statement in body:
        if isinstance(statement, ast.Try) or (isinstance(statement, ast.If) and not is_main(statement)):
            inner = [*statement.body, *statement.orelse]
            if isinstance(statement, ast.Try):
                inner += [item for handler in statement.handlers for item in handler.body]
            yield from _flat(inner)
        else:
            yield statement


def is_main(statement: ast.If) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))


def located(module: Module, imported: Imported, root: Path) -> tuple[Path, str] | None:
    """The file of the repository that holds what is imported, and the name to look for in it; looked for once."""
    key = (imported, str(root))
    if key not in module.places:
        module.places[key] = next(_located(module, imported, root), None)
    return module.places[key]


@lru_cache(maxsize=4096)
def _above(folder: Path, root: Path) -> tuple[str, ...]:
    """The folders that a module's imports are looked for in: those above it, and the repository's `src`."""
    above = [parent for parent in (folder, *folder.parents) if parent.is_relative_to(root)]
    return tuple(dict.fromkeys(map(str, [*above, root / "src"])))


def _located(module: Module, imported: Imported, root: Path) -> Iterator[tuple[Path, str]]:
    """Looked for as texts: to make a path of each takes several times as long as to look for it."""
    head, *inner = imported.module.split(".")
    if imported.level:
        bases: tuple[str, ...] = (disk.real(module.path.parent.joinpath(*[".."] * (imported.level - 1))),)
    elif is_library(head):
        return
    else:
        bases = module.holding(head, root)
    for base in bases:
        here = os.path.join(base, *filter(None, (head, *inner)))  # noqa: PTH118
        if imported.name:
            found = _file(f"{here}/{imported.name}")
            if found is not None:
                yield Path(found), ""
                return
        found = _file(here) if imported.module else _file(f"{here}/__init__")
        if found is not None:
            yield Path(found), imported.name
            return


def _file(module: str) -> str | None:
    """The file of a module or package of this path without its suffix."""
    return next(filter(disk.is_file, (f"{module}.py", f"{module}/__init__.py")), None)


def span_of(module: Module, node: ast.expr | ast.alias) -> Span:
    """The span of an expression or an imported name in the file, in code points."""
    span = module.spans.span(node)
    return span if module.at is None else Span(module.at[span.start], module.at[span.end - 1] + 1)
