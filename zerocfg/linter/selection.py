"""Which rules run and which findings count: codes, prefixes and names, for all files or for some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.record import record
from zerocfg.source import disk

if TYPE_CHECKING:
    from zerocfg.rules.api import Rule
    from zerocfg.run.model import SourceFile


@record(frozen=True)
class Selection:
    """Which rules count. Codes may be prefixes ("ZC2"); ``per_file`` maps file patterns, optionally with ``:key.path``,
    to codes. The patterns are relative to ``root``, or match the end of a path. ``preview``: new rules too."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file: tuple[tuple[str, tuple[str, ...]], ...] = ()
    root: Path | None = None
    preview: bool = False

    def among(self, rules: Sequence[Rule]) -> list[Rule]:
        """Those that run. With nothing selected no rule is asked by itself: that took a fifth of a short lint in a
        process that makes many."""
        if self.everything:
            return list(rules) if self.preview else [rule for rule in rules if rule.status != "preview"]
        return [rule for rule in rules if self.wants(rule)]

    def wants(self, rule: Rule) -> bool:
        if rule.status == "preview" and not self.preview and not _exact(rule, self.select):
            return False
        if self.everything:
            return True
        if not self.select:
            return _longest(rule, self.ignore) < 0
        chosen = _longest(rule, self.select)
        return chosen >= 0 and chosen >= _longest(rule, self.ignore)

    def ignores(self, code: str, name: str, file: SourceFile, path: str) -> bool:
        """Whether the settings ignore what a rule finds at the path of keys of a file."""
        return bool(self.per_file) and any(
            # Codes first: they are cheap to compare, and a pattern is compiled when it is looked at.
            covers(codes, code, name) and _matches(pattern, file, path, self.root)
            for pattern, codes in self.per_file
        )

    @property
    def everything(self) -> bool:
        """Whether all rules but those in preview run."""
        return not self.select and not self.ignore


def _matches(pattern: str, file: SourceFile, path: str, root: Path | None) -> bool:
    files, _, keys = pattern.partition(":")
    return any(fits(files, name) for name in names(file, root)) and (not keys or fnmatch(path, keys))


def names(file: SourceFile, root: Path | None) -> list[str]:
    """How patterns may call a file: as messages do, and relative to the folder of the settings."""
    return called(file.name, file.path, root)


def called(name: str, path: Path | None, root: Path | None) -> list[str]:
    """The same of a path that messages show as ``name``."""
    found = [name]
    if root is not None and path is not None:
        real = disk.resolved(path)
        if real.is_relative_to(root):
            found.append(real.relative_to(root).as_posix())
    return found


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern of the settings means a file: the path as a whole, or its end."""
    return fnmatch(name, pattern) or fnmatch(name, f"*/{pattern}")


def covers(codes: Iterable[str], code: str, name: str) -> bool:
    """Whether a list of codes, prefixes and names speaks of a rule."""
    return any(word in ("ALL", name) or code.startswith(word) for word in codes)


def _exact(rule: Rule, codes: Iterable[str]) -> bool:
    return any(word in (rule.code, rule.name) for word in codes)


def _longest(rule: Rule, codes: Iterable[str]) -> int:
    """Length of the most exact entry that covers a rule; a rule's name counts as exact; -1 when none does."""
    lengths = [0 if code == "ALL" else len(code) for code in codes if code == "ALL" or rule.code.startswith(code)]
    lengths += [99 for code in codes if code == rule.name]
    return max(lengths, default=-1)
