"""The map of the code is short and complete: each package is on it, and says at its door where to begin."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

MAP = ROOT / "docs" / "architecture.md"
DECISIONS = ROOT / "docs" / "decisions"
PACKAGES = sorted(path.parent for path in (ROOT / "zerocfg").glob("*/__init__.py"))
MOST_WORDS = 1800


def test_the_map_is_read_in_minutes() -> None:
    assert len(MAP.read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_every_package_is_on_the_map_once() -> None:
    linked = re.findall(r"\]\(\.\./zerocfg/(\w+)/__init__\.py\)", MAP.read_text(encoding="utf-8"))
    assert sorted(linked) == [package.name for package in PACKAGES]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_says_what_it_holds_and_where_to_begin(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    parts = re.split(r"\n\n(?=Contents: |May use: |Begin at: )", text)
    assert [part.partition(":")[0] for part in parts[1:]] == ["Contents", "May use", "Begin at"]
    named = re.findall(r"`([\w/]+(?:\.py|/))`", parts[-1])
    assert named and all((package / name).exists() for name in named), named


def test_paths_of_the_map_exist() -> None:
    """Those of modules with their suffix, or of folders of zerocfg."""
    text = MAP.read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w-]+/)+(?:\w+\.(?:py|yaml)|))`", text)
    assert len(named) > 10
    places = (ROOT, ROOT / "zerocfg")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_every_decision_is_listed() -> None:
    pages = sorted(path.name for path in DECISIONS.glob("0*.md"))
    listed = re.findall(r"\((\d{4}-[a-z0-9-]+\.md)\)", (DECISIONS / "README.md").read_text(encoding="utf-8"))
    assert listed == pages
    assert [int(name[:4]) for name in pages] == list(range(1, len(pages) + 1))
    assert all("\n## Why\n" in (DECISIONS / name).read_text(encoding="utf-8") for name in pages)
