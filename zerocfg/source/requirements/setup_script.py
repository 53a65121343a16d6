"""The requirements that a ``setup.py`` states, from its text: it is never run.

What `setup(install_requires=...)` is given is followed through the names, functions and files that it is made of. Texts
that are requirements with a version count wherever they stand there: in a list, in a list that a function picks from
(`deps["transformers"]`), in what is added later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from zerocfg.source.python_spans import PythonSpans
from zerocfg.source.requirements.manifests import Read, itself, python
from zerocfg.source.requirements.pip import Requirement, parse_requirement
from zerocfg.source.text import BOM, Span

_A_FILE = re.compile(r"(?:[\w./-]*/)?[\w.-]*requirements?[\w.-]*\.(?:txt|in)|requirements/[\w./-]+\.txt")
_ADDS = frozenset(("append", "extend", "add", "update", "insert"))


def read_setup_script(text: str) -> Read:
    """What is always installed, then what an extra adds."""
    try:
        tree = ast.parse(text.removeprefix(BOM))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []
    given = next(filter(None, map(_setup, ast.walk(tree))), None)
    if given is None:
        return [], []
    places = PythonSpans(text)
    made = _made_of(tree)
    whole = [part.value.id for part in given if part.arg is None and isinstance(part.value, ast.Name)]
    for mapping in whole:  # setup(**arguments)
        given += [ast.keyword(key, value) for key, value in _entries(made.get(mapping, ()))]
    by_name = {part.arg: part.value for part in given if part.arg is not None}
    found: list[Requirement] = []
    includes: list[str] = []
    name, version = by_name.get("name"), by_name.get("version")
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        known = version.value if isinstance(version, ast.Constant) else None
        found.append(itself(name.value, known, places.span(name)))
    needed = by_name.get("python_requires")
    if isinstance(needed, ast.Constant) and isinstance(needed.value, str):
        found.append(python(needed.value, _inside(text, needed.value, places.span(needed))))
    seen: set[int] = set()
    for key, optional in (("install_requires", False), ("extras_require", True)):
        for constant in _texts(by_name.get(key), made, seen):
            said = str(constant.value)
            if _A_FILE.fullmatch(said) and not optional:
                includes.append(said)
            requirement = parse_requirement(said, 0, optional=optional)
            if requirement is not None and (requirement.versions or (requirement.versions is None and "@" in said)):
                found.append(replace(requirement, span=_inside(text, said, places.span(constant))))
    return found, includes


def _inside(text: str, said: str, span: Span) -> Span:
    """Where a text stands without its quotes; with them where it is not written as it reads."""
    start = text.find(said, span.start, span.end)
    return span if start < 0 else Span(start, start + len(said))


def _setup(node: ast.AST) -> list[ast.keyword] | None:
    """The arguments of a call of setuptools' ``setup``."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return list(node.keywords) if name == "setup" else None


def _made_of(tree: ast.Module) -> dict[str, list[ast.AST]]:
    """What each name of the file is made of: values, what is added to them, files that are opened, functions."""
    found: dict[str, list[ast.AST]] = {}

    def keep(target: ast.expr | None, value: ast.AST | None) -> None:
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                keep(part, value)
        if isinstance(target, ast.Name) and value is not None:
            found.setdefault(target.id, []).append(value)

    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).append(node)
        for target, value in _assignments(node):
            keep(target, value)
    return found


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.AST | None]]:
    """What a statement assigns, adds or opens, each with its target."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        yield node.target, node.value
    elif isinstance(node, ast.With):
        yield from ((item.optional_vars, item.context_expr) for item in node.items)
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield node.target, node.iter
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
        yield from ((node.func.value, argument) for argument in node.args)


def _entries(values: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for value in values:
        if isinstance(value, ast.Dict):
            for key, item in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value), item


def _texts(start: ast.expr | None, made: dict[str, list[ast.AST]], seen: set[int]) -> Iterator[ast.Constant]:
    """The texts that an expression is made of, through the names that it reads; each once."""
    waiting: list[ast.AST] = [start] if start is not None else []
    for root in waiting:  # grows while it is gone through
        for node in ast.walk(root):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                waiting += made.get(node.id, ())
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node
