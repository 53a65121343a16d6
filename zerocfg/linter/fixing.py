"""Applying fixes: each is kept only when it removes its finding, adds none, gives the settings that it means, and lets
no run be refused for more than before.

Fixes that do not depend on each other are tried together, so that their number does not count. Where that spoils
something, those that may have done it are tried one at a time in every run, and where that does not tell either, one at
a time in every group of files that runs join.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

from zerocfg.linter.engine import Diagnostic, Result, real_name
from zerocfg.linter.fix_outcome import (
    ALONE,
    IN_ITS_RUNS,
    TOGETHER,
    Groups,
    Identities,
    Identity,
    Reach,
    Readers,
    Try,
    improving_of,
    new_findings,
)
from zerocfg.linter.fixed_texts import Texts, edited_together
from zerocfg.linter.ignores import OWN
from zerocfg.linter.independent import Independence, Offer, offers
from zerocfg.record import record

Relint = Callable[[Mapping[str, str]], Result]
"""Lint again with these texts in place of what is on disk."""


FEW = 4
"""Offers that a lint tries one by one to say whether they hold."""


def fix_all(
    result: Result, relint: Relint, *, unsafe: bool = False, wanted: Callable[[Diagnostic], bool] | None = None
) -> tuple[Texts, Result, int]:
    """Apply every fix that holds. Returns the changed texts, the result that remains and how many fixes were applied.

    A fix that touches two files is applied to both or to neither. ``wanted``: only fixes of these findings, though no
    other may come by them. A fix that did not hold is tried once more after others were applied: what was in its way
    may be gone. One that held is never tried again, so that this ends.
    """
    texts: Texts = {}
    fixed: Counter[Identity] = Counter()
    most: Counter[Identity] = Counter()
    apart: dict[Identity, int] = {}
    failed: dict[Identity, set[str]] = {}
    again: set[Identity] = set()
    applied = 0
    while True:
        known, reach = Identities(result), Reach(result)
        most |= known.counted(result.diagnostics)
        done = failed.keys() | {identity for identity, count in fixed.items() if count >= most[identity]}
        offered = offers(_candidates(result, unsafe, wanted, done, known))
        tries = _next(result, [Try(offer, _level(offer, apart, known), reach(offer)) for offer in offered])
        if not tries and not again:
            return texts, _without_tried(result, done, known), applied
        if not tries:
            failed = {identity: runs for identity, runs in failed.items() if identity not in again}
            again = set()
            continue
        attempt = _attempt(result, tries, texts, relint)
        borne_on = Counter(name for candidate in tries for name in candidate.runs)
        for candidate in attempt.spoiling:
            shared = any(borne_on[name] > 1 for name in candidate.runs) or id(candidate) in attempt.doubtful
            if candidate.level < ALONE and (attempt.uncertain or shared):
                apart.update(dict.fromkeys(known.of(candidate.offer), candidate.level + 1))
            else:
                failed.update(dict.fromkeys(known.of(candidate.offer), candidate.runs))
        if attempt.kept:
            fixed += known.counted(finding for candidate in attempt.kept for finding in candidate.offer.findings)
            changed = set[str]().union(*(candidate.runs for candidate in attempt.kept))
            again.update(identity for identity, runs in failed.items() if not runs.isdisjoint(changed))
            texts, result, applied = attempt.texts, attempt.result, applied + len(attempt.kept)


def without_spoiling(result: Result, relint: Relint) -> Result:
    """The result without the fixes that `fix_all` would drop because they change another run, or because a key that
    counts under its new name gets in the way of what else a run says.

    Only those are tried that edit a file of a run in which their finding was not met, and the safe ones that rename:
    all together, and those that fail once more by themselves, if they are few; each try is a lint.
    """
    readers = Readers(result)
    doubtful = [found for found in result.diagnostics if _renames(found) or _is_read_elsewhere(found, result, readers)]
    if not doubtful:
        return result
    reach = Reach(result)
    tries = [Try(offer, ALONE, reach(offer)) for offer in offers(doubtful)]
    holding = {id(item) for item in _attempt(result, tries, {}, relint).kept}
    failing = [item for item in tries if id(item) not in holding]
    if len(tries) > 1 and len(failing) <= FEW:
        failing = [item for item in failing if not _attempt(result, [item], {}, relint).kept]
    spoiling = {id(found) for item in failing for found in item.offer.findings}
    found = [
        replace(diagnostic, fix=None) if id(diagnostic) in spoiling else diagnostic for diagnostic in result.diagnostics
    ]
    return replace(result, diagnostics=found)


def _renames(found: Diagnostic) -> bool:
    return found.fix is not None and found.fix.safe and found.fix.renames


def _is_read_elsewhere(found: Diagnostic, result: Result, readers: Readers) -> bool:
    """Whether a run reads what a fix edits and does not meet its finding."""
    edited = {real_name(file) for file, _ in found.fix.edits} if found.fix is not None else set()
    return any(result.runs[at].name not in found.met_in for at in readers.of(edited))


def _level(offer: Offer, apart: Mapping[Identity, int], known: Identities) -> int:
    return max(apart.get(identity, TOGETHER) for identity in known.of(offer))


def _next(result: Result, candidates: Sequence[Try]) -> list[Try]:
    """Those that are tried next. In every run the order is kept: what has to wait lets nothing behind it go first."""
    group = Groups(result)
    together = Independence()
    chosen: list[Try] = []
    taken, waiting = set[str](), set[str]()
    groups_taken, groups_waiting = set[str](), set[str]()
    for candidate in candidates:
        own = group(candidate.offer.findings[0])
        free = waiting.isdisjoint(candidate.runs) and own not in groups_waiting
        if candidate.level == IN_ITS_RUNS:
            free = free and taken.isdisjoint(candidate.runs)
        elif candidate.level == ALONE:
            free = free and own not in groups_taken
        goes = together.add(candidate.offer, chosen=free, any_place=candidate.level != TOGETHER)
        if goes:
            chosen.append(candidate)
            taken |= candidate.runs
            groups_taken.add(own)
        if not goes or candidate.level != TOGETHER:
            waiting |= candidate.runs
        if candidate.level == ALONE:
            groups_waiting.add(own)
    return chosen


@record(frozen=True, slots=True)
class _Attempt:
    """The offers that hold, the texts with them, and what is found then; those that did not hold.

    ``uncertain``: what came up may be the work of an offer that bears on no run in which it was met; ``doubtful``: by
    id those that bear on what another may have spoilt.
    """

    kept: list[Try]
    texts: Texts
    result: Result
    spoiling: list[Try]
    uncertain: bool
    doubtful: set[int]


def _attempt(result: Result, tries: Sequence[Try], texts: Texts, relint: Relint) -> _Attempt:
    """Apply offers together and see which hold. In every run those behind one that does not hold wait, and those that
    are left are judged again without the others."""
    uncertain, doubtful = False, set[int]()
    spoiling: list[Try] = []
    left, change = _fitting(tries, result, spoiling)
    while left:
        after = relint({**texts, **change})
        improving, several = improving_of(result, after, left)
        holding = {id(candidate) for candidate in improving}
        doubtful |= several
        if len(holding) == len(left):
            return _Attempt(left, {**texts, **change}, after, spoiling, uncertain, doubtful)
        uncertain = uncertain or len(result.runs) != len(after.runs)
        uncertain = uncertain or any(found.code in OWN for found in new_findings(result, after))
        spoiling += [candidate for candidate in left if id(candidate) not in holding]
        left, change = _fitting([candidate for candidate in left if id(candidate) in holding], result, spoiling, tries)
    return _Attempt([], texts, result, spoiling, uncertain, doubtful)


def _fitting(
    left: Sequence[Try], result: Result, spoiling: list[Try], order: Sequence[Try] = ()
) -> tuple[list[Try], Texts]:
    """Those that can be made together and stand behind none that spoils something in their runs."""
    gone = {id(candidate) for candidate in spoiling}
    kept = {id(candidate) for candidate in left}
    before: set[str] = set()
    ahead = []
    for candidate in order or left:
        if id(candidate) in gone:
            before |= candidate.runs
        elif id(candidate) in kept:
            if before.isdisjoint(candidate.runs):
                ahead.append(candidate)
            else:
                before |= candidate.runs
    fitting, texts = edited_together([candidate.offer for candidate in ahead], result.runs)
    made = {id(offer) for offer in fitting}
    unfit = [candidate for candidate in ahead if id(candidate.offer) not in made]
    if not unfit:
        return ahead, texts
    spoiling += unfit
    return _fitting([candidate for candidate in ahead if id(candidate.offer) in made], result, spoiling, order or left)


def _candidates(
    result: Result,
    unsafe: bool,
    wanted: Callable[[Diagnostic], bool] | None,
    done: Set[Identity],
    known: Identities,
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


def _without_tried(result: Result, tried: Set[Identity], known: Identities) -> Result:
    """Fixes that did not hold are no longer offered."""
    found = [replace(d, fix=None) if d.fix is not None and known(d) in tried else d for d in result.diagnostics]
    return replace(result, diagnostics=found)
