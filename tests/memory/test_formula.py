"""The closed formula for activations: against traces of the real classes, and for what it must refuse.

``python -m tests.memory.test_formula`` traces ``formula_traced.json`` anew, against which quick tests hold the formula.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.memory.activations.formula import ERROR, ERROR_UNKNOWN, by_formula
from zerocfg.memory.options import Workload
from zerocfg.models.model_facts import from_config, inline


def config(
    family: str, hidden: int, inner: int, heads: int, groups: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 3,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": vocabulary,
        "max_position_embeddings": 8192,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


LLAMA = config("llama", 4096, 11008, 32, 32, 32000)
MODELS = [
    LLAMA,
    config("llama", 4096, 14336, 32, 8, 128256),
    config("llama", 2048, 5632, 32, 4, 32000),
    config("mistral", 4096, 14336, 32, 8, 32000, sliding_window=None),
    config("qwen2", 3584, 18944, 28, 4, 152064),
    config("qwen2", 896, 4864, 14, 2, 151936, tie_word_embeddings=True),
    config("qwen3", 1024, 3072, 16, 8, 151936, head_dim=128, tie_word_embeddings=True),
    config("phi3", 3072, 8192, 32, 32, 32064),
    config("gemma", 2048, 16384, 8, 1, 256000, head_dim=256),
    config("gemma2", 3584, 14336, 16, 8, 256000, head_dim=256),
    config("olmo2", 4096, 11008, 32, 32, 100352),
    config("glm4", 4096, 13696, 32, 2, 151552, head_dim=128),
    config("granite", 4096, 12800, 32, 8, 49152),
    config("olmo3", 4096, 11008, 32, 32, 100278),
    config("exaone4", 5120, 27392, 40, 8, 102400),
    config("internlm3", 4096, 10240, 32, 2, 128512, head_dim=128),
    config("ministral3", 4096, 14336, 32, 8, 131072, head_dim=128),
    config("cwm", 6144, 21504, 48, 8, 128256, head_dim=128),
    config("ernie4_5", 1024, 3072, 16, 2, 103424, head_dim=128, tie_word_embeddings=True),
    config("glm", 4096, 13696, 32, 2, 151552, head_dim=128),
    config("arcee", 2560, 18432, 20, 4, 128004),
    config("apertus", 4096, 21504, 32, 8, 131072),
    config("jais2", 3328, 26624, 26, 26, 150272),
    config("cohere2", 4096, 14336, 32, 8, 256000, tie_word_embeddings=True),
    config("starcoder2", 4608, 18432, 36, 4, 49152),
    {key: value for key, value in config("gpt_neox", 4096, 16384, 32, 32, 50432).items() if "key_value" not in key},
]
WORKLOADS = [
    (Workload(1, 4096), "bf16"),
    (Workload(2, 2048, gradient_checkpointing=True), "bf16"),
    (Workload(1, 1024, attention="eager"), "bf16"),
    (Workload(8, 1024, gradient_checkpointing=True, fused_loss=True), "bf16"),
    (Workload(1, 1024), "fp32"),
]


MORE = [
    (Workload(1, 1024, True, fused_loss=True, completion=256), "bf16"),
    (Workload(4, 64, True, "eager"), "fp32"),
    (Workload(1, 16), "bf16"),
]
"""Traced for the record alone: a completion, eager attention in fp32, and so few tokens that weights decide."""
RECORD = Path(__file__).with_name("formula_traced.json")
Peaks = dict[str, int]
"""The most bytes in forward, in the loss and its backward, and in the backward of the layers."""


def by_part(found: list[tuple[str, int]]) -> Peaks:
    parts = {"forward": ("forward",), "head": ("loss", "head backward"), "backward": ("backward",)}
    return {name: max(size for moment, size in found if moment in moments) for name, moments in parts.items()}


def traced() -> list[list[Peaks]]:
    """Of each model and workload."""
    from tests.memory.traced import run

    found = []
    for model in MODELS:
        print(model["model_type"], file=sys.stderr, flush=True)
        runs = (run(model, workload, precision).stretches for workload, precision in (*WORKLOADS, *MORE))
        found.append([by_part([(moment, size) for moment, _, size, _ in stretches]) for stretches in runs])
    return found


@pytest.mark.libs
def test_the_stated_error_holds_against_traces() -> None:
    from tests.memory.traced import peak_of

    errors = {}
    for model in MODELS:
        facts = from_config(model)
        for workload, precision in WORKLOADS:
            real = peak_of(model, workload, precision)
            found = by_formula(facts, workload, precision, model)
            errors[model["model_type"], model["hidden_size"], workload, precision] = found.peak / real - 1
            assert found.error == ERROR
    off = {key: error for key, error in errors.items() if abs(error) > ERROR}
    assert not off
    assert median(map(abs, errors.values())) < 0.002


def test_logits_are_twelve_bytes_each_at_the_peak() -> None:
    workload = Workload(1, 4096, gradient_checkpointing=True)
    timeline = by_formula(from_config({**LLAMA, "num_hidden_layers": 32}), workload, "bf16")
    assert timeline.logits == 12 * 4096 * 32000
    worst = max(timeline.segments, key=lambda one: one.size)
    assert worst.moment == "head backward" and worst.produced == 0


def test_a_checkpointed_layer_costs_its_input() -> None:
    workload = Workload(3, 512, gradient_checkpointing=True)
    peaks = [by_formula(from_config({**LLAMA, "num_hidden_layers": n}), workload, "bf16").peak for n in (40, 41)]
    assert peaks[1] - peaks[0] == 2 * 3 * 512 * 4096


def test_gradients_are_all_produced_in_the_end() -> None:
    facts = from_config(LLAMA)
    timeline = by_formula(facts, Workload(1, 128), "bf16")
    produced = [one.produced for one in timeline.segments]
    assert produced == sorted(produced)
    assert timeline.elements == facts.parameters
    embedding = 32000 * 4096
    assert abs(facts.parameters - embedding - produced[-1]) <= 4096


@given(
    st.integers(1, 8),
    st.sampled_from([128, 1000, 4096]),
    st.booleans(),
    st.sampled_from(["sdpa", "eager"]),
    st.booleans(),
)
def test_more_work_never_takes_less(batch: int, length: int, checkpointing: bool, attention: Any, fused: bool) -> None:
    facts = from_config(LLAMA)
    one = by_formula(facts, Workload(batch, length, checkpointing, attention, fused), "bf16")
    more = by_formula(facts, Workload(batch + 1, length, checkpointing, attention, fused), "bf16")
    assert one.peak < more.peak
    if attention == "sdpa":  # 16 bit keeps eager's scores twice, once in fp32
        assert one.peak < by_formula(facts, Workload(batch, length, checkpointing, attention, fused), "fp32").peak
    if checkpointing:
        assert one.peak <= by_formula(facts, Workload(batch, length, False, attention, fused), "bf16").peak


def test_what_is_not_known_is_refused_or_said() -> None:
    with pytest.raises(ValueError, match="num_hidden_layers"):
        by_formula(inline({"parameters": 7_000_000_000, "hidden_size": 4096}), Workload(1, 10), "bf16")
    maverick = {"model_type": "llama4_text", "num_experts_per_tok": 1}
    with pytest.raises(ValueError, match="experts of Llama 4 each compute all tokens"):
        by_formula(from_config(maverick), Workload(1, 10), "bf16", maverick)
    with pytest.raises(ValueError, match="autocast"):
        by_formula(from_config(LLAMA), Workload(1, 10, autocast=True), "bf16")
    stated = {key: LLAMA[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}
    assert by_formula(inline({**stated, "parameters": 6e9}), Workload(1, 10), "bf16").error == ERROR_UNKNOWN


if __name__ == "__main__":
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
    models = [f"{model['model_type']} {model['hidden_size']}" for model in MODELS]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(peaks)}" for name, peaks in zip(models, traced(), strict=True))
    RECORD.write_text(f'{{"versions": {json.dumps(versions)}, "peaks": {{\n{lines}\n}}}}\n')
    print(f"wrote {RECORD}", file=sys.stderr)
