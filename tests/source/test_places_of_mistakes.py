"""Where a reader stops and which range an alias has: as Python's json and PyYAML say it themselves."""

from __future__ import annotations

import json
import re

import hjson
import pytest
import yaml

from zerocfg.source.hjson_scanner import JsonError, scan_hjson
from zerocfg.source.json_reader import read_json
from zerocfg.source.node import Document, Mapping, Scalar, Sequence, walk
from zerocfg.source.text import SourceText, Span
from zerocfg.source.yaml_reader import read_yaml

# Neither json nor hjson reads these; a comma before the end is left out, which Python 3.13 places elsewhere.
BROKEN = (
    '{"a": 1 "b": 2}',
    '{"a" 1}',
    '{"a"  \n "b": 2}',
    '{"a" : }',
    "{ , }",
    '{"a": [1 2]}',
    "[1,",
    "[",
    "{",
    '{"a"',
    '{"a":',
    '{"a": 1',
    '{"a": 1, ',
    '{"a": "x',
    '{"a": "x\\q"}',
    '{"a": "x\ny"}',
    '{"a": 1} x',
    '{"a": 01}',
    '{"a": -}',
    '{"a": 1.}',
    '{"a": .5}',
    '{"a": nul}',
    '{"a": truex}',
    '{"a": 1e}',
    '{"a": "\\u00g1"}',
    "[1, 2] ]",
    '{"a": 1}}',
    '{"a": Infinit}',
    '{"a": -Inf}',
    '\t{"a":\n1\r\n"b"}',
    "[,1]",
    "[1,,2]",
    '{"a": [], "b" {}}',
    '{"a"\n\n:\n\n@}',
    '{"a": {"b": [1, {"c": 2 "d"}]}}',
)
SAID = {
    "Expecting ',' delimiter": "expected ',' or",
    "Expecting ':' delimiter": "expected ':' after the key",
    "Expecting value": "expected a value",
    "Expecting property name enclosed in double quotes": "expected a key in double quotes",
    "Extra data": "text after the end of the document",
    "Unterminated string starting at": "unterminated string starting at",
    "Invalid \\escape": "invalid \\escape",
    "Invalid control character at": "invalid control character at",
    "Invalid \\uXXXX escape": "invalid \\uXXXX escape",
}


