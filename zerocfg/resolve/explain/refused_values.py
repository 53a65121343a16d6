"""Values of a plan that the library stops at: a job that does not start has neither memory nor time to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.catalog.values import show
from zerocfg.resolve.plan import Problem
from zerocfg.rules.issues import KeyIssue, issues
from zerocfg.source.node import dotted
from zerocfg.source.text import Where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.resolve.build import BuildResult

_STOPPING = ("type", "range", "choice", "null", "section-type")
"""Kinds of issues that are about a value and stop the library that reads it."""


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """``value`` as messages show it, ``reason`` to stand after it, ``library`` as people write its name."""

    key: str
    value: str
    place: Where
    library: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.place.file}:{self.place.line}"
        return f"{self.key} is {self.value} ({where}), and {self.library} stops at it: the value {self.reason}"

    @property
    def problem(self) -> Problem:
        """Why the run cannot be built."""
        message = f"the value {self.value} {self.reason}; {self.library} stops at it"
        return Problem(self.key, message, f"Correct it in {self.place.file}, or leave it out.", self.place)


def require_accepted_values(built: BuildResult) -> None:
    """Raise ValueError with one line that names key, value and place of a value that its library refuses."""
    refused = refused_value(built)
    if refused is not None:
        raise ValueError(str(refused))


def refused_value(built: BuildResult) -> RefusedValue | None:
    """The first value in the files of a run that its library refuses."""
    for key in _refused(built):
        start = key.file.source.place(key.at("value").concrete().start)
        place = Where(key.file.name, start.line, start.column)
        if place not in built.moved_from:
            return RefusedValue(dotted(key.path), show(key.value), place, key.library, key.issue.reason)
    return None


def _refused(built: BuildResult) -> Iterator[KeyIssue]:
    for key in issues(built.run, *_STOPPING):
        if key.file is built.run.deepspeed or _is_taken_over(key, built):
            yield key


def _is_taken_over(key: KeyIssue, built: BuildResult) -> bool:
    """Whether the build writes a value of accelerate's config as it stands: it fills some keys by itself, and the
    launcher does not look at all of them."""
    decision = built.plan.accelerate.get(dotted(key.path)) if built.plan is not None else None
    return decision is not None and decision.value == key.value
