"""Here-documents of a Dockerfile's instructions: where they end, and which are scripts that a shell runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MARK = re.compile(r"(?<![<\w])\d*<<(-?)(?:([A-Za-z_][\w.-]*)|'([^'\s]+)'|\"([^\"\s]+)\")(?=[\s|&;>)]|\Z)")
_SHELL = re.compile(r"(?:(?:/usr)?/bin/)?(?:ba|da|z|k)?sh(?:[ \t]+-[\w-]+)*[ \t]*|\s*")
_OF_A_SHELL = re.compile(r"#!(?!.*(?:\b(?:ba|da|z|k)?sh\b))")
TAKE_THEM = frozenset(("RUN", "COPY", "ADD"))
"""The instructions that may have here-documents."""


class Mark(NamedTuple):
    """The word that ends a here-document; ``tabs``: those before it and before its lines do not count."""

    word: str
    tabs: bool

    def ends(self, line: str) -> bool:
        line = line.rstrip("\r\n")
        return (line.lstrip("\t") if self.tabs else line) == self.word


def marks(instruction: str, rest: str) -> list[Mark]:
    """The marks of an instruction, in order. ``rest``: what is behind its name."""
    if instruction not in TAKE_THEM or "<<" not in rest:
        return []
    return [Mark(found[2] or found[3] or found[4], bool(found[1])) for found in _MARK.finditer(rest)]


def size_of(waiting: Iterable[Mark], lines: Sequence[str]) -> int:
    """How many of the next lines belong to these here-documents, with those that end them; 0 where one never ends, so
    that its mark is none."""
    size = 0
    for mark in waiting:
        size = next((at + 1 for at in range(size, len(lines)) if mark.ends(lines[at])), -1)
        if size < 0:
            return 0
    return size


def is_script(rest: str, first: str) -> bool:
    """Whether the one here-document of `RUN` is what a shell runs: `RUN <<EOF`, `RUN bash -e <<EOF`. ``rest``: behind
    `RUN` and its flags; ``first``: the first line of the document, which may name another interpreter."""
    command, count = _MARK.subn("", rest)
    return count == 1 and _SHELL.fullmatch(command.strip()) is not None and _OF_A_SHELL.match(first) is None
