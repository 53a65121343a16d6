"""Every executed proof would fail if its claim were false, as far as that can be told without playing it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.proofs.claims import contradictions
from tests.proofs.harness import Failed, Observation
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import Page, page_of
from zerocfg.rulebook.proof import (
    ABSENT,
    Between,
    Printed,
    Proof,
    at_least,
    at_most,
    crashes,
    logged,
    printed,
    shows,
    unprinted,
)
from zerocfg.rules.api import Rule, Severity
from zerocfg.rules.registry import ALL, find

from .strength import Kind, alternatives, distinguishes, own_words, weaknesses

# --- the rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [rule.code for rule in ALL])
def test_claims_are_strong(code: str) -> None:
    rule = find(code)
    assert rule is not None
    assert list(weaknesses(page_of(rule), rule.severity)) == []


def proofs() -> list[Any]:
    """(code, proof) of every executed proof, the rules' own and those of single examples, each once."""
    found: dict[str, Any] = {}
    for rule in ALL:
        of_examples = {
            f"{kind}-{at + 1}": example.proof for kind in ("bad", "good") for at, example in examples(rule, kind)
        }
        for name, proof in {"": page_of(rule).proof, **of_examples}.items():
            if proof is not None and proof.status == "executed":
                test = f"{rule.code}-{name}".rstrip("-")
                found[test] = pytest.param(rule.code, proof, id=test)
    return list(found.values())


def examples(rule: Rule, kind: str) -> list[tuple[int, Example]]:
    return list(enumerate(getattr(page_of(rule), kind)))


@pytest.mark.parametrize(("code", "proof"), proofs())
def test_executed_proof_can_fail(code: str, proof: Proof) -> None:
    """What the bad example shows contradicts what is claimed of the good one, and the other way round; so does a claim
    with its two sides exchanged."""
    assert distinguishes(proof)
    proof = literal(proof)
    bad, good = (observed(proof, good=good) for good in (False, True))
    assert contradictions(proof, bad, good=False) == []
    assert contradictions(proof, good, good=True) == []
    assert contradictions(proof, good, good=False)
    assert contradictions(proof, bad, good=True)
    if proof.raises is None:
        exchanged = replace(proof, shows={name: (right, left) for name, (left, right) in proof.shows.items()})
        assert contradictions(exchanged, bad, good=False)
        assert contradictions(exchanged, good, good=True)
    else:
        another = (
            replace(bad, error=failed(proof, "another")),
            replace(bad, error=failed(proof, SAID, phase="nowhere")),
        )
        assert all(contradictions(proof, seen, good=False) for seen in another)


SAID = "said"


def literal(proof: Proof) -> Proof:
    """``proof`` with each regular expression replaced by a word of its own, so that a text for it is known."""
    words: dict[str, str] = {}

    def word(expected: Any) -> Any:
        if not isinstance(expected, Printed):
            return expected
        return replace(expected, pattern=words.setdefault(expected.pattern, f"<{len(words)}>"))

    plain = {name: (word(bad), word(good)) for name, (bad, good) in proof.shows.items()}
    return replace(proof, raises=None if proof.raises is None else SAID, shows=plain)


def observed(proof: Proof, *, good: bool) -> Observation:
    """An observation that is just what ``proof`` claims."""
    values = {name: value_of(expected[good]) for name, expected in proof.shows.items()}
    error = None if good or proof.raises is None else failed(proof, SAID)
    return Observation(None if error else proof.phase, error, values, values.get("log", ""), 0.0)


def failed(proof: Proof, text: str, phase: str = "") -> Failed:
    return Failed(phase or proof.phase, "Error", text, within=(proof.within,))


def value_of(expected: Any) -> Any:
    if isinstance(expected, Between):
        return expected.low if math.isfinite(expected.low) else expected.high
    if isinstance(expected, Printed):
        return expected.pattern * max(0, int(max(expected.times.low, 0)))
    return expected


# --- weak claims and their repaired forms ---------------------------------------------------------------------


def page_with(proof: Proof, bad: str, good: str, name: str = "ds.json") -> Page:
    examples = (Example({name: bad}),), (Example({name: good}),)
    return Page("ZC999", "example", "", "", "", "", "", "", *examples, proof, ())


def kinds(page: Page, severity: Severity = Severity.WARNING) -> list[Kind]:
    return [weakness.kind for weakness in weaknesses(page, severity)]


NEGATIVE = "^(?!.*is deprecated)"


