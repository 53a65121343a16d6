"""Which fixes hold, by a lint before them and one after: the finding is gone, and nothing else came or changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cache

from zerocfg.linter.engine import Diagnostic, Result, real_name
from zerocfg.linter.ignores import OWN
from zerocfg.linter.independent import Offer
from zerocfg.record import record
from zerocfg.rules.api import Intent
from zerocfg.rules.arguments import given
from zerocfg.rules.effects import recipe_data
from zerocfg.run.model import Run, Setting
from zerocfg.run.stages.process_counts import launch_of
from zerocfg.source.text import Span

Identity = tuple[str, str, str, int]
"""What makes a finding the same in the next lint: rule, file, place and message; without a key path also which of the
file's launch lines it is about. Lines of the file may have moved."""

TOGETHER, IN_ITS_RUNS, ALONE = range(3)
"""How an offer is tried: with all that it does not depend on, as the only one that bears on its runs, or as the only
one in its group of files."""


@record(frozen=True, slots=True)
class Try:
    """An offer, how it is tried, and the runs that it bears on."""

    offer: Offer
    level: int
    runs: set[str]


class Groups:
    """Which files may bear on each other: those of a run, and of every run that shares a file with it. Where a finding
    stands, a training script for one, belongs to the files of the runs in which it is met and to those that its fix
    edits."""

    def __init__(self, *results: Result) -> None:
        self._above: dict[str, str] = {}
        for result in results:
            for files in set(result.together):
                self._join(files)
            read_by: dict[str, set[str]] = {}
            for run, files in zip(result.runs, result.together, strict=True):
                read_by.setdefault(run.name, set()).update(sorted(files)[:1])  # the others are joined to it
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


def improving_of(before: Result, after: Result, tried: Sequence[Try]) -> tuple[list[Try], set[int]]:
    """Those that hold and bear on no run for which something came that was not there before: a finding, or a reason to
    refuse the run. One that is alone answers for all that came in its group of files. With them, by id, those of which
    several bear on what was spoilt at once."""
    come_up, refused = new_findings(before, after), _refused_for_more(before, after)
    group = Groups(before, after)
    groups = {group(found) for found in come_up}
    if len(before.runs) == len(after.runs):
        groups |= {group.of(after.together[at]) for at in refused}
    signs = [{after.runs[at].name} for at in refused]
    readers = Readers(after)
    for found in come_up:
        of_file = readers.of({real_name(found.span.file)}) if found.code in OWN else []  # whichever run it was met in
        signs.append({found.run, *found.met_in, *(after.runs[at].name for at in of_file)})
    bearing: dict[str, list[Try]] = {}
    for candidate in tried:
        for name in candidate.runs:
            bearing.setdefault(name, []).append(candidate)
    several: set[int] = set()
    for sign in signs:
        hit = {id(candidate) for name in sign for candidate in bearing.get(name, ())}
        several |= hit if len(hit) > 1 else set()
    spoilt = set[str]().union(*signs)
    improving = [
        candidate
        for candidate in _holding(before, after, tried)
        if (
            group(candidate.offer.findings[0]) not in groups
            if candidate.level == ALONE
            else spoilt.isdisjoint(candidate.runs)
        )
    ]
    return improving, several


def _holding(before: Result, after: Result, tried: Sequence[Try]) -> list[Try]:
    """Those of which one finding is gone by a fix that did what it means to do and nothing else."""
    if set(after.internal_errors) - set(before.internal_errors):
        return []  # who knows what was not looked at
    known = Identities(before)
    left, were = Identities(after).counted(after.diagnostics), known.counted(before.diagnostics)
    mended = known.counted(finding for candidate in tried for finding in candidate.offer.findings)
    readers, readers_before = Readers(after), Readers(before)
    borne_on = Counter(name for candidate in tried for name in candidate.runs)
    edited = {name for candidate in tried for name in candidate.offer.files}

    @cache
    def displacing(at: int) -> set[str]:
        return set() if len(before.runs) != len(after.runs) else _displacing(before.runs[at], after.runs[at], edited)

    def displaces(found: Diagnostic) -> bool:
        assert found.fix is not None
        names = {real_name(file) for file, _ in found.fix.edits}
        return found.fix.safe and any(not names.isdisjoint(displacing(at)) for at in readers_before.of(names))

    @cache
    def unchanged(at: int) -> bool:
        other = len(before.runs) != len(after.runs)
        return other or _values(before.runs[at]) == _values(after.runs[at])

    def holds(found: Diagnostic, runs: set[str]) -> bool:
        return (
            left[known(found)] <= max(were[known(found)] - mended[known(found)], 0)
            and _as_intended(found, after, readers)
            and not displaces(found)
            and (
                len(before.runs) != len(after.runs)
                or _leaves_others_alone(found, before, readers_before, runs, borne_on, unchanged)
            )
        )

    return [candidate for candidate in tried if any(holds(found, candidate.runs) for found in candidate.offer.findings)]


class Readers:
    """The runs, by number, that read files."""

    def __init__(self, result: Result) -> None:
        self._of: dict[str, list[int]] = {}
        for at, names in enumerate(result.together):
            for name in names:
                self._of.setdefault(name, []).append(at)

    def of(self, names: Collection[str]) -> list[int]:
        """Those that read one of some files."""
        return sorted({at for name in names for at in self._of.get(name, ())})


