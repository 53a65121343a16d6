"""Large models: a narrow copy of them is resumed and compared with ZeRO-0, in place of the model itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.smoke.certify.evidence import evidence
from zerocfg.smoke.judge.training import check
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.model import size
from zerocfg.smoke.smoke import Options, smoke
from zerocfg.smoke.worker.baseline import Baseline
from zerocfg.smoke.worker.job import Job

from .conftest import MODEL, MakeRun

WIDE = MODEL | {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 640}
WIDE_PARAMETERS = 2 * 640 * 256 + 2 * (256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512 + 2 * 256) + 256
COMPARED = ("loss as under ZeRO-0", "gradients as under ZeRO-0", "resumes from a checkpoint")


def rows(verdict: Verdict) -> dict[str, tuple[str, bool | None]]:
    return {one.name: (one.seen, one.ok) for one in verdict.checks}


@pytest.fixture
def every_model_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "COPIED", -1.0)


@pytest.mark.libs
@pytest.mark.several_ranks
@pytest.mark.usefixtures("warm_python", "every_model_is_large")
@pytest.mark.parametrize(
    ("stage", "consumer", "ranks"), [(3, "transformers", 2), (2, "accelerate", 1), (1, "deepspeed", 1)]
)
def test_a_copy_is_compared(stage: int, consumer: str, ranks: int, make_run: MakeRun) -> None:
    folder = make_run(stage, consumer=consumer, model={"config": WIDE, "facts": {"parameters": WIDE_PARAMETERS}})
    verdict = smoke(folder, Options(ranks=ranks, device="cpu"))
    assert verdict.passed, [one for one in verdict.checks if one.ok is False] or verdict.outcome.failure
    assert verdict.reduced.model["hidden_size"] == 256
    for report in verdict.outcome.reports:
        assert report["parameters"] == WIDE_PARAMETERS
        parts = report["parts"]
        assert list(parts) == ["narrow", "resume", "reference"] and {one["state"] for one in parts.values()} == {"done"}
        copy = parts["narrow"]["parameters"]
        assert copy * 5 < WIDE_PARAMETERS and copy == verdict_copy(verdict)
        assert parts["narrow"]["losses"] != report["losses"]
    found = rows(verdict)
    assert all(found[name][1] is True for name in COMPARED)
    assert found["resumes from a checkpoint"][0].endswith(f"same parameters, in a narrow copy of {copy:,} parameters")
    assert found["loss as under ZeRO-0"][0].endswith(f", in a narrow copy of {copy:,} parameters")
    shown = evidence(verdict)
    assert "a checkpoint resumes with the same next loss in a narrow copy" in shown.proven
    assert any(one.startswith("that the model itself resumes and trains as under ZeRO-0") for one in shown.not_proven)


def verdict_copy(verdict: Verdict) -> int:
    """The parameters of the copy, as transformers counts them."""
    import transformers

    assert verdict.reduced.copy is not None
    config = transformers.AutoConfig.for_model(**verdict.reduced.copy)
    return int(transformers.AutoModelForCausalLM.from_config(config).num_parameters())


@pytest.mark.libs
@pytest.mark.usefixtures("warm_python", "every_model_is_large")
def test_a_copy_that_cannot_be_trained_decides_nothing(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocfg.smoke.prepare import reduce

    monkeypatch.setattr(reduce, "shrink", lambda config: (config | {"num_attention_heads": 0}, []))
    folder = make_run(2, model={"config": WIDE, "facts": {"parameters": WIDE_PARAMETERS}})
    verdict = smoke(folder, Options(ranks=1, device="cpu"))
    assert verdict.passed
    found = rows(verdict)
    for name in ("loss as under ZeRO-0", "resumes from a checkpoint"):
        text, ok = found[name]
        assert ok is None and text.startswith("not tried: a narrow copy did not train: ZeroDivisionError"), text


def report(**more: Any) -> Any:
    """A rank whose copy lost 4.0 and 3.0 in two steps, and whose own model did otherwise."""
    done: dict[str, Any] = {"state": "done", "rates": [0.1, 0.1], "momentum": 2.0}
    parts = {
        "narrow": {**done, "losses": [4.0, 3.0], "parameters": 1234},
        "reference": {**done, "losses": [4.0, 3.0]},
        "resume": {**done, "from": 1, "before": [4.0], "losses": [3.0], "rates": [0.1], "differing": 0, "of": 5},
    }
    for name, values in more.items():
        parts[name] = {**parts[name], **values}
    return {
        "seen": {"dtype": "fp32", "engine": "deepspeed", "stage": 2}, "losses": [9.0, 8.0], "rates": [0.1, 0.1],
        "momentum": 7.0, "step_seconds": [1.0, 1.0], "sums": {"a": 1}, "changed": 1, "parts": parts,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "failing"),
    [
        ({}, None),
        ({"reference": {"losses": [4.0, 3.0 * 1.0004]}}, None),
        ({"reference": {"losses": [4.0, 3.0 * 1.0006]}}, "loss as under ZeRO-0"),
        ({"reference": {"momentum": 2.0 * 1.003}}, "gradients as under ZeRO-0"),
        ({"resume": {"losses": [3.0 * 1.00009]}}, None),
        ({"resume": {"losses": [3.0 * 1.0002]}}, "resumes from a checkpoint"),
        ({"resume": {"momentum": 2.0 * 1.0002}}, "resumes from a checkpoint"),
    ],
)
def test_the_copy_is_what_the_parts_are_held_against(wrong: dict[str, Any], failing: str | None) -> None:
    found = check([report(**wrong)], 2)
    assert [one.name for one in found if one.ok is False] == ([failing] if failing else [])
    assert {one.name for one in found} >= set(COMPARED)


def test_a_copy_is_trained_with_the_rate_of_its_own_width() -> None:
    """Only where the planned training raised its rate: 0.3 / 64 in place of 0.3 / 3584."""
    job = Job("reports", "saved", "accelerate", False, "cpu", 3, {"hidden_size": 3584}, {}, 32, None)
    raised: Any = SimpleNamespace(content={"trial_rate": 0.3 / 3584, "parameters": 9, "sums": {"a": 1}})
    as_planned: Any = SimpleNamespace(content={"parameters": 9})
    copy = Baseline.of_copy(job, {"hidden_size": 64}, raised)
    assert copy.rate == pytest.approx(0.3 / 64) and copy.job.model == {"hidden_size": 64} and copy.parameters is None
    assert Baseline.of_copy(job, {"hidden_size": 64}, as_planned).rate is None
    assert Baseline.planned(job, raised) == Baseline(job, 9, {"a": 1}, 0.3 / 3584)
