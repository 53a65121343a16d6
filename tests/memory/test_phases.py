"""Today's formulas against the bytes that a card counted in each phase (benchmarks/memory/phases.py).

The corrections behind them were found on the 25 cases, so that these say that nothing was lost since; the smoke-run of
sft-zero2 was not used to find them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean

import pytest

from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.options import Options, Workload
from zerocfg.memory.predict import predict
from zerocfg.models.model_facts import from_config

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory import phases  # noqa: E402
from benchmarks.memory.cases import CASES  # noqa: E402
from benchmarks.memory.ours import card  # noqa: E402
from benchmarks.memory.predict_gpu import CARD, PHASES  # noqa: E402

SFT = ROOT / "benchmarks" / "gpu" / "results" / "h200-2026-11-26" / "sft-zero2.json"
QWEN_7B_THREE_LAYERS = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 3,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
BETWEEN_ACTIVATIONS = {("z0-small", "step")}
"""Gradients that lie in gaps between activations, whose remainders are not replayed; not the peak of the case."""


def test_peaks_of_the_cases_that_ran() -> None:
    errors = [abs(error) for error in phases.peaks().values()]
    assert len(errors) == 25
    assert mean(errors) < 0.0001 and max(errors) < 0.0005


def test_phases_of_the_cases_that_ran() -> None:
    rows = list(phases.rows())
    assert len(rows) == 75
    assert mean(abs(row.error) for row in rows) < 0.0005
    assert {(row.case, row.phase) for row in rows if abs(row.error) > 0.002} == BETWEEN_ACTIVATIONS
    assert max(abs(row.error) for row in rows) < 0.013


def test_phases_of_a_run_that_taught_nothing() -> None:
    """sft-zero2, three layers of a 7B model, as a smoke-run trained it: each phase within 0.1 %."""
    seen = json.loads(SFT.read_text())["certificate"]["measured"]["memory"][0]
    facts, workload = from_config(QWEN_7B_THREE_LAYERS), Workload(2, 4096, gradient_checkpointing=True)
    timeline = by_formula(facts, workload, "bf16", QWEN_7B_THREE_LAYERS)
    options = Options(2, 1, optimizer="adamw_fused", gradient_accumulation_steps=8)
    estimate = predict(facts, options, timeline, card(CARD)).estimate
    for phase, moments in PHASES.items():
        assert estimate.peak("device", moments).size == pytest.approx(seen[phase]["allocated"], rel=1e-3), phase


def test_what_was_predicted_before_the_run_stays() -> None:
    before = json.loads(phases.PREDICTIONS.read_text())
    assert before["formulas"] == "f1f1d1469afdbd5d" and list(before["cases"]) == [case.name for case in CASES]
    worst = max(phases.rows(), key=lambda row: abs(row.before - row.measured) / row.measured)
    assert (worst.case, worst.phase, round(worst.before / worst.measured - 1, 2)) == ("z2-cpu-ckpt", "step", 1.01)


@pytest.mark.libs
def test_the_kept_activations_are_those_of_the_tracer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocfg.memory.activations.tracing import trace

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    case = next(case for case in CASES if case.name == "z2-eager")
    assert trace(case.config, case.workload, case.options.precision).timeline.segments == (
        phases.kept_timelines()[case.name].segments
    )
