"""The part of a rule's page that says what its bad examples do on older releases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from zerocfg.catalog.rule_outcomes import Outcome, rule_outcomes
from zerocfg.catalog.versions import library_name
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Rule

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl")
LENGTH = 90
"""Characters of what was seen that a row shows."""
DIGITS = 8
"""Hexadecimal digits that tell the examples of one rule apart."""
Row = tuple[str, ...]


def key_of(rule: Rule, example: Example) -> str:
    """A bad example by its content: what is run, and what it is claimed to show. What its page says beside it does not
    count."""
    proof = example.proof or page_of(rule).proof
    claimed = {name: repr(values[0]) for name, values in proof.shows.items()}
    content = [example.files, example.consumer, proof.phase, proof.ranks, proof.raises, proof.within, claimed]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGITS]


def keys_of(rule: Rule) -> list[str]:
    """Its bad examples, as what they showed on older releases goes by."""
    return [key_of(rule, example) for example in page_of(rule).bad]


def good_keys_of(rule: Rule) -> list[str]:
    """Its good examples, likewise."""
    return [key_of(rule, example) for example in page_of(rule).good]


def since(rule: Rule) -> str | None:
    """The oldest set back to which its bad examples showed what it claims; None where the newest did not."""
    return rule_outcomes().since(rule.code, {key_of(rule, item): item.releases for item in page_of(rule).bad})


def said(rule: Rule) -> str:
    """What is said of them in words."""
    if rule.histories == "keys":
        return (
            "Keys and values are judged by what the releases read that the project admits: zerocfg knows every release "
            "of DeepSpeed from 0.10.0 on and of accelerate from 0.23.0 on."
        )
    if page_of(rule).proof.status == "self":
        return "This is about zerocfg itself."
    if not _known(rule):
        return "Not tried on older releases."
    return "The bad examples were played on older releases too, installed together:"


def table(rule: Rule, today: Mapping[str, str]) -> tuple[Row, ...]:
    """The sets, newest first, with what the bad examples do there; the first row is the heading."""
    found = rule_outcomes()
    keys = keys_of(rule)
    if not _known(rule) or rule.histories == "keys":
        return ()
    heading = (*map(library_name, LIBRARIES), "bad examples")
    rows = [heading, (*(today[library] for library in LIBRARIES), "as claimed, in every full test run")]
    for name, libraries in reversed([*found.sets.items()]):
        releases = (libraries.get(library, "") for library in LIBRARIES)
        rows.append((*releases, _together(found.outcomes(rule.code, keys, name))))
    return tuple(rows)


def _known(rule: Rule) -> bool:
    """Whether one of its bad examples was played."""
    return not rule_outcomes().rules.get(rule.code, {}).keys().isdisjoint(keys_of(rule))


def _together(outcomes: Sequence[Outcome | None]) -> str:
    if len(set(outcomes)) == 1:
        return _one(outcomes[0])
    return "; ".join(f"{number}: {_one(outcome)}" for number, outcome in enumerate(outcomes, 1))


def _one(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not played"
    seen = outcome.seen.replace("`", "'").replace("|", "/").replace("\n", " ").strip()
    seen = seen if len(seen) <= LENGTH else f"{seen[:LENGTH].rstrip()}..."
    return {
        "same": "as claimed" + (f", {seen}" if seen else ""),
        "runs": "not refused" + (f", up to {seen}" if seen else ""),
        "stops": f"another error, `{seen}`",
        "other": "not seen in the log" if seen == "log" else f"`{seen}`",
        "unplayable": f"could not be played, `{seen}`",
    }[outcome.kind]
