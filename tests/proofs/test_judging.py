"""The ledger never turns a failure into a pass: a claim that is false is found, whatever is recorded of it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ledger import inputs
from tests.ledger.entries import Ledger, Played
from tests.ledger.plugin import State, Tier
from zerocfg.rulebook.proof import Between, Printed, at_least, at_most, crashes, printed, shows, unprinted

from . import judging
from .claims import Claim
from .harness import HERE, Failed, Observation
from .judging import HARNESS, Judged, judge, key_of
from .recorded import LENGTH, alike, extract, restored

FILES = {"ds.json": '{"zero_optimization": {"stage": "3"}}'}
CLAIM = Claim(
    "ZC900-1 bad", "bad", shows("save", {"weights": ("empty", "complete")}, ranks=2, source="somewhere"), FILES, None
)
EMPTY = Observation("save", None, {"weights": "empty", "engine.stage": 3}, "a log", 1.0, 2)
COMPLETE = replace(EMPTY, values={"weights": "complete"})


class Library:
    """Stands for the real one: shows always the same, and counts how often it was asked."""

    def __init__(self, seen: Observation) -> None:
        self.seen = seen
        self.plays = 0

    def __call__(self, claim: Claim) -> Observation:
        self.plays += 1
        return self.seen


def tier(*entries: Played, name: str = "quick", drawn: str = "") -> Tier:
    return Tier(name, Path(), Ledger({entry.proof: entry for entry in entries}), frozenset([drawn]))


def recorded(claim: Claim = CLAIM, seen: Observation = EMPTY) -> Played:
    return judge(claim, None, Library(seen)).entry


def judged(claim: Claim, library: Library, by: Tier | None) -> tuple[State, bool, bool]:
    """State of the entry, whether it was played, whether the claim holds."""
    found = judge(claim, by, library)
    assert found.played is (library.plays > 0)
    return found.state, found.played, not found.objections


def test_unchanged_is_judged_without_playing() -> None:
    assert judged(CLAIM, Library(COMPLETE), tier(recorded())) == ("unchanged", False, True)


def test_without_an_entry_it_is_played() -> None:
    assert judged(CLAIM, Library(EMPTY), tier()) == ("missing", True, True)
    assert judged(CLAIM, Library(EMPTY), None) == ("missing", True, True)
    assert judged(CLAIM, Library(COMPLETE), tier()) == ("missing", True, False)


def test_an_inverted_claim_is_played_and_fails() -> None:
    false = replace(CLAIM, proof=shows("save", {"weights": ("complete", "empty")}, ranks=2))
    assert judged(false, Library(EMPTY), tier(recorded())) == ("stale", True, False)


def test_the_other_side_is_another_claim() -> None:
    assert judged(replace(CLAIM, side="good"), Library(EMPTY), tier(recorded())) == ("stale", True, False)


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"ds.json": "{}"}},
        {"files": {**FILES, "recipe.yaml": ""}},
        {"consumer": "trl"},
        {"proof": replace(CLAIM.proof, ranks=1)},
        {"proof": replace(CLAIM.proof, phase="load")},
        {"proof": shows("save", {"weights": (Between(0, 1), "complete")}, ranks=2)},
    ],
)
def test_whatever_is_played_or_claimed_is_in_the_key(change: dict[str, Any]) -> None:
    assert key_of(replace(CLAIM, **change)) != key_of(CLAIM)


def test_what_a_page_says_beside_it_is_not() -> None:
    assert key_of(replace(CLAIM, proof=replace(CLAIM.proof, source="elsewhere", extent="only this"))) == key_of(CLAIM)


def test_another_release_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    known = tier(recorded())
    assert judged(CLAIM, Library(COMPLETE), known) == ("unchanged", False, True)
    monkeypatch.setattr(judging, "releases", lambda: {**inputs.releases(), "torch": "2.14.0"})
    assert judged(CLAIM, Library(COMPLETE), known) == ("stale", True, False)


@pytest.mark.parametrize("name", HARNESS)
def test_another_harness_is_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tier(recorded())
    monkeypatch.setattr(judging, "hashed", lambda path: "x" if path.name == name else inputs.hashed(path))
    assert judged(CLAIM, Library(COMPLETE), known) == ("stale", True, False)


def test_the_harness_is_whatever_its_modules_import() -> None:
    """Those that are run as scripts import each other by bare names."""
    tree = inputs.Tree(HERE.parent.parent)
    todo, found = {"zygote.py", "harness.py", "recorded.py"}, set()
    while todo:
        name = todo.pop()
        found.add(name)
        bare = {f"{word}.py" for word in _imported(HERE / name)} & {path.name for path in HERE.glob("*.py")}
        todo |= bare - found
    assert found - {"claims.py"} == set(HARNESS), "claims.py judges; it does not decide what is seen"
    assert all(f"tests/proofs/{name}" in tree.names for name in HARNESS)


def _imported(path: Path) -> set[str]:
    """Last parts of the names of all modules that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def forged(claim: Claim, **seen: Any) -> Played:
    """An entry with the key of the present that nobody ever saw."""
    return Played(claim.id, key_of(claim), {"reached": "save"} | seen)


