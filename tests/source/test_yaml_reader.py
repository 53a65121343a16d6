"""The YAML reader says what yaml.safe_load says, and where."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zerocfg.budgets import DEPTH
from zerocfg.source.node import Document, walk
from zerocfg.source.text import SourceText, Span
from zerocfg.source.yaml_reader import read_yaml

SEEDS = [
    "a: 1\nb:\n  c: [1, 2.5, no]\n  d: {x: 5e8, y: 'z'}\n",
    "base: &b\n  x: 1\nuse: *b\nmore:\n  <<: *b\n  x: 2\nlist:\n- *b\n- - 1\n",
    "text: |\n  one\n\n  two\nfolded: >-\n  a\n  b\n? complex\n: value\n",
    "%YAML 1.1\n---\na: !!str 5\nb: 2020-01-01\nc: 010\nd: 1:30\n...\n",
]
FRAGMENTS = st.sampled_from(
    [
        *"\n :-#,[]{}&*!|>'\"%@`?~=<\t\r\\",
        "  ",
        "- ",
        ": ",
        "a",
        "&x ",
        "*x",
        "<<: *x\n",
        "!!int ",
        "!foo ",
        "no",
        "1",
        "---\n",
        "...\n",
        "2020-99-99",
        "0x",
        "1_0",
        "é",
        "\U0001f600",
        "\ufeff",
        "\x85",
        "\u2028",
        "\x07",
        ".inf",
    ]
)

BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1},' * 9}]\n" for i in range(1, 12))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Valid documents with a few pieces of YAML syntax put in or cut out at random places."""
    text = draw(st.one_of(st.sampled_from(SEEDS), st.lists(FRAGMENTS, max_size=12).map("".join)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 3))
        text = text[:at] + draw(st.one_of(FRAGMENTS, st.just(""))) + text[at + cut :]
    return text


def read(text: str) -> Document:
    return read_yaml(SourceText("f.yaml", text))


def normal(value: Any) -> Any:
    """Comparable: keys as their kinds of text are not compared, NaN equals NaN."""
    if isinstance(value, dict):
        return [sorted(repr(normal(v)) for v in value.values())]
    if isinstance(value, list):
        return [normal(item) for item in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else (type(value).__name__, value)


def text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) for k in value) and all(text_keys(v) for v in value.values())
    return all(text_keys(item) for item in value) if isinstance(value, list) else True


@settings(max_examples=400, deadline=None)
@given(texts())
@example("a: \tb")
@example("a: !!int ''")
@example("a: !!float x")
@example("{a: 1, b}")
@example("!!set {a, b}")
@example("!!omap [a: 1]")
@example("a: =")
@example("? [1]\n: 2")
def test_agrees_with_safe_load(text: str) -> None:
    document = read(text)
    fatal = [problem for problem in document.problems if problem.fatal]
    for problem in document.problems:
        assert 0 <= problem.span.start <= problem.span.end <= len(text)
    if any(problem.kind == "alias-cycle" for problem in fatal):
        return  # safe_load builds a value that contains itself; a tree cannot
    try:
        expected = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        assert len(fatal) == 1, text
        assert document.root is None
        return
    assert not fatal, (text, fatal)
    if text_keys(expected):
        assert normal(document.data()) == normal(expected)
        if isinstance(expected, dict):
            assert set(document.data()) == set(expected)


@pytest.mark.parametrize("prefix", ["", "\ufeff", "# é\U0001f600\n", "# x\r\n", "# a\u2028# b\x85"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_spans_are_exact(prefix: str, end: str) -> None:
    text = prefix + end.join(["one: LOCAL  # why", "two:", "  - 5e8", "  - {k: 'v'}", "# later", "three:", ""])
    document = read(text)
    assert document.root is not None
    seen = {}
    for path, node, entry in walk(document.root):
        key = text[slice(*entry.key_span)] if entry else None
        seen[path] = (key, text[slice(*node.span)])
    assert seen[("one",)] == ("one", "LOCAL")
    assert seen[("two",)] == ("two", f"- 5e8{end}  - {{k: 'v'}}")
    assert seen[("two", 0)] == (None, "5e8")
    assert seen[("two", 1, "k")] == ("k", "'v'")
    assert seen[("three",)] == ("three", "")


def test_values_are_those_of_yaml_1_1() -> None:
    data = read("a: 5e8\nb: no\nc: 010\nd: 1:30\ne: 1_000\nf: 5.0e+8\ng: 2020-01-02\nh: ~\ni: .inf\n").data()
    assert list(data.values()) == ["5e8", False, 8, 90, 1000, 5e8, datetime.date(2020, 1, 2), None, math.inf]


def test_duplicate_keys_point_at_both() -> None:
    document = read("a: 1\nb: 2\na: 3\n")
    (problem,) = document.problems
    assert (problem.kind, problem.path, problem.span, problem.related) == (
        "duplicate-key",
        ("a",),
        Span(10, 11),
        Span(0, 1),
    )
    assert not problem.fatal
    assert document.data() == {"a": 3, "b": 2}


def test_an_alias_has_its_own_place() -> None:
    text = "x: &a {k: 1}\ny: *a\nz: [*a]\n"
    document = read(text)
    for path in (("y",), ("z", 0)):
        node = document.get(path)
        assert node is not None
        assert text[slice(*node.span)] == "*a"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("\ta: 1", "syntax"),
        ("a: b: c", "syntax"),
        ("a: \x00", "syntax"),
        ("a: \ud800", "syntax"),
        ("a: 1\n---\nb: 2", "multiple-documents"),
        ("a: !foo 1", "unknown-tag"),
        ("a: !!int abc", "bad-value"),
        ("a: 2020-99-99", "bad-value"),
        ("a: " + "9" * 5000, "bad-value"),
        ("a: 0x" + "f" * 5000, "bad-value"),  # PyYAML reads it; whoever writes it into a message or a variable fails
        ("&a [*a]", "alias-cycle"),
        ("[" * 100_000, "too-deep"),
        ("- " * 100_000, "too-deep"),
        ("{a: " * (DEPTH + 1) + "}" * (DEPTH + 1), "too-deep"),
        (BOMB, "too-large"),
    ],
)
def test_what_cannot_be_read_is_a_problem_with_a_place(text: str, kind: str) -> None:
    document = read(text)
    assert [(p.kind, p.fatal) for p in document.problems] == [(kind, True)]
    assert document.root is None


def test_an_empty_file_is_no_error() -> None:
    document = read("# only a comment\n")
    assert [(p.kind, p.fatal) for p in document.problems] == [("empty", False)]


def test_a_bare_no_as_key_is_told() -> None:
    document = read("no: 1\n2: x\n")
    assert [p.kind for p in document.problems] == ["non-string-key"]
    assert document.data() == {"no": 1, "2": "x"}
