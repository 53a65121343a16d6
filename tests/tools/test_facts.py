"""A fact that the schemas state is stated nowhere else: no literal table of the code pairs a key with what another
format calls it, or with its default, or lists the variables that keys export."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from zerocfg.catalog.counterparts import paths
from zerocfg.catalog.schema import Section, load_schema

SCHEMAS = ("deepspeed", "accelerate", "accelerate-launcher", "training-arguments", "trl")


@dataclass(frozen=True)
class Facts:
    """``calls``: two names of one setting. ``variables``: names in facts ``env``. ``defaults``: of each section, and of
    each schema by dotted names, the defaults as Python writes them."""

    calls: frozenset[frozenset[str]]
    variables: frozenset[str]
    defaults: tuple[dict[str, str], ...]


@cache
def stated() -> Facts:
    """What the compiled schemas say."""
    calls: set[frozenset[str]] = set()
    variables: set[str] = set()
    defaults: list[dict[str, str]] = []
    for name in SCHEMAS:
        whole: dict[str, str] = {}
        for place, section in _sections(name):
            own = {key.name: repr(key.default) for key in section.keys.values() if "default" in key.raw}
            defaults.append(own)
            whole |= {".".join((*place, key)): default for key, default in own.items()}
            for key in section.keys.values():
                dotted = ".".join((*place, key.name))
                variables |= set(key.variables)
                setting = key.facts.get("setting", ())
                others = [setting] if isinstance(setting, str) else [*dict(setting).values()]
                others += key.facts.get("elsewhere", ())
                calls |= {frozenset((ours, other)) for ours in (key.name, dotted) for other in others}
        defaults.append(whole)
    for setting, path in paths("accelerate").items():
        calls.add(frozenset((path[-1], *paths("training-arguments").get(setting, ())[-1:])))
    return Facts(frozenset(pair for pair in calls if len(pair) == 2), frozenset(variables), tuple(defaults))


def _sections(name: str) -> Iterator[tuple[tuple[str, ...], Section]]:
    """Every section with its place; those that a type chooses among have the place of their key."""
    schema = load_schema(name)
    waiting: list[tuple[tuple[str, ...], Section]] = [((), schema.root)]
    while waiting:
        place, section = waiting.pop()
        yield place, section
        for key in section.keys.values():
            cases = key.facts.get("variants", {}).get("cases", {})
            inner = [schema.section(schema.deref({"$ref": one})) for one in cases.values()]
            waiting += [((*place, key.name), one) for one in [key.section(schema), *inner] if one is not None]


def restated(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and kind of every table that states at least two of such facts."""
    facts = stated()
    for node in ast.walk(tree):
        rows, line = list(_rows(node)), getattr(node, "lineno", 0)
        if sum(any(frozenset((a, b)) in facts.calls for a in _words(k) for b in _words(v)) for k, v in rows) > 1:
            yield line, "counterparts"
        values = {name: repr(ast.literal_eval(v)) for k, v in rows if _is_plain(v) for name in _words(k)}
        if any(_says_defaults(values, defaults) for defaults in facts.defaults):
            yield line, "defaults"
        if len(facts.variables.intersection(word for item in _items(node) for word in _words(item))) > 1:
            yield line, "variables"


def _says_defaults(values: dict[str, str], defaults: dict[str, str]) -> bool:
    """Two keys with their defaults, and none with another value: that would be a choice. Nothing is no default."""
    known = {name: value for name, value in values.items() if name in defaults and value != "None"}
    return len(known) > 1 and all(value == defaults[name] for name, value in known.items())


