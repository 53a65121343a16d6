"""Declared versions."""

from __future__ import annotations

import pytest

from zerocfg.catalog.versions import admits, bounds, only_below, only_from


@pytest.mark.parametrize(
    ("declared", "older", "newer"),
    [
        ("0.19.2", True, False),
        ("0.19.3", False, True),
        ("==0.19.8", False, True),
        (">=0.18", True, True),
        (">=0.19.3", False, True),
        ("<0.19.3", True, False),
        ("<=0.19.3", True, True),
        ("<=0.19.2", True, False),
        (">=0.18,<0.19.3", True, False),
        (">=0.18, <0.20", True, True),
        ("~=0.19.2", True, True),
        ("==0.18.*", True, False),
        ("==0.19.*", True, True),
        ("v0.19.8", False, True),
    ],
)
def test_admits(declared: str, older: bool, newer: bool) -> None:
    assert admits(declared, below="0.19.3") is older
    assert admits(declared, at_least="0.19.3") is newer


@pytest.mark.parametrize("text", [">=0.19,<0.18", "==0.14,>=0.15", "==0.19.*,!=0.19.1,<0.19", "==1.0,==2.0"])
def test_contradictions_admit_nothing(text: str) -> None:
    assert bounds(text) is None
    assert not admits(text, below="1") and not only_from(text, "0") and not only_below(text, "1")


@pytest.mark.parametrize(
    ("declared", "above", "below"),
    [
        (">=0.19.3", True, False),
        (">=0.19", False, False),
        ("<0.19.3", False, True),
        ("0.19.3", True, False),
        ("==0.18.*", False, True),
        (None, False, False),
        ("newest", False, False),
    ],
)
def test_certainty(declared: str | None, above: bool, below: bool) -> None:
    assert only_from(declared, "0.19.3") is above
    assert only_below(declared, "0.19.3") is below


@pytest.mark.parametrize("text", ["", "newest", "git+https://x", "~=2", ">=1;<2 ||"])
def test_not_understood_admits_nothing(text: str) -> None:
    assert bounds(text) is None or text == ">=1;<2 ||"
    assert not admits(None, below="1")
