"""Figures that hand-written pages give of the rules are those of the rules."""

from __future__ import annotations

import re
from collections import Counter

from tests.conftest import ROOT
from zerocfg.rules.registry import ALL


def test_the_table_of_proofs() -> None:
    text = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (executed|cited|self|needs GPU) \|.*\| (\d+) \|$", text, re.M))
    counted = Counter(rule.proof.status.replace("needs_gpu", "needs GPU") for rule in ALL)
    assert {status: int(number) for status, number in rows.items()} == counted


def test_a_link_to_a_rule_shows_its_code() -> None:
    """That the page exists is what the strict build of the site checks."""
    known = {rule.code for rule in ALL}
    for page in (ROOT / "docs").glob("**/*.md"):
        for shown, target in re.findall(r"\[(ZC\d{3})\]\((?:[^)]*/)?(ZC\d{3})\.md\)", page.read_text(encoding="utf-8")):
            assert shown == target and shown in known, page
