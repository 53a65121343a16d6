"""The data set of played examples, ``schemas/releases/rules.json``: one line a rule.

    "sets": {"0.14.5": {"deepspeed": "0.14.5", "accelerate": "0.34.2", ...}}
    "rules": {"ZC201": {"0.14.5": ["same", ["runs"], ["stops", "ValueError in parse: ..."], null]}}

An entry for each bad example, in their order; null: it was not played.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tools.facts.environment import ROOT
from zerocfg.catalog.played import Outcome

FILE = ROOT / "schemas" / "releases" / "rules.json"
Found = Mapping[str, Mapping[str, Mapping[int, Outcome]]]


def written(sets: Mapping[str, Mapping[str, str]], found: Found) -> str:
    """``found``: by code and set the outcome of each example that was played."""
    lines = [
        f"{json.dumps(code)}: {json.dumps({name: _outcomes(outcomes) for name, outcomes in of.items()})}"
        for code, of in sorted(found.items())
    ]
    named = [f"{json.dumps(name)}: {json.dumps(libraries)}" for name, libraries in sets.items()]
    return '{\n"sets": {\n' + ",\n".join(named) + '\n},\n"rules": {\n' + ",\n".join(lines) + "\n}}\n"


def _outcomes(outcomes: Mapping[int, Outcome]) -> list[object]:
    found: list[object] = [None] * (max(outcomes) + 1)
    for number, outcome in outcomes.items():
        found[number] = "same" if outcome.kind == "same" else [outcome.kind, *([outcome.seen] if outcome.seen else [])]
    return found