def test_a_forged_entry_that_contradicts_the_claim_fails() -> None:
    library = Library(EMPTY)
    for entry in (
        forged(CLAIM, values={"weights": "complete"}),
        forged(CLAIM, values={}),
        forged(CLAIM, values={"weights": "empty"}, error={"phase": "init", "type": "ValueError", "text": "no"}),
    ):
        assert judged(CLAIM, library, tier(entry)) == ("unchanged", False, False)


def test_a_forged_entry_that_agrees_with_a_false_claim_is_found_when_drawn_and_in_the_full_tier() -> None:
    false = replace(CLAIM, proof=shows("save", {"weights": ("complete", "empty")}, ranks=2))
    entry = forged(false, values={"weights": "complete"})
    assert judged(false, Library(EMPTY), tier(entry)) == ("unchanged", False, True), "the quick tier believes it"
    assert judged(false, Library(EMPTY), tier(entry, drawn=false.id)) == ("other", True, False)
    assert judged(false, Library(EMPTY), tier(entry, name="all")) == ("other", True, False)


def test_a_claim_that_holds_in_another_way_than_recorded_is_told() -> None:
    good = Claim("ZC900-1 good", "good", crashes("parse", "no"), FILES, None)
    assert judged(good, Library(EMPTY), tier(forged(good, reached="load"), name="all")) == ("other", True, True)


def test_of_a_fixed_example_it_is_told_whether_the_bad_value_is_gone_and_no_more() -> None:
    fixed = Claim("ZC900-1 fixed", "fixed", CLAIM.proof, FILES, None)
    entry = forged(fixed, values={"weights": "partial"})
    assert judged(fixed, Library(COMPLETE), tier(entry, name="all")) == ("unchanged", True, True)
    both = shows("save", {"weights": ("empty", "complete"), "engine.stage": (3, 2)})
    fixed = replace(fixed, proof=both)
    entry = forged(fixed, values={"weights": "complete", "engine.stage": 2})
    assert judged(
        fixed,
        Library(replace(COMPLETE, values={"weights": "complete", "engine.stage": 3})),
        tier(entry, drawn=fixed.id),
    ) == (
        "other",
        True,
        True,
    )


def test_an_entry_that_says_the_same_is_kept_as_it_is() -> None:
    found: Judged = judge(CLAIM, tier(recorded(), name="all"), Library(replace(EMPTY, log="another", seconds=9.0)))
    assert (found.played, found.state, found.entry) == (True, "unchanged", recorded())


# What is kept


def test_only_what_the_claim_speaks_of_is_kept() -> None:
    assert extract(CLAIM, EMPTY) == {"reached": "save", "values": {"weights": "empty"}}


ERROR = "/tmp/zerocfg-proofs-a1/run-b2/run/ds.json at 0x7f3a, port 29517: train_batch_size is not " + "equal " * 200


def stopped(raises: str) -> tuple[Claim, Observation]:
    claim = Claim("ZC901-1 bad", "bad", crashes("parse", raises), FILES, None)
    return claim, Observation("arguments", Failed("parse", "AssertionError", ERROR, 0), {"x": 1}, "log", 1.0)


@pytest.mark.parametrize(
    "raises",
    ["train_batch_size", "AssertionError: ", r"(equal ){200}\Z", "0x7f3a", "^AssertionError.*equal $", r"(equal ){20}"],
)
def test_an_error_is_shortened_as_far_as_the_claim_allows(raises: str) -> None:
    claim, seen = stopped(raises)
    kept = extract(claim, seen)
    assert claim.objections(seen) == claim.objections(restored(kept)) == []
    text = kept["error"]["text"]
    assert len(text) <= LENGTH or raises.endswith((r"\Z", " $"))
    assert "zerocfg-proofs" not in text or "0x7f3a" in raises or len(text) > LENGTH


