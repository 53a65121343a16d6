"""Applying fixes: each is kept only when it removes its finding, adds none, gives the settings that it means, and lets
no run be refused for more than before.

Fixes that do not depend on each other are tried together, so that their number does not count. Where that spoils
something, those that may have done it are tried one at a time in every run, and where that does not tell either, one at
a time in every group of files that runs join.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache

from zerocfg.linter.engine import Diagnostic, Result, real_name
from zerocfg.linter.ignores import OWN
from zerocfg.linter.independent import Independence, Offer, offers
from zerocfg.record import record
from zerocfg.rules.api import Intent
from zerocfg.rules.arguments import given
from zerocfg.run.model import Run, Setting, SourceFile
from zerocfg.run.stages.process_counts import launch_of
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.launch.shell_check import intact, only_comments
from zerocfg.source.text import Span

Texts = dict[str, str]
"""New text of a file by its real path."""

Relint = Callable[[Mapping[str, str]], Result]
"""Lint again with these texts in place of what is on disk."""

Identity = tuple[str, str, str, int]
"""What makes a finding the same in the next lint: rule, file, place and message; without a key path also which of the
file's launch lines it is about. Lines of the file may have moved."""


def fix_all(
    result: Result, relint: Relint, *, unsafe: bool = False, wanted: Callable[[Diagnostic], bool] | None = None
) -> tuple[Texts, Result, int]:
    """Apply every fix that holds. Returns the changed texts, the result that remains and how many fixes were applied.

    A fix that touches two files is applied to both or to neither. ``wanted``: only fixes of these findings, though no
    other may come by them. A fix that did not hold is tried once more after others were applied: what was in its way
    may be gone. One that held is never tried again, so that this ends.
    """
    texts: Texts = {}
    held: Counter[Identity] = Counter()
    most: Counter[Identity] = Counter()
    apart: dict[Identity, int] = {}
    failed: dict[Identity, set[str]] = {}
    again: set[Identity] = set()
    applied = 0
    while True:
        known, reach = _Identities(result), _Reach(result)
        most |= known.counted(result.diagnostics)
        done = failed.keys() | {identity for identity, count in held.items() if count >= most[identity]}
        candidates = offers(_candidates(result, unsafe, wanted, done, known))
        tries = _next(result, [_Try(one, _level(one, apart, known), reach(one)) for one in candidates])
        if not tries and not again:
            return texts, _without_tried(result, done, known), applied
        if not tries:
            failed = {identity: runs for identity, runs in failed.items() if identity not in again}
            again = set()
            continue
        attempt = _attempt(result, tries, texts, relint)
        borne_on = Counter(name for one in tries for name in one.runs)
        for one in attempt.spoiling:
            shared = any(borne_on[name] > 1 for name in one.runs) or id(one) in attempt.doubtful
            if one.level < ALONE and (attempt.uncertain or shared):
                apart.update(dict.fromkeys(known.of(one.offer), one.level + 1))
            else:
                failed.update(dict.fromkeys(known.of(one.offer), one.runs))
        if attempt.kept:
            held += known.counted(finding for one in attempt.kept for finding in one.offer.findings)
            changed = set[str]().union(*(one.runs for one in attempt.kept))
            again.update(identity for identity, runs in failed.items() if not runs.isdisjoint(changed))
            texts, result, applied = attempt.texts, attempt.result, applied + len(attempt.kept)


TOGETHER, IN_ITS_RUNS, ALONE = range(3)
"""How an offer is tried: with all that it does not depend on, as the only one that bears on its runs, or as the only
one in its group of files."""


@record(frozen=True, slots=True)
class _Try:
    """An offer, how it is tried, and the runs that it bears on."""

    offer: Offer
    level: int
    runs: set[str]


def _level(offer: Offer, apart: Mapping[Identity, int], known: _Identities) -> int:
    return max(apart.get(identity, TOGETHER) for identity in known.of(offer))


def _next(result: Result, candidates: Sequence[_Try]) -> list[_Try]:
    """Those that are tried next. In every run the order is kept: what has to wait lets nothing behind it go first."""
    group = Groups(result)
    together = Independence()
    chosen: list[_Try] = []
    taken, waiting = set[str](), set[str]()
    groups_taken, groups_waiting = set[str](), set[str]()
    for one in candidates:
        own = group(one.offer.findings[0])
        free = waiting.isdisjoint(one.runs) and own not in groups_waiting
        if one.level == IN_ITS_RUNS:
            free = free and taken.isdisjoint(one.runs)
        elif one.level == ALONE:
            free = free and own not in groups_taken
        goes = together.add(one.offer, chosen=free, any_place=one.level != TOGETHER)
        if goes:
            chosen.append(one)
            taken |= one.runs
            groups_taken.add(own)
        if not goes or one.level != TOGETHER:
            waiting |= one.runs
        if one.level == ALONE:
            groups_waiting.add(own)
    return chosen


