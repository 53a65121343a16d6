"""Places in Python code are those of its own parser, whatever its lines end with and its letters are."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.source.python_spans import PythonSpans
from zerocfg.source.text import BOM

WORDS = st.text(st.sampled_from("aé😀 \t\f"), max_size=6)
LINES = st.lists(st.tuples(WORDS, st.sampled_from(("\n", "\r\n", "\r"))), max_size=5)


def shown(text: str) -> list[str]:
    """What stands where each constant and keyword is found."""
    spans = PythonSpans(text)
    nodes = [one for one in ast.walk(ast.parse(text.removeprefix(BOM))) if isinstance(one, (ast.Constant, ast.keyword))]
    return [text[slice(*spans.span(node))] for node in nodes]


@given(LINES, st.booleans())
def test_constants_are_found_where_they_are_written(lines: list[tuple[str, str]], marked: bool) -> None:
    code = "".join(f"f('{word}', {at}){end}" for at, (word, end) in enumerate(lines))
    written = [part for at, (word, _) in enumerate(lines) for part in (f"'{word}'", str(at))]
    assert sorted(shown((BOM if marked else "") + code)) == sorted(written)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_node_of_several_lines(end: str) -> None:
    code = end.join(('"ü"', 'f(word="""é', 'ö"""', ', other="😀")'))
    assert shown(code) == ['"ü"', f'word="""é{end}ö"""', 'other="😀"', f'"""é{end}ö"""', '"😀"']
