"""What the example of a rule shows in another release set than the one that its claim was made for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.proofs.claims import Claim, same
from tests.proofs.harness import ABSENT, Observation
from tests.proofs.recorded import LENGTH, without_chance
from tools.facts.set_zygote import NOT_COMPILED
from zerocfg.catalog.rule_outcomes import Outcome

PROGRAM = "tests/proofs/"


SAME = Outcome("same")
RUNS = Outcome("runs")


def judged(claim: Claim, seen: Observation, good: Observation | None) -> Outcome:
    """``good``: what the good example does there, which must run where the bad one is said to do something else. The
    error that is claimed may come in another phase than today."""
    claimed = claim
    if seen.error is not None and claim.proof.raises is not None:
        phase: Any = seen.error.phase
        claimed = replace(claim, proof=replace(claim.proof, phase=phase))
    if not claimed.objections(seen):
        return SAME
    if seen.error is not None and (lacks_an_operator(seen) or _of_harness(seen)):
        return Outcome("unplayable", _short(seen))
    if good is not None and good.error is not None and not good.passed(claim.proof.phase):
        return Outcome("unplayable", _short(good))
    if seen.error is not None:
        return Outcome("stops", _short(seen))
    if claim.proof.raises is not None:
        return RUNS
    return _values(claim, seen, good)


def judged_good(claim: Claim, seen: Observation) -> Outcome:
    """What a good example does: "same" where it passes the phase of its claim with the values that its page says."""
    if not claim.objections(seen):
        return SAME
    if seen.error is not None and not seen.passed(claim.proof.phase):
        lacking = lacks_an_operator(seen) or _of_harness(seen)
        return Outcome("unplayable" if lacking else "stops", _short(seen))
    return _values(claim, seen, None)


def lacks_an_operator(seen: Observation | str) -> bool:
    """Whether what was played needs an operator that is not compiled: another call may have it."""
    return not isinstance(seen, str) and seen.error is not None and NOT_COMPILED in seen.error.text


def _values(claim: Claim, seen: Observation, good: Observation | None) -> Outcome:
    """A value that neither example has is one that the harness does not find there."""
    told = []
    for name, expected in claim.expected().items():
        value = seen.value(name)
        if same(value, expected):
            continue
        if value == ABSENT and (good is None or good.value(name) == ABSENT):
            return Outcome("unplayable", f"{name} is not seen")
        told.append(name if name == "log" else f"{name} is {value!r}"[:LENGTH])
    return Outcome("other", without_chance("; ".join(told)))


def _of_harness(seen: Observation) -> bool:
    """Whether the error was raised by the program that plays, which asks for what there is not."""
    assert seen.error is not None
    frames = [line for line in seen.error.traceback if line.lstrip().startswith('File "')]
    own = bool(frames) and PROGRAM in frames[-1]
    return own and seen.error.type in ("AttributeError", "ImportError", "TypeError", "KeyError")


def _short(seen: Observation) -> str:
    error = seen.error
    assert error is not None
    lines = [line.strip() for line in error.text.splitlines() if line.strip()] or [""]
    first = lines[-1 if error.type == "SystemExit" else 0]  # argparse: its usage comes first
    return without_chance(f"{error.type} in {error.phase}: {first}")[:LENGTH]
