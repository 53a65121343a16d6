"""One lint job: which files it reads, with which settings. Shared by reports, fixes, ignores and the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.internal_errors import Containment, contain
from zerocfg.linter.engine import Diagnostic, Result, lint_runs, wanted_note, without_notes
from zerocfg.linter.kept import Kept
from zerocfg.linter.selection import Selection, called, fits, names
from zerocfg.record import field, record
from zerocfg.run.discover import Files, display_name
from zerocfg.run.link import find_runs
from zerocfg.run.model import ReaderEvidence, Run, SourceFile, files_of
from zerocfg.run.releases import with_versions_and_settings
from zerocfg.run.resolve_settings import with_consumer
from zerocfg.run.unchecked import UncheckedFile, unchecked_files, without_unknown
from zerocfg.source import disk
from zerocfg.source.text import Where
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from zerocfg.linter.baseline import Entry


MOST_RUNS = 200
"""Among which a lint tries fixes that bear on other runs than those of their findings, or on other values."""


@record(frozen=True)
class Baseline:
    """A parsed baseline: its entries, and the folder that their file names are relative to."""

    entries: Mapping[Entry, int]
    folder: Path


@record
class Job:
    """What to lint and how.

    stdin          texts from standard input, by real path
    consumer       who reads the configs, overriding what the files say
    root           what paths in configs are relative to, if not the current folder
    touching       only findings that touch a target, not all of the runs that the targets take part in; files that
                   could not be checked are not listed then
    notes          whether notes are reported (see `reported`); a lint collects them in any case
    skip_unknown   ignore targets that are no configs
    """

    targets: list[Path]
    settings: Settings
    selection: Selection
    consumer: str | None = None
    known: Baseline | None = None
    stdin: dict[str, str] = field(default_factory=dict)
    root: Path | None = None
    touching: bool = False
    notes: bool = True
    skip_unknown: bool = False
    files: Files | None = None
    """The files as the first lint read them. Later lints reuse them, except for the texts passed to `lint`."""
    runs: list[Run] = field(default_factory=list)
    """The runs of the last lint."""
    kept: Kept | None = None
    """What the last lint worked out, where further lints of the same files with other texts follow: those of fixes."""
    empty: list[Path] = field(default_factory=list)
    """Target folders in which the last lint found no config."""

    def lint(self, texts: Mapping[str, str] | None = None, kept: Kept | None = None) -> Result:
        """Lint the targets. ``texts``: contents by real path that replace those on disk. ``kept``: what a lint with the
        same settings has worked out."""
        kept = self.kept if kept is None else kept
        contained = Containment()
        files, asked = self._find(texts, kept, contained)
        excluded = {id(file) for file in files.all() if self.excluded(file)} if self.settings.exclude else set()
        runs = self.runs
        result = lint_runs(
            runs,
            self.selection,
            asked if self.touching else None,
            complete=asked - excluded if all(map(_whole, self.targets)) else False,
            excluded=excluded,
            contained=contained,
            notes=self.notes,
            kept=kept,
        )
        if not self.touching:  # an editor lists no files
            with contained.of("list what was not checked"):
                result.unread = self.unread(files, runs, result)
        result.internal_errors = tuple(contained.met)
        if self.known is None:
            return result
        from zerocfg.linter.baseline import without_known

        looked_at = frozenset(
            disk.real(file.path) for file in files.all() if file.path and id(file) in asked - excluded
        )
        return without_known(result, self.known.entries, self.known.folder, looked_at)

    def find_targets(self) -> list[UncheckedFile]:
        """Link and settle the runs; the targets that could not be read. Rules are asked only where a target is a file:
        what they say of it shows that it was understood."""
        if all(map(disk.is_dir, self.targets)):
            self.find({})
            return []
        return [file for file in self.lint().unread if file.named]

    def find(self, texts: Mapping[str, str]) -> None:
        """Link and settle the runs with these texts, by real path, in place of those on disk, and ask no rule."""
        self._find(texts, self.kept, Containment())

    def _find(
        self, texts: Mapping[str, str] | None, kept: Kept | None, contained: Containment
    ) -> tuple[Files, set[int]]:
        """The files, and by id those that the targets name; leaves `runs` and `empty` behind."""
        changed = {**self.stdin, **(texts or {})}
        if self.files is None:
            files = self.files = Files(changed)
        else:
            files = self.files.with_texts(changed)
        settle, links = self._settling(), None
        if kept is not None:
            if kept is self.kept:
                linted = {disk.real(file.path) for run in self.runs for file in run.files if file.path is not None}
                if not linted.issuperset(texts or {}):
                    kept.forget()  # what a run follows from may be a file that it does not name: its requirements
                kept.begin(files)
            settle, links = kept.settling(settle), kept.links
        runs, asked = find_runs(
            self.targets, files, root=self.root, scripts=True, contained=contained, settle=settle, kept=links
        )
        self.empty = _empty(self.targets, runs)
        if any(run.spec is not None for run in runs):
            from zerocfg.resolve.facts import with_facts

            runs = with_facts(runs, files, contained)
        self.runs = runs
        return files, asked

    @property
    def included(self) -> list[Run]:
        """The runs of the last lint, except those whose files are all excluded."""
        return [run for run in self.runs if not all(map(self.excluded, run.files))]

    def with_sound_fixes(self, result: Result) -> Result:
        """The result with only those fixes that `--fix` would apply, as far as other values and other runs are
        concerned. Among very many runs none is tried: it would take as long as the lint, and `--fix` tries them in any
        case."""
        if len(result.runs) > MOST_RUNS or not any(found.fix for found in result.diagnostics):
            return result
        from zerocfg.linter.fixing import without_spoiling

        files, runs, empty = self.files, self.runs, self.empty
        try:
            return without_spoiling(result, self.lint)
        finally:
            self.files, self.runs, self.empty = files, runs, empty

    def reported(self, result: Result) -> Result:
        """The part of a result that is reported: without notes unless they were asked for."""
        return result if self.notes else without_notes(result, self.selection)

    def is_reported(self, diagnostic: Diagnostic) -> bool:
        """Whether a finding is reported."""
        return self.notes or wanted_note(diagnostic, self.selection)

    def read(self, runs: list[Run], contained: Containment | None = None) -> list[Run]:
        """The runs with the consumer from the command line or the settings; the setting ``consumer`` is only a default
        for files that do not say who reads them."""
        if not self._says_consumer:
            return runs
        found = []
        for run in runs:
            with contain(contained, f"compute the settings of the run `{run.name}`", run.main_file):
                found.append(self._read(run))
        return found

    def _settling(self) -> Callable[[Run], Run]:
        """What gives a run its versions, its settings, and its consumer where the files do not say who reads them."""
        settle = with_versions_and_settings(self.settings.versions)
        return (lambda run: self._read(settle(run))) if self._says_consumer else settle

    @property
    def _says_consumer(self) -> bool:
        return self.consumer is not None or bool(self.settings.consumers) or self.settings.consumer is not None

    def _read(self, run: Run) -> Run:
        if self.consumer is not None:
            return with_consumer(run, self.consumer, ReaderEvidence("command"))
        if self.settings.consumers:
            run = self._by_path(run)
        return run if self.settings.consumer is None else assume_consumer([run], self.settings.consumer)[0]

    def _by_path(self, run: Run) -> Run:
        folder = self.settings.folder
        known = [name for file in files_of(run) for name in names(file, folder)]
        if run.entry_point is not None:
            known += called(display_name(run.entry_point), run.entry_point, folder)
        for pattern, consumer in self.settings.consumers:
            if any(fits(pattern, name) for name in known):
                return with_consumer(run, consumer, ReaderEvidence("path", pattern=pattern))
        return run

    def unread(self, files: Files, runs: list[Run], result: Result) -> tuple[UncheckedFile, ...]:
        """Files that were found but not checked."""
        folders = [target for target in self.targets if disk.is_dir(target)]
        named = [target for target in self.targets if not disk.is_dir(target)]
        reported = [
            Where(span.file.name, *span.start)
            for diagnostic in (*result.diagnostics, *(item.diagnostic for item in result.suppressed))
            for span in (diagnostic.span, *diagnostic.related)
        ]
        hidden = {file.name for file in files.met() if self.excluded(file)} if self.settings.exclude else set()
        looked_at = [run for run in runs if not run.files or any(file.name not in hidden for file in run.files)]
        found = unchecked_files(files, looked_at, named, folders, reported)
        found = tuple(item for item in found if item.file not in hidden)
        return without_unknown(found) if self.skip_unknown else found

    def progress(self) -> str:
        """Progress of the running lint, for the terminal."""
        read = len(list(self.files.all())) if self.files is not None else 0
        return f"{read} files read" if read else ""

    def excluded(self, file: SourceFile) -> bool:
        return any(excludes(self.settings.exclude, name) for name in names(file, self.settings.folder))

    def original(self, path: str) -> str:
        """The text of a file as the first lint read it."""
        assert self.files is not None
        return self.files.open(Path(path)).source.text


def excludes(patterns: Iterable[str], name: str) -> bool:
    """Whether a pattern matches the path of a file or of a folder above it; without a slash, the name of either."""
    parts = () if Path(name).is_absolute() else name.split("/")
    return any(
        fnmatch(name, pattern)
        or fnmatch(name, f"{pattern}/*")
        or ("/" not in pattern and any(fnmatch(part, pattern) for part in parts))
        for pattern in (item.rstrip("/") for item in patterns)
    )


def excludes_path(settings: Settings, path: Path) -> bool:
    """Whether `exclude` of the settings or of the command line leaves a path out."""
    return any(excludes(settings.exclude, name) for name in called(display_name(path), path, settings.folder))


def assume_consumer(runs: list[Run], consumer: str) -> list[Run]:
    """The runs, with this consumer where the files do not say who reads the config."""
    return [with_consumer(run, consumer, ReaderEvidence("settings")) if _open(run) else run for run in runs]


def _open(run: Run) -> bool:
    """Whether the consumer is unknown; a script that uses another framework shows that there is none."""
    return run.consumer is None and not (run.script is not None and run.script.foreign)


def _empty(targets: list[Path], runs: list[Run]) -> list[Path]:
    """Target folders that contain no file of any run."""
    return [target for target in targets if disk.is_dir(target) and not _holds(disk.resolved(target), runs)]


def _holds(folder: Path, runs: list[Run]) -> bool:
    return any(
        file.path is not None and disk.resolved(file.path).is_relative_to(folder)
        for run in runs
        for file in files_of(run)
    )


def _whole(target: Path) -> bool:
    """Whether all runs that a target takes part in are read: a file brings its whole repository along, a folder within
    a repository does not."""
    if not disk.is_dir(target):
        return True
    folder = disk.resolved(target)
    return not any(disk.exists(above / ".git") for above in folder.parents) or disk.exists(folder / ".git")
