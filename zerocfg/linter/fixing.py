"""Applying fixes: each is kept only when it removes its finding, adds none, gives the settings that it means, and lets
no run be refused for more than before.

Files that no run joins cannot disturb each other, so each lint tries one fix in every such group of files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from zerocfg.linter.engine import Diagnostic, Result, real_name
from zerocfg.rules.api import Intent
from zerocfg.rules.arguments import given
from zerocfg.run.model import Run, Setting, SourceFile
from zerocfg.run.stages.process_counts import launch_of
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.launch.shell_check import intact

Texts = dict[str, str]
"""New text of a file by its real path."""

Relint = Callable[[Mapping[str, str]], Result]
"""Lint again with these texts in place of what is on disk."""

Identity = tuple[str, str, str]


def fix_all(
    result: Result, relint: Relint, *, unsafe: bool = False, wanted: Callable[[Diagnostic], bool] | None = None
) -> tuple[Texts, Result, int]:
    """Apply every fix that holds. Returns the changed texts, the result that remains and how many fixes were applied.

    A fix that touches two files is applied to both or to neither. ``wanted``: only fixes of these findings, though no
    other may come by them. A fix that did not hold is tried once more after others were applied: what was in its way
    may be gone. One that held is never tried again, so that this ends.
    """
    texts: Texts = {}
    tried: set[Identity] = set()
    held: set[Identity] = set()
    applied = before = 0
    while True:
        chosen = _one_in_each_group(result, unsafe, tried, wanted)
        if not chosen and applied == before:
            return texts, _without_tried(result, tried), applied
        if not chosen:
            before, tried = applied, set(held)
            continue
        tried.update(map(_identity, chosen))
        fitting = [(found, change) for found in chosen if (change := edited(found)) is not None]
        if not fitting:
            continue
        after = relint(_all(texts, [change for _, change in fitting]))
        kept = _improving(result, after, [found for found, _ in fitting])
        changes = [change for found, change in fitting if found in kept]
        if not changes:
            continue
        texts = _all(texts, changes)
        result = after if len(changes) == len(fitting) else relint(texts)
        held.update(map(_identity, kept))
        applied += len(changes)


def edited(diagnostic: Diagnostic) -> Texts | None:
    """The texts after one diagnostic's fix, or None when its edits do not fit."""
    assert diagnostic.fix is not None
    by_path: dict[str, tuple[SourceFile, list[Edit]]] = {}
    for file, edit in diagnostic.fix.edits:
        if file.path is None:
            return None
        by_path.setdefault(real_name(file), (file, []))[1].append(edit)
    texts: Texts = {}
    for path, (file, edits) in by_path.items():
        text = text_after(file, edits)
        if text is None:
            return None
        texts[path] = text
    return texts


def text_after(file: SourceFile, edits: Sequence[Edit]) -> str | None:
    """The text of a file after edits; None where they overlap, or would change other words of a shell text."""
    try:
        text = apply_edits(file.source.text, edits)
        return text if file.kind != "launch" or intact(file.source, edits) else None
    except ValueError:
        return None


def _all(texts: Texts, changes: list[Texts]) -> Texts:
    found = dict(texts)
    for change in changes:
        found.update(change)
    return found


def _one_in_each_group(
    result: Result, unsafe: bool, tried: set[Identity], wanted: Callable[[Diagnostic], bool] | None
) -> list[Diagnostic]:
    """The next fix of every group. By code: a misspelt key is put right before a rule about its value adds the key a
    second time."""
    group = Groups(result)
    chosen: dict[str, Diagnostic] = {}
    for diagnostic in sorted(result.diagnostics, key=lambda d: d.code):
        fix = diagnostic.fix
        if wanted is not None and not wanted(diagnostic):
            continue
        if fix is not None and (fix.safe or unsafe) and _identity(diagnostic) not in tried:
            chosen.setdefault(group(diagnostic), diagnostic)
    return list(chosen.values())


class Groups:
    """Which files may bear on each other: those of a run, and of every run that shares a file with it. Where a finding
    stands, a training script for one, belongs to the files of the runs in which it is met and to those that its fix
    edits."""

    def __init__(self, *results: Result) -> None:
        self._above: dict[str, str] = {}
        for result in results:
            for files in result.together:
                self._join(files)
            read_by: dict[str, set[str]] = {}
            for run, files in zip(result.runs, result.together, strict=True):
                read_by.setdefault(run.name, set()).update(files)
            for found in result.diagnostics:
                edited = {real_name(file) for file, _ in found.fix.edits} if found.fix is not None else set()
                met = (read_by.get(name, set()) for name in found.met_in)
                self._join(edited.union({real_name(found.span.file)}, *met))

    def _join(self, files: Collection[str]) -> None:
        first, *others = sorted(files) or [""]
        for other in others:
            self._above[self._top(other)] = self._top(first)

    def __call__(self, diagnostic: Diagnostic) -> str:
        return self._top(real_name(diagnostic.span.file))

    def of(self, names: Collection[str]) -> str:
        """The group of the files of a run."""
        return self._top(min(names, default=""))

    def _top(self, name: str) -> str:
        while name in self._above and self._above[name] != name:
            name = self._above[name]
        return name