@pytest.mark.parametrize("text", BROKEN)
def test_json_that_breaks_off(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as refused:
        json.loads(text)
    document = read_json(SourceText("a.json", text))
    (problem,) = document.problems
    assert (problem.span.start, problem.fatal, document.root) == (refused.value.pos, True, None)
    said = SAID[refused.value.msg.partition(": ")[0]]
    assert problem.why is not None and problem.why.startswith(said)


@pytest.mark.parametrize("levels", [99, 100, 101])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_the_deepest_json(opening: str, closing: str, levels: int) -> None:
    inner = "1" if closing == "}" else ""
    document = read_json(SourceText("a.json", opening * levels + inner + closing * levels))
    assert [item.kind for item in document.problems] == (["too-deep"] if levels > 100 else [])
    assert (document.root is None) is (levels > 100)


ALIASES = (
    "x: &a {k: 1}\ny: *a\nz: [*a, 2, *a]\n",
    "x: &a [1]\nlist:\n- *a\n-   *a\n- {q: *a}\n",
    "? &k one\n: 1\nm:\n  *k : 2\n  b: *k\n",
    "base: &b\n  p: 1\nuse:\n  <<: *b\n  q: 2\nmore:\n  <<: [*b, *b]\n",
    "x: &a 1  # *a in a comment\ny:  # *a again\n  *a\nz: '*a'\nw: {a: *a}\n",
    "x: &a v\ny: {*a : 1, c: *a}\nz: [[*a], [*a ,*a]]\n",
)


def read(text: str) -> Document:
    return read_yaml(SourceText("a.yaml", text))


@pytest.mark.parametrize("text", ALIASES)
def test_an_alias_is_where_pyyaml_meets_it(text: str) -> None:
    """In the order of the text; those of `<<` bring in entries that have the places of the others."""
    tokens = [item for item in yaml.scan(text) if isinstance(item, yaml.AliasToken)]
    there = {Span(item.start_mark.index, item.end_mark.index) for item in tokens}
    document = read(text)
    assert document.root is not None and document.problems == [] and document.data() == yaml.safe_load(text)
    spans: set[Span] = set()
    for _, node, entry in walk(document.root):
        spans |= {node.span} | ({entry.key_span} if entry is not None else set())
        if node.span in there:
            assert not isinstance(node, Scalar) or node.raw == text[slice(*node.span)]
    met = {span for span in spans if re.fullmatch(r"\*\S+", text[slice(*span)])}
    merged = {span for span in there if "<<" in text[text.rfind("\n", 0, span.start) + 1 : span.start]}
    assert met == there - merged


def test_what_an_alias_stands_for() -> None:
    document = read("s: &s 'x'\nm: &m {k: 1}\nl: &l [1, 2]\nuse: [*s, *m, *l]\n")
    use = document.get(("use",))
    assert isinstance(use, Sequence)
    text, mapping, several = use.items
    assert isinstance(text, Scalar) and (text.value, text.raw, text.quoted) == ("x", "*s", True)
    assert isinstance(mapping, Mapping) and [entry.key for entry in mapping.entries] == ["k"]
    assert isinstance(several, Sequence) and len(several.items) == 2


MERGES = (
    "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n",
    "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  y: 3\n",
    "a: &a {x: 1}\nb: &b {x: 2}\nc:\n  <<: *a\n  <<: *b\n",
    "a: &a {x: 1}\nc: {w: 0, <<: *a, x: 4}\n",
    "a: &a {x: 1}\nc: {<<: {x: 5, y: 6}, <<: *a}\n",
)


@pytest.mark.parametrize("text", MERGES)
def test_what_is_brought_in(text: str) -> None:
    document = read(text)
    assert document.data() == yaml.safe_load(text)
    node = document.get(("c",))
    assert isinstance(node, Mapping)
    keys = [entry.key for entry in node.entries]
    assert len(keys) == len(set(keys)), "the losers are left out"


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("a: 1\n<<: 5\n", "bad-value", "5"),
        ("a: 1\n<<: [{x: 1}, 7]\n", "bad-value", "7"),
        ("[1]: 2\n", "bad-value", "[1]"),
        ("a: !!int xyz\n", "bad-value", "!!int xyz"),
        ("a: !own {b: 1}\n", "unknown-tag", "!own {b: 1}"),
        ("a: !!set [1]\n", "bad-value", "!!set [1]"),
        ("a: {b: }]\n", "syntax", "]"),
        ("a: 1\n--- \nb: 2\n", "multiple-documents", "-"),
        ("a:\tb: 1\n\tc: 2\n", "syntax", None),
    ],
)
def test_the_place_of_what_yaml_refuses(text: str, kind: str, place: str | None) -> None:
    with pytest.raises((yaml.YAMLError, ValueError)):
        yaml.safe_load(text)
    (problem,) = read(text).problems
    assert (problem.kind, problem.fatal) == (kind, True)
    assert place is None or text[slice(*problem.span)] == place


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("a:\n- 1\n- b: 2\n  c: 3\n", {("a",): "- 1\n- b: 2\n  c: 3", ("a", 1): "b: 2\n  c: 3"}),
        ("a: |\n  x\n  y\n\n\nb: 1\n", {("a",): "|\n  x\n  y", ("b",): "1"}),
        ("a: >-\n  x\nb: [1,\n  2]  # c\n", {("a",): ">-\n  x", ("b",): "[1,\n  2]", ("b", 1): "2"}),
        ("a: {b: 1,\n   c: {}}\nd: \n", {("a",): "{b: 1,\n   c: {}}", ("a", "c"): "{}", ("d",): ""}),
        ("a:\n  b:\n    c: 1  # x\n  d: e\n", {("a",): "b:\n    c: 1  # x\n  d: e", ("a", "b"): "c: 1"}),
        ('a: "x\\\n  y"\nb: !!str 5\n', {("a",): '"x\\\n  y"', ("b",): "!!str 5"}),
        ("a:\n- - 1\n  - 2\n-\n", {("a", 0): "- 1\n  - 2", ("a", 0, 1): "2", ("a", 1): ""}),
    ],
)
def test_ranges_of_values(text: str, ranges: dict[tuple[str | int, ...], str]) -> None:
    document = read(text)
    found = {path: document.get(path) for path in ranges}
    assert {path: node and text[slice(*node.span)] for path, node in found.items()} == ranges


LOOSE = (
    "{a: 1",
    "{a",
    "{a:",
    "{",
    "[1",
    "[1,",
    '{a: "x',
    '{"a": 1} x',
    "{a: 1}}",
    "{a b: 1}",
    "{: 1}",
    "{a: ]}",
    "[}",
    "[1 2]",
    "{a: {b: 1}",
    '{a: "\\u12"}',
    "{a: 1, , b: 2}",
    "{a: }",
    "{a: ,}",
    "{[: 1}",
    "[,]",
    '{"a" 1}',
    '{a: "\\ud800\\u12"}',
    '{"a": {"b": 1]}',
    "[1]]",
    "# c\n{a: 1} // d\n e",
    "{a: ?}",
    "{}}",
    '{ "x": 1e5 } }',
    "{\n  # x: 1\n  a: 1 # b\n  }}",
    "{\n  /* a\n  b */ c: [1, 2\n  3, }\n}",
)


@pytest.mark.parametrize("text", LOOSE)
def test_hjson_that_breaks_off(text: str) -> None:
    with pytest.raises(hjson.HjsonDecodeError) as refused:
        hjson.loads(text)
    with pytest.raises(JsonError) as stopped:
        scan_hjson(text)
    assert stopped.value.position == refused.value.pos
    assert stopped.value.noticed is ("#" in text or "/*" in text)


