"""Figures that hand-written pages give of the rules are those of the rules."""

from __future__ import annotations

import re
from collections import Counter

from tests.conftest import ROOT
from zerocfg.catalog.changes import known_libraries
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import library_name
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL


def test_the_table_of_proofs() -> None:
    text = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (executed|cited|self|needs GPU) \|.*\| (\d+) \|$", text, re.M))
    counted = Counter(page_of(rule).proof.status.replace("needs_gpu", "needs GPU") for rule in ALL)
    assert {status: int(number) for status, number in rows.items()} == counted


def test_the_releases_that_are_known() -> None:
    names = {library_name(library): histories(library).names for library in known_libraries()}
    told = {title: (str(len(every)), every[0], every[-1]) for title, every in names.items()}
    for page in ("README.md", "docs/concepts.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        found = re.findall(r"(\w+)\s+\((\d+)\s+releases,\s+([\d.]+)\s+to\s+([\d.]+)\)", text)
        assert {title: tuple(rest) for title, *rest in found} == told, page


def test_a_link_to_a_rule_shows_its_code() -> None:
    """That the page exists is what the strict build of the site checks."""
    known = {rule.code for rule in ALL}
    for page in (ROOT / "docs").glob("**/*.md"):
        for shown, target in re.findall(r"\[(ZC\d{3})\]\((?:[^)]*/)?(ZC\d{3})\.md\)", page.read_text(encoding="utf-8")):
            assert shown == target and shown in known, page