class Reach:
    """The runs that a fix bears on: those that read what it edits, of launch lines only their own."""

    def __init__(self, result: Result) -> None:
        self._runs = result.runs
        self._readers = Readers(result)

    def __call__(self, offer: Offer) -> set[str]:
        found = {name for finding in offer.findings for name in (finding.run, *finding.met_in)}
        for file, edit in offer.edits:
            readers = [self._runs[at] for at in self._readers.of({real_name(file)})]
            own = [run for run in readers if run.launch is not None and _spans(run.launch.span, edit.span.start)]
            found.update(run.name for run in (own if own and file.kind == "launch" else readers))
        return found


def _spans(span: Span, offset: int) -> bool:
    return span.start <= offset <= span.end


def new_findings(before: Result, after: Result) -> list[Diagnostic]:
    """The findings that were not there before. (One of another run may have been told at the same place, where it is
    told once.)"""
    known, old = Identities(after), {*map(Identities(before), before.diagnostics)}
    places = {(d.code, d.span.file.name, d.span.path) for d in before.diagnostics}
    return [
        d for d in after.diagnostics if known(d) not in old and (d.code, d.span.file.name, d.span.path) not in places
    ]


def _refused_for_more(before: Result, after: Result) -> list[int]:
    """The runs, by number, that have a reason to be refused that they did not have before."""
    if len(before.runs) == len(after.runs):
        olds: Iterable[Set[tuple[str, str]]] = before.failures
    else:
        named = {run.name: failures for run, failures in zip(before.runs, before.failures, strict=True)}
        olds = [named.get(run.name, new) for run, new in zip(after.runs, after.failures, strict=True)]
    return [at for at, (old, new) in enumerate(zip(olds, after.failures, strict=True)) if new - old]


def _as_intended(fixed: Diagnostic, after: Result, readers: Readers) -> bool:
    """Whether all that a fix means to set has come of it."""
    assert fixed.fix is not None
    if not fixed.fix.gives:
        return True
    edited_files = {real_name(file): file for file, _ in fixed.fix.edits}
    files = {name for name, file in edited_files.items() if file.kind != "launch"}
    numbers = set(readers.of(files))
    if len(files) < len(edited_files):
        numbers.update(at for at in readers.of(edited_files) if after.runs[at].name == fixed.run)
    runs = [after.runs[at] for at in sorted(numbers)]
    return all(_come(intent, runs) for intent in fixed.fix.gives)


def _leaves_others_alone(
    fixed: Diagnostic,
    before: Result,
    readers: Readers,
    reach: Set[str],
    borne_on: Mapping[str, int],
    unchanged: Callable[[int], bool],
) -> bool:
    """Whether every value stays as it is in runs that read the edited files, too, and in which nothing was found; but
    for those that other fixes bear on, and this one does not."""
    assert fixed.fix is not None
    return all(
        unchanged(at)
        for at in readers.of({real_name(file) for file, _ in fixed.fix.edits})
        if (name := before.runs[at].name) not in fixed.met_in and (name in reach or name not in borne_on)
    )


def _displacing(before: Run, after: Run, edited: Set[str]) -> set[str]:
    """The files, by real path, that now give a setting what a line, a variable or a file that no fix edited gave it."""
    found = set[str]()
    for name, now in after.effective.settings.items():
        was = before.effective.get(name)
        if was is None or now.origin.file is None or _same(was.value, now.value):
            continue
        elsewhere = was.origin.file is None or real_name(was.origin.file) not in edited
        if was.origin.kind not in ("default", "computed") and elsewhere:
            found.add(real_name(now.origin.file))
    return found


def _values(run: Run) -> dict[tuple[str, str], object]:
    """The effective settings and the training arguments of a run."""
    values: dict[tuple[str, str], object] = {
        ("setting", name): setting.value for name, setting in run.effective.settings.items()
    }
    for name in {*map(str, recipe_data(run)), *run.arguments}:
        setting = given(run, name)
        values["argument", name] = None if setting is None else setting.value
    return values


def _come(intent: Intent, runs: Sequence[Run]) -> bool:
    """Whether something has the value that is meant in every run that has it. What a launch line says against a file
    may count in some of the runs."""
    found = [setting for run in runs if (setting := _now(intent, run)) is not None]
    good = [item for item in found if _same(item.value, intent.value)]
    beaten = [item for item in found if item not in good and any(_same(o.value, intent.value) for o in item.overridden)]
    return len(good) == len(found) or (bool(good) and intent.of != "setting" and len(good) + len(beaten) == len(found))


def _now(intent: Intent, run: Run) -> Setting | None:
    """What a run has; None where it has nothing of the kind."""
    if intent.of == "setting":
        return run.effective.get(intent.name)
    if intent.of == "argument":
        return given(run, intent.name) if run.consumer in ("transformers", "trl") else None
    arguments = launch_of(run).arguments
    return arguments.settings.get(intent.name) if arguments is not None else None


def _same(item: object, other: object) -> bool:
    """Whether two values are one; true is not 1."""
    return item == other and isinstance(item, bool) is isinstance(other, bool)


class Identities:
    """What makes the findings of a lint the same in the next one."""

    def __init__(self, result: Result) -> None:
        self._numbers: dict[str, int] = {}
        count: Counter[str] = Counter()
        for run in result.runs:
            if run.launch_file is not None and run.name not in self._numbers:
                self._numbers[run.name] = count[run.launch_file.name]
                count[run.launch_file.name] += 1

    def __call__(self, found: Diagnostic) -> Identity:
        number = -1 if found.span.path else self._numbers.get(found.run, -1)
        return found.code, found.span.file.name, f"{found.span.path} {found.message}", number

    def of(self, offer: Offer) -> set[Identity]:
        return set(map(self, offer.findings))

    def counted(self, found: Iterable[Diagnostic]) -> Counter[Identity]:
        return Counter(map(self, found))
