"""The part of a rule's page that says what its bad examples do on older releases."""

from __future__ import annotations

from collections.abc import Mapping

from zerocfg.catalog.played import Outcome, played
from zerocfg.catalog.versions import library_name
from zerocfg.rules.api import Rule
from zerocfg.rules.reach import OF_HISTORIES

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl")
OF_ARGUMENTS = frozenset(("ZC801", "ZC840", "ZC841"))
"""The rules that ask the histories which release takes an argument."""
LENGTH = 90
"""Characters of what was seen that a row shows."""
Row = tuple[str, ...]


def said(rule: Rule) -> str:
    """What is said of them in words."""
    if rule.code in OF_HISTORIES:
        return (
            "Keys and values are judged by what the releases read that the project admits: zerocfg knows every release "
            "of DeepSpeed from 0.10.0 on and of accelerate from 0.23.0 on."
        )
    if rule.proof.status == "self":
        return "This is about zerocfg itself."
    if rule.code not in played().rules:
        return "Not tried on older releases."
    return "The bad examples were played on older releases too, installed together:"


def table(rule: Rule, today: Mapping[str, str]) -> tuple[Row, ...]:
    """The sets, newest first, with what the bad examples do there; the first row is the heading."""
    found = played()
    outcomes = found.rules.get(rule.code)
    if outcomes is None or rule.code in OF_HISTORIES:
        return ()
    heading = (*map(library_name, LIBRARIES), "bad examples")
    rows = [heading, (*(today[library] for library in LIBRARIES), "as claimed, in every full test run")]
    for name, libraries in reversed([*found.sets.items()]):
        releases = (libraries.get(library, "") for library in LIBRARIES)
        rows.append((*releases, _together(outcomes.get(name, ()), len(rule.bad))))
    return tuple(rows)


def _together(outcomes: tuple[Outcome | None, ...], count: int) -> str:
    every = [*outcomes, *[None] * (count - len(outcomes))]
    if len(set(every)) == 1:
        return _one(every[0])
    return "; ".join(f"{number}: {_one(outcome)}" for number, outcome in enumerate(every, 1))


def _one(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not played"
    seen = outcome.seen.replace("`", "'").replace("|", "/").replace("\n", " ").strip()
    seen = seen if len(seen) <= LENGTH else f"{seen[:LENGTH].rstrip()}..."
    return {
        "same": "as claimed",
        "runs": "not refused",
        "stops": f"another error, `{seen}`",
        "other": "not seen in the log" if seen == "log" else f"`{seen}`",
        "unplayable": f"could not be played, `{seen}`",
    }[outcome.kind]
