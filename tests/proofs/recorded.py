"""What the ledger keeps of an observation: what the claim speaks of, short enough to be read in a review.

    {"reached": "init", "error": {"phase", "type", "text"}, "values": {"engine.stage": 3}, "log": "what matched"}

The reached phase always; an error where one was raised; values and the log where the claim asks for them. Texts are
shortened as far as the claim finds in them what it found in the whole, so that a claim is judged by what is recorded as
by the observation. What is chance in them (folders, ports, addresses, times) is taken out where the claim allows it.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from zerocfg.rulebook.proof import Between, Printed

from .claims import Claim, same
from .harness import Failed, Observation

LENGTH = 200
"""Characters of a text that are kept where they are enough."""
CHANCE = (
    (re.compile(r"/\S*?zerocfg-proofs-[^/\s]+/run-[^/\s]+/(run/|reports/)?"), ""),
    (re.compile(r"/\S*?/(?=site-packages/|bin/python)"), ""),
    (re.compile(r"\b0x[0-9a-f]+"), "0x..."),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*"), "(time)"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=localhost:)\d+|(?<=port )\d{5}|(?<=pid )\d+"), "(number)"),
)


def extract(claim: Claim, seen: Observation) -> dict[str, Any]:
    """What is kept of ``seen``; `restored` makes of it an observation that ``claim`` judges alike."""
    kept: dict[str, Any] = {"reached": seen.reached}
    if seen.error is not None:
        kept["error"] = _error(claim, seen.error)
    expected = claim.expected()
    values = {name: _value(seen.value(name), expected[name]) for name in expected if name != "log"}
    if values:
        kept["values"] = values
    if expected.get("log") is not None:
        kept["log"] = _log(expected["log"], seen.log)
    return kept


def _value(value: Any, expected: Any) -> Any:
    if isinstance(value, str) and same(without_chance(value), expected) is same(value, expected):
        return without_chance(value)
    return value


def _error(claim: Claim, error: Failed) -> dict[str, Any]:
    kind, pattern = f"{error.type}: ", re.compile(claim.proof.raises or "")
    found = pattern.search(kind + error.text)
    place = max(0, found.start() - len(kind) - LENGTH // 4) if found else 0
    part = error.text[place:][:LENGTH]
    forms = (without_chance(error.text)[:LENGTH], without_chance(part), part, error.text)
    text = next(form for form in forms if (pattern.search(kind + form) is None) is (found is None))
    kept: dict[str, Any] = {"phase": error.phase, "type": error.type, "text": text}
    if claim.proof.within in error.within:
        kept["within"] = [claim.proof.within]
    return kept


def _log(claimed: Printed, log: str) -> str:
    """What was found in it, no oftener than the claim needs; nothing where nothing was found."""
    needed = int(max(1.0, claimed.times.low))
    found = [match[0] for match in itertools.islice(re.finditer(claimed.pattern, log), needed)]
    forms = ("\n".join(without_chance(text)[:LENGTH] for text in found), "\n".join(found), log)
    return next(form for form in forms if claimed.of(form) is claimed.of(log))


def without_chance(text: str) -> str:
    for pattern, instead in CHANCE:
        text = pattern.sub(instead, text)
    return text


def restored(kept: dict[str, Any]) -> Observation:
    """The observation as far as it was kept."""
    error = None
    if "error" in kept:
        error = Failed(**{**kept["error"], "within": tuple(kept["error"].get("within", ()))})
    return Observation(kept["reached"], error, kept.get("values", {}), kept.get("log", ""), 0.0)


def alike(claim: Claim, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two observations of one claim say the same: exactly where the claim is exact, by its bounds where it has
    bounds, and of texts whether the claim finds in them what it looks for."""
    if one["reached"] != other["reached"] or one.keys() != other.keys():
        return False
    if "error" in one and one["error"]["phase"] != other["error"]["phase"]:
        return False
    return _raised(claim, one) == _raised(claim, other) and all(
        _agree(claim, expected, restored(one).value(name), restored(other).value(name))
        for name, expected in claim.expected().items()
    )


def _raised(claim: Claim, kept: dict[str, Any]) -> bool:
    """Whether there is the error that is claimed."""
    error, raises = restored(kept).error, claim.proof.raises
    if error is None or raises is None:
        return False
    return re.search(raises, f"{error.type}: {error.text}") is not None and claim.proof.within in ("", *error.within)


def _agree(claim: Claim, expected: Any, one: Any, other: Any) -> bool:
    """Of a fixed example it is claimed only that a value is not the bad one. What it is may be chance: a free port."""
    if claim.side == "fixed" or isinstance(expected, (Between, Printed)):
        return same(one, expected) == same(other, expected)
    return same(one, other)