@record(frozen=True, slots=True)
class _Attempt:
    """The offers that hold, the texts with them, and what is found then; those that did not hold.

    ``uncertain``: what came up may be the work of an offer that bears on no run in which it was met; ``doubtful``: by
    id those that bear on what another may have spoilt.
    """

    kept: list[_Try]
    texts: Texts
    result: Result
    spoiling: list[_Try]
    uncertain: bool
    doubtful: set[int]


def _attempt(result: Result, tries: Sequence[_Try], texts: Texts, relint: Relint) -> _Attempt:
    """Apply offers together and see which hold. In every run those behind one that does not hold wait, and those that
    are left are judged again without the others."""
    uncertain, doubtful = False, set[int]()
    spoiling: list[_Try] = []
    left, change = _fitting(tries, result, spoiling)
    while left:
        after = relint({**texts, **change})
        improving, several = _improving(result, after, left)
        holding = {id(one) for one in improving}
        doubtful |= several
        if len(holding) == len(left):
            return _Attempt(left, {**texts, **change}, after, spoiling, uncertain, doubtful)
        uncertain = uncertain or len(result.runs) != len(after.runs)
        uncertain = uncertain or any(found.code in OWN for found in _come_up(result, after))
        spoiling += [one for one in left if id(one) not in holding]
        left, change = _fitting([one for one in left if id(one) in holding], result, spoiling, tries)
    return _Attempt([], texts, result, spoiling, uncertain, doubtful)


def _fitting(
    left: Sequence[_Try], result: Result, spoiling: list[_Try], order: Sequence[_Try] = ()
) -> tuple[list[_Try], Texts]:
    """Those that can be made together and stand behind none that spoils something in their runs."""
    gone = {id(one) for one in spoiling}
    kept = {id(one) for one in left}
    before: set[str] = set()
    ahead = []
    for one in order or left:
        if id(one) in gone:
            before |= one.runs
        elif id(one) in kept:
            if before.isdisjoint(one.runs):
                ahead.append(one)
            else:
                before |= one.runs
    fitting, texts = _edited_together([one.offer for one in ahead], result.runs)
    made = {id(offer) for offer in fitting}
    unfit = [one for one in ahead if id(one.offer) not in made]
    if not unfit:
        return ahead, texts
    spoiling += unfit
    return _fitting([one for one in ahead if id(one.offer) in made], result, spoiling, order or left)


def edited(diagnostic: Diagnostic, runs: Sequence[Run] = ()) -> Texts | None:
    """The texts after one diagnostic's fix, or None when its edits do not fit. ``runs``: of the lint that found it; on
    launch lines of others than those it is found in, no word may change."""
    fitting, texts = _edited_together(offers([diagnostic]), runs)
    return texts if fitting else None


def _edited_together(chosen: Sequence[Offer], runs: Sequence[Run]) -> tuple[list[Offer], Texts]:
    """Those offers that can be made together, and the texts after them."""
    fitting = list(chosen)
    while True:
        texts: Texts = {}
        unfit: list[Offer] = []
        for path, (file, edits, of) in _by_path(fitting).items():
            text = _text_after(file, edits, _lines(file, of, runs)) if file.path is not None else None
            unsure = [one for one in of if not _about_comments(one, file)]
            if unsure:
                unfit += unsure
            elif text is not None:
                texts[path] = text
            elif len(of) == 1:
                unfit += of
            else:
                unfit += [one for one in of if not _edited_together([one], runs)[0]] or of[1:]
        if not unfit:
            return fitting, texts
        fitting = _without(fitting, unfit)


def _without(some: Sequence[Offer], others: Sequence[Offer]) -> list[Offer]:
    gone = {id(one) for one in others}
    return [one for one in some if id(one) not in gone]


def _by_path(chosen: Sequence[Offer]) -> dict[str, tuple[SourceFile, list[Edit], list[Offer]]]:
    found: dict[str, tuple[SourceFile, list[Edit], list[Offer]]] = {}
    for offer in chosen:
        for file, edit in offer.edits:
            _, edits, of = found.setdefault(real_name(file), (file, [], []))
            edits.append(edit)
            if not of or of[-1] is not offer:
                of.append(offer)
    return found


def _about_comments(offer: Offer, file: SourceFile) -> bool:
    """Whether an offer for a comment in a launch script edits comments alone; any other offer passes."""
    if file.kind != "launch" or not any(finding.code in OWN for finding in offer.findings):
        return True
    edits = [edit for edited_file, edit in offer.edits if real_name(edited_file) == real_name(file)]
    return only_comments(file.source, edits)


def _lines(file: SourceFile, of: Sequence[Offer], runs: Sequence[Run]) -> frozenset[Span] | None:
    """The launch lines of a file that fixes are for; None where that is not known."""
    if file.kind != "launch" or not runs:
        return None
    names = {name for offer in of for finding in offer.findings for name in finding.met_in}
    return frozenset(run.launch.span for run in runs if run.launch is not None and run.name in names)


def _text_after(file: SourceFile, edits: Sequence[Edit], lines: frozenset[Span] | None) -> str | None:
    """The text of a file after edits; None where they overlap, or would change other words of a shell text."""
    try:
        text = apply_edits(file.source.text, edits)
        return text if file.kind != "launch" or intact(file.source, edits, lines) else None
    except ValueError:
        return None