@pytest.mark.parametrize(
    ("weak", "kind", "strong"),
    [
        pytest.param(
            shows("parse", {"log": (printed("is deprecated"), printed(NEGATIVE))}),
            "empty pattern",
            shows("parse", {"log": logged("is deprecated")}),
            id="a negative pattern that any log has",
        ),
        pytest.param(
            shows("parse", {"log": ("is deprecated", NEGATIVE)}),
            "empty pattern",
            shows("parse", {"log": logged("is deprecated")}),
            id="bare texts for the log",
        ),
        pytest.param(
            shows("parse", {"log": (printed("is deprecated"), unprinted("is obsolete"))}),
            "indistinct",
            shows("parse", {"log": logged("is deprecated")}),
            id="one thing is printed, another is not",
        ),
        pytest.param(
            shows("step", {"memory.pinned": (at_least(10), at_most(10))}),
            "indistinct",
            shows("step", {"memory.pinned": (at_least(11), at_most(10))}),
            id="bounds that touch",
        ),
        pytest.param(
            shows("step", {"engine.stage": (2, 2), "weights": ("complete", "complete")}),
            "indistinct",
            shows("step", {"engine.stage": (2, 2), "weights": ("missing", "complete")}),
            id="the same of both",
        ),
        pytest.param(
            crashes("step", "KeyError"),
            "bare error",
            crashes("step", "KeyError: 'exp_avg'"),
            id="a type of error alone",
        ),
        pytest.param(
            crashes("init", "object has no attribute|gradient_clipping"),
            "bare error",
            crashes("init", "object has no attribute 'get'"),
            id="an alternative that only repeats the file",
        ),
        pytest.param(
            crashes("load", "AssertionError"),
            "bare error",
            crashes("load", "AssertionError", within="_restore_step"),
            id="an error without words",
        ),
        pytest.param(
            shows("parse", {"engine.gradient_clipping": (-1.0, ABSENT)}),
            "echo",
            shows("step", {"engine.gradient_clipping": (-1.0, ABSENT), "step.clipped": (False, False)}),
            id="a number is read as it is written",
        ),
        pytest.param(
            shows("parse", {"engine.communication_data_type": ("float16", "bfloat16")}),
            "echo",
            shows("step", {"engine.sent": (["float16"], ["bfloat16"])}, ranks=2),
            id="a dtype is read as it is written",
        ),
        pytest.param(
            shows("parse", {"config.gradient_clipping": (-1.0, ABSENT)}),
            "echo",
            shows("parse", {"config.gradient_clipping": (-1.0, ABSENT)}, extent="what was read."),
            id="an echo that the page calls one",
        ),
        pytest.param(
            shows("parse", {"engine.gradient_clipping": (-1.0, ABSENT), "uses.gradient_clipping": (2, 2)}),
            "echo",
            shows("parse", {"engine.gradient_clipping": (-1.0, ABSENT), "uses.gradient_clipping": (0, 0)}),
            id="a key that is read, or not",
        ),
        pytest.param(
            shows("step", {"step.skipped": (2, 0)}, extent="what was read."),
            "needless extent",
            shows("step", {"step.skipped": (2, 0)}),
            id="an excuse of a strong claim",
        ),
    ],
)
def test_weak_claims_are_refused(weak: Proof, kind: Kind, strong: Proof) -> None:
    files = (
        '{"gradient_clipping": -1.0, "bf16": {"enabled": false}, "fp16": {"enabled": true}}',
        '{"bf16": {"enabled": true}}',
    )
    assert kinds(page_with(weak, *files))[0] == kind
    assert kinds(page_with(strong, *files)) == []


def test_a_rate_ends_no_job() -> None:
    rate = shows("step", {"memory.step.bytes_per_parameter": (14.0, 8.0)})
    files = ('{"stage": 0}', '{"stage": 2}')
    assert kinds(page_with(rate, *files), Severity.ERROR) == ["rate"]
    assert kinds(page_with(rate, *files), Severity.WARNING) == []
    assert kinds(page_with(replace(rate, extent="bytes of a parameter."), *files), Severity.ERROR) == []
    whole = shows("step", {"memory.step.bytes_per_parameter": (14.0, 8.0), "memory.step": (at_least(100), at_most(99))})
    assert kinds(page_with(whole, *files), Severity.ERROR) == []


def test_what_is_asked_for_in_vain_is_no_echo() -> None:
    """The recipe asks for one learning rate and the optimizer has another: of the config's section, or a default."""
    proof = shows("init", {"inner.lr": (0.001, 2e-05)})
    assert kinds(page_with(proof, "learning_rate: 2.0e-5\nlr: 0.001\n", "lr: 2.0e-5\n", name="recipe.yaml")) == []
    assert kinds(page_with(proof, "lr: 0.001\n", "lr: 2.0e-5\n", name="recipe.yaml")) == ["echo"]
    assert kinds(page_with(proof, "other: 1\n", "lr: 2.0e-5\n", name="recipe.yaml")) == ["echo"]


def test_a_variable_of_the_launch_line_is_an_echo() -> None:
    line = "%storchrun --nproc_per_node %s train.py\n"
    lines = (line % ("OMP_NUM_THREADS=4 ", 2), line % ("", 2))
    proof = shows("launch", {"env.OMP_NUM_THREADS": ("4", "1")})
    assert kinds(page_with(proof, *lines, name="train.sh")) == ["echo"]
    assert kinds(page_with(replace(proof, shows={"threads": (4, 1)}), *lines, name="train.sh")) == []
    ranks = shows("launch", {"launch.nproc_per_node": ("8", "2")})
    assert kinds(page_with(ranks, line % ("", 8), line % ("", 2), name="train.sh")) == ["echo"]
    assert kinds(page_with(ranks, line % ("", "auto"), line % ("", "gpu"), name="train.sh")) == []


def test_words_of_errors() -> None:
    assert alternatives(r"one (two|three)|four \| \(five") == ["one (two|three)", r"four \| \(five"]
    assert own_words(r"\AKeyError: 'stage'\Z", '{"stage": 2}') == []
    assert own_words("TypeError: 'NoneType' object is not iterable", "") == ["is", "not", "iterable"]
