"""Levers: values that stay at the library's default unless another one makes a plan better by more than plans may
differ and still count as alike.

What ZeRO-3 keeps gathered, up to which size it keeps tensors whole, the buckets of ZeRO and the loss without all
logits. They multiply no search space: the few plans that another value could bring to the front are tried with one
lever more at a time, and what fits is neither made smaller nor likelier by them, only faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.memory.options import Options
from zerocfg.memory.verdict import FEW_LIVE
from zerocfg.resolve.search.buffer_sizes import LEAST
from zerocfg.resolve.search.choice import LEVERS, LIVE_BY_DEFAULT, Choice, Lever, Prefer
from zerocfg.resolve.search.ranking import ALIKE, goal, spent

if TYPE_CHECKING:
    from zerocfg.resolve.search.candidates import Candidate, Candidates
    from zerocfg.resolve.search.ranking import Ranked

TRIED = 6  # plans that may fit, and as many that may not


def worth_trying(rows: list[Ranked], prefer: Prefer) -> list[Candidate]:
    """The best plans that may fit, and the likeliest of the others that would be better than the best of these."""
    best, short = rows[0]
    known = [row for row, _ in rows if row.prediction.complete and row.judged.chance is not None]
    if short:
        return known[:TRIED]
    usable = [candidate for candidate in known if candidate.word in ("fits", "likely")]
    found = usable[:TRIED]
    if prefer != "memory":
        others = [
            candidate for candidate in known if candidate.word not in ("fits", "likely") and spent(candidate, prefer)
        ]
        better = [other for other in others if spent(other, prefer) * (1 + ALIKE) < measure(best, prefer)]
        found += sorted(better, key=lambda candidate: -(candidate.judged.chance or 0.0))[:TRIED]
    return found


def at_best(candidates: Candidates, candidate: Candidate, open_: Iterable[Lever], prefer: Prefer) -> float:
    """What no lever can make the plan better than: as fast as all that make it faster, and certain to fit."""
    if prefer == "memory" or candidate.seconds_per_token is None:
        return 0.0
    choice = candidate.choice
    if "fused_loss" in open_ and candidates.can_fuse(choice):
        choice = replace(choice, fused_loss=True)
    for lever in set(open_):
        *_, choice = choice, *_larger(candidates, replace(candidate, choice=choice), lever)
    seconds = min(candidate.seconds_per_token, candidates.seconds_per_token(choice) or candidate.seconds_per_token)
    return seconds / candidate.seconds_per_token * spent(candidate, prefer)


def with_levers(candidates: Candidates, candidate: Candidate, open_: Iterable[Lever], prefer: Prefer) -> Candidate:
    """The plan with what makes it better: the lever that gains most first, none that the others made superfluous."""
    levers, best = set(open_), candidate
    while True:
        tried = [candidates.of(choice) for choice in _moved(candidates, best, levers, prefer)]
        better = [other for other in tried if gains(other, best, prefer)]
        if not better:
            break
        best = min(better, key=lambda other: measure(other, prefer))
    for lever in best.choice.levers:
        without = candidates.of(best.choice.without(lever))
        if not gains(best, without, prefer):
            best = without
    return best


def better_with(plain: list[Ranked], every: list[Ranked], prefer: Prefer) -> list[Ranked]:
    """The plans with those that have levers where one of these is the best by more than plans may differ, or the only
    one that may fit; else the others as if there were no levers."""
    (best, short), (other, none) = every[0], plain[0]
    if not best.choice.levers or short:
        return plain
    return every if none or measure(best, prefer) * (1 + ALIKE) < measure(other, prefer) else plain


def explained(candidates: Candidates, candidate: Candidate) -> Candidate:
    """The plan with what it would be without each of its levers."""
    without = ((lever, candidates.of(candidate.choice.without(lever))) for lever in candidate.choice.levers)
    return replace(candidate, without=tuple(without))


def gains(candidate: Candidate, other: Candidate, prefer: Prefer) -> bool:
    """Whether a plan is better than another by more than two plans may differ, and fits where that does."""
    if other.word == "fits" and candidate.word != "fits":
        return False
    return measure(candidate, prefer) * (1 + ALIKE) < measure(other, prefer)


def measure(candidate: Candidate, prefer: Prefer) -> float:
    """What is to be small; where the time is not known, one out of the chance."""
    found = goal(candidate, prefer)
    return found if found else 1.0 / max(candidate.judged.chance or 0.0, 0.001)


def _moved(candidates: Candidates, candidate: Candidate, levers: set[Lever], prefer: Prefer) -> Iterator[Choice]:
    """The plan with one lever more, each value of it that could make it better."""
    still = [lever for lever in LEVERS if lever in levers and getattr(candidate.choice, lever) is None]
    if prefer == "memory" or candidate.word != "fits":
        for lever in still:
            yield from _smaller(candidates, candidate, lever)
    if prefer != "memory":
        faster = [choice for lever in still for choice in _larger(candidates, candidate, lever)]
        yield from (choice for choice in faster if _is_faster(candidates, choice, candidate))


def _smaller(candidates: Candidates, candidate: Candidate, lever: Lever) -> Iterator[Choice]:
    """What takes less memory."""
    options, work, choice = candidate.setup.options, candidate.setup.workload, candidate.choice
    if lever == "fused_loss" and work is not None and not work.fused_loss and candidates.can_fuse(choice):
        yield replace(choice, fused_loss=True)
    if not isinstance(options, Options):
        return
    kept = min(options.max_live_parameters, options.max_reuse_distance)
    if lever == "live" and options.stage == 3 and kept > FEW_LIVE:
        yield replace(choice, live=FEW_LIVE)
    if lever == "bucket" and options.stage and options.reduce_bucket_size > LEAST:
        yield replace(choice, bucket=LEAST)


def _larger(candidates: Candidates, candidate: Candidate, lever: Lever) -> Iterator[Choice]:
    """What sends less: more that is gathered once, from little more memory to much."""
    options, choice, facts = candidate.setup.options, candidate.choice, candidates.facts
    if not isinstance(options, Options) or options.stage != 3 or choice.processes == 1:
        return
    if lever == "live":
        size, every = 2 * LIVE_BY_DEFAULT, facts.parameters or 0
        while size < 2 * every:
            yield replace(choice, live=size)
            size *= 2
    if lever == "persistence":
        sizes = sorted({size for size, _ in facts.tensor_sizes if size > options.param_persistence_threshold})
        for size in sizes[:-1]:  # with all of them whole nothing of the parameters would be sharded
            yield replace(choice, persistence=size)


def _is_faster(candidates: Candidates, choice: Choice, candidate: Candidate) -> bool:
    seconds = candidates.seconds_per_token(choice)
    return bool(seconds and candidate.seconds_per_token and seconds * (1 + ALIKE) < candidate.seconds_per_token)
