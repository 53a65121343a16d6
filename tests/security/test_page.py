"""SECURITY.md promises nothing that no test holds."""

from __future__ import annotations

import ast
import re

import pytest

from tests.conftest import ROOT

ROWS = re.findall(
    r"^\| (.+) \| `(tests/[^:`]+)::(\w+)` \|$", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize(("promise", "file", "test"), ROWS, ids=[test for _, _, test in ROWS])
def test_a_promise_names_a_test_that_is_there(promise: str, file: str, test: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == test]
    assert len(found) == 1, promise
    assert any(isinstance(node, ast.Assert) for node in ast.walk(found[0])), promise


def test_every_promise_has_one() -> None:
    section = (
        (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## What is promised")[2].partition("\n## ")[0]
    )
    assert len(ROWS) == sum(line.startswith("| ") for line in section.splitlines()) - 1 >= 15
