"""What the bad examples of the rules showed on older release sets: `tools/facts` plays them and writes
``schemas/releases/rules.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from zerocfg.catalog.schema import schema_folder
from zerocfg.catalog.versions import both
from zerocfg.record import field, record

Kind = Literal["same", "runs", "stops", "other", "unplayable"]
Side = Literal["bad", "good"]
SIDES: tuple[Side, ...] = ("bad", "good")


@record(frozen=True, slots=True)
class Outcome:
    """``kind``: "same", what the rule claims is seen; "runs", the example does not stop, as it is claimed to; "stops",
    it does with another error; "other", another value is seen; "unplayable", nothing is known. ``seen``: which one; of
    "same" where the error comes in another phase than today ("in init"), of "runs" the phase that was reached where
    that is later than the claim's."""

    kind: Kind
    seen: str = ""


@record(frozen=True, slots=True)
class RuleOutcomes:
    """``sets``: the libraries of each set with their releases, oldest first. ``rules``: by code, bad example and set
    what was seen; what is missing was not played. An example goes by a digest of its content
    (`rulebook/older_releases.py`), so that one that was changed has no outcomes. ``good``: the same of the good
    examples, "same" where they passed."""

    sets: Mapping[str, Mapping[str, str]]
    rules: Mapping[str, Mapping[str, Mapping[str, Outcome]]]
    good: Mapping[str, Mapping[str, Mapping[str, Outcome]]] = field(default_factory=dict)

    def outcomes(self, code: str, examples: Sequence[str], name: str, side: Side = "bad") -> tuple[Outcome | None, ...]:
        """What these examples of a rule showed on a set."""
        known = (self.good if side == "good" else self.rules).get(code, {})
        return tuple(known.get(example, {}).get(name) for example in examples)

    def since(self, code: str, examples: Mapping[str, str]) -> str | None:
        """The oldest set from which on these examples showed the claim of their rule on every one; None where the
        newest did not. Each is asked on the sets with the releases in which its claim is seen: its value, "" for all.
        """
        found = None
        for name in reversed([*self.sets]):
            asked = [example for example, releases in examples.items() if self.has(name, releases)]
            outcomes = self.outcomes(code, asked, name)
            if not examples or any(outcome is None or outcome.kind != "same" for outcome in outcomes):
                break
            found = name
        return found

    def has(self, name: str, releases: str) -> bool:
        """Whether a set has one of these releases ("deepspeed>=0.19.3"); "" stands for every release."""
        of = next((library for library in self.sets[name] if releases.startswith(library)), None)
        return of is None or both((f"=={self.sets[name][of]}", releases.removeprefix(of))) is not None


@cache
def rule_outcomes() -> RuleOutcomes:
    return read_outcomes(schema_folder() / "releases" / "rules.json")


def read_outcomes(file: Path) -> RuleOutcomes:
    raw = json.loads(file.read_text(encoding="utf-8"))
    return RuleOutcomes(raw["sets"], _by_code(raw["rules"]), _by_code(raw["good"]))


def _by_code(raw: Any) -> dict[str, dict[str, dict[str, Outcome]]]:
    return {
        code: {example: {name: _outcome(outcome) for name, outcome in on.items()} for example, on in of.items()}
        for code, of in raw.items()
    }


def _outcome(row: Any) -> Outcome:
    return Outcome("same") if row == "same" else Outcome(*row)
