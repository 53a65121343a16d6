"""Linting what is open together with its partners on disk: a `Project` for each root, a `Snapshot` for each look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from zerocfg.errors import UsageError
from zerocfg.linter.engine import Diagnostic, Result, real_name
from zerocfg.linter.fixed_texts import Texts, edited
from zerocfg.linter.fixing import fix_all
from zerocfg.linter.kept import Kept
from zerocfg.lsp.documents import Document, texts
from zerocfg.run.discover import Files
from zerocfg.run.model import Kind, Run, SourceFile
from zerocfg.source import disk
from zerocfg.workspace.baseline import read_baseline_file
from zerocfg.workspace.job import Job
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import SETTINGS_FILES, Settings, find_settings

MORE_NOTES = 2
"""How many times as many questions to the disk as a whole look has are kept, until the next look is a whole one."""


@dataclass(frozen=True)
class Look:
    """One lint: of the documents that share their settings."""

    job: Job
    result: Result
    runs: list[Run]


@dataclass(frozen=True)
class Snapshot:
    """What one lint found. ``versions``: of the open documents that it saw, by real path.

    ``looks`` has one entry for each file of settings among the open documents.
    ``troubles`` are sentences about settings that make no sense, whose documents were not looked at, and about what
    failed inside zerocfg.
    """

    versions: dict[str, int]
    looks: tuple[Look, ...] = ()
    troubles: tuple[str, ...] = ()
    tried: dict[int, list[Diagnostic] | None] = field(default_factory=dict)

    @cached_property
    def runs(self) -> list[Run]:
        return [run for look in self.looks for run in look.runs]

    @cached_property
    def runs_of(self) -> dict[str, list[Run]]:
        """The runs that each file takes part in, by its real path."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            for path in {real_name(file) for file in run.files if file.path is not None}:
                found.setdefault(path, []).append(run)
        return found

    @cached_property
    def roles(self) -> dict[str, tuple[Kind, SourceFile]]:
        """What a file is to its runs, by real path, whatever it looks like; and the file as its readers see it."""
        found: dict[str, tuple[Kind, SourceFile]] = {}
        for run in self.runs:
            parts: list[tuple[Kind, SourceFile | None]] = [
                ("accelerate", run.accelerate),
                ("deepspeed", run.deepspeed),
                ("recipe", run.recipe),
                ("launch", run.launch_file),
                ("spec", run.spec),
            ]
            for kind, file in parts:
                if file is not None and file.path is not None:
                    found.setdefault(real_name(file), (kind, file))
        return found

    @cached_property
    def diagnostics(self) -> list[Diagnostic]:
        """Each finding once, also where two looks met it."""
        found: dict[tuple[object, ...], Diagnostic] = {}
        for look in self.looks:
            for diagnostic in look.result.diagnostics:
                found.setdefault((*_place(diagnostic), diagnostic.span.start, diagnostic.message), diagnostic)
        return list(found.values())

    @cached_property
    def real_names(self) -> dict[Path, str]:
        """The real paths of the files that the findings speak of."""
        files = (span.file for diagnostic in self.diagnostics for span in (diagnostic.span, *diagnostic.related))
        return {file.path: real_name(file) for file in files if file.path is not None}

    def others_after(self, diagnostic: Diagnostic) -> list[Diagnostic] | None:
        """The findings that come up once its fix is applied, empty where it simply helps; tried once.

        None: the edits do not fit, or the finding stays.
        """
        if id(diagnostic) not in self.tried:
            look = next(look for look in self.looks if any(item is diagnostic for item in look.result.diagnostics))
            texts = edited(diagnostic)
            after = look.job.lint(texts).diagnostics if texts else look.result.diagnostics
            before = {_place(item) for item in look.result.diagnostics}
            stays = any(_place(item) == _place(diagnostic) and item.message == diagnostic.message for item in after)
            self.tried[id(diagnostic)] = None if stays else [item for item in after if _place(item) not in before]
        return self.tried[id(diagnostic)]

    def fixed(self, path: str) -> tuple[Texts, Texts]:
        """The texts before and after the safe fixes of what touches a file, of the files that they change.

        `zerocfg lint --fix PATH` also changes the other files of its runs.
        """
        for look in self.looks:
            if any(str(target) == path for target in look.job.targets):
                alone = replace(look.job, targets=[Path(path)])
                changed, _, _ = fix_all(alone.lint(), alone.lint)
                before = {name: alone.original(name) for name in changed}
                return before, {name: text for name, text in changed.items() if text != before[name]}
        return {}, {}


