"""What a reader sees of some bad examples, to the letter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.report.full import render_full
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import find

from .examples import lint_example

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

CODES = ("ZC102", "ZC201", "ZC206", "ZC303", "ZC401", "ZC402", "ZC506", "ZC604", "ZC702", "ZC707", "ZC801")


@pytest.mark.parametrize("code", CODES)
def test_full_text(code: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rule = find(code)
    assert rule is not None
    assert render_full(lint_example(page_of(rule).bad[-1], tmp_path)) == snapshot
