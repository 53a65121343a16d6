"""The data set of played examples, ``schemas/releases/rules.json``: one line a rule.

    "sets": {"0.14.5": {"deepspeed": "0.14.5", "accelerate": "0.34.2", ...}}
    "rules": {"ZC201": {"1f0c36ab": {"0.14.5": "same", "0.15.4": ["runs"], "0.16.9": ["stops", "ValueError in parse"]}}}

An entry for each bad example, by its content (`zerocfg.rulebook.older_releases.key_of`), and in it for each set on
which it was played. "good" has the same of the good examples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set

from tools.facts.environment import ROOT
from tools.facts.sets import SETS
from zerocfg.catalog.rule_outcomes import Outcome, RuleOutcomes, Side
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Rule

FILE = ROOT / "schemas" / "releases" / "rules.json"
Sets = Mapping[str, Mapping[str, str]]
Found = Mapping[str, Mapping[str, Mapping[str, Outcome]]]
"""By code, example and set."""


def good_beside(rule: Rule, number: int) -> int:
    """Which good example a bad one is held against where it does not show its claim: the first with the same proof,
    else the first."""
    page = page_of(rule)
    proof = page.bad[number].proof or page.proof
    return next((at for at, example in enumerate(page.good) if (example.proof or page.proof) == proof), 0)


def together(
    kept: RuleOutcomes,
    sets: Sets,
    found: Mapping[Side, Found],
    examples: Mapping[str, tuple[Sequence[str], Sequence[str]]],
) -> RuleOutcomes:
    """What is kept, with what was found on some sets. ``examples``: those that the rules have, bad and good; what is
    kept of others, or of a set with other releases than it has now, is let go."""
    known = {**kept.sets, **sets}
    order = [one.deepspeed for one in SETS if one.deepspeed in known]
    known = {name: known[name] for name in [*order, *(name for name in known if name not in order)]}
    stale = {name for name, libraries in kept.sets.items() if known[name] != libraries}
    bad_examples = {code: bad for code, (bad, _) in examples.items()}
    good_examples = {code: good for code, (_, good) in examples.items()}
    bad = _merged(kept.rules, found.get("bad", {}), bad_examples, known, stale)
    good = _merged(kept.good, found.get("good", {}), good_examples, known, stale)
    return RuleOutcomes(known, bad, good)


def _merged(
    kept: Found, found: Found, examples: Mapping[str, Sequence[str]], known: Iterable[str], stale: Set[str]
) -> dict[str, dict[str, dict[str, Outcome]]]:
    rules: dict[str, dict[str, dict[str, Outcome]]] = {}
    for code, keys in examples.items():
        for key in keys:
            old = kept.get(code, {}).get(key, {})
            outcomes = {name: seen for name, seen in old.items() if name not in stale}
            outcomes |= found.get(code, {}).get(key, {})
            if outcomes:
                rules.setdefault(code, {})[key] = {name: outcomes[name] for name in known if name in outcomes}
    return rules


def written(played: RuleOutcomes) -> str:
    named = [f"{json.dumps(name)}: {json.dumps(libraries)}" for name, libraries in played.sets.items()]
    parts = {"sets": named, "rules": _lines(played.rules), "good": _lines(played.good)}
    return "{\n" + ",\n".join(f'"{part}": {{\n' + ",\n".join(lines) + "\n}" for part, lines in parts.items()) + "}\n"


def _lines(of: Found) -> list[str]:
    return [
        f"{json.dumps(code)}: {json.dumps({key: _outcomes(on) for key, on in examples.items()})}"
        for code, examples in sorted(of.items())
    ]


def _outcomes(on: Mapping[str, Outcome]) -> dict[str, object]:
    return {
        name: "same" if one == Outcome("same") else [one.kind, *filter(None, [one.seen])] for name, one in on.items()
    }
