"""Plants one mistake after the other into a copy of its repository and looks whether lint tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.wild.data import Planted, Repository
from benchmarks.wild.lint import diagnostics
from benchmarks.wild.trees import copied


@dataclass(frozen=True)
class Outcome:
    """``told``: codes of the errors and warnings that the edit brought and that were asked for; ``other``: the rest."""

    planted: Planted
    told: tuple[str, ...]
    other: tuple[str, ...]


class EditError(Exception):
    """The text to replace is not in the file."""


def outcomes(mistakes: Iterable[Planted], repositories: Iterable[Repository], folder: Path) -> Iterator[Outcome]:
    """Needs the trees of all repositories named below ``folder``; nothing there is changed."""
    known = {one.name: one for one in repositories}
    for name, group in groupby(sorted(mistakes, key=lambda one: one.repository), key=lambda one: one.repository):
        with copied(known[name].tree(folder)) as tree:
            before = set(map(_identity, diagnostics(tree)))
            for mistake in group:
                yield _outcome(mistake, tree, before)


def _outcome(mistake: Planted, tree: Path, before: set[tuple[str, ...]]) -> Outcome:
    file = tree / mistake.file
    text = file.read_bytes()
    old = mistake.old.encode()
    if old not in text:
        raise EditError(f"{mistake.repository}: {mistake.file} has no {mistake.old!r}")
    try:
        _replace(file, text.replace(old, mistake.new.encode(), 1))
        found = [one for one in diagnostics(tree) if _identity(one) not in before]
    finally:
        _replace(file, text)
    codes = sorted({one["code"] for one in found if one["severity"] != "note"})
    told = tuple(code for code in codes if code in mistake.codes)
    return Outcome(mistake, told, tuple(code for code in codes if code not in told))


def _identity(one: dict[str, Any]) -> tuple[str, ...]:
    """A finding by what it says and about which key, so that lines may move."""
    return one["code"], one["severity"], one["file"], one["path"], one["message"]


def _replace(file: Path, text: bytes) -> None:
    """Write anew, because the file may be a link to the original."""
    file.unlink(missing_ok=True)
    file.write_bytes(text)
