"""Every executed proof of every rule: the bad examples show the claim, the good and the fixed ones do not."""

from __future__ import annotations

from typing import Any

import pytest

from .claims import contradictions
from .conftest import PROOFS
from .harness import Observation, observe

registry = pytest.importorskip("zerocfg.rules.registry")
RULES = {rule.code: rule for rule in registry.ALL}
EXECUTED = sorted(code for code, rule in RULES.items() if rule.proof.status == "executed")


def cases(kind: str) -> list[Any]:
    """(code, index) of each example of ``kind``, with the code as test id."""
    counts = {code: len(getattr(RULES[code], kind)) for code in EXECUTED}
    return [
        pytest.param(code, at, id=code if count == 1 else f"{code}-{at + 1}")
        for code, count in counts.items()
        for at in range(count)
    ]


def play(rule: Any, files: dict[str, str], consumer: str | None) -> Observation:
    return observe(files, consumer, rule.proof.phase, rule.proof.ranks)


def verdict(rule: Any, seen: Observation, good: bool) -> str:
    """Empty when the claim holds, else what contradicts it and the end of the log."""
    found = contradictions(rule.proof, seen, good)
    if not found:
        return ""
    what = "good" if good else "bad"
    return f"{rule.code} {rule.name}, {what} example:\n- " + "\n- ".join(found) + "\n" + seen.log[-1500:]


@pytest.mark.parametrize(("code", "at"), cases("bad"))
def test_bad_example_shows_the_claim(code: str, at: int, record_property: Any) -> None:
    record_property(PROOFS, True)
    rule = RULES[code]
    example = rule.bad[at]
    assert not verdict(rule, play(rule, example.files, example.consumer), good=False)


@pytest.mark.parametrize(("code", "at"), cases("good"))
def test_good_example_does_not(code: str, at: int, record_property: Any) -> None:
    record_property(PROOFS, True)
    rule = RULES[code]
    example = rule.good[at]
    assert not verdict(rule, play(rule, example.files, example.consumer), good=True)


@pytest.mark.parametrize(("code", "at"), [case for case in cases("bad") if RULES[case.values[0]].fixable])
def test_fixed_example_does_not(code: str, at: int, record_property: Any) -> None:
    """The fix of a rule cures what the rule claims. Values that only the good example has are not asked
    for."""
    engine = pytest.importorskip("zerocfg.rules.engine")
    fixed = getattr(engine, "fixed_example", None)
    if fixed is None:
        pytest.skip("zerocfg.rules.engine.fixed_example is not there yet")
    record_property(PROOFS, True)
    rule = RULES[code]
    files = fixed(rule, rule.bad[at])
    assert files != rule.bad[at].files, "the fix changed nothing"
    seen = play(rule, files, rule.bad[at].consumer)
    if rule.proof.raises is not None:
        assert not verdict(rule, seen, good=True)
    else:
        assert seen.error is None, str(seen.error)
        assert contradictions(rule.proof, seen, good=False), f"{code}: the fixed example still shows the claim"
