"""The result of a conversion: the new texts, and what becomes of every key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Literal

from zerocfg.compare.effective_diff import Difference, compare
from zerocfg.compare.sides import SETTINGS, Value, side_of
from zerocfg.compare.values import ABSENT, shown
from zerocfg.emit.lock import without_secrets
from zerocfg.rules.api import Location
from zerocfg.rules.place import file_span
from zerocfg.run.config import AUTO
from zerocfg.run.discover import Files
from zerocfg.run.link import run_of_file
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.run.resolve_settings import with_consumer
from zerocfg.source.node import Path, dotted

Match = Literal["exactly", "counts now", "nearly", "not at all"]
"""How a key is carried over: with the same effect; with an effect, where nobody read it before; with an effect that
``Row.why`` tells apart; or with none."""


class ConversionError(ValueError):
    """A config that cannot be converted; the message names the file, the place and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """What becomes of one key, or of something that the engine does by itself.

    ``place``: FILE:LINE of the key, empty where nobody wrote it. ``old``, ``new``: key and value as text; ``new`` is
    empty where nothing takes its place. ``settings``: the effective settings that it decides, before and after.
    """

    old: str
    new: str
    match: Match
    why: str = ""
    place: str = ""
    settings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Conversion:
    """``accelerate``: the new text of the accelerate config. ``deepspeed``: by path, the new text of a DeepSpeed JSON.
    ``differences``: the effective settings that no row accounts for, as rows."""

    source: Run
    accelerate: str
    rows: tuple[Row, ...]
    deepspeed: Mapping[FilePath, str] = field(default_factory=dict)
    differences: tuple[Row, ...] = ()

    @property
    def lost(self) -> tuple[Row, ...]:
        """What has no counterpart."""
        return tuple(row for row in self.rows if row.match == "not at all")


def refused(file: SourceFile, path: Path, why: str) -> ConversionError:
    """An error about a key."""
    return ConversionError(f"{place(file, path)}: {why}")


def place(file: SourceFile, path: Path) -> str:
    """FILE:LINE:COLUMN of a key."""
    start = file_span(Location(file, path, "key")).start
    return f"{file.name}:{start.line}:{start.column}"


def said(path: Path, value: object) -> str:
    """``deepspeed_config.zero_stage: 2``"""
    name = str(path[-1])
    return f"{dotted(path)}: {word(without_secrets({name: value})[name])}"


def word(value: object) -> str:
    """A value as a table shows it."""
    return value if isinstance(value, str) and value else shown(value)


def counted(run: Run, setting: str, value: object) -> object:
    """What a key's setting is in effect; "auto" where it says so and whoever fills it in is not here."""
    found = run.effective.value(setting, value)
    return AUTO if found is UNKNOWN and value == AUTO else found


def differences(before: Run, after: Run) -> dict[str, Difference]:
    """The effective settings that differ, by name, where both are known."""
    both = compare(side_of(before.name, before), side_of(after.name, after))
    return {
        difference.name: difference
        for difference in both.differences
        if difference.group == SETTINGS
        and all(value is None or value.value is not UNKNOWN for value in (difference.a, difference.b))
    }


def unexplained(found: Mapping[str, Difference], rows: Iterable[Row]) -> tuple[Row, ...]:
    """The differences that no row accounts for."""
    explained = frozenset().union(*(row.settings for row in rows))
    return tuple(
        Row(f"{name}: {_shown(item.a)}", f"{name}: {_shown(item.b)}", "nearly", "the effective setting differs")
        for name, item in found.items()
        if name not in explained
    )


def _shown(value: Value | None) -> str:
    return shown(ABSENT if value is None else value.value)


def converted_run(run: Run, files: Files, text: str, pointer: str = "", texts: Mapping[FilePath, str] = {}) -> Run:
    """The run as it is after a conversion that is not written yet. ``pointer``: how the config names the first of
    ``texts``."""
    assert run.accelerate is not None and run.accelerate.path is not None
    path = run.accelerate.path
    overlay = {str(item.resolve()): content for item, content in {path: text, **texts}.items()}
    later = files.with_texts(overlay)

    def written(name: str) -> SourceFile | None:
        return later.open(next(iter(texts))) if texts and name == pointer else None

    after = run_of_file(path, later, written)
    if after is None:
        raise ConversionError(f"{run.accelerate.name}: what came of it is no accelerate config")
    after = replace(after, versions=run.versions, version_places=run.version_places)
    return with_consumer(after, run.consumer, run.reader_evidence)
