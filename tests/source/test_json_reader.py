"""The JSON reader gives the verdicts of json and hjson, and the places."""

from __future__ import annotations

import json
from typing import Any

import hjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zerocfg.source.json_reader import read_json
from zerocfg.source.node import Document, walk
from zerocfg.source.text import SourceText, Span

SEEDS = [
    '{"a": 1, "b": {"stage": 3, "x": [1, -2.5e3, null, true]}, "s": "q\\"\\u00e9"}',
    '{\n  "a": 1, // c\n  "b": [1, 2,],\n  c: true\n  "d": {"e": 1e9}, # x\n  "f": \'y\' /* z */\n}\n',
    "a: 1\nb: some text\nc: {\n  d: NaN\n}\n",
    "{\n  t: '''one\n     two'''\n  n: null\n}",
]
PIECES = st.sampled_from([*"{}[],:\"'\\\n\r\t #/*0-.eE+tnu\u00a0\ufeff\x0b٣", *"// /* */ ''' NaN 1e999 \\u12".split()])


@st.composite
def texts(draw: st.DrawFn) -> str:
    text = draw(st.one_of(st.sampled_from(SEEDS), st.lists(PIECES, max_size=8).map("".join)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.one_of(PIECES, st.just(""))) + text[at + draw(st.integers(0, 2)) :]
    return text


def read(text: str) -> Document:
    return read_json(SourceText("f.json", text))


def verdict(loads: Any, text: str) -> tuple[bool, Any]:
    try:
        return True, loads(text)
    except (ValueError, IndexError, OverflowError):
        return False, None


@settings(max_examples=600, deadline=None)
@given(texts())
@example('""#')
def test_agrees_with_json_and_hjson(text: str) -> None:
    document = read(text)
    strict, strict_data = verdict(json.loads, text)
    loose, loose_data = verdict(hjson.loads, text)
    assert document.readers == {"json": strict, "hjson": loose}
    if strict:
        assert repr(document.data()) == repr(strict_data)
    elif loose:
        assert repr(document.data()) == repr(json.loads(json.dumps(loose_data)))
        assert any(p.kind in ("hjson-only", "empty") for p in document.problems)
    assert any(p.fatal for p in document.problems) is not (strict or loose)
    for problem in document.problems:
        assert 0 <= problem.span.start <= problem.span.end <= len(text)
    if document.root is not None:
        for _, node, entry in walk(document.root):
            assert 0 <= node.span.start <= node.span.end <= len(text)
            assert entry is None or entry.key_span.end <= node.span.start


def test_every_span_holds_the_json_of_its_value() -> None:
    tree = {"a": [1, "é\U0001f600", {"b c": None}], "d": 5e8, "e": {}}
    text = json.dumps(tree, indent=3, ensure_ascii=False)
    document = read(text)
    assert document.root is not None
    for path, node, entry in walk(document.root):
        value = document.data()
        for part in path:
            value = value[part]
        assert json.loads(text[slice(*node.span)]) == value
        assert entry is None or json.loads(text[slice(*entry.key_span)]) == path[-1]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ('{"a": 1, // c\n"b": 2}', "// c"),
        ('{"a": [1, 2,]}', ","),
        ('{"a": 1\n"b": 2}', '"'),
        ("{a: 1}", "a"),
        ("{\"a\": 'x'}", "'x'"),
        ('\ufeff{"a": 1}', "\ufeff"),
        ('{"a": word\n}', "word"),
    ],
)
def test_each_thing_only_hjson_reads_is_noted_at_its_place(text: str, at: str) -> None:
    document = read(text)
    (problem,) = document.problems
    assert (problem.kind, problem.fatal, text[slice(*problem.span)]) == ("hjson-only", False, at)
    assert document.readers == {"json": False, "hjson": True}


def test_duplicate_keys_are_kept_and_told() -> None:
    document = read('{"a": 1, "a": 2}')
    (problem,) = document.problems
    assert (problem.kind, problem.span, problem.related) == ("duplicate-key", Span(9, 12), Span(1, 4))
    assert document.data() == {"a": 2}


def test_nan_is_read_differently() -> None:
    document = read('{"a": NaN\n}')
    assert [p.kind for p in document.problems] == ["readers-differ"]
    assert document.readers == {"json": True, "hjson": True}
    assert read('{"a": NaN}').readers == {"json": True, "hjson": False}


@pytest.mark.parametrize(
    ("text", "kind", "at"),
    [
        ('{"a": tru, "b": 1}', "syntax", 6),
        ('{"a": 1', "syntax", 7),
        ('{"a": ' + "9" * 5000 + "}", "bad-value", 6),
        ("[" * 100_000, "too-deep", 100),
        ('{"a":' * 100_000, "too-deep", 500),
        ("{a: " * 100_000, "too-deep", 400),
    ],
)
def test_what_neither_reads_is_fatal(text: str, kind: str, at: int) -> None:
    document = read(text)
    assert [(p.kind, p.span.start, p.fatal) for p in document.problems] == [(kind, at, True)]
    assert document.root is None


def test_what_the_parser_says_stands_alone() -> None:
    """For a message that says by itself that the file is no JSON."""
    (problem,) = read('{"a": 1').problems
    assert (problem.message, problem.why) == ("not valid JSON: expected ',' or '}'", "expected ',' or '}'")
