"""Compare what a rule claims with what was observed. Pure functions; an empty list means that the claim
holds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from zerocfg.rulebook.proof import Between, Printed

if TYPE_CHECKING:
    from zerocfg.rulebook.proof import Proof

    from .harness import Observation


@dataclass(frozen=True)
class Claim:
    """What ``proof`` says of one run: of a bad example, of a good one, or of a bad one after the rule's fix."""

    id: str
    side: Literal["bad", "good", "fixed"]
    proof: Proof
    files: dict[str, str]
    consumer: str | None

    def expected(self) -> dict[str, Any]:
        """Observed name -> claimed value; of a fixed example those of the bad one, of which one must be gone."""
        return {name: values[self.side == "good"] for name, values in self.proof.shows.items()}

    def objections(self, seen: Observation) -> list[str]:
        """Why ``seen`` does not show what is claimed. Values that only the good example has are not asked of a fixed
        one."""
        if self.side != "fixed" or self.proof.raises is not None:
            return contradictions(self.proof, seen, good=self.side != "bad")
        if seen.error is not None:
            return [str(seen.error)]
        return [] if contradictions(self.proof, seen, good=False) else ["the fixed example still shows the claim"]


def contradictions(proof: Proof, seen: Observation, good: bool) -> list[str]:
    """Why ``seen``, the observation of a bad (or ``good``) example, does not show what ``proof`` claims."""
    found: list[str] = []
    error = seen.error
    if proof.raises is not None:
        if good:
            if error is not None and not seen.passed(proof.phase):
                found.append(f"does not get past {proof.phase}: {error}")
        elif error is None:
            found.append(f"nothing is raised up to {seen.reached}")
        elif error.phase != proof.phase:
            found.append(f"is raised in another phase than {proof.phase}: {error}")
        elif not re.search(proof.raises, f"{error.type}: {error.text}"):
            found.append(f"the error does not match {proof.raises!r}: {error}")
        elif proof.within and proof.within not in error.within:
            found.append(f"the error is not raised within {proof.within}, but within {', '.join(error.within)}")
    elif error is not None:
        found.append(f"does not reach {proof.phase}: {error}")
    for name, values in proof.shows.items():
        expected = values[1] if good else values[0]
        value = seen.value(name)
        if not same(value, expected):
            found.append(f"{name} is {shortened(value)}, claimed is {expected!r}")
    return found


MEASURED = ("memory", "uses")
"""What is seen only where a claim names it: it takes time, or is in the way of compilation."""


def measured(proof: Proof) -> list[str]:
    """What a proof has to ask the harness for."""
    return [what for what in MEASURED if any(name.startswith(f"{what}.") for name in proof.shows)]


def same(value: Any, expected: Any) -> bool:
    """Compared with its type, with the bounds of a ``Between``, or searched as a ``Printed`` says.

    A bool is not a number and a string is not what it spells, but 1 and 1.0 are one number.
    """
    if isinstance(expected, Printed):
        return isinstance(value, str) and expected.of(value)
    if isinstance(expected, Between):
        return value in expected
    if isinstance(expected, tuple):
        expected = list(expected)
    if isinstance(value, float) and isinstance(expected, float):
        return value == expected or math.isclose(value, expected, rel_tol=1e-9)
    if isinstance(value, bool) != isinstance(expected, bool):
        return False
    return bool(value == expected)


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else text[:400] + "..."
