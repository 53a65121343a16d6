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
    usable = [one for one in found if one.word in ("fits", "likely")] or [one for one in found if _may_fit(one)]
    if not usable:
        order = sorted(found, key=lambda one: one.prediction.device.low)
        return [(one, one.short or _unlikely(one)) for one in order]
    timed = all(one.seconds_per_token for one in usable)
    best = _best(usable, prefer, timed=timed)

    def order_of(one: Candidate) -> tuple[float, ...]:
        """What does not fit comes last, from what needs least."""
        if one.word == "does not fit":
            return (True, True, one.prediction.device.low, *_simplicity(one))
        return (one not in usable, False, goal(one, prefer) if timed else 0.0, *_simplicity(one))

    rest = sorted((one for one in found if one is not best), key=order_of)
    leaders = _leaders(rest)
    order = [*leaders, *(one for one in rest if one not in leaders)]
    return [(best, ""), *((one, _why_not(one, best, usable, prefer)) for one in order)]


def _best(usable: list[Candidate], prefer: Prefer | None, *, timed: bool) -> Candidate:
    if prefer is None or (not timed and prefer != "memory"):
        return min(usable, key=_safely)
    least = min(goal(one, prefer) for one in usable)
    alike = [one for one in usable if goal(one, prefer) <= least * (1 + ALIKE)]
    if prefer == "memory":
        return min(alike, key=lambda one: (one.seconds_per_token or 0.0, *_simplicity(one)))
    return min(alike, key=_safely)


def _leaders(order: list[Candidate]) -> list[Candidate]:
    """The first of each way to run the job; the others differ from it in the micro batch only."""
    found: dict[Choice, Candidate] = {}
    for one in order:
        found.setdefault(one.choice.way, one)
    return list(found.values())


def _may_fit(one: Candidate) -> bool:
    return one.word == "unknown" and not one.short


def spent(one: Candidate, prefer: Prefer | None) -> float:
    """Seconds of the job, or for the cost of its devices, for one token."""
    seconds = one.seconds_per_token or 0.0
    return seconds * one.choice.processes if prefer == "cost" else seconds


def goal(one: Candidate, prefer: Prefer | None) -> float:
    """What is to be small."""
    if prefer is None:
        return 0.0
    return float(one.prediction.device.expected) if prefer == "memory" else spent(one, prefer) / _chance(one)


def _chance(one: Candidate) -> float:
    """1 where nothing is known of it, which is so of all plans or of none."""
    return 1.0 if one.judged.chance is None else max(one.judged.chance, 0.001)


def _safely(one: Candidate) -> tuple[float, ...]:
    """What fits comes first, then what is more likely to by whole percents, then what has less machinery."""
    risk = 0.0 if one.word == "fits" else 1.0 - round(_chance(one), 2)
    return (risk, *_simplicity(one))


def _simplicity(one: Candidate) -> tuple[int, ...]:
    """What has less machinery comes first, and the smaller micro batch of two equally fast ones."""
    choice = one.choice
    return (
        DEVICE_ORDER[choice.offload_optimizer or "none"] + DEVICE_ORDER[choice.offload_param or "none"],
        choice.sharding,
        ENGINE_ORDER[choice.engine or "ddp"],
        int(bool(choice.checkpointing)),
        len(choice.levers),
        choice.micro_batch or 0,
        -choice.processes,
    )


def _why_not(one: Candidate, best: Candidate, usable: list[Candidate], prefer: Prefer | None) -> str:
    if one not in usable:
        return one.short or _unlikely(one)
    text = _behind(one, best, prefer)
    return f"not known to fit; {text}" if one.verdict == "unknown" else text


def _behind(one: Candidate, best: Candidate, prefer: Prefer | None) -> str:
    """Why another plan is better that fits as well, or of which as little is known."""
    own, least = spent(one, prefer), spent(best, prefer)
    if prefer == "memory":
        more = (one.prediction.device.expected - best.prediction.device.expected) / GIB
        return f"{more:.1f} GiB more" if more >= 0.05 else "as small, with " + _machinery(one, best)
    if prefer is None or not least:
        return ("" if one.verdict == "unknown" else "fits as well, ") + "with " + _machinery(one, best)
    speed = "cheap" if prefer == "cost" else "fast"
    if own > least * (1 + ALIKE):
        return f"{own / least - 1:.0%} {'more expensive' if prefer == 'cost' else 'slower'}"
    if (
        _chance(one) < _chance(best)
        and percent(_chance(one)) != percent(_chance(best))
        and (one.word != "fits" or _simplicity(one) < _simplicity(best))
    ):
        faster = 1 - own / least
        than = f"{faster:.0%} {speed}er" if faster > ALIKE else f"about as {speed}"
        return f"{than}, and less likely to fit ({percent(_chance(one))})"
    return f"about as {speed}, with {_machinery(one, best)}"


def _machinery(one: Candidate, best: Candidate) -> str:
    mine, other = one.choice, best.choice
    moved, less = _simplicity(one)[0], _simplicity(best)[0]
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


def _unlikely(one: Candidate) -> str:
    band = one.prediction.device
    return f"needs {band.low / GIB:.1f} to {band.high / GIB:.1f} GiB ({one.judged})"


def considered(one: Candidate, excluded: str) -> Considered:
    """A candidate as the plan keeps it."""
    return Considered(
        one.choice.settings(),
        one.verdict,
        round(one.prediction.device.high / GIB, 2),
        one.seconds_per_token,
        excluded,
    )