def _candidates(
    result: Result,
    unsafe: bool,
    wanted: Callable[[Diagnostic], bool] | None,
    done: Set[Identity],
    known: _Identities,
) -> list[Diagnostic]:
    """The findings whose fixes are still to try. By code: a misspelt key is put right before a rule about its value
    adds the key a second time."""
    return [
        diagnostic
        for diagnostic in sorted(result.diagnostics, key=lambda d: d.code)
        if diagnostic.fix is not None
        and (diagnostic.fix.safe or unsafe)
        and (wanted is None or wanted(diagnostic))
        and known(diagnostic) not in done
    ]


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


def _improving(before: Result, after: Result, tried: Sequence[_Try]) -> tuple[list[_Try], set[int]]:
    """Those that hold and bear on no run for which something came that was not there before: a finding, or a reason to
    refuse the run. One that is alone answers for all that came in its group of files. With them, by id, those of which
    several bear on what was spoilt at once."""
    come_up, refused = _come_up(before, after), _refused_for_more(before, after)
    group = Groups(before, after)
    groups = {group(found) for found in come_up}
    if len(before.runs) == len(after.runs):
        groups |= {group.of(after.together[at]) for at in refused}
    signs = [{after.runs[at].name} for at in refused]
    readers = _Readers(after)
    for found in come_up:
        of_file = readers.of({real_name(found.span.file)}) if found.code in OWN else []  # whichever run it was met in
        signs.append({found.run, *found.met_in, *(after.runs[at].name for at in of_file)})
    bearing: dict[str, list[_Try]] = {}
    for one in tried:
        for name in one.runs:
            bearing.setdefault(name, []).append(one)
    several: set[int] = set()
    for sign in signs:
        hit = {id(one) for name in sign for one in bearing.get(name, ())}
        several |= hit if len(hit) > 1 else set()
    spoilt = set[str]().union(*signs)
    improving = [
        one
        for one in _holding(before, after, tried)
        if (group(one.offer.findings[0]) not in groups if one.level == ALONE else spoilt.isdisjoint(one.runs))
    ]
    return improving, several


def _holding(before: Result, after: Result, tried: Sequence[_Try]) -> list[_Try]:
    """Those of which one finding is gone by a fix that did what it means to do and nothing else."""
    if set(after.internal_errors) - set(before.internal_errors):
        return []  # who knows what was not looked at
    known = _Identities(before)
    left, were = _Identities(after).counted(after.diagnostics), known.counted(before.diagnostics)
    mended = known.counted(finding for one in tried for finding in one.offer.findings)
    readers, readers_before = _Readers(after), _Readers(before)
    borne_on = Counter(name for one in tried for name in one.runs)

    @cache
    def unchanged(at: int) -> bool:
        other = len(before.runs) != len(after.runs)
        return other or _values(before.runs[at]) == _values(after.runs[at])

    def holds(found: Diagnostic, runs: set[str]) -> bool:
        return (
            left[known(found)] <= max(were[known(found)] - mended[known(found)], 0)
            and _as_intended(found, after, readers)
            and (
                len(before.runs) != len(after.runs)
                or _leaves_others_alone(found, before, readers_before, runs, borne_on, unchanged)
            )
        )

    return [one for one in tried if any(holds(found, one.runs) for found in one.offer.findings)]


class _Readers:
    """The runs, by number, that read files."""

    def __init__(self, result: Result) -> None:
        self._of: dict[str, list[int]] = {}
        for at, names in enumerate(result.together):
            for name in names:
                self._of.setdefault(name, []).append(at)

    def of(self, names: Collection[str]) -> list[int]:
        """Those that read one of some files."""
        return sorted({at for name in names for at in self._of.get(name, ())})


class _Reach:
    """The runs that a fix bears on: those that read what it edits, of launch lines only their own."""

    def __init__(self, result: Result) -> None:
        self._runs = result.runs
        self._readers = _Readers(result)

    def __call__(self, offer: Offer) -> set[str]:
        found = {name for finding in offer.findings for name in (finding.run, *finding.met_in)}
        for file, edit in offer.edits:
            readers = [self._runs[at] for at in self._readers.of({real_name(file)})]
            own = [run for run in readers if run.launch is not None and _spans(run.launch.span, edit.span.start)]
            found.update(run.name for run in (own if own and file.kind == "launch" else readers))
        return found


def _spans(span: Span, offset: int) -> bool:
    return span.start <= offset <= span.end


def _come_up(before: Result, after: Result) -> list[Diagnostic]:
    """The findings that were not there before. (One of another run may have been told at the same place, where it is
    told once.)"""
    known, old = _Identities(after), {*map(_Identities(before), before.diagnostics)}
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


def _as_intended(fixed: Diagnostic, after: Result, readers: _Readers) -> bool:
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
    readers: _Readers,
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


def _without_tried(result: Result, tried: Set[Identity], known: _Identities) -> Result:
    """Fixes that did not hold are no longer offered."""
    found = [replace(d, fix=None) if d.fix is not None and known(d) in tried else d for d in result.diagnostics]
    return replace(result, diagnostics=found)


class _Identities:
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
