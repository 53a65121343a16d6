"""What one call of lint looks at and how: shared by the report, the fixes, the ignores and the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.cli.settings import Settings
from zerocfg.rules.engine import Result, Selection, lint_runs, names
from zerocfg.run.discover import Files
from zerocfg.run.effective import read_by
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.releases import with_versions

if TYPE_CHECKING:
    from zerocfg.rules.baseline import Entry


@dataclass(frozen=True)
class Known:
    """A baseline that was read: its entries, and the folder that their file names are relative to."""

    entries: Mapping[Entry, int]
    folder: Path


@dataclass
class Job:
    """``stdin`` holds what was read from standard input, by real path. ``consumer``: who reads a config of which
    no file tells it. ``root``: what paths in configs are relative to, where it is not the current folder."""

    targets: list[Path]
    settings: Settings
    selection: Selection
    consumer: str | None = None
    known: Known | None = None
    stdin: dict[str, str] = field(default_factory=dict)
    root: Path | None = None
    files: Files | None = None
    """What the first lint read. Later ones see the same, except for texts that are given to them."""
    runs: list[Run] = field(default_factory=list)
    """Of the last lint."""

    def lint(self, texts: Mapping[str, str] | None = None) -> Result:
        """Lint the targets, with some texts (by real path) in place of what is on disk."""
        changed = {**self.stdin, **(texts or {})}
        if self.files is None:
            files = self.files = Files(changed)
        else:
            files = self.files.with_texts(changed)
        runs, asked = find_runs(self.targets, files, root=self.root)
        runs = with_versions(runs, self.settings.versions)
        asked -= {id(file) for file in files.all() if self.excluded(file)}
        if self.consumer is not None:
            runs = assume_consumer(runs, self.consumer)
        if any(run.spec is not None for run in runs):
            from zerocfg.resolve.facts import with_facts

            runs = with_facts(runs, files)
        self.runs = runs
        result = lint_runs(runs, self.selection, asked, complete=all(map(_whole, self.targets)))
        if self.known is None:
            return result
        from zerocfg.rules.baseline import without_known

        looked_at = frozenset(str(file.path.resolve()) for file in files.all() if file.path and id(file) in asked)
        return without_known(result, self.known.entries, self.known.folder, looked_at)

    def progress(self) -> str:
        """How far a lint has come, in words."""
        read = len(list(self.files.all())) if self.files is not None else 0
        return f"{read} files read" if read else ""

    def excluded(self, file: SourceFile) -> bool:
        return any(
            fnmatch(name, pattern) or fnmatch(name, f"{pattern.rstrip('/')}/*")
            for name in names(file, self.settings.folder)
            for pattern in self.settings.exclude
        )

    def original(self, path: str) -> str:
        """The text of a file as the first lint saw it."""
        assert self.files is not None
        return self.files.open(Path(path)).source.text


def assume_consumer(runs: list[Run], consumer: str) -> list[Run]:
    """The runs, with a consumer where the files do not tell who reads the config."""
    return [run if run.consumer is not None else read_by(run, consumer) for run in runs]


def _whole(target: Path) -> bool:
    """Whether everything that a target takes part in is looked at: a file brings its repository along, a folder inside
    of a repository does not."""
    if not target.is_dir():
        return True
    folder = target.resolve()
    return not any((above / ".git").exists() for above in folder.parents) or (folder / ".git").exists()
