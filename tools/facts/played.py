"""The data set of played examples, ``schemas/releases/rules.json``: one line a rule.

    "sets": {"0.14.5": {"deepspeed": "0.14.5", "accelerate": "0.34.2", ...}}
    "rules": {"ZC201": {"1f0c36ab": {"0.14.5": "same", "0.15.4": ["runs"], "0.16.9": ["stops", "ValueError in parse"]}}}

An entry for each bad example, by its content (`zerocfg.rulebook.older_releases.key_of`), and in it for each set on
which it was played.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tools.facts.environment import ROOT
from zerocfg.catalog.rule_outcomes import Outcome, RuleOutcomes

FILE = ROOT / "schemas" / "releases" / "rules.json"
Sets = Mapping[str, Mapping[str, str]]
Found = Mapping[str, Mapping[str, Mapping[str, Outcome]]]
"""By code, bad example and set."""


def together(kept: RuleOutcomes, sets: Sets, found: Found, examples: Mapping[str, list[str]]) -> RuleOutcomes:
    """What is kept, with what was found on some sets. ``examples``: those that the rules have; what is kept of others,
    or of a set with other releases than it has now, is let go."""
    known = {**kept.sets, **sets}
    stale = {name for name, libraries in kept.sets.items() if known[name] != libraries}
    rules: dict[str, dict[str, dict[str, Outcome]]] = {}
    for code, keys in examples.items():
        for key in keys:
            old = kept.rules.get(code, {}).get(key, {})
            outcomes = {name: seen for name, seen in old.items() if name not in stale}
            outcomes |= found.get(code, {}).get(key, {})
            if outcomes:
                rules.setdefault(code, {})[key] = {name: outcomes[name] for name in known if name in outcomes}
    return RuleOutcomes(known, rules)


def written(played: RuleOutcomes) -> str:
    lines = [
        f"{json.dumps(code)}: {json.dumps({key: _outcomes(of[key]) for key in of})}"
        for code, of in sorted(played.rules.items())
    ]
    named = [f"{json.dumps(name)}: {json.dumps(libraries)}" for name, libraries in played.sets.items()]
    return '{\n"sets": {\n' + ",\n".join(named) + '\n},\n"rules": {\n' + ",\n".join(lines) + "\n}}\n"


def _outcomes(on: Mapping[str, Outcome]) -> dict[str, object]:
    return {name: "same" if one.kind == "same" else [one.kind, *filter(None, [one.seen])] for name, one in on.items()}
