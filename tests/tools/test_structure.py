"""What a program can see of how the project is built: nobody reads a meaning out of words that were made for people."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

WORDS = {"message", "reason", "help", "why", "because", "note", "what", "cost", "no_time", "samples"}
"""Attributes that hold text for people."""
KINDS = {"why", "what"}
"""Those that are a word of a fixed list in some classes, which is compared as a whole."""
LISTS = {"messages", "reasons", "notes", "assumptions", "assumed", "problems"}
"""Attributes that hold several of them."""
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
    """What a text for people is called where it is taken out of its object, or out of a list, first."""
    for node in nodes:
        if isinstance(node, (ast.For, ast.comprehension)):
            several = isinstance(node.iter, ast.Attribute) and node.iter.attr in LISTS
            yield from [node.target.id] if several and isinstance(node.target, ast.Name) else []
        for target in node.targets if isinstance(node, ast.Assign) else ():
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            yield from (name.id for name, value in pairs if isinstance(name, ast.Name) and _is_text(value))


def readings(scope: ast.AST, outer: frozenset[str] = frozenset()) -> Iterator[int]:
    """Lines on which a text for people is taken apart, searched or compared with words. Joining its words with single
    blanks (``" ".join(text.split())``) is no reading, nor is asking whether there is a text at all. ``outer``: names of
    such texts around the scope."""
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
            compared = node.comparators if parts else _compared(node)
            if any(_is_text(one, names) for one in compared):
                yield node.lineno


def _compared(node: ast.Compare) -> list[ast.expr]:
    """The sides of a comparison with words that are written there, but not of one with a word of a list."""
    sides = [node.left, *node.comparators]
    if not any(isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value for one in sides):
        return []
    return [one for one in sides if not (isinstance(one, ast.Attribute) and one.attr in KINDS)]


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
        ("why = next((note for note in one.notes if note.startswith('no time')), '')", True),
        ("kept = [note for note in one.notes if not note.startswith(NO_TIME)]", True),
        ("for note in one.notes:\n    if 'time' in note: pass", True),
        ("for note in one.notes:\n    if note == 'not traced': pass", True),
        ("def f(one):\n    def g():\n        return [n for n in one.notes if n.endswith('!')]\n    return g", True),
        ("if step.what.startswith('sequences of'): pass", True),
        ("if problem.message == 'not read': pass", True),
        ("if problem.what == 'port': pass", False),
        ("if one.no_time == '': pass", False),
        ("new = [note for note in other.notes if note not in first.notes]", False),
        ("for name in one.names:\n    if name.startswith('a'): pass", False),
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


READERS = {
    "memory/verdict.py": 2,  # a `Step` that shortens the sequences is known by the first words of `what`
    "preflight/text.py": 1,  # "rank 3" is not put behind a text that begins with it
    "rules/keys/names.py": 1,  # the fact `deprecated` of one key of DeepSpeed is the word "renamed"
}
"""Modules that read a text, and on how many lines. An entry that is no longer needed fails the test."""


def test_no_module_reads_a_message(root: Path) -> None:
    assert {name: len(lines) for name, lines in reading_modules(root / "zerocfg").items()} == READERS
