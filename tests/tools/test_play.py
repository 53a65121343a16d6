"""What is made of an example that was played on an older release set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.proofs.claims import Claim
from tests.proofs.harness import ABSENT, Failed, Observation
from tools.facts import set_zygote
from tools.facts.outcome import judged, judged_good, lacks_an_operator
from tools.facts.play import Set
from tools.facts.played import Found, good_beside, together, written
from tools.facts.set_zygote import NOT_COMPILED
from tools.facts.sets import SETS, versions
from zerocfg.catalog import rule_outcomes as reader
from zerocfg.catalog.rule_outcomes import Outcome, RuleOutcomes, Side
from zerocfg.rulebook.proof import Proof, crashes, printed, shows, unprinted
from zerocfg.rules.registry import find

STOPS = crashes("parse", "must be positive")
SHOWS = shows("init", {"engine.stage": (3, 2)})
SAYS = shows("init", {"log": (printed("ignored"), unprinted("ignored"))})


def claim(proof: Proof) -> Claim:
    return Claim("ZC999-1 bad", "bad", proof, {"ds.json": "{}"}, "deepspeed")


def ran(until: str = "init", log: str = "", **values: Any) -> Observation:
    return Observation(until, None, {name.replace("_", "."): value for name, value in values.items()}, log, 0.0)


def stopped(phase: str, kind: str, text: str, frame: str = "/site-packages/deepspeed/config.py") -> Observation:
    where = (f'  File "{frame}", line 1, in f',)
    return Observation("arguments", Failed(phase, kind, text, 0, where), {}, "", 0.0)


REFUSED = stopped("parse", "ValueError", "stage must be positive")
OTHERWISE = stopped("init", "TypeError", "no such argument\nsecond line")


@pytest.mark.parametrize(
    ("proof", "seen", "good", "expected"),
    [
        (STOPS, REFUSED, None, Outcome("same")),
        (STOPS, stopped("init", "ValueError", "stage must be positive"), None, Outcome("same")),
        (SHOWS, ran(engine_stage=3), None, Outcome("same")),
        (SAYS, ran(log="key is ignored"), None, Outcome("same")),
        (STOPS, ran("parse"), ran("parse"), Outcome("runs")),
        (STOPS, OTHERWISE, ran("parse"), Outcome("stops", "TypeError in init: no such argument")),
        (SHOWS, ran(engine_stage=2), ran(engine_stage=2), Outcome("other", "engine.stage is 2")),
        (SAYS, ran(log=""), ran(log=""), Outcome("other", "log")),
        # Nothing is known where the good example does not run either, nor of what the harness does not see there
        (STOPS, OTHERWISE, REFUSED, Outcome("unplayable", "ValueError in parse: stage must be positive")),
        (SHOWS, ran(), ran(), Outcome("unplayable", "engine.stage is not seen")),
        (SHOWS, ran(), ran(engine_stage=2), Outcome("other", f"engine.stage is {ABSENT!r}")),
        (
            SHOWS,
            stopped("parse", "AttributeError", "no attribute 'x'", "/here/tests/proofs/engines.py"),
            ran(engine_stage=2),
            Outcome("unplayable", "AttributeError in parse: no attribute 'x'"),
        ),
        (
            STOPS,
            stopped("init", "RuntimeError", f"{NOT_COMPILED}: cpu_adam"),
            ran("init"),
            Outcome("unplayable", f"RuntimeError in init: {NOT_COMPILED}: cpu_adam"),
        ),
        (
            STOPS,
            stopped("launch", "SystemExit", "usage: deepspeed [-h]\ndeepspeed: error: invalid int"),
            ran("parse"),
            Outcome("stops", "SystemExit in launch: deepspeed: error: invalid int"),
        ),
    ],
)
def test_outcomes(proof: Proof, seen: Observation, good: Observation | None, expected: Outcome) -> None:
    assert judged(claim(proof), seen, good) == expected


@pytest.mark.parametrize(
    ("proof", "seen", "expected"),
    [
        (STOPS, ran("parse"), Outcome("same")),
        (STOPS, stopped("step", "ValueError", "later"), Outcome("stops", "ValueError in step: later")),
        (SHOWS, ran(engine_stage=2), Outcome("same")),
        (SHOWS, ran(engine_stage=3), Outcome("other", "engine.stage is 3")),
        (SHOWS, ran(), Outcome("unplayable", "engine.stage is not seen")),
        (SHOWS, REFUSED, Outcome("stops", "ValueError in parse: stage must be positive")),
        (
            STOPS,
            stopped("arguments", "RuntimeError", f"{NOT_COMPILED}: cpu_adam"),
            Outcome("unplayable", f"RuntimeError in arguments: {NOT_COMPILED}: cpu_adam"),
        ),
    ],
)
def test_outcomes_of_good_examples(proof: Proof, seen: Observation, expected: Outcome) -> None:
    good = Claim("ZC999-1 good", "good", proof, {"ds.json": "{}"}, "deepspeed")
    assert judged_good(good, seen) == expected


class OnSet(Set):
    """A set that has seen what the test says, by side and phase."""

    def __init__(self, seen: dict[tuple[str, str], Observation | str]) -> None:
        self.seen = seen

    def play(self, claim: Claim) -> Observation | str:
        return self.seen[claim.side, claim.proof.phase]


LATER = stopped("init", "ValueError", "stage must be positive")


@pytest.mark.parametrize(
    ("bad", "good", "expected"),
    [
        (ran("step"), None, Outcome("runs", "step")),
        (LATER, ran("step"), Outcome("same", "in init")),
        (OTHERWISE, ran("step"), Outcome("stops", "TypeError in init: no such argument")),
        (LATER, LATER, Outcome("runs", "arguments")),  # the good one stops there as well
        (LATER, "the job left no report", Outcome("runs", "arguments")),
        ("the job left no report", None, Outcome("runs")),
        (stopped("init", "RuntimeError", f"{NOT_COMPILED}: cpu_adam"), None, Outcome("runs")),
    ],
)
def test_what_is_not_refused_is_played_to_a_step(
    bad: Observation | str, good: Observation | str | None, expected: Outcome
) -> None:
    on = OnSet({("bad", "step"): bad, **({("good", "step"): good} if good is not None else {})})
    answer = Claim("ZC999-1 good", "good", STOPS, {"ds.json": "{}"}, "deepspeed")
    assert on.later(claim(STOPS), answer) == expected
    assert on.later(claim(crashes("save", "must be positive")), answer) == Outcome("runs")


def test_a_bad_example_is_held_against_a_good_one_with_its_proof() -> None:
    rule = find("ZC241")
    assert rule is not None
    assert [good_beside(rule, number) for number in range(3)] == [0, 0, 0]
    rule = find("ZC310")
    assert rule is not None
    assert good_beside(rule, 3) == 1  # both go by the proof of their own


SAME = Outcome("same")
RUNS = Outcome("runs")
SETS_TOLD = {"1": {"deepspeed": "1", "trl": "0.1"}, "2": {"deepspeed": "2"}}


def test_what_is_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Outcome("other", "engine.stage is 2")
    later, further = Outcome("same", "in init"), Outcome("runs", "step")
    held = RuleOutcomes(
        SETS_TOLD,
        {"ZC2": {"a": {"1": later}, "b": {"1": RUNS, "2": further}}, "ZC1": {"c": {"2": other}}},
        {"ZC2": {"d": {"1": SAME}}},
    )
    text = written(held)
    assert text.splitlines()[-6:] == [
        '"ZC1": {"c": {"2": ["other", "engine.stage is 2"]}},',
        '"ZC2": {"a": {"1": ["same", "in init"]}, "b": {"1": ["runs"], "2": ["runs", "step"]}}',
        "},",
        '"good": {',
        '"ZC2": {"d": {"1": "same"}}',
        "}}",
    ]
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "rules.json").write_text(text)
    monkeypatch.setattr(reader, "schema_folder", lambda: tmp_path)
    reader.rule_outcomes.cache_clear()
    found = reader.rule_outcomes()
    reader.rule_outcomes.cache_clear()
    assert found == held


def test_what_is_not_played_now_stays_while_its_example_and_its_set_do() -> None:
    kept = RuleOutcomes(
        SETS_TOLD,
        {"ZC1": {"a": {"1": SAME, "2": SAME}, "gone": {"1": SAME}}, "ZC2": {"b": {"1": RUNS}}},
        {"ZC1": {"g": {"1": SAME}, "a": {"1": SAME}}},
    )
    examples: dict[str, tuple[list[str], list[str]]] = {"ZC1": (["new", "a"], ["g"]), "ZC2": (["b"], ["h"])}
    on_1: dict[Side, Found] = {
        "bad": {"ZC1": {"a": {"1": RUNS}, "new": {"1": SAME}}},
        "good": {"ZC2": {"h": {"1": RUNS}}},
    }
    found = together(kept, {"1": SETS_TOLD["1"]}, on_1, examples)
    assert found.sets == SETS_TOLD
    assert found.rules == {"ZC1": {"new": {"1": SAME}, "a": {"1": RUNS, "2": SAME}}, "ZC2": {"b": {"1": RUNS}}}
    assert found.good == {"ZC1": {"g": {"1": SAME}}, "ZC2": {"h": {"1": RUNS}}}
    newer = together(kept, {"1": {"deepspeed": "1", "trl": "0.2"}}, {"bad": {"ZC1": {"new": {"1": SAME}}}}, examples)
    assert newer.sets == {**SETS_TOLD, "1": {"deepspeed": "1", "trl": "0.2"}}
    assert newer.rules == {"ZC1": {"new": {"1": SAME}, "a": {"2": SAME}}}


def test_the_data_is_of_these_sets() -> None:
    found = reader.rule_outcomes()
    assert list(found.sets) == [one.deepspeed for one in SETS]
    for one in SETS:
        told = {**found.sets[one.deepspeed]}
        assert told.pop("deepspeed") == one.deepspeed and told.pop("trl")
        assert {f"{name}=={release}" for name, release in told.items()} <= set(one.beside)


def test_releases_are_read_from_what_is_installed(tmp_path: Path) -> None:
    for name in ("deepspeed-0.14.5+cpu", "trl-0.17.0", "torchvision-1.0", "accelerate-0.34.2"):
        (tmp_path / f"{name}.dist-info").mkdir()
    assert json.dumps(versions(tmp_path)) == '{"deepspeed": "0.14.5", "accelerate": "0.34.2", "trl": "0.17.0"}'


def test_an_operator_that_was_not_there_is_asked_for_again() -> None:
    lacking = stopped("init", "RuntimeError", f"{NOT_COMPILED}: cpu_adam")
    assert lacks_an_operator(lacking)
    assert judged(claim(STOPS), lacking, None).kind == "unplayable"
    others: list[Observation | str] = [REFUSED, ran("parse"), "the job left no report"]
    assert not any(map(lacks_an_operator, others))


def test_operators_stand_in_where_they_offer_every_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_zygote, "written", lambda: tmp_path / "sources")
    compiled = tmp_path / "compiled"
    for folder, names in (
        ("older", b"create_adam"),
        ("newer", b"create_adam\0adam_rollback"),
        ("near", b"adam_rollback"),
    ):
        (compiled / folder).mkdir(parents=True)
        (compiled / folder / "cpu_adam.so").write_bytes(b"\0" + names + b"\0")
        (compiled / folder / "fused_adam.so").write_bytes(b"\0multi_tensor_adam\0")
    for source, text in (("adam/cpu_adam.cpp", ""), ("cpu/adam/fused_adam.cpp", '    m.def("multi_tensor_adam",\n')):
        (tmp_path / "sources" / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sources" / source).write_text(text)
    own = tmp_path / "sources" / "adam" / "cpu_adam.cpp"
    own.write_text('m.def("create_adam", &f);\nm.def(\n  "adam_rollback",\n  &g);\n')
    assert set_zygote.standing_in(compiled) == compiled / "newer"
    own.write_text('m.def("zenflow_adam_create", &f);\n')
    assert set_zygote.standing_in(compiled) == compiled and not [*compiled.glob("*.so")]