def _rows(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a dict, a sequence of pairs or a chain of comparisons puts side by side."""
    if isinstance(node, ast.Dict):
        yield from ((key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None)
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for item in node.elts:
            if isinstance(item, (ast.Tuple, ast.List)) and item.elts:
                yield from ((item.elts[0], value) for value in item.elts[1:])
    elif isinstance(node, (ast.If, ast.IfExp)):
        chain: list[ast.AST] = [node]
        while chain and isinstance(branch := chain[0], (ast.If, ast.IfExp)):
            does = branch.body[0] if isinstance(branch.body, list) else branch.body
            value = does if isinstance(does, ast.expr) else getattr(does, "value", None)
            if isinstance(branch.test, ast.Compare) and isinstance(value, ast.expr):
                yield from ((one, value) for one in (branch.test.left, *branch.test.comparators) if _is_plain(one))
            chain = [*branch.orelse] if isinstance(branch.orelse, list) else [branch.orelse]


def _items(node: ast.AST) -> list[ast.expr]:
    """The members of a literal collection, or the text that ``words`` takes apart."""
    if isinstance(node, ast.Dict):
        return [*filter(None, node.keys), *node.values]
    if isinstance(node, ast.Call):
        return [*node.args] if isinstance(node.func, ast.Name) and node.func.id == "words" else []
    return [*node.elts] if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else []


def _words(node: ast.AST) -> set[str]:
    """The texts of a literal, word by word."""
    texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return {word for text in texts for word in text.split()}


def _is_plain(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (
            "T = {'learning_rate': 'optimizer.params.lr', 'weight_decay': 'optimizer.params.weight_decay'}",
            "counterparts",
        ),
        (
            "T = (('learning_rate', 'optimizer.params.lr'), ('weight_decay', 'optimizer.params.weight_decay'))",
            "counterparts",
        ),
        ("T = {'torchrun': {'num_machines': 'nnodes', 'machine_rank': 'node_rank'}}", "counterparts"),
        (
            "if name == 'max_grad_norm':\n  x = 'gradient_clipping'\nelif name == 'bf16':\n  x = 'bf16.enabled'",
            "counterparts",
        ),
        ("x = 'gradient_clipping' if n == 'max_grad_norm' else 'bf16.enabled' if n == 'bf16' else n", "counterparts"),
        ("T = {'reduce_bucket_size': 500_000_000, 'contiguous_gradients': True}", "defaults"),
        ("T = {'zero_optimization.stage': 0, 'zero_optimization.reduce_scatter': True, 'mine': 3}", "defaults"),
        ("T = [('weight_decay', 0.0), ('adam_beta1', 0.9)]", "defaults"),
        ("T = ('ACCELERATE_MIXED_PRECISION', 'FSDP_VERSION')", "variables"),
        ("T = words('ACCELERATE_MIXED_PRECISION FSDP_VERSION')", "variables"),
        ("T = {'fsdp_version': ('FSDP_VERSION', '1'), 'stage': ('ACCELERATE_DEEPSPEED_ZERO_STAGE', 2)}", "variables"),
    ],
)
def test_what_counts_as_stated_again(code: str, kind: str, tmp_path: Path) -> None:
    module = tmp_path / "planted.py"
    module.write_text(code, encoding="utf-8")
    assert [found for _, found in restated(ast.parse(module.read_text(encoding="utf-8")))] == [kind]


@pytest.mark.parametrize(
    "code",
    [
        "T = {'learning_rate': 'optimizer.params.lr'}",
        "T = {'bf16': 'fp16', 'stage': 'device'}",
        "T = {'reduce_bucket_size': 1000, 'contiguous_gradients': True}",
        "T = {'stage': None, 'device': None}",
        "T = ('RANK', 'FSDP_VERSION')",
        "T = ('learning_rate', 'weight_decay')",
    ],
)
def test_what_does_not(code: str) -> None:
    assert not list(restated(ast.parse(code)))


def test_no_module_states_a_fact_again(root: Path) -> None:
    package = root / "zerocfg"
    found = {
        path.relative_to(root).as_posix(): lines
        for path in sorted(package.rglob("*.py"))
        if package / "models" not in path.parents
        and (lines := list(restated(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == {}
