"""Where a dotted name is written, releases that a declaration admits, time limits."""

from __future__ import annotations

import signal
import time

import pytest

from zerocfg.gate.certificates import allows
from zerocfg.gate.positions import dotted_position, position
from zerocfg.gate.time_limit import TimeLimitError, limited
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

TEXT = '{\n  "zero": {\n    "stage": 3,\n    "a.b": {"c": 1}\n  },\n  "zero.other": 2\n}\n'


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("zero", (2, 3)),
        ("zero.stage", (3, 5)),
        ("zero.stage.deeper", (3, 5)),  # the nearest thing that is written
        ("zero.a.b", (4, 5)),
        ("zero.a.b.c", (4, 13)),
        ("zero.other", (6, 3)),
        ("zero.missing", (2, 3)),
        ("missing", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_the_place_of_a_dotted_name(name: str, place: tuple[int, int]) -> None:
    assert dotted_position(load_as(SourceText("a.json", TEXT), "json"), name) == place


def test_the_place_of_a_path() -> None:
    document = load_as(SourceText("a.json", TEXT), "json")
    assert position(document, ["zero", "a.b", "c"]) == (4, 13)
    assert position(document, []) == (0, 0)


@pytest.mark.parametrize(
    ("declared", "version", "admitted"),
    [
        (">=0.18,<0.20", "0.18.0", True),
        (">=0.18,<0.20", "0.17.9", False),
        (">=0.18,<0.20", "0.20", False),
        ("<=0.20", "0.20", True),
        ("==2.13.0", "2.13.0+cu126", True),
        ("==2.13.0", "2.13.1", False),
        ("of a branch", "1.0", True),
    ],
)
def test_releases_that_a_declaration_admits(declared: str, version: str, admitted: bool) -> None:
    """As PEP 440 orders releases, without their local part."""
    assert allows(declared, version) is admitted


def test_a_time_limit_leaves_the_alarm_as_it_was() -> None:
    def mine(*_: object) -> None:
        raise AssertionError("the alarm of somebody else")

    before = signal.signal(signal.SIGALRM, mine)
    try:
        with limited(60):
            assert signal.getsignal(signal.SIGALRM) is not mine
        assert signal.getsignal(signal.SIGALRM) is mine
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        with pytest.raises(TimeLimitError), limited(0.01):
            end = time.monotonic() + 60
            while time.monotonic() < end:
                pass
        assert signal.getsignal(signal.SIGALRM) is mine
    finally:
        signal.signal(signal.SIGALRM, before)
