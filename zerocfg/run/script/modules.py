"""Python modules of a repository as trees: what their names mean, and which of them import each other.

Nothing is executed. A file that Python could not parse has no tree, and says nothing.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from zerocfg.run.model import SourceFile
from zerocfg.source.text import BOM

LIBRARIES = frozenset(
    "transformers trl accelerate deepspeed lightning pytorch_lightning lightning_fabric optimum torch peft argparse "
    "fire click tyro jsonargparse hydra omegaconf trlx sat".split()
)
"""Packages whose names are never looked for in the repository, which may be a copy of one."""
LARGEST = 1 << 20
"""Bytes; larger Python files are no training scripts."""

_OF_DEEPSPEED = frozenset("zero_optimization zero_optimisation train_batch_size train_micro_batch_size_per_gpu".split())
"""One of these keys is in every DeepSpeed config that a script writes out."""
_CHANGING = frozenset({"pop", "setdefault", "__setitem__"})

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Open = Callable[[Path], SourceFile]


class Imported(NamedTuple):
    """What an imported name stands for: a thing of a module. ``name`` empty: the module itself.

    ``level``: how many dots the import starts with.
    """

    module: str
    name: str = ""
    level: int = 0


@dataclass(slots=True)
class Code:
    """What stands in the code of one function, or in a module's own lines.

    ``names`` and ``members`` (`package.thing`) are what it reads; ``stored``: the attributes that it sets on some
    object, or changes by `x.attribute[key] = ...`; ``dicts``: those that hold a key of DeepSpeed; ``changed``: keys
    that it sets or takes out of some mapping; ``aliases``: other names that it gives to things, with all that each
    may be.
    """

    names: set[str] = field(default_factory=set)
    members: set[tuple[str, str]] = field(default_factory=set)
    calls: list[ast.Call] = field(default_factory=list)
    aliases: dict[str, list[ast.expr]] = field(default_factory=dict)
    given: list[ast.Assign] = field(default_factory=list)
    dicts: list[ast.Dict] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)


_CHANGES = frozenset(("update", "setdefault", "append", "extend"))
"""Methods that change the object that an attribute holds."""


_NO_NODES = frozenset(
    "ctx op ops id attr arg name asname names module level kind type_comment is_async simple conversion rest "
    "kwd_attrs str".split()
)
"""Fields that hold words and numbers, or a node that says nothing by itself: an operator, whether a name is set."""


_LEAVES = frozenset({ast.Name, ast.Constant, ast.MatchSingleton})


class _Inner(dict[type[ast.AST], Callable[[ast.AST], Iterable[Any]]]):
    """By class of node: its other fields, read by one call."""

    def __missing__(self, kind: type[ast.AST]) -> Callable[[ast.AST], Iterable[Any]]:
        names = [] if kind in _LEAVES else [name for name in kind._fields if name not in _NO_NODES]
        one = attrgetter(*names) if names else None
        self[kind] = (lambda node: ()) if one is None else one if len(names) > 1 else (lambda node: (one(node),))
        return self[kind]


_inner = _Inner()


def children(node: ast.AST) -> list[Any]:
    """The nodes directly within a node, in the order of the text, without those that only say whether a name is read or
    set, or which operator is meant. `ast.iter_child_nodes` takes four times as long."""
    found: list[Any] = []
    for value in _inner[node.__class__](node):
        if value.__class__ is list:
            found += [one for one in value if one is not None] if None in value else value
        elif value is not None:
            found.append(value)
    return found


def nodes(*roots: ast.AST) -> Iterator[ast.AST]:
    """All nodes of some trees, outer ones first."""
    found: list[Any] = list(roots)
    for node in found:  # grows while it is gone through
        yield node
        if node.__class__ not in _LEAVES:
            found += children(node)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements within some, those of functions and classes included."""
    found = list(body)
    for statement in found:  # grows while it is gone through
        yield statement
        for name in ("body", "orelse", "finalbody"):
            found += getattr(statement, name, ())
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            found += part.body