@pytest.mark.parametrize("raises", ["train_batch_sizes", "ValueError", "port (number)", "equal$"])
def test_shortening_never_makes_a_claim_true(raises: str) -> None:
    claim, seen = stopped(raises)
    assert claim.objections(seen) and claim.objections(restored(extract(claim, seen)))


LOG = "first\n" * 300 + "WARNING: gather is off\n" + "last\n" * 300


@pytest.mark.parametrize(
    ("claimed", "holds"),
    [
        (printed("gather is o"), True),
        (printed("gather is on"), False),
        (printed("first", 300), True),
        (printed("first", 301), False),
        (printed(r"(?s)gather.*last"), True),
        (printed("(?<=first\n)WARNING"), True),
        (unprinted("nothing"), True),
        (unprinted("gather"), False),
        (unprinted("first", 301), True),
        (Printed("first|last", Between(600, 600)), True),
        (Printed("first|last", at_most(599)), False),
    ],
)
def test_a_log_is_judged_by_what_is_kept_of_it(claimed: Printed, holds: bool) -> None:
    claim = Claim("ZC902-1 bad", "bad", shows("step", {"log": (claimed, None)}), FILES, None)
    seen = Observation("step", None, {}, LOG, 1.0)
    kept = extract(claim, seen)
    assert (not claim.objections(seen), not claim.objections(restored(kept))) == (holds, holds)
    assert "log" not in extract(replace(claim, side="good"), seen), "nothing is asked of it there"


@pytest.mark.parametrize("claimed", [printed("gather is o"), unprinted("nothing"), printed("first", 3)])
def test_of_a_log_no_more_is_kept_than_the_claim_needs(claimed: Printed) -> None:
    claim = Claim("ZC902-1 bad", "bad", shows("step", {"log": (claimed, None)}), FILES, None)
    expected = {"gather is o": "gather is o", "nothing": "", "first": "first\nfirst\nfirst"}
    assert extract(claim, Observation("step", None, {}, LOG, 1.0))["log"] == expected[claimed.pattern]


def test_an_error_without_words_is_known_by_where_it_was_raised() -> None:
    claim = Claim("ZC904-1 bad", "bad", crashes("parse", "KeyError", within="reader"), FILES, None)
    seen = Observation("launch", Failed("parse", "KeyError", "'x'", 0, (), ("main", "reader")), {}, "", 1.0)
    elsewhere = replace(seen, error=Failed("parse", "KeyError", "'x'", 0, (), ("main",)))
    one, other = extract(claim, seen), extract(claim, elsewhere)
    assert one["error"]["within"] == ["reader"]
    assert not claim.objections(restored(one)) and claim.objections(restored(other))
    assert not alike(claim, one, other)


def test_ranges_and_texts_are_alike_where_the_claim_says_the_same_of_both() -> None:
    proof = shows("step", {"memory.init": (at_least(10), Between(0, 9)), "log": (printed("on|off"), None)})
    claim = Claim("ZC903-1 bad", "bad", proof, FILES, None)
    one = {"reached": "step", "values": {"memory.init": 10}, "log": "on"}
    assert alike(claim, one, {**one, "values": {"memory.init": 99}, "log": "off"})
    assert not alike(claim, one, {**one, "values": {"memory.init": 9}})
    assert not alike(claim, one, {**one, "log": "neither"})
    assert not alike(claim, one, {**one, "reached": "init"})
    assert not alike(claim, one, {"reached": "step", "values": {"memory.init": 10}})


def test_errors_are_alike_in_their_phase_and_where_both_match() -> None:
    claim, seen = stopped("train_batch_size")
    one = extract(claim, seen)
    error = one["error"]
    assert alike(claim, one, {**one, "error": {**error, "text": "the train_batch_size"}})
    assert not alike(claim, one, {**one, "error": {**error, "text": "something else"}})
    assert not alike(claim, one, {**one, "error": {**error, "phase": "init"}})


def test_of_a_fixed_example_the_claim_must_be_gone() -> None:
    fixed = Claim("ZC900-1 fixed", "fixed", CLAIM.proof, FILES, None)
    assert fixed.objections(EMPTY) and not fixed.objections(COMPLETE)
    assert fixed.objections(replace(COMPLETE, error=Failed("init", "ValueError", "no")))
