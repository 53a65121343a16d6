"""Where a run has no file, or nobody can read it, there is no fix for it."""

from __future__ import annotations

import pytest

from zerocfg.rules.api import Fix
from zerocfg.rules.fixes import edited, present, put, rewritten, together, without
from zerocfg.run.model import SourceFile
from zerocfg.source.edit import delete_entry
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

TEXT = SourceText("a.yaml", "a: 1\n")
READ = SourceFile("a.yaml", "recipe", TEXT, load_as(TEXT, "yaml"))


def fixes(file: SourceFile | None) -> list[Fix | None]:
    return [
        rewritten(file, ("a",), "b", "2", why="w"),
        edited(delete_entry, file, ("a",), why="w"),
        put(file, ("a",), "2", why="w"),
        put(file, ("b",), "2", why="w"),
        without(file, [("a",)], "w"),
    ]


@pytest.mark.parametrize("file", [None, SourceFile("a.yaml", "recipe", TEXT)])
def test_nothing_is_fixed_in_what_is_not_read(file: SourceFile | None) -> None:
    assert fixes(file) == [None] * 5 and not present(file, ("a",))


def test_what_is_read_is_fixed() -> None:
    found = fixes(READ)
    assert all(found) and present(READ, ("a",)) and not present(READ, ("b",))
    assert together("w", found[0], None) is None, "a half is none"
    assert rewritten(READ, ("c",), "b", "2", why="w") is None, "no such key"