def _improving(before: Result, after: Result, fixed: list[Diagnostic]) -> list[Diagnostic]:
    """Those whose finding is gone, in groups where nothing came that was not there before: no finding, and no reason
    to refuse a run. (A finding of another run may have been told at the same place, where it is told once.)"""
    group = Groups(before, after)
    old = {_identity(diagnostic) for diagnostic in before.diagnostics}
    new = {_identity(diagnostic) for diagnostic in after.diagnostics}
    places = {(d.code, d.span.file.name, d.span.path) for d in before.diagnostics}
    spoilt = {
        group(d)
        for d in after.diagnostics
        if _identity(d) not in old and (d.code, d.span.file.name, d.span.path) not in places
    }
    if set(after.internal_errors) - set(before.internal_errors):
        return []  # who knows what was not looked at
    if len(before.failures) == len(after.failures):
        runs = zip(after.together, before.failures, after.failures, strict=True)
        spoilt |= {group.of(names) for names, old_ones, new_ones in runs if new_ones - old_ones}
    return [
        found
        for found in fixed
        if _identity(found) not in new
        and group(found) not in spoilt
        and _as_intended(found, after)
        and _leaves_others_alone(found, before, after)
    ]


def _as_intended(fixed: Diagnostic, after: Result) -> bool:
    """Whether all that a fix means to set has come of it."""
    assert fixed.fix is not None
    files = {real_name(file) for file, _ in fixed.fix.edits if file.kind != "launch"}
    line = fixed.run if len(files) < len({real_name(file) for file, _ in fixed.fix.edits}) else None
    runs = [
        run
        for names, run in zip(after.together, after.runs, strict=True)
        if names & files or (line is not None and run.name == line)
    ]
    return all(_come(intent, runs) for intent in fixed.fix.gives)


def _leaves_others_alone(fixed: Diagnostic, before: Result, after: Result) -> bool:
    """Whether every value stays as it is in runs that read the edited files, too, and in which nothing was found."""
    assert fixed.fix is not None
    files = {real_name(file) for file, _ in fixed.fix.edits}
    if len(before.runs) != len(after.runs):
        return True
    return all(
        _values(old) == _values(new)
        for names, old, new in zip(before.together, before.runs, after.runs, strict=True)
        if names & files and old.name not in fixed.met_in
    )


def _values(run: Run) -> dict[str, object]:
    return {name: setting.value for name, setting in run.effective.settings.items()}


def _come(intent: Intent, runs: Sequence[Run]) -> bool:
    """Whether something has the value that is meant in every run that has it. What a launch line says against a file
    may count in some of the runs."""
    found = [setting for run in runs if (setting := _now(intent, run)) is not None]
    good = [one for one in found if _same(one.value, intent.value)]
    beaten = [one for one in found if one not in good and any(_same(o.value, intent.value) for o in one.overridden)]
    return len(good) == len(found) or (bool(good) and intent.of != "setting" and len(good) + len(beaten) == len(found))


def _now(intent: Intent, run: Run) -> Setting | None:
    """What a run has; None where it has nothing of the kind."""
    if intent.of == "setting":
        return run.effective.get(intent.name)
    if intent.of == "argument":
        return given(run, intent.name) if run.consumer in ("transformers", "trl") else None
    arguments = launch_of(run).arguments
    return arguments.settings.get(intent.name) if arguments is not None else None


def _same(one: object, other: object) -> bool:
    """Whether two values are one; true is not 1."""
    return one == other and isinstance(one, bool) is isinstance(other, bool)


def _without_tried(result: Result, tried: set[Identity]) -> Result:
    """Fixes that did not hold are no longer offered."""
    found = [replace(d, fix=None) if d.fix is not None and _identity(d) in tried else d for d in result.diagnostics]
    return replace(result, diagnostics=found)


def _identity(diagnostic: Diagnostic) -> Identity:
    return (diagnostic.code, diagnostic.span.file.name, f"{diagnostic.span.path} {diagnostic.message}")