_LOOKED_AT = frozenset({ast.Name, ast.Attribute, ast.Call, ast.Assign, ast.Subscript, ast.Dict})


def code_of(body: Sequence[ast.stmt]) -> Code:
    """The code of some statements, those of functions within them included."""
    found = Code()
    for statement in body:
        for node in nodes(statement):
            if node.__class__ not in _LOOKED_AT:
                continue
            if isinstance(node, ast.Name):
                found.names.add(node.id)
            elif isinstance(node, ast.Attribute):
                if isinstance(node.ctx, ast.Store):
                    found.stored.add(node.attr)
                if isinstance(node.value, ast.Name):
                    found.members.add((node.value.id, node.attr))
            elif isinstance(node, ast.Call):
                found.calls.append(node)
                _note_changes(node, found)
            elif isinstance(node, ast.Assign):
                found.given.append(node)
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    found.aliases.setdefault(target.id, []).extend(_things(node.value))
            elif isinstance(node, ast.Subscript):
                if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Attribute):
                    found.stored.add(node.value.attr)
                if not isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Constant):
                    found.changed.add(str(node.slice.value))
            elif isinstance(node, ast.Dict) and any(
                isinstance(key, ast.Constant) and key.value in _OF_DEEPSPEED for key in node.keys
            ):
                found.dicts.append(node)
    return found


def _note_changes(node: ast.Call, found: Code) -> None:
    """What a call changes: `x.pop("key")`, `x.attribute.update(...)`, `setattr(x, "attribute", ...)`."""
    function = node.func
    if isinstance(function, ast.Attribute):
        if function.attr in _CHANGING:
            found.changed.update(str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant))
        if function.attr in _CHANGES and isinstance(function.value, ast.Attribute):
            found.stored.add(function.value.attr)
    elif isinstance(function, ast.Name) and function.id == "setattr" and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            found.stored.add(name.value)


def _things(value: ast.expr) -> list[ast.expr]:
    """The things that an expression may be, without being called: `A`, `a.B`, `A if x else B`, `{"a": A}[x]`."""
    if isinstance(value, ast.IfExp):
        return [*_things(value.body), *_things(value.orelse)]
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Dict):
        return [one for item in value.value.values for one in _things(item)]
    return [value] if isinstance(value, (ast.Name, ast.Attribute)) else []


