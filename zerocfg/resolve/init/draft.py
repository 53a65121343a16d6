"""A run of a first ``zerocfg.yaml``: its values, and how each one is known.

"given": a flag of the command line; "found": a file says it; "guessed": likely, to be checked; "open": nothing says it,
so it is written as a comment, or left to be filled in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from zerocfg.models.spec import RUN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

How = Literal["given", "found", "guessed", "open"]


_GENERIC = frozenset("train training run launch main start recipe config args arguments readme makefile job".split())


@dataclass(frozen=True, slots=True)
class Guess:
    """A key of a run; ``value`` None: it is unknown, and ``example`` shows what it might look like."""

    key: str
    value: Any
    how: How
    note: str
    example: str = ""


@dataclass(slots=True)
class Draft:
    """One run of the new spec."""

    name: str
    guesses: dict[str, Guess] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    started: str = ""
    """The words of its launch line, by which two lines are told apart."""

    def add(self, key: str, value: Any, how: How, note: str, example: str = "") -> None:
        """Sets a key; the first value wins."""
        self.guesses.setdefault(key, Guess(key, value, how, note, example))

    def value(self, key: str) -> Any:
        guess = self.guesses.get(key)
        return guess.value if guess else None


def run_name(stem: str, path: Path | None, folder: Path) -> str:
    """A name for a run: that of a file if it is specific, else that of its folder."""
    words = [stem]
    if path is not None:
        words += [path.stem, path.parent.name if path.parent != folder else ""]
    words.append(folder.name)
    for word in words:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip("-._")[:60]
        if name and name.lower() not in _GENERIC and RUN_NAME.match(name):
            return name
    return "train"


def without_duplicates(drafts: Iterable[Draft]) -> list[Draft]:
    """The drafts without those that equal an earlier one."""
    found: dict[str, Draft] = {}
    for draft in drafts:
        values = [(key, guess.value) for key, guess in sorted(draft.guesses.items()) if key != "launch"]
        found.setdefault(repr([draft.started, *values]), draft)
    return list(found.values())


def with_unique_names(drafts: list[Draft]) -> list[Draft]:
    """The drafts, those with a repeated name numbered."""
    seen: dict[str, int] = {}
    taken = {draft.name for draft in drafts}
    for draft in drafts:
        seen[draft.name] = seen.get(draft.name, 0) + 1
        if seen[draft.name] > 1:
            number = seen[draft.name]
            while f"{draft.name}-{number}" in taken:
                number += 1
            draft.name = f"{draft.name}-{number}"
            taken.add(draft.name)
    return drafts
