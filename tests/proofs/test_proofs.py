"""Every executed proof of every rule: the bad examples show the claim, the good and the fixed ones do not.

In the quick tier a claim is judged by what the ledger has of it, as long as nothing has changed on which that depends.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from tests.conftest import COUNT
from tests.ledger.entries import digest
from tests.ledger.plugin import FILE, SEEN, TIER
from tests.rules.examples import fixed
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL

from .claims import Claim, measured
from .harness import Failed, Observation, observe
from .judging import judge, what_is_played

pytestmark = [pytest.mark.libs, pytest.mark.proof]

PLAYED = f"{COUNT}proofs executed on the real libraries"
JUDGED = f"{COUNT}proofs judged by what {FILE} has of them"
RULES = {rule.code: rule for rule in ALL}
EXECUTED = sorted(code for code, rule in RULES.items() if page_of(rule).proof.status == "executed")


def ids(kind: Literal["bad", "good"], *, fixable: bool = False) -> list[str]:
    """ "ZC103-1" for each example of a kind of the rules with an executed proof."""
    codes = [code for code in EXECUTED if page_of(RULES[code]).fixable or not fixable]
    return [f"{code}-{at}" for code in codes for at in range(1, len(getattr(page_of(RULES[code]), kind)) + 1)]


def alone(example: str) -> bool:
    """Whether a bad example shows something of its own, of which no good example says that it is not shown."""
    code, _, number = example.partition("-")
    rule = RULES[code]
    own = page_of(rule).bad[int(number) - 1].proof
    return (
        own is not None
        and own.raises is None
        and own not in [good.proof or page_of(rule).proof for good in page_of(rule).good]
    )


Side = Literal["bad", "good", "fixed", "answer"]
EXAMPLES: dict[Side, list[str]] = {
    "bad": ids("bad"),
    "good": ids("good"),
    "fixed": ids("bad", fixable=True),
    "answer": [example for example in ids("bad") if alone(example)],
}
"""The examples of which something is claimed, by what that is."""


def claim_of(example: str, side: Side, folder: Path) -> Claim:
    """What the rule says of its example; ``folder`` is for the fix."""
    code, _, number = example.partition("-")
    rule = RULES[code]
    one = (page_of(rule).good if side == "good" else page_of(rule).bad)[int(number) - 1]
    proof = one.proof or page_of(rule).proof
    if side == "answer" and not page_of(rule).fixable:
        one = page_of(rule).good[0]
    files = one.files
    if side == "fixed" or (side == "answer" and page_of(rule).fixable):
        files = fixed(one, code, folder)
        assert files != one.files, "the fix changed nothing"
    return Claim(f"{example} {side}", "good" if side == "answer" else side, proof, files, one.consumer)


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[Claim], Observation]:
    """Plays an example; the same files only once in a test run (many fixes write what is good elsewhere)."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "played"
    folder.mkdir(exist_ok=True)

    def played(claim: Claim) -> Observation:
        file = folder / f"{digest(what_is_played(claim))}.json"
        if file.exists():
            known = json.loads(file.read_text(encoding="utf-8"))
            error = known.pop("error")
            return Observation(**known, error=error and Failed(**error))
        proof = claim.proof
        seen = observe(claim.files, claim.consumer, proof.phase, proof.ranks, measure=measured(proof))
        own = file.with_suffix(f".{worker_id}")  # another worker may play the same now
        own.write_text(json.dumps(dataclasses.asdict(seen)), encoding="utf-8")
        own.replace(file)
        return seen

    return played


@pytest.fixture
def prove(
    play: Callable[[Claim], Observation], request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[[Claim], None]:
    """Fails with what contradicts a claim."""

    def proved(claim: Claim) -> None:
        judged = judge(claim, request.config.stash.get(TIER, None), play)
        request.node.stash[SEEN] = {**vars(judged.entry), "state": judged.state}
        record_property(PLAYED if judged.played else JUDGED, True)
        rule = RULES[claim.id.partition("-")[0]]
        found = f"{claim.id} example of {rule.name}:\n- " + "\n- ".join(judged.objections)
        source = (
            judged.log[-1500:] if judged.played else f"This is what {FILE} has of it; without its line it is played."
        )
        assert not judged.objections, f"{found}\n{source}"

    return proved


@pytest.mark.parametrize("example", EXAMPLES["bad"])
def test_bad_example_shows_the_claim(example: str, prove: Callable[[Claim], None], tmp_path: Path) -> None:
    prove(claim_of(example, "bad", tmp_path))


@pytest.mark.parametrize("example", EXAMPLES["good"])
def test_good_example_does_not(example: str, prove: Callable[[Claim], None], tmp_path: Path) -> None:
    prove(claim_of(example, "good", tmp_path))


@pytest.mark.parametrize("example", EXAMPLES["fixed"])
def test_fixed_example_does_not(example: str, prove: Callable[[Claim], None], tmp_path: Path) -> None:
    """The fix of a rule cures what the rule claims."""
    prove(claim_of(example, "fixed", tmp_path))


@pytest.mark.parametrize("example", EXAMPLES["answer"])
def test_claim_of_one_example_is_answered(example: str, prove: Callable[[Claim], None], tmp_path: Path) -> None:
    """What it says of a good example is shown by the fixed one, or where there is no fix by the rule's first."""
    prove(claim_of(example, "answer", tmp_path))
