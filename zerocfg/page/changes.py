"""What changed since the last build, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.compare.check_outputs import FILE_STATES
from zerocfg.compare.values import ABSENT
from zerocfg.page.settings import text

if TYPE_CHECKING:
    from zerocfg.compare.check_outputs import OutputCheck


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    old: str
    new: str
    because: str


@dataclass(frozen=True, slots=True)
class File:
    name: str
    state: str
    details: tuple[str, ...]


@dataclass(slots=True)
class Changes:
    """``defaults`` counts values that nobody sets and that come or go with others. ``follow`` are files that are out of
    date because of the changes, ``files`` those that differ for another reason."""

    same: bool
    changes: list[Change] = field(default_factory=list)
    defaults: int = 0
    follow: list[str] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


def changes(found: OutputCheck) -> Changes:
    """The build on disk against what the sources give now."""
    said = [one for one in found.changes if one.said] or found.changes
    follow = [one.name for one in found.files if found.changes and one.state == "outdated"]
    files = [one for one in found.files if one.name not in follow]
    return Changes(
        found.state == "up to date",
        [Change(one.row.name, _text(one.old), _text(one.new), one.because) for one in said],
        len(found.changes) - len(said),
        sorted(follow),
        [File(one.name, FILE_STATES[one.state], tuple(one.details)) for one in files],
        found.sources,
    )


def _text(value: object) -> str:
    return "not set" if value is ABSENT else text(value)