@pytest.mark.parametrize("digits", ["0041", "0x41", "0X41", "+041", " 041", "0_41", "41", "004g", "00e9", "ffff"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_digits_of_an_escape(quote: str, digits: str) -> None:
    text = f"{{a: {quote}\\u{digits}{quote}}}"
    try:
        value = hjson.loads(text)["a"]
    except hjson.HjsonDecodeError as refused:
        with pytest.raises(JsonError) as stopped:
            scan_hjson(text)
        assert stopped.value.position == refused.pos
        return
    root, _ = scan_hjson(text)
    assert isinstance(root, Mapping)
    held = root.entries[0].value
    assert isinstance(held, Scalar) and held.value == value


def test_the_place_at_which_yaml_is_too_deep() -> None:
    for text, at in (("[" * 101 + "]" * 101, 100), ("a: " + "{b: " * 100 + "}" * 100, 3 + 4 * 99)):
        (problem,) = read(text).problems
        assert (problem.kind, problem.span) == ("too-deep", Span(at, at + 1))
    assert read("[" * 100 + "]" * 100).problems == []


def test_ranges_of_values_that_only_hjson_reads() -> None:
    text = (
        "{\n  # c\n  a: [1, 2,\n    'x' // y\n    [ ], {b: q w\n }]\n  \"d\": {e: true, f: null # n\n }\n"
        "  g: '''\n    h\n    '''\n  i: some text \n  j: [\n    [1]\n    {}\n  ]\n}\n"
    )
    document = read_json(SourceText("a.json", text))
    assert document.root is not None and document.data() == json.loads(json.dumps(hjson.loads(text)))
    found = {path: text[slice(*node.span)] for path, node, _ in walk(document.root)}
    assert found[()] == text.strip() and found[("a",)] == "[1, 2,\n    'x' // y\n    [ ], {b: q w\n }]"
    assert (found[("a", 2)], found[("a", 3)], found[("a", 4)]) == ("'x'", "[ ]", "{b: q w\n }")
    assert (found[("a", 4, "b")], found[("d", "e")], found[("i",)]) == ("q w", "true", "some text")
    assert found[("g",)] == "'''\n    h\n    '''" and found[("j",)] == "[\n    [1]\n    {}\n  ]"
    assert (found[("j", 0)], found[("j", 0, 0)], found[("j", 1)]) == ("[1]", "1", "{}")
    keys = {path: text[slice(*entry.key_span)] for path, _, entry in walk(document.root) if entry is not None}
    assert (keys[("a",)], keys[("d",)], keys[("d", "f")], keys[("j",)]) == ("a", '"d"', "f", "j")


def test_texts_without_braces_are_read_as_hjson_reads_them() -> None:
    for text in (
        "a: 1",
        "a: 1\nb: 2\n",
        "a: 1,\nb: 2",
        "a: {b: 1}\nc: [1]\n# d\n",
        "\n# x\na: q\n\nb: w",
        "a: 1 # x\nb: 2 // y",
    ):
        document = read_json(SourceText("a.json", text))
        assert document.readers == {"json": False, "hjson": True}, text
        assert document.data() == json.loads(json.dumps(hjson.loads(text))), text
        assert document.root is not None and document.root.span.start == text.index("a")


def test_second_halves_of_a_pair() -> None:
    for low in ("dc00", "dfff", "0x12", "dx00", "dcx0", "e000", "db00", "dc0", "d_00"):
        for high in ("d800", "dbff", "d83d"):
            text = f'{{a: "\\u{high}\\u{low}"}}'
            try:
                value = hjson.loads(text)["a"]
            except hjson.HjsonDecodeError:
                with pytest.raises(JsonError):
                    scan_hjson(text)
                continue
            root, _ = scan_hjson(text)
            assert isinstance(root, Mapping) and isinstance(root.entries[0].value, Scalar)
            assert root.entries[0].value.value == value, text


def test_where_an_object_without_braces_is_noted() -> None:
    for text, at in (("a: 1\n", 0), ("# x\n  a: 1\nb: 2\n", 6)):
        noted = [item for item in read_json(SourceText("a.json", text)).problems if "without braces" in item.message]
        assert [item.span for item in noted] == [Span(at, at + 1)]


def test_how_strings_are_noted_that_json_does_not_read() -> None:
    for text, forms in (
        ("{\"a\": 'x'}", ["single quotes"]),
        ('{"a": "x\\\'y"}', [""]),
        ('{"a": "x"}', []),
        ("{'a': \"x\\n\", \"b\": 'y\\'z'}", ["single quotes", "single quotes"]),
    ):
        document = read_json(SourceText("a.json", text))
        assert document.data() == json.loads(json.dumps(hjson.loads(text))), text
        assert [item.form for item in document.problems] == forms, text


def test_the_deepest_hjson() -> None:
    for levels, kinds in ((99, ["hjson-only"]), (100, ["hjson-only"]), (101, ["too-deep"])):
        for text in (f"# c\n{'[' * levels}{']' * levels}", f"# c\n{'{a: ' * levels}1\n{'}' * levels}"):
            document = read_json(SourceText("a.json", text))
            assert {item.kind for item in document.problems} == set(kinds), (levels, text[:8])
