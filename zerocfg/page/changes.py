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
    said = [change for change in found.changes if change.said] or found.changes
    follow = [file.name for file in found.files if found.changes and file.state == "outdated"]
    files = [file for file in found.files if file.name not in follow]
    return Changes(
        found.state == "up to date",
        [Change(change.row.name, _text(change.old), _text(change.new), change.because) for change in said],
        len(found.changes) - len(said),
        sorted(follow),
        [File(file.name, FILE_STATES[file.state], tuple(file.details)) for file in files],
        found.sources,
    )


def _text(value: object) -> str:
    return "not set" if value is ABSENT else text(value)
