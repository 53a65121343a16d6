"""Positions, and where a cursor stands in a text that may be half-typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol.types import Position
from pygls.workspace import PositionCodec

from tests.conftest import ROOT
from zerocfg.lsp.cursor import Cursor, in_json, in_yaml
from zerocfg.lsp.keys import place_in
from zerocfg.lsp.positions import Lines
from zerocfg.source.load import load
from zerocfg.source.node import Mapping, Scalar, Sequence, walk

ENCODINGS = ("utf-8", "utf-16", "utf-32")
TEXTS = st.text(st.sampled_from("aä€🚀 \t\n\r\u2028\ufeff"), max_size=40)


@settings(deadline=None)
@given(TEXTS, st.sampled_from(ENCODINGS))
def test_every_offset_has_a_position_that_leads_back(text: str, encoding: str) -> None:
    lines = Lines(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] == "\r\n" or (text[:1] == "\ufeff" and not offset):
            continue  # between two halves of a line end, and before a mark that editors do not show
        assert lines.offset(lines.position(offset)) == offset


@settings(deadline=None)
@given(st.text(st.sampled_from("aä€🚀"), max_size=20), st.sampled_from(ENCODINGS))
def test_columns_are_those_of_another_implementation(line: str, encoding: str) -> None:
    lines = Lines("x\n" + line, encoding)
    for offset in range(len(line) + 1):
        assert lines.position(2 + offset) == Position(1, PositionCodec(encoding).client_num_units(line[:offset]))


@pytest.mark.parametrize(
    ("text", "at", "offset"),
    [
        ("ab\ncd", Position(0, 99), 2),
        ("ab\r\ncd", Position(0, 99), 2),
        ("ab\rcd", Position(1, 1), 4),
        ("ab\ncd", Position(9, 0), 5),
        ("a🚀b", Position(0, 2), 2),
        ("a\u2028b", Position(0, 3), 3),
        ("\ufeffab", Position(0, 1), 2),
    ],
)
def test_positions_outside_of_the_text_and_between_units(text: str, at: Position, offset: int) -> None:
    assert Lines(text, "utf-16").offset(at) == offset


def _json(marked: str) -> Cursor | None:
    return in_json(marked.replace("|", ""), marked.index("|"))


def _yaml(marked: str) -> Cursor | None:
    return in_yaml(marked.replace("|", ""), marked.index("|"))


@pytest.mark.parametrize(
    ("marked", "path", "at", "key", "typed", "present"),
    [
        ('{"|', (), "key", "", '"', set()),
        ('{"a": {"b|', ("a",), "key", "", '"b', set()),
        ('{"a": {"b|"}, "c": 1}', ("a",), "key", "", '"b"', set()),
        ('{"a": 1 "b|', (), "key", "", '"b', {"a"}),
        ('{"a": \n "b|"', (), "key", "", '"b"', {"a"}),
        ('{"a": {"x": 1}, |\n "c": 2}', (), "key", "", "", {"a", "c"}),
        ('{"a": |', (), "value", "a", "", {"a"}),
        ('{"a": tr|ue, "b": 1}', (), "value", "a", "true", {"a", "b"}),
        ('{"a": "c|pu", "b": 1}', (), "value", "a", '"cpu"', {"a", "b"}),
        ('{// "x": {\n"a": {"b": |', ("a",), "value", "b", "", {"b"}),
        ('{"l": [{"a": |', ("l", 0), "value", "a", "", {"a"}),
        ('{"l": [1, {"a": |', ("l", 1), "value", "a", "", {"a"}),
    ],
)
def test_json(marked: str, path: tuple[object, ...], at: str, key: str, typed: str, present: set[str]) -> None:
    found = _json(marked)
    text = marked.replace("|", "")
    assert found is not None
    assert (found.path, found.at, found.key) == (path, at, key)
    assert text[found.typed.start : found.typed.end] == typed
    assert found.present == present


@pytest.mark.parametrize("marked", ["|", '{"a": 1} |', '{"a": [1, |', '{ // comm|ent\n"a": 1}', "}}]] |", ',:"|'])
def test_json_where_nothing_fits(marked: str) -> None:
    assert _json(marked) is None


@pytest.mark.parametrize(
    ("marked", "path", "at", "key", "typed", "present"),
    [
        ("|", (), "key", "", "", set()),
        ("mixed|", (), "key", "", "mixed", set()),
        ("a:\n  b|\n  c: 1\nd: 2\n", ("a",), "key", "", "b", {"c"}),
        ("a:\n  x: 1\n  |\nd: 2\n", ("a",), "key", "", "", {"x"}),
        ("a:\n  x: 1\n|\nd: 2\n", (), "key", "", "", {"a", "d"}),
        ("a:\n  |", ("a",), "key", "", "", set()),
        ("a:\n    b:\n        c: |\n", ("a", "b"), "value", "c", "", set()),
        ("a: fa|lse  # why\nb: 1\n", (), "value", "a", "false", {"b"}),
        ("a: 1\n   |", (), "key", "", "", {"a"}),
        ("# a:\na:\n  # b:\n  c: |", ("a",), "value", "c", "", set()),
        ("a:\r\n  b: 1\r\n  c|\r\n", ("a",), "key", "", "c", {"b"}),
    ],
)
def test_yaml(marked: str, path: tuple[str, ...], at: str, key: str, typed: str, present: set[str]) -> None:
    found = _yaml(marked)
    text = marked.replace("|", "")
    assert found is not None
    assert (found.path, found.at, found.key) == (path, at, key)
    assert text[found.typed.start : found.typed.end] == typed
    assert found.present == present


@pytest.mark.parametrize("marked", ["# comm|ent", "a: 1 # x|", "a:\n  - b|", "a: {b|", "a: [1, |", "a:\n- b:\n    c|"])
def test_yaml_where_nothing_is_known(marked: str) -> None:
    assert _yaml(marked) is None


def _examples() -> list[Path]:
    return [
        path
        for path in sorted((ROOT / "examples").rglob("*"))
        if path.suffix in (".json", ".yaml") and "built" not in path.parts and "model" not in path.parts
    ]


@pytest.mark.parametrize("path", _examples(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_cursor_agrees_with_the_parser(path: Path) -> None:
    """In files that can be parsed every key and every plain value is found where the parser finds it."""
    document = load(path)
    assert document.root is not None
    find = in_json if document.format == "json" else in_yaml
    text, asked = document.source.text, 0
    for keys, node, entry in walk(document.root):
        parent = document.get(keys[:-1])
        inside = [document.get(keys[:length]) for length in range(len(keys))]
        flow = document.format == "yaml" and any(text[one.span.start] in "{[" for one in inside if one and one.span)
        if entry is None or not isinstance(parent, Mapping) or flow or any(isinstance(one, Sequence) for one in inside):
            continue
        others = {one.key for one in parent.entries} - {entry.key}
        at_key = find(text, entry.key_span.end)
        assert at_key is not None and (at_key.path, at_key.at) == (keys[:-1], "key")
        assert text[at_key.typed.start : at_key.typed.end].strip('"') == entry.key
        assert at_key.present - {entry.key} == others and at_key.follows == ":"
        if isinstance(node, Scalar) and node.raw:
            at_value = find(text, node.span.end)
            assert at_value is not None and (at_value.path, at_value.at, at_value.key) == (
                keys[:-1],
                "value",
                entry.key,
            )
            assert at_value.typed == node.span
        asked += 1
    assert asked


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["{", "}", "[", "]", ":", ",", '"', "\\", "\n", "  ", "- ", "# ", "//", "bf16", "stage", "🚀", "\r\n", "\t"]
        ),
        max_size=25,
    ).map("".join),
    st.sampled_from(
        [None, {}, [], "text", {"bf16": [1]}, {"runs": {"a": None}}, {"optimizer": {"type": 3, "params": 1}}]
    ),
)
def test_no_text_is_too_broken(text: str, data: object) -> None:
    for offset in range(len(text) + 1):
        for find in (in_json, in_yaml):
            cursor = find(text, offset)
            for kind in ("deepspeed", "accelerate", "spec", "recipe", "other") if cursor is not None else ():
                place_in(kind, data, cursor.path).key(cursor.key)
