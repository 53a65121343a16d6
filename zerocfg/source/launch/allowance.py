"""What is left of the budgets of one launch file, and where one of them ran out."""

from __future__ import annotations

from zerocfg.budgets import EVAL_DEPTH, EXPANDED_CHARACTERS, LAUNCH_VARIABLES, LAUNCHES, WORD_CHARACTERS
from zerocfg.source.node import Problem
from zerocfg.source.text import Span


class Allowance:
    """Shared by all parts of a file. ``exhausted``: for each budget that ran out, the first place that it was too small
    for."""

    def __init__(self) -> None:
        self._characters = EXPANDED_CHARACTERS
        self._launches = LAUNCHES
        self._variables = LAUNCH_VARIABLES
        self.exhausted: dict[str, Problem] = {}

    def expands(self, characters: int, place: int) -> bool:
        """Whether variables may expand to this much more, at an offset of the file."""
        self._characters -= characters
        if self._characters < 0:
            limit = f"variables expand to more than {EXPANDED_CHARACTERS:,} characters"
            self._note("expansion", f"{limit}; their values are unknown from here on", Span(place, place + 1))
        return self._characters >= 0

    def launches(self, variables: int, span: Span) -> bool:
        """Whether one more launch line may be read that inherits this many variables."""
        self._launches -= 1
        self._variables -= variables
        if self._launches < 0:
            self._note("launches", f"more than {LAUNCHES:,} launch lines; not read from here on", span)
        elif self._variables < 0:
            limit = f"launch lines that inherit more than {LAUNCH_VARIABLES:,} variables together"
            self._note("variables", f"{limit}; not read from here on", span)
        return self._launches >= 0 and self._variables >= 0

    def nests(self, depth: int, characters: int, span: Span) -> bool:
        """Whether the text that a command hands to another shell may be read: how deep it lies, and how long it is."""
        if depth > EVAL_DEPTH:
            self._note("eval", f"shells start shells more than {EVAL_DEPTH} levels deep; not followed further", span)
        elif characters > WORD_CHARACTERS:
            limit = f"a shell gets a text of more than {WORD_CHARACTERS:,} characters"
            self._note("eval", f"{limit}; not followed", span)
        return depth <= EVAL_DEPTH and characters <= WORD_CHARACTERS

    def _note(self, budget: str, message: str, span: Span) -> None:
        self.exhausted.setdefault(budget, Problem("budget", message, span))
