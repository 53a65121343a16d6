"""Which of the candidates is the best: each one predicted, and ranked by the goal and the chance that it fits.

Deterministic: the same spec, model, hardware and release of zerocfg give the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable

from zerocfg.memory.options import Device
from zerocfg.memory.overhead import GIB
from zerocfg.memory.verdict import percent
from zerocfg.resolve.plan import Considered, Engine
from zerocfg.resolve.search.candidates import Candidate, Candidates
from zerocfg.resolve.search.choice import Choice, Prefer

Ranked = tuple[Candidate, str]

ALIKE = 0.03  # share of the time by which two plans may differ and still count as equally fast
DEVICE_ORDER: dict[Device, int] = {"none": 0, "cpu": 1, "nvme": 3}  # everything on the host before any drive
ENGINE_ORDER: dict[Engine, int] = {"ddp": 0, "deepspeed": 1, "fsdp": 2}


def evaluate(candidates: Candidates, choices: Iterable[Choice]) -> list[Candidate]:
    """Predict every choice. None is skipped because another one does not fit: a larger micro batch can need less memory
    than a smaller one, since FSDP 2 keeps whole gradients only while it accumulates."""
    return [candidates.of(choice) for choice in choices]


def ranked(found: list[Candidate], prefer: Prefer | None) -> list[Ranked]:
    """All candidates, the best first; what excluded the others stands beside them, nothing beside the best.

    The best is what is expected to be done most: the throughput, or what a device does for its cost, times the chance
    to fit. Of plans that are alike in that the one that fits is taken, or the likeliest, then the one with least
    machinery. What is more likely not to fit is no plan. ``prefer`` None, or where the time is not known: the simplest
    that fits. Where none may fit, every one has its reason and the one that needs least comes first. Without
    activations room for them is asked of the device instead. Of plans that differ in the micro batch only the best
    stands before all others.
    """
    usable = [candidate for candidate in found if candidate.word in ("fits", "likely")] or [
        candidate for candidate in found if _may_fit(candidate)
    ]
    if not usable:
        order = sorted(found, key=lambda candidate: candidate.prediction.device.low)
        return [(candidate, candidate.short or _unlikely(candidate)) for candidate in order]
    timed = all(candidate.seconds_per_token for candidate in usable)
    best = _best(usable, prefer, timed=timed)

    def order_of(candidate: Candidate) -> tuple[float, ...]:
        """What does not fit comes last, from what needs least."""
        if candidate.word == "does not fit":
            return (True, True, candidate.prediction.device.low, *_simplicity(candidate))
        return (candidate not in usable, False, goal(candidate, prefer) if timed else 0.0, *_simplicity(candidate))

    rest = sorted((candidate for candidate in found if candidate is not best), key=order_of)
    leaders = _leaders(rest)
    order = [*leaders, *(candidate for candidate in rest if candidate not in leaders)]
    return [(best, ""), *((candidate, _why_not(candidate, best, usable, prefer)) for candidate in order)]


def _best(usable: list[Candidate], prefer: Prefer | None, *, timed: bool) -> Candidate:
    if prefer is None or (not timed and prefer != "memory"):
        return min(usable, key=_safely)
    least = min(goal(candidate, prefer) for candidate in usable)
    alike = [candidate for candidate in usable if goal(candidate, prefer) <= least * (1 + ALIKE)]
    if prefer == "memory":
        return min(alike, key=lambda candidate: (candidate.seconds_per_token or 0.0, *_simplicity(candidate)))
    return min(alike, key=_safely)


def _leaders(order: list[Candidate]) -> list[Candidate]:
    """The first of each way to run the job; the others differ from it in the micro batch only."""
    found: dict[Choice, Candidate] = {}
    for candidate in order:
        found.setdefault(candidate.choice.way, candidate)
    return list(found.values())


def _may_fit(candidate: Candidate) -> bool:
    return candidate.word == "unknown" and not candidate.short


def spent(candidate: Candidate, prefer: Prefer | None) -> float:
    """Seconds of the job, or for the cost of its devices, for one token."""
    seconds = candidate.seconds_per_token or 0.0
    return seconds * candidate.choice.processes if prefer == "cost" else seconds


def goal(candidate: Candidate, prefer: Prefer | None) -> float:
    """What is to be small."""
    if prefer is None:
        return 0.0
    return (
        float(candidate.prediction.device.expected)
        if prefer == "memory"
        else spent(candidate, prefer) / _chance(candidate)
    )


def _chance(candidate: Candidate) -> float:
    """1 where nothing is known of it, which is so of all plans or of none."""
    return 1.0 if candidate.judged.chance is None else max(candidate.judged.chance, 0.001)


def _safely(candidate: Candidate) -> tuple[float, ...]:
    """What fits comes first, then what is more likely to by whole percents, then what has less machinery."""
    risk = 0.0 if candidate.word == "fits" else 1.0 - round(_chance(candidate), 2)
    return (risk, *_simplicity(candidate))


def _simplicity(candidate: Candidate) -> tuple[int, ...]:
    """What has less machinery comes first, and the smaller micro batch of two equally fast ones."""
    choice = candidate.choice
    return (
        DEVICE_ORDER[choice.offload_optimizer or "none"] + DEVICE_ORDER[choice.offload_param or "none"],
        choice.sharding,
        ENGINE_ORDER[choice.engine or "ddp"],
        int(bool(choice.checkpointing)),
        len(choice.levers),
        choice.micro_batch or 0,
        -choice.processes,
    )


def _why_not(candidate: Candidate, best: Candidate, usable: list[Candidate], prefer: Prefer | None) -> str:
    if candidate not in usable:
        return candidate.short or _unlikely(candidate)
    text = _behind(candidate, best, prefer)
    return f"not known to fit; {text}" if candidate.verdict == "unknown" else text


def _behind(candidate: Candidate, best: Candidate, prefer: Prefer | None) -> str:
    """Why another plan is better that fits as well, or of which as little is known."""
    own, least = spent(candidate, prefer), spent(best, prefer)
    if prefer == "memory":
        more = (candidate.prediction.device.expected - best.prediction.device.expected) / GIB
        return f"{more:.1f} GiB more" if more >= 0.05 else "as small, with " + _machinery(candidate, best)
    if prefer is None or not least:
        return ("" if candidate.verdict == "unknown" else "fits as well, ") + "with " + _machinery(candidate, best)
    speed = "cheap" if prefer == "cost" else "fast"
    if own > least * (1 + ALIKE):
        return f"{own / least - 1:.0%} {'more expensive' if prefer == 'cost' else 'slower'}"
    if (
        _chance(candidate) < _chance(best)
        and percent(_chance(candidate)) != percent(_chance(best))
        and (candidate.word != "fits" or _simplicity(candidate) < _simplicity(best))
    ):
        faster = 1 - own / least
        than = f"{faster:.0%} {speed}er" if faster > ALIKE else f"about as {speed}"
        return f"{than}, and less likely to fit ({percent(_chance(candidate))})"
    return f"about as {speed}, with {_machinery(candidate, best)}"


def _machinery(candidate: Candidate, best: Candidate) -> str:
    mine, other = candidate.choice, best.choice
    moved, less = _simplicity(candidate)[0], _simplicity(best)[0]
    if moved != less:
        return "less offload" if moved < less else "more offload"
    if mine.sharding != other.sharding:
        return "less sharding" if mine.sharding < other.sharding else "more sharding"
    if mine.engine != other.engine:
        return "another engine that shards as much"
    if mine.checkpointing != other.checkpointing:
        return "recomputation" if mine.checkpointing else "all activations kept"
    if mine.levers != other.levers:
        return "fewer values changed" if len(mine.levers) < len(other.levers) else "more values changed"
    if mine.processes != other.processes:
        return "more devices" if mine.processes > other.processes else "fewer devices"
    if mine.nodes != other.nodes:
        return "more nodes" if mine.nodes > other.nodes else "fewer nodes"
    larger = (mine.micro_batch or 0) > (other.micro_batch or 0)
    return "a larger micro batch, which leaves less memory free" if larger else "a smaller micro batch"


def _unlikely(candidate: Candidate) -> str:
    band = candidate.prediction.device
    return f"needs {band.low / GIB:.1f} to {band.high / GIB:.1f} GiB ({candidate.judged})"


def considered(candidate: Candidate, excluded: str) -> Considered:
    """A candidate as the plan keeps it."""
    return Considered(
        candidate.choice.settings(),
        candidate.verdict,
        round(candidate.prediction.device.high / GIB, 2),
        candidate.seconds_per_token,
        excluded,
    )
