"""Events survive whatever a scheduler does to the lines of a job."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.cluster.events import END, JOB, Reader

TEXT = {"event": "said", "text": "two\nlines, \u00e9, \x1e and 0: more"}


def line(node: str, event: dict[str, object], end: str = END) -> bytes:
    return f"{node}: {json.dumps(event)}{end}\n".encode()


def test_an_event_of_a_node_and_one_of_the_job() -> None:
    found = Reader().feed(line(" 3", TEXT) + line("*", {"event": "hosts", "names": "a b"}))
    assert found == [(3, TEXT), (JOB, {"event": "hosts", "names": "a b"})]


def test_a_long_line_that_is_broken_between_others() -> None:
    """As srun does it with --label: it ends a message anywhere with a line end, and goes on behind the label."""
    text = json.dumps({"event": "said", "text": "x" * 3000}) + END
    pieces = [text[at : at + 700] for at in range(0, len(text), 700)]
    mixed = b"".join(f"0: {piece}\n1: {piece}\n".encode() for piece in pieces)
    assert Reader().feed(mixed) == [
        (0, {"event": "said", "text": "x" * 3000}),
        (1, {"event": "said", "text": "x" * 3000}),
    ]


@given(st.lists(st.integers(0, 400), max_size=6))
def test_it_does_not_matter_in_which_pieces_it_is_read(cuts: list[int]) -> None:
    data = (
        line("0", TEXT) + b"a line of its own\n" + line("12", {"event": "n", "value": 1}) + line("0", {"event": "end"})
    )
    reader, found, before = Reader(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        found += reader.feed(data[before:cut])
        before = max(before, cut)
    assert found == [(0, TEXT), (12, {"event": "n", "value": 1}), (0, {"event": "end"})]


@pytest.mark.parametrize(
    "data", [b"0: {}\x1e\n", b"0: [1]\x1e\n", b'0: {"event": 1}\x1e\n', b"0: \xff\x1e\n", b"x: {}\x1e\n"]
)
def test_what_is_no_event_is_passed_over(data: bytes) -> None:
    assert Reader().feed(data + line("0", TEXT)) == [(0, TEXT)]


def test_an_event_without_an_end_is_none() -> None:
    assert Reader().feed(line("0", TEXT, end="")) == []


def test_nesting_does_not_break_the_reader() -> None:
    deep = b'0: {"event": "x", "a": ' + b"[" * 100_000 + b"\x1e\n"
    assert Reader().feed(deep + line("0", TEXT)) == [(0, TEXT)]


def test_a_channel_keeps_other_output_out() -> None:
    program = "from zerocfg.cluster.events import Channel; tell = Channel(); print('no'); tell('a', b='\\u00e9\\n')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b'{"event": "a", "b": "\\u00e9\\n"}\x1e\n' and done.stderr == b"no\n"
