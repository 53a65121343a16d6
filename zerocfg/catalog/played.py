"""What the bad examples of the rules showed on older release sets: `tools/facts` plays them and writes
``schemas/releases/rules.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from zerocfg.catalog.schema import schema_folder

Kind = Literal["same", "runs", "stops", "other", "unplayable"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``kind``: "same", what the rule claims is seen; "runs", the example does not stop, as it is claimed to; "stops",
    it does with another error; "other", another value is seen; "unplayable", nothing is known. ``seen``: which one."""

    kind: Kind
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Played:
    """``sets``: the libraries of each set with their releases, oldest first. ``rules``: by code and set the outcomes of
    the bad examples, in their order; None where one was not played."""

    sets: Mapping[str, Mapping[str, str]]
    rules: Mapping[str, Mapping[str, tuple[Outcome | None, ...]]]

    def held(self, code: str, name: str) -> bool:
        """Whether every bad example of a rule showed its claim on a set."""
        outcomes = self.rules.get(code, {}).get(name, ())
        return bool(outcomes) and all(one is not None and one.kind == "same" for one in outcomes)

    def since(self, code: str) -> str | None:
        """The oldest set from which on a rule held on every one; None where it did not on the newest."""
        found = None
        for name in reversed([*self.sets]):
            if not self.held(code, name):
                break
            found = name
        return found


@cache
def played() -> Played:
    raw = json.loads((schema_folder() / "releases" / "rules.json").read_text(encoding="utf-8"))
    rules = {
        code: {name: tuple(map(_outcome, outcomes)) for name, outcomes in of.items()}
        for code, of in raw["rules"].items()
    }
    return Played(raw["sets"], rules)


def _outcome(held: Any) -> Outcome | None:
    return None if held is None else Outcome("same") if held == "same" else Outcome(*held)
