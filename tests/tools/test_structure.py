"""What a program can see of how the project is built: nobody reads a meaning out of words that were made for people."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
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


def _own(scope: ast.AST) -> list[ast.AST]:
    """All nodes of a scope; of a function inside it only that it is there."""
    found = list(ast.iter_child_nodes(scope))
    for node in found:
        if not isinstance(node, FUNCTIONS):
            found += ast.iter_child_nodes(node)
    return found


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """What a text for people is called where it is taken out of its object first."""
    for node in nodes:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            yield from (name.id for name, value in pairs if isinstance(name, ast.Name) and _is_text(value))


def readings(scope: ast.AST, outer: frozenset[str] = frozenset()) -> Iterator[int]:
    """Lines on which a text for people is taken apart, searched or compared with a part of it. Joining its words with
    single blanks (``" ".join(text.split())``) is no reading. ``outer``: names of such texts around the scope."""
    nodes = _own(scope)
    names = outer.union(_names(nodes))
    joined = {
        id(node.args[0])
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
        and len(node.args) == 1
    }
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            yield from readings(node, names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and id(node) not in joined:
            taken_apart = node.func.attr in READING and _is_text(node.func.value, names)
            if taken_apart or (node.func.attr in MATCHING and any(_is_text(one, names) for one in node.args)):
                yield node.lineno
        elif isinstance(node, ast.Compare):
            parts = any(isinstance(one, (ast.In, ast.NotIn)) for one in node.ops)
            if parts and any(_is_text(one, names) for one in node.comparators):
                yield node.lineno


def reading_modules(folder: Path) -> dict[str, list[int]]:
    """The modules below a folder that read such a text, and on which lines."""
    found = {
        path.relative_to(folder).as_posix(): list(readings(ast.parse(path.read_text(encoding="utf-8"))))
        for path in sorted(folder.rglob("*.py"))
    }
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("name = failure.message.split('`')[1]", True),
        ("match = re.search('default of', other.reason)", True),
        ("if 'true nor' in issue.reason: pass", True),
        ("if problem.message.startswith('comments'): pass", True),
        ("def f(one):\n    said, help = one.message, one.help\n    return 'tab' in said", True),
        ("def f(one):\n    said = one.message\n    return said.replace('the last', 'the first')", True),
        ("def f(one):\n    said = one.message\n    def g():\n        return said.split()\n    return g", True),
        ("def f(one):\n    def g(two):\n        said = two.message\n    return one.said.split()", False),
        ("def g(two):\n    said = two.message\n\ndef f(said):\n    return said.split()", False),
        ("def f(one):\n    said = one.name\n    return said.partition(';')[0]", False),
        ("line = ' '.join(one.message.split())", False),
        ("text = f'{failure.message}; stops'", False),
        ("if failure.kind in KINDS: pass", False),
        ("name = path.name.split('.')[0]", False),
    ],
)
def test_what_counts_as_reading(code: str, reads: bool) -> None:
    assert bool(list(readings(ast.parse(code)))) is reads


def test_a_planted_reading_is_found(root: Path, tmp_path: Path) -> None:
    module = (root / "zerocfg" / "rules" / "failures.py").read_text(encoding="utf-8")
    (tmp_path / "sound.py").write_text(module, encoding="utf-8")
    (tmp_path / "inside").mkdir()
    planted = "def late(failure):\n    said = failure.message\n    return [one for one in said.split()]\n"
    (tmp_path / "inside" / "planted.py").write_text(f"{module}\n\n{planted}", encoding="utf-8")
    assert reading_modules(tmp_path) == {"inside/planted.py": [module.count("\n") + 5]}


def test_no_module_reads_a_message(root: Path) -> None:
    assert reading_modules(root / "zerocfg") == {}
