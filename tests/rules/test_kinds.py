"""Everything that the effective settings can predict is told by exactly one rule."""

from __future__ import annotations

import ast
from pathlib import Path

import zerocfg.run
from zerocfg.rules.failures import RULE_FOR_FAILURE
from zerocfg.rules.registry import ALL

CALLS = {"Failure", "Ignored", "fail", "_fail", "ignore", "Fail", "_require"}
LATE = {"zero-stage-type", "gradient-clipping-type"}
"""Chosen by a conditional expression; the scan below sees them as plain text of a tuple."""


def predicted() -> set[str]:
    """The kinds that the sources of `zerocfg.run` name where they predict something."""
    kinds: set[str] = set()
    for path in sorted(Path(zerocfg.run.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            first = node.args[0]
            if name in CALLS and isinstance(first, ast.Constant) and isinstance(first.value, str):
                kinds.add(first.value)
    return kinds


def test_every_kind_is_told_by_a_rule() -> None:
    found = predicted() | LATE
    assert len(found) > 50
    assert found - set(RULE_FOR_FAILURE) == set(), "predicted, but no rule tells it"
    assert set(RULE_FOR_FAILURE) - found == set(), "no longer predicted"


def test_the_rules_exist() -> None:
    assert set(RULE_FOR_FAILURE.values()) <= {rule.code for rule in ALL}


def test_late_kinds_are_in_the_source() -> None:
    text = (Path(zerocfg.run.__file__).parent / "stages" / "plugin.py").read_text(encoding="utf-8")
    assert all(f'"{kind}"' in text for kind in LATE)
