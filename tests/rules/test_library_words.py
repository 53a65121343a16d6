"""What a rule says that a library answers is what the library was seen to answer.

The words of a proof are held against the real library by `tests/proofs`; the page of the rule has to quote them. An
error whose page names another reason than its proof saw fails here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Severity
from zerocfg.rules.registry import ALL

if TYPE_CHECKING:
    from zerocfg.rulebook.proof import Proof
    from zerocfg.rules.api import Rule

WITHOUT_WORDS = {"SystemExit"}
"""What a library raises without a word."""


def proofs(rule: Rule) -> list[Proof]:
    page = page_of(rule)
    return [page.proof, *(example.proof for example in page.bad if example.proof is not None)]


def plain(text: str) -> str:
    """A text without its marks of code, and with all numbers alike: an example has others than the page."""
    return re.sub(r"\d+(?:\.\d+)?", "0", " ".join(text.replace("`", "").split()))


def raising(rule: Rule) -> list[str]:
    return [item.raises for item in proofs(rule) if item.raises is not None and item.raises not in WITHOUT_WORDS]


SHOWN = [rule for rule in ALL if rule.severity is Severity.ERROR and raising(rule)]


@pytest.mark.parametrize("rule", SHOWN, ids=lambda rule: rule.code)
def test_the_page_quotes_the_library(rule: Rule) -> None:
    happens = plain(page_of(rule).happens)
    assert [words for words in raising(rule) if re.search(plain(words), happens)], (raising(rule), happens)


def test_most_errors_have_words() -> None:
    assert len(SHOWN) >= 165


@pytest.mark.parametrize(
    ("says", "saw", "agree"),
    [
        ("It stops with `ValueError: 3 is not a stage`.", "ValueError: 4 is not a stage", True),
        ("About 65520 steps are skipped.", "OverflowError: int too big to convert", False),
        ("`KeyError: 'lr'`", "KeyError: 'betas'", False),
    ],
)
def test_words_that_differ_are_seen(says: str, saw: str, agree: bool) -> None:
    assert (re.search(plain(saw), plain(says)) is not None) is agree
