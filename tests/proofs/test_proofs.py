"""Every executed proof of every rule: the bad examples show the claim, the good and the fixed ones do not."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rules.examples import fixed
from zerocfg.rules.proof import Proof
from zerocfg.rules.registry import ALL

from .claims import contradictions
from .conftest import PROOFS
from .harness import Observation, observe

Play = Callable[[Proof, dict[str, str], str | None], Observation]
RULES = {rule.code: rule for rule in ALL}
EXECUTED = sorted(code for code, rule in RULES.items() if rule.proof.status == "executed")


def cases(kind: str) -> list[Any]:
    """(code, index) of each example of ``kind``, with the code as test id."""
    counts = {code: len(getattr(RULES[code], kind)) for code in EXECUTED}
    return [
        pytest.param(code, at, id=code if count == 1 else f"{code}-{at + 1}")
        for code, count in counts.items()
        for at in range(count)
    ]


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Play:
    """Plays an example; the same files only once in a test run (many fixes write what is good elsewhere)."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "played"
    folder.mkdir(exist_ok=True)

    def played(proof: Proof, files: dict[str, str], consumer: str | None) -> Observation:
        memory = any(name.startswith("memory.") for name in proof.shows)
        key = json.dumps([files, consumer, proof.phase, proof.ranks, memory], sort_keys=True)
        file = folder / hashlib.sha256(key.encode()).hexdigest()
        if file.exists():
            known: Observation = pickle.loads(file.read_bytes())
            return known
        seen = observe(files, consumer, proof.phase, proof.ranks, memory=memory)
        own = file.with_suffix(f".{worker_id}")  # another worker may play the same now
        own.write_bytes(pickle.dumps(seen))
        own.replace(file)
        return seen

    return played


def verdict(rule: Any, proof: Proof, seen: Observation, good: bool) -> str:
    """Empty when the claim holds, else what contradicts it and the end of the log."""
    found = contradictions(proof, seen, good)
    if not found:
        return ""
    what = "good" if good else "bad"
    return f"{rule.code} {rule.name}, {what} example:\n- " + "\n- ".join(found) + "\n" + seen.log[-1500:]


@pytest.mark.parametrize(("code", "at"), cases("bad"))
def test_bad_example_shows_the_claim(code: str, at: int, play: Play, record_property: Any) -> None:
    record_property(PROOFS, True)
    rule = RULES[code]
    example = rule.bad[at]
    proof = example.proof or rule.proof
    assert not verdict(rule, proof, play(proof, example.files, example.consumer), good=False)


@pytest.mark.parametrize(("code", "at"), cases("good"))
def test_good_example_does_not(code: str, at: int, play: Play, record_property: Any) -> None:
    record_property(PROOFS, True)
    rule = RULES[code]
    example = rule.good[at]
    proof = example.proof or rule.proof
    assert not verdict(rule, proof, play(proof, example.files, example.consumer), good=True)


@pytest.mark.parametrize(("code", "at"), [case for case in cases("bad") if RULES[case.values[0]].fixable])
def test_fixed_example_does_not(code: str, at: int, play: Play, record_property: Any, tmp_path: Path) -> None:
    """The fix of a rule cures what the rule claims. Values that only the good example has are not asked for."""
    record_property(PROOFS, True)
    rule = RULES[code]
    files = fixed(rule.bad[at], code, tmp_path)
    assert files != rule.bad[at].files, "the fix changed nothing"
    proof = rule.bad[at].proof or rule.proof
    seen = play(proof, files, rule.bad[at].consumer)
    if proof.raises is not None:
        assert not verdict(rule, proof, seen, good=True)
    else:
        assert seen.error is None, str(seen.error)
        assert contradictions(proof, seen, good=False), f"{code}: the fixed example still shows the claim"
