"""What the new releases do with the migrated files: findings that come, and settings that changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from zerocfg.compare.effective_diff import Difference, compare
from zerocfg.compare.sides import ARGUMENTS, side_of
from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.linter.selection import Selection
from zerocfg.migrate.migration import Migration
from zerocfg.migrate.releases import at_releases, at_stated_releases, oldest
from zerocfg.rules.api import Severity
from zerocfg.rules.place import FileSpan
from zerocfg.run.model import UNKNOWN, Run

Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Changed:
    """Settings of one run that differ between two sets of releases."""

    run: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """What a migration leaves open. ``errors``: those of the new releases about the files as they are afterwards
    that the migration itself does not tell of; ``settings``: those that mean something else."""

    errors: tuple[Diagnostic, ...]
    settings: tuple[Changed, ...]


def rest(
    migration: Migration, before: Sequence[Run], after: Sequence[Run], new: Mapping[str, str], old: Mapping[str, str]
) -> Rest:
    """``before`` and ``after``: the runs of the files as they are, and as the migration makes them."""
    # What the oldest releases refuse, too, does not come with the new ones; nor is a setting of unknown ones compared.
    renewed = at_releases(after, new)
    found = reported(renewed)
    if any(diagnostic.severity is Severity.ERROR for diagnostic in found):  # else there is nothing to compare
        found = coming(reported(at_stated_releases(before, old, oldest(new))), found)
    errors = [diagnostic for diagnostic in found if diagnostic.severity is Severity.ERROR]
    settings = changed_settings(at_stated_releases(before, old, new), renewed, migration.touched)
    return Rest(tuple(_unexplained(errors, migration)), tuple(settings))


def _unexplained(found: Iterable[Diagnostic], migration: Migration) -> Iterator[Diagnostic]:
    """Without those at a place that is left to a person already."""
    counts = Counter(_where(item.span) for item in migration.left)
    for diagnostic in found:
        where = _where(diagnostic.span)
        if counts[where]:
            counts[where] -= not diagnostic.span.path  # of a key every finding, of equal words one each
        else:
            yield diagnostic


def _where(span: FileSpan) -> tuple[str, str]:
    """A place that edits elsewhere in its file leave the same: its key, or the word that begins there."""
    here = span.file.source.line(span.start.line)[span.start.column - 1 :]
    return span.file.name, span.path or here.split(maxsplit=1)[0] if here.strip() else ""


def reported(runs: Sequence[Run], selection: Selection | None = None) -> list[Diagnostic]:
    """The errors and warnings about the runs at their releases, without fixes."""
    found = lint_runs(runs, selection, fixes=False).diagnostics
    return [diagnostic for diagnostic in found if diagnostic.severity is not Severity.NOTE]


def coming(before: Iterable[Diagnostic], after: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings that are only after, or graver there."""
    grave = {key: diagnostic.severity.rank for key, diagnostic in _keyed(before)}
    return [diagnostic for key, diagnostic in _keyed(after) if diagnostic.severity.rank > grave.get(key, -1)]


def _keyed(found: Iterable[Diagnostic]) -> Iterator[tuple[Key, Diagnostic]]:
    """Each finding with a key that is stable across releases: its rule, its place in the file, and its ordinal
    among equals there. Lines may have moved."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for diagnostic in found:
        place = (diagnostic.code, diagnostic.span.file.name, diagnostic.span.path)
        seen[place] += 1
        yield (*place, seen[place]), diagnostic


def changed_settings(
    before: Sequence[Run], after: Sequence[Run], without: Collection[str] = frozenset()
) -> list[Changed]:
    """By run the effective settings that differ, ``without`` some that are told otherwise; so are arguments, by what
    becomes of them."""
    if len(before) != len(after):
        names = {run.name: run for run in after}
        pairs = [(run, names[run.name]) for run in before if run.name in names]
    else:
        pairs = list(zip(before, after, strict=True))
    found = []
    for old, new in pairs:
        both = compare(side_of(old.name, old), side_of(new.name, new))
        differences = tuple(
            difference
            for difference in both.differences
            if difference.group != ARGUMENTS and _known(difference) and not _among(difference.name, without)
        )
        if differences:
            found.append(Changed(new.name, differences))
    return found


def _known(difference: Difference) -> bool:
    """Whether both values are known: nothing is said of others."""
    return all(value is None or value.value is not UNKNOWN for value in (difference.a, difference.b))


def _among(name: str, keys: Collection[str]) -> bool:
    """Whether a setting is one of these keys, or within one."""
    parts = name.split(".")
    return any(".".join(parts[:end]) in keys for end in range(1, len(parts) + 1))
