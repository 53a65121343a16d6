"""What a program can see of how the project is built: nobody reads a meaning out of words that were made for people."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

WORDS = {"message", "reason", "help"}
"""Attributes that hold text for people."""
READING = {"startswith", "endswith", "split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix"}
READING |= {"find", "index", "count", "splitlines"}
MATCHING = {"search", "match", "fullmatch", "findall", "finditer"}


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in WORDS


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
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and id(node) not in joined:
            taken_apart = node.func.attr in READING and _is_text(node.func.value)
            if taken_apart or (node.func.attr in MATCHING and any(map(_is_text, node.args))):
                yield node.lineno
        elif isinstance(node, ast.Compare):
            parts = any(isinstance(one, (ast.In, ast.NotIn)) for one in node.ops)
            if parts and any(map(_is_text, node.comparators)):
                yield node.lineno


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("name = failure.message.split('`')[1]", True),
        ("match = re.search('default of', other.reason)", True),
        ("if 'true nor' in issue.reason: pass", True),
        ("if problem.message.startswith('comments'): pass", True),
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
