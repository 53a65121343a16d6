"""The words for the releases in which a finding holds."""

from __future__ import annotations

import pytest

from zerocfg.linter.release_range import ReleaseRange

KNOWN = ("0.1", "0.2", "0.3", "0.4")


@pytest.mark.parametrize(
    ("parts", "known_from", "words"),
    [
        ((), "0.1", "no known release of DeepSpeed by itself"),
        ((("0.1", "0.4"),), "0.1", "all known releases of DeepSpeed, 0.1 to 0.4"),
        ((("0.2", "0.2"),), "0.1", "DeepSpeed 0.2"),
        ((("0.4", "0.4"),), "0.1", "DeepSpeed 0.4"),
        ((("0.3", "0.4"),), "0.1", "DeepSpeed 0.3 and later"),
        ((("0.1", "0.2"),), "0.1", "DeepSpeed before 0.3"),
        ((("0.2", "0.3"),), "0.1", "DeepSpeed 0.2 to 0.3"),
        ((("0.1", "0.1"), ("0.3", "0.4")), "0.1", "DeepSpeed 0.1 and 0.3 and later"),
        ((("0.2", "0.4"),), "0.2", "DeepSpeed 0.2 and later; not known before"),
        ((("0.3", "0.4"),), "0.2", "DeepSpeed 0.3 and later"),
    ],
)
def test_words(parts: tuple[tuple[str, str], ...], known_from: str, words: str) -> None:
    assert ReleaseRange("deepspeed", parts, known_from, KNOWN).words == words
