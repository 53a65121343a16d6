"""What the ledger keeps of an observation: what the claim speaks of, short enough to be read in a review.

    {"reached": "init", "error": {"phase", "type", "text"}, "values": {"engine.stage": 3}, "log": "what matched"}

The reached phase always; an error where one was raised; values and the log where the claim asks for them. Texts are
shortened as far as the claim finds in them what it found in the whole, so that a claim is judged by what is recorded as
by the observation. What is chance in them (folders, ports, addresses, times) is taken out where the claim allows it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zerocfg.rules.proof import Between

from .claims import Claim, same
from .harness import Failed, Observation

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH = 200
"""Characters of a text that are kept where they are enough."""
CHANCE = (
    (re.compile(r"/\S*?zerocfg-proofs-[^/\s]+/run-[^/\s]+/(run/|reports/)?"), ""),
    (re.compile(r"/\S*?/(?=site-packages/)"), ""),
    (re.compile(r"\b0x[0-9a-f]+"), "0x..."),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*"), "(time)"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=localhost:)\d+|(?<=port )\d{5}|(?<=pid )\d+"), "(number)"),
)


def extract(claim: Claim, seen: Observation) -> dict[str, Any]:
    """What is kept of ``seen``; `restored` makes of it an observation that ``claim`` judges alike."""
    kept: dict[str, Any] = {"reached": seen.reached}
    if seen.error is not None:
        pattern, kind = claim.proof.raises, f"{seen.error.type}: "

        def found(text: str) -> bool:
            return pattern is not None and re.search(pattern, kind + text) is not None

        at = re.search(pattern, kind + seen.error.text) if pattern is not None else None
        place = max(0, at.start() - len(kind)) if at else 0
        text = shortened(seen.error.text, place, found)
        kept["error"] = {"phase": seen.error.phase, "type": seen.error.type, "text": text}
    expected = claim.expected()
    values = {name: seen.value(name) for name in expected if name != "log"}
    if values:
        kept["values"] = values
    pattern = expected.get("log")
    if pattern is not None:
        at = re.search(pattern, seen.log)
        matched = at[0] if at else ""
        kept["log"] = shortened(matched, 0, lambda text: (re.search(pattern, text) is None) is (at is None), seen.log)
    return kept


def shortened(text: str, place: int, found: Callable[[str], bool], whole: str = "") -> str:
    """The shortest form of ``text``, from ``place`` on if need be, in which is ``found`` what is found in the whole."""
    wanted = found(whole or text)
    part = text[max(0, place - LENGTH // 4) :][:LENGTH]
    for candidate in (without_chance(text)[:LENGTH], without_chance(part), part, text):
        if found(candidate) is wanted:
            return candidate
    return whole or text


def without_chance(text: str) -> str:
    for pattern, instead in CHANCE:
        text = pattern.sub(instead, text)
    return text


def restored(kept: dict[str, Any]) -> Observation:
    """The observation as far as it was kept."""
    error = Failed(**kept["error"]) if "error" in kept else None
    return Observation(kept["reached"], error, kept.get("values", {}), kept.get("log", ""), 0.0)


def alike(claim: Claim, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two observations of one claim say the same: exactly where the claim is exact, by its bounds where it has
    bounds, and of texts whether the claim finds in them what it looks for."""
    if one["reached"] != other["reached"] or one.keys() != other.keys():
        return False
    if "error" in one and one["error"]["phase"] != other["error"]["phase"]:
        return False
    raises = claim.proof.raises
    if raises is not None and "error" in one and _raised(raises, one) != _raised(raises, other):
        return False
    return all(_agree(name, expected, restored(one), restored(other)) for name, expected in claim.expected().items())


def _raised(pattern: str, kept: dict[str, Any]) -> bool:
    return re.search(pattern, f"{kept['error']['type']}: {kept['error']['text']}") is not None


def _agree(name: str, expected: Any, one: Observation, other: Observation) -> bool:
    first, second = one.value(name), other.value(name)
    if name == "log" or isinstance(expected, Between):
        return same(name, first, expected) == same(name, second, expected)
    return same(name, first, second)
