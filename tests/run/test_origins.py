"""An origin in words, and its place."""

from __future__ import annotations

import pytest

from zerocfg.run.model import Origin, SourceFile
from zerocfg.run.origins import origin_label, place_of, span_of
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span, Where

TEXT = SourceText("ds.json", '{"a": 1,\n "b": [7, 8]}')
FILE = SourceFile("ds.json", "deepspeed", TEXT, load_as(TEXT, "json"))


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (Origin("default", "accelerate 1.15.0"), "default of accelerate 1.15.0"),
        (Origin("default"), "default"),
        (Origin("flag", "--zero_stage"), "--zero_stage"),
        (Origin("flag"), "given on the launch line"),
        (Origin("environment", "A"), "A"),
        (Origin("environment"), "an environment variable"),
        (Origin("computed", "2 * 4"), "2 * 4"),
        (Origin("computed"), "computed"),
        (Origin("file", file=FILE, path=("a",)), "written"),
    ],
)
def test_words(origin: Origin, words: str) -> None:
    assert origin_label(origin) == words


@pytest.mark.parametrize(
    ("path", "span", "place"),
    [
        (("b",), None, "ds.json:2:2"),  # the key, not its value
        (("b", 1), None, "ds.json:2:11"),
        (("c",), None, "ds.json"),
        ((), None, "ds.json"),
        (("b",), Span(1, 4), "ds.json:1:2"),  # a span says it better
    ],
)
def test_places(path: tuple[str | int, ...], span: Span | None, place: str) -> None:
    found = place_of(Origin("file", file=FILE, path=path, span=span))
    assert str(found) == place and found == Where.parse(place)


def test_what_no_file_says_has_no_place() -> None:
    origin = Origin("computed", "2 * 4")
    assert place_of(origin) is None and span_of(origin) is None
