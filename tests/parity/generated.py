"""Configs that nobody wrote: built from the typed models, or made from real ones by small mistakes.

A config is a tree of dicts and lists. A key may stand twice in a mapping: the second time as :class:`Again`, which is
equal to nothing but itself.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import yaml
from hypothesis import strategies as st

from zerocfg.catalog.schema import Key, Schema, Section

Tree = dict[str, Any]
Draw = Any


class Again(str):
    """A key that the mapping holds already."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


WRONG = (
    None, True, False, 0, 1, -1, 2, 3, 8, 1.0, 0.5, 1.5, -2.0, 5e8, 1e30, 10**20, "auto", "AUTO", "", "1", "8", "5e8",
    "true", "False", "no", "on", "cpu", "CPU", "none", "bf16", "three", [], [1], {}, {"device": "cpu"},
)  # fmt: skip
"""Values that people and programs write where others belong."""


# --- from the typed models --------------------------------------------------------------------------------------------


@st.composite
def typed(draw: Draw, schema: Schema, base: Tree, most: int = 5) -> Tree:
    """``base`` with up to ``most`` further keys of the schema, nearly always with values that the models allow."""
    tree = deepcopy(base)
    for _ in range(draw(st.integers(0, most))):
        _add(draw, schema, schema.root, tree, 0)
    return tree


def _add(draw: Draw, schema: Schema, section: Section, into: Tree, depth: int) -> None:
    name = draw(st.sampled_from(sorted(section.names) or ["enabled"]))
    key = section.names.get(name)
    if key is None:
        return
    inner = key.section(schema)
    if inner is None or draw(st.integers(0, 19)) == 0:
        into[name] = draw(values(key))
        return
    below = into.setdefault(name, {})
    if isinstance(below, dict) and depth < 3:
        for _ in range(draw(st.integers(0, 3))):
            _add(draw, schema, inner, below, depth + 1)


@st.composite
def values(draw: Draw, key: Key) -> Any:
    """Nine times out of ten a value of one of the key's types, within or at the edge of its range."""
    if draw(st.integers(0, 9)) == 0 or not key.scalars:
        return draw(st.sampled_from(WRONG))
    branch = draw(st.sampled_from(key.scalars))
    if "enum" in branch:
        return draw(st.sampled_from(branch["enum"]))
    kinds = branch.get("type", "string")
    kind = draw(st.sampled_from(kinds)) if isinstance(kinds, list) else kinds
    if kind in ("integer", "number"):
        low = branch.get("minimum", branch.get("exclusiveMinimum", 0))
        high = branch.get("maximum", branch.get("exclusiveMaximum", low + 10))
        edges = [low, low + 1, high, 16, 1000, 500_000_000]
        return draw(st.sampled_from(edges if kind == "integer" else [*map(float, edges), (low + high) / 2]))
    plain: dict[str, Any] = {
        "boolean": st.booleans(),
        "array": st.sampled_from([[], ["a"], [1, 2]]),
        "object": st.sampled_from([{}, {"a": 1}]),
        "null": st.none(),
    }
    return draw(plain.get(kind, st.sampled_from(["out", "cpu", "fp16", "bf16", "Warn", "x"])))


# --- mistakes ---------------------------------------------------------------------------------------------------------


@st.composite
def mistaken(draw: Draw, seeds: list[Tree], most: int = 3) -> Tree:
    """One of the seeds with one to ``most`` mistakes."""
    tree = deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, most))):
        places = list(entries(tree))
        if not places:
            break
        into, key = draw(st.sampled_from(places))
        _MISTAKES[draw(st.sampled_from(sorted(_MISTAKES)))](draw, tree, into, key)
    return tree


def entries(tree: Tree) -> Iterator[tuple[Tree, str]]:
    """Every entry of every mapping: the mapping and the key."""
    for key, value in tree.items():
        yield tree, key
        if isinstance(value, dict):
            yield from entries(value)


def _typo(draw: Draw, tree: Tree, into: Tree, key: str) -> None:
    at = draw(st.integers(0, max(0, len(key) - 1)))
    letter = draw(st.sampled_from(string.ascii_lowercase + "_"))
    wrong = draw(st.sampled_from([key[:at] + key[at + 1 :], key[:at] + letter + key[at:], key.upper(), key + "s"]))
    if wrong and wrong not in into:
        _rename(into, key, wrong)


def _move(draw: Draw, tree: Tree, into: Tree, key: str) -> None:
    homes = [tree, *(value for holder, name in entries(tree) if isinstance(value := holder[name], dict))]
    value = into.pop(key)
    home = draw(st.sampled_from([one for one in homes if one is not value and not _within(one, value)]))
    home.setdefault(key, value)


def _within(inner: Tree, outer: Any) -> bool:
    return isinstance(outer, dict) and any(holder[name] is inner for holder, name in entries(outer))


def _other_type(draw: Draw, tree: Tree, into: Tree, key: str) -> None:
    into[key] = deepcopy(draw(st.sampled_from(WRONG)))


def _quote(draw: Draw, tree: Tree, into: Tree, key: str) -> None:
    if isinstance(into[key], (int, float)):
        into[key] = str(into[key]).lower()


def _auto(draw: Draw, tree: Tree, into: Tree, key: str) -> None:
    into[key] = "auto"


def _null(draw: Draw, tree: Tree, into: Tree, key: str) -> None:
    into[key] = None


def _remove(draw: Draw, tree: Tree, into: Tree, key: str) -> None:
    del into[key]


def _twice(draw: Draw, tree: Tree, into: Tree, key: str) -> None:
    into[Again(key)] = deepcopy(draw(st.sampled_from([into[key], *WRONG])))


_MISTAKES = {
    "typo": _typo,
    "move": _move,
    "other type": _other_type,
    "quote": _quote,
    "auto": _auto,
    "null": _null,
    "remove": _remove,
    "twice": _twice,
}


def _rename(into: Tree, old: str, new: str) -> None:
    for key in list(into):
        value = into.pop(key)
        into[new if key is old or key == old else key] = value


def json_text(tree: Tree) -> str:
    return json.dumps(tree, indent=1) + "\n"


def yaml_text(tree: Tree) -> str:
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Writes mappings in their order and a key that is there already as the text that it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(Again, lambda dumper, key: dumper.represent_str(str(key)))
