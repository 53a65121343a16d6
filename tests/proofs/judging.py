"""A claim is held against what is seen of it now, or against what the ledger has of it from when it was last played."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tests.ledger.entries import Played, digest
from tests.ledger.inputs import hashed, releases

from .claims import measured
from .harness import HERE
from .recorded import alike, extract, restored

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ledger.plugin import State, Tier

    from .claims import Claim
    from .harness import Observation

HARNESS = (
    "engines.py",
    "harness.py",
    "launching.py",
    "memory.py",
    "progress.py",
    "recorded.py",
    "runners.py",
    "sharding.py",
    "trl_trainers.py",
    "uses.py",
    "worker.py",
    "zygote.py",
)
"""What decides what is seen."""


@dataclasses.dataclass(frozen=True)
class Judged:
    """``entry``: what the ledger is to hold, should nothing be objected; ``state``: what it held. ``log``: of the
    processes, where the claim was played."""

    entry: Played
    state: State
    played: bool
    objections: list[str]
    log: str = ""


def judge(claim: Claim, tier: Tier | None, play: Callable[[Claim], Observation]) -> Judged:
    """By what is recorded where the tier trusts it, else by playing. Without a tier everything is played."""
    key = key_of(claim)
    entry = tier.recorded(claim.id, key) if tier is not None else None
    if entry is not None:
        return Judged(entry, "unchanged", False, claim.objections(restored(entry.seen)))
    seen = play(claim)
    new = Played(claim.id, key, extract(claim, seen))
    objections = claim.objections(seen)
    if not objections and claim.objections(restored(new.seen)):
        raise AssertionError(f"{claim.id}: what would be recorded does not show what was seen: {new.seen}")
    old = tier.ledger.proofs.get(claim.id) if tier is not None else None
    if old is None or old.key != key:
        return Judged(new, "missing" if old is None else "stale", True, objections, seen.log)
    if alike(claim, old.seen, new.seen):
        return Judged(old, "unchanged", True, objections, seen.log)
    return Judged(new, "other", True, objections, seen.log)


def what_is_played(claim: Claim) -> list[Any]:
    """Claims of which this is the same are played once."""
    return [claim.files, claim.consumer, claim.proof.phase, claim.proof.ranks, measured(claim.proof)]


def key_of(claim: Claim) -> str:
    """Of all that decides what is seen and what it is held against; what the page says beside it does not."""
    claimed = dataclasses.asdict(dataclasses.replace(claim.proof, source="", extent=""))
    harness = {name: hashed(HERE / name) for name in HARNESS}
    return digest([what_is_played(claim), claim.side, claimed, harness, releases()])
