"""What a program can see of how the project is built: nobody reads a meaning out of words that were made for people."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

WORDS = {"message", "reason", "help"}
"""Attributes that hold text for people."""
READING = {"startswith", "endswith", "split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix"}
READING |= {"find", "index", "count", "splitlines", "replace"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MATCHING = {"search", "match", "fullmatch", "findall", "finditer"}


def _is_text(node: ast.AST, names: Collection[str] = ()) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr in WORDS) or (isinstance(node, ast.Name) and node.id in names)


def _names(function: ast.AST) -> set[str]:
    """What a text for people is called in a function that takes it out of its object first."""
    found: set[str] = set()
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            found |= {name.id for name, value in pairs if isinstance(name, ast.Name) and _is_text(value)}
    return found


def readings(tree: ast.AST) -> Iterator[int]:
    """Lines on which a text for people is taken apart, searched or compared with a part of it. Joining its words with
    single blanks (``" ".join(text.split())``) is no reading."""
    joined = {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
        and len(node.args) == 1
    }
    called = {
        id(inner): _names(node) for node in ast.walk(tree) if isinstance(node, FUNCTIONS) for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        names = called.get(id(node), ())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and id(node) not in joined:
            taken_apart = node.func.attr in READING and _is_text(node.func.value, names)
            if taken_apart or (node.func.attr in MATCHING and any(_is_text(one, names) for one in node.args)):
                yield node.lineno
        elif isinstance(node, ast.Compare):
            parts = any(isinstance(one, (ast.In, ast.NotIn)) for one in node.ops)
            if parts and any(_is_text(one, names) for one in node.comparators):
                yield node.lineno


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("name = failure.message.split('`')[1]", True),
        ("match = re.search('default of', other.reason)", True),
        ("if 'true nor' in issue.reason: pass", True),
        ("if problem.message.startswith('comments'): pass", True),
        ("def f(one):\n    said, help = one.message, one.help\n    return 'tab' in said", True),
        ("def f(one):\n    said = one.message\n    return said.replace('the last', 'the first')", True),
        ("def f(one):\n    said = one.name\n    return said.partition(';')[0]", False),
        ("line = ' '.join(one.message.split())", False),
        ("text = f'{failure.message}; stops'", False),
        ("if failure.kind in KINDS: pass", False),
        ("name = path.name.split('.')[0]", False),
    ],
)
def test_what_counts_as_reading(code: str, reads: bool) -> None:
    assert bool(list(readings(ast.parse(code)))) is reads


def test_no_module_reads_a_message(root: Path) -> None:
    found = {
        path.relative_to(root).as_posix(): lines
        for path in sorted((root / "zerocfg").rglob("*.py"))
        if (lines := list(readings(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == {}