@dataclass
class Project:
    """The files below one root, read once and again when they change. Used by one thread at a time."""

    root: str
    files: Files = field(default_factory=Files)
    kept: dict[Path | None, tuple[Settings, Kept]] = field(default_factory=dict)
    """By the file of settings, with what stood in it."""
    notes: disk.Notes = field(default_factory=dict)
    """What the looks so far have asked the disk, so far as something rests on it that is kept."""
    known_notes: int = 0

    def check(self, documents: Sequence[Document]) -> Snapshot:
        """Lint the open documents. Never raises for what stands in a file of the user's."""
        self.files.refresh(texts(documents))
        with disk.looking() as notes:
            many = sum(map(len, self.notes.values())) > MORE_NOTES * self.known_notes
            if many or not disk.still(self.notes, notes, self.files.stamped):
                self.kept.clear()
                self.notes.clear()
            snapshot = self._check(documents)
            _ = snapshot.runs_of, snapshot.roles, snapshot.real_names  # while the real paths are known
        whole = not self.notes
        for question, answers in notes.items():
            self.notes.setdefault(question, {}).update(answers)
        if whole:
            self.known_notes = sum(map(len, self.notes.values()))
        return snapshot

    def _check(self, documents: Sequence[Document]) -> Snapshot:
        groups: dict[Path | None, tuple[Settings, list[Path]]] = {}
        found: dict[Path, Settings] = {}
        troubles: list[str] = []
        for document in documents:
            if not document.linted:
                continue
            try:
                settings = _settings(document.file.parent, found)
            except (UsageError, OSError) as error:
                troubles.append(_sentence(error))
                continue
            groups.setdefault(settings.source, (settings, []))[1].append(document.file)
        looks = []
        for settings, targets in groups.values():
            try:
                looks.append(self._lint(settings, targets))
            except (UsageError, OSError) as error:
                troubles.append(_sentence(error))
        troubles += [f"internal error: {error}" for look in looks for error in look.result.internal_errors]
        versions = {item.path: item.version for item in documents if item.path is not None}
        return Snapshot(versions, tuple(looks), tuple(dict.fromkeys(troubles)))

    def _lint(self, settings: Settings, targets: list[Path]) -> Look:
        selection = selection_of(settings, "", "", False)
        known = read_baseline_file(None, settings)
        before, kept = self.kept.get(settings.source, (settings, Kept()))
        if before != settings:
            kept = Kept()
        self.kept[settings.source] = settings, kept
        kept.begin(self.files)
        job = Job(targets, settings, selection, known=known, root=Path(self.root), touching=True, files=self.files)
        result = job.lint(kept=kept)
        return Look(job, result, job.runs)


def _settings(folder: Path, found: dict[Path, Settings]) -> Settings:
    """The settings that count in a folder, looked for once in each folder above. Raises UsageError."""
    if folder not in found:
        above = folder.parent
        nearer = above == folder or any(disk.exists(f"{folder}/{name}") for name in SETTINGS_FILES)
        found[folder] = find_settings(folder) if nearer else _settings(above, found)
    return found[folder]


def _place(diagnostic: Diagnostic) -> tuple[str, str, str]:
    return diagnostic.code, diagnostic.span.file.name, diagnostic.span.path


def _sentence(error: UsageError | OSError) -> str:
    if isinstance(error, UsageError):
        return str(error)
    return f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
