"""Edits change what they say and not one byte more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocfg.source.edit import (
    Edit,
    apply_edits,
    delete_entry,
    insert_entry,
    rename_key,
    replace_value,
    unified_diff,
)
from zerocfg.source.load import load_as
from zerocfg.source.node import Document, Mapping, walk
from zerocfg.source.text import SourceText, Span

KEYS = st.sampled_from(["a", "b", "stage", "zero_optimization", "x y", "long_key_name"])
SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.none(), st.sampled_from(["auto", "", "a: b", "#x"]))


def trees(depth: int = 3) -> st.SearchStrategy[Any]:
    if depth == 0:
        return SCALARS
    below = trees(depth - 1)
    mappings = st.dictionaries(KEYS, below, max_size=4)
    return st.one_of(SCALARS, mappings, mappings, st.lists(below, max_size=3))


ROOTS = st.dictionaries(KEYS, trees(), min_size=1, max_size=5)


@st.composite
def yaml_texts(draw: st.DrawFn) -> str:
    """Block YAML with comments, blank lines, some flow collections and either kind of line end."""
    lines: list[str] = []

    def comment() -> str:
        return draw(st.sampled_from(["", "", "  # why"]))

    def emit(value: Any, indent: int, lead: str) -> None:
        if draw(st.integers(0, 9)) == 0:
            lines.append(" " * indent + "# about the next line")
        if isinstance(value, dict) and value and draw(st.integers(0, 3)):
            lines.append(lead.rstrip() + comment())
            for key, below in value.items():
                emit(below, indent + 2, " " * (indent + 2) + yaml_key(key) + ": ")
        elif isinstance(value, list) and value and draw(st.integers(0, 3)):
            lines.append(lead.rstrip() + comment())
            for below in value:
                lines.append(" " * (indent + 2) + "- " + json.dumps(below))
        elif value is None and draw(st.booleans()):
            lines.append(lead.rstrip() + comment())
        else:
            lines.append(lead + json.dumps(value) + comment())

    for key, value in draw(ROOTS).items():
        emit(value, 0, yaml_key(key) + ": ")
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return end.join(lines) + draw(st.sampled_from(["", end]))


def yaml_key(key: str) -> str:
    return json.dumps(key) if key == "x y" else key


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """JSON on one or several lines, with comments and trailing commas at times."""
    text = json.dumps(draw(ROOTS), indent=draw(st.sampled_from([None, 2, 4])))
    if draw(st.booleans()):
        text = text.replace(",\n", ", // why\n")
    if draw(st.booleans()):
        text = text.replace("\n}", ",\n}").replace("{,", "{")
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) + draw(st.sampled_from(["", "\n"]))


def read(text: str, format: Any) -> Document:
    return load_as(SourceText("f", text), format)


def paths_of(document: Document, keys_only: bool = True) -> list[tuple[Any, ...]]:
    assert document.root is not None
    return [path for path, _, entry in walk(document.root) if path and (entry or not keys_only)]


def inside(data: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        data = data[part]
    return data


TEXTS = st.one_of(st.tuples(st.just("yaml"), yaml_texts()), st.tuples(st.just("json"), json_texts()))


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.data())
def test_an_edit_gives_exactly_the_expected_data(case: tuple[str, str], data: st.DataObject) -> None:
    format, text = case
    document = read(text, format)
    assert not [p for p in document.problems if p.kind not in ("hjson-only", "duplicate-key")], text
    expected = document.data()
    kind = data.draw(st.sampled_from(["replace", "delete", "insert", "rename"]))
    if kind == "insert":
        mappings = [p for p, n, _ in walk(document.root) if isinstance(n, Mapping)]  # type: ignore[arg-type]
        path = data.draw(st.sampled_from(mappings))
        edits = insert_entry(document, path, "new", '"v"')
        inside(expected, path)["new"] = "v"
    else:
        path = data.draw(st.sampled_from(paths_of(document)))
        holder = inside(expected, path[:-1])
        if kind == "replace":
            edits = replace_value(document, path, "17")
            holder[path[-1]] = 17
        elif kind == "delete":
            edits = delete_entry(document, path)
            del holder[path[-1]]
        else:
            edits = rename_key(document, path, "fresh")
            holder["fresh"] = holder.pop(path[-1])
    after = apply_edits(text, edits)
    assert read(after, format).data() == expected, (text, after)
    if "\r\n" in text:
        assert ("\n" in after.replace("\r\n", "")) == ("\n" in text.replace("\r\n", ""))
    if kind in ("insert", "rename"):
        assert after.count("why") == text.count("why")
        assert after.count("# about the next line") == text.count("# about the next line")


def test_comments_order_and_line_ends_survive() -> None:
    text = "a: 1  # one\r\n# two\r\nb:\r\n  c: 3 # three\r\n  d: 4\r\ne: 5"
    document = read(text, "yaml")
    assert apply_edits(text, delete_entry(document, ("b", "c"))) == text.replace("  c: 3 # three\r\n", "")
    assert apply_edits(text, replace_value(document, ("b", "d"), "7")) == text.replace("d: 4", "d: 7")
    added = apply_edits(text, insert_entry(document, ("b",), "new", "x", after="c"))
    assert added == text.replace("# three\r\n", "# three\r\n  new: x\r\n")
    assert apply_edits(text, delete_entry(document, ("e",))) == text.replace("\r\ne: 5", "")


def test_a_value_shared_through_an_anchor_is_not_edited() -> None:
    text = "base: &b {x: 1}\nuse: *b\nmore:\n  <<: *b\n  y: 2\n"
    document = read(text, "yaml")
    for path in (("use", "x"), ("more", "x")):
        with pytest.raises(ValueError, match="anchor"):
            replace_value(document, path, "2")
    assert apply_edits(text, replace_value(document, ("use",), "3")) == text.replace("use: *b", "use: 3")


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        apply_edits("abcdef", [Edit(Span(0, 3), ""), Edit(Span(2, 4), "")])
    assert apply_edits("abc", [Edit(Span(1, 1), "x"), Edit(Span(1, 2), "y")]) == "axyc"


def test_a_diff_says_when_the_last_line_has_no_end() -> None:
    diff = unified_diff("f", "a\nb", "a\nc\n")
    assert diff == "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a:\n  b: 1\nc: 2\n", "a: {}\nc: 2\n"),
        ("a:  # why\n  # about b\n  b: 1\n  # the end\nc: 2\n", "a: {}  # why\n  # about b\n  # the end\nc: 2\n"),
        ("a:\n  b: 1", "a: {}"),
        ("a:\r\n  b:\r\n    - 1\r\nc: 2\r\n", "a: {}\r\nc: 2\r\n"),
    ],
)
def test_the_last_entry_leaves_an_empty_mapping(before: str, after: str) -> None:
    document = load_as(SourceText("f.yaml", before), "yaml")
    found = apply_edits(before, delete_entry(document, ("a", "b")))
    assert load_as(SourceText("f.yaml", found), "yaml").data()["a"] == {}
    assert found == after