@dataclass(slots=True, eq=False)
class Module:
    """One parsed file. ``body``: what runs when it is started or imported, definitions aside. ``text``: its code, and
    ``at`` where each character of it stands in the file, None where the file is the code."""

    file: SourceFile
    path: Path
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, Imported] = field(default_factory=dict)
    stars: list[Imported] = field(default_factory=list)
    body: list[ast.stmt] = field(default_factory=list)
    text: str = ""
    at: Sequence[int] | None = None
    starts: list[int] = field(default_factory=list)
    """Offset of each line's first character in the code."""
    codes: dict[Definition | bool, Code] = field(default_factory=dict)
    """By definition; by whether the module is started where it is its own lines."""
    places: dict[tuple[Imported, Path], tuple[Path, str] | None] = field(default_factory=dict)

    def code(self, of: Definition | None, *, started: bool = True) -> Code:
        """What stands in a function, in a class outside of its methods, or in the module's own lines (None); looked at
        once, however many scripts reach it. Unless it is ``started``, `if __name__ == "__main__":` does not run."""
        key = started if of is None else of
        found = self.codes.get(key)
        if found is None:
            body: Sequence[ast.stmt] = self.body if of is None else of.body
            if isinstance(of, ast.ClassDef):
                body = [one for one in body if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
            elif of is None and not started:
                body = [one for one in body if not (isinstance(one, ast.If) and _main(one))]
            found = self.codes[key] = code_of(body)
        return found

    def dotted(self, expression: ast.expr) -> str:
        """The name of a library's thing as the library has it ("accelerate.Accelerator"); empty for anything else."""
        names: list[str] = []
        while isinstance(expression, ast.Attribute):
            names.append(expression.attr)
            expression = expression.value
        found = self.imports.get(expression.id) if isinstance(expression, ast.Name) else None
        if found is None or found.level:
            return ""
        parts = [*found.module.split("."), *([found.name] if found.name else []), *reversed(names)]
        return f"{parts[0]}.{parts[-1]}" if parts[0] in LIBRARIES and len(parts) > 1 else ""


@lru_cache(maxsize=4096)
def parse(file: SourceFile, path: Path) -> Module | None:
    """The module of a file; None where Python could not parse it."""
    text, at = file.source.text, None
    if path.suffix == ".ipynb":
        from zerocfg.source.notebook import python_of  # few scripts are notebooks

        text, at = python_of(file.source)
    if len(text) > LARGEST:
        return None
    try:
        tree = ast.parse(text.removeprefix(BOM))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module = Module(file, path, text=text, at=at, starts=_starts(text))
    for statement in _flat(tree.body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            module.definitions[statement.name] = statement
        else:
            module.body.append(statement)
    # Imports within functions mean the same; that another function may not see them does not matter here.
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            for one in node.names:
                whole = one.name if one.asname else one.name.partition(".")[0]
                module.imports[one.asname or whole] = Imported(whole)
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                if one.name == "*":
                    module.stars.append(Imported(node.module or "", "", node.level))
                else:
                    module.imports[one.asname or one.name] = Imported(node.module or "", one.name, node.level)
    return module


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those within `try` and `if` too where these hold definitions."""
    for statement in body:
        if isinstance(statement, ast.Try) or (isinstance(statement, ast.If) and not _main(statement)):
            inner = [*statement.body, *statement.orelse]
            if isinstance(statement, ast.Try):
                inner += [one for handler in statement.handlers for one in handler.body]
            yield from _flat(inner)
        else:
            yield statement


def _main(statement: ast.If) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))


def _starts(text: str) -> list[int]:
    """Where the lines start, as Python counts them."""
    first = len(text) - len(text.removeprefix(BOM))
    return [first, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]


def located(module: Module, imported: Imported, root: Path) -> tuple[Path, str] | None:
    """The file of the repository that holds what is imported, and the name to look for in it; looked for once."""
    key = (imported, root)
    if key not in module.places:
        module.places[key] = next(_located(module, imported, root), None)
    return module.places[key]


@lru_cache(maxsize=4096)
def _above(folder: Path, root: Path) -> tuple[str, ...]:
    """The folders that a module's imports are looked for in: those above it, and the repository's `src`."""
    above = [one for one in (folder, *folder.parents) if one.is_relative_to(root)]
    return tuple(dict.fromkeys(map(str, [*above, root / "src"])))


def _located(module: Module, imported: Imported, root: Path) -> Iterator[tuple[Path, str]]:
    if imported.level:
        bases: tuple[str, ...] = (str(module.path.parent.joinpath(*[".."] * (imported.level - 1)).resolve()),)
    elif imported.module.partition(".")[0] in LIBRARIES:
        return
    else:
        bases = _above(module.path.parent, root)
    parts = [part for part in imported.module.split(".") if part]
    for base in bases:
        # Most imports are of packages that are installed; texts are looked for much faster than paths are made.
        if parts and not os.path.isdir(f"{base}/{parts[0]}") and not os.path.isfile(f"{base}/{parts[0]}.py"):  # noqa: PTH112, PTH113
            continue
        here = Path(base, *parts)
        if imported.name:
            for path in (here / f"{imported.name}.py", here / imported.name / "__init__.py"):
                if path.is_file():
                    yield path, ""
                    return
        for path in (here.with_name(f"{here.name}.py") if parts else here / "__init__.py", here / "__init__.py"):
            if path.is_file():
                yield path, imported.name
                return
