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

from zerocfg.memory.activations.formula import ERROR, ERROR_UNKNOWN, by_formula, gated
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


def named(model: dict[str, Any]) -> str:
    return f"{model['model_type']} {model['hidden_size']}-{model['intermediate_size']}"


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


HOW_CLOSE: dict[str, tuple[int, float, float]] = {
    "llama 4096-11008": (16, -14.0, 7.8),
    "llama 4096-14336": (17, -3.3, 7.5),
    "llama 2048-5632": (16, -14.0, 7.5),
    "mistral 4096-14336": (16, -14.0, 7.5),
    "qwen2 3584-18944": (16, -2.5, 1.5),
    "qwen2 896-4864": (13, -17.9, 4.7),
    "qwen3 1024-3072": (12, -18.2, 4.6),
    "phi3 3072-8192": (7, -20.6, 8.5),
    "gemma 2048-16384": (14, -10.9, 0.8),
    "gemma2 3584-14336": (10, -11.9, 16.0),
    "olmo2 4096-11008": (11, -7.5, 9.4),
    "glm4 4096-13696": (10, -20.5, 8.9),
    "granite 4096-12800": (13, -3.6, 7.7),
    "olmo3 4096-11008": (10, -8.3, 9.4),
    "exaone4 5120-27392": (9, -7.2, 6.1),
    "internlm3 4096-10240": (17, -4.1, 7.9),
    "ministral3 4096-14336": (17, -3.3, 7.5),
    "cwm 6144-21504": (16, -3.3, 5.4),
    "ernie4_5 1024-3072": (10, -27.5, 5.2),
    "glm 4096-13696": (11, -20.5, 7.6),
    "arcee 2560-18432": (14, -28.5, 4.7),
    "apertus 4096-21504": (10, -54.3, 0.1),
    "jais2 3328-26624": (13, -28.9, 1.9),
    "cohere2 4096-14336": (9, -31.3, 1.1),
    "starcoder2 4608-18432": (12, -3.9, 8.8),
    "gpt_neox 4096-16384": (15, -4.0, 9.9),
}
"""Of the 24 figures of a model (three parts of eight workloads) those within 0.3 % of the trace, and the percent by
which the lowest and the highest one is off. What is off is seldom the peak: its own error is stated in ``ERROR``."""


def test_the_formula_is_as_close_to_every_trace_as_it_was() -> None:
    kept = json.loads(RECORD.read_text())["peaks"]
    assert list(kept) == list(HOW_CLOSE)
    for model in MODELS:
        facts, name = from_config(model), named(model)
        errors = []
        for number, ((workload, precision), real) in enumerate(zip((*WORKLOADS, *MORE), kept[name], strict=True)):
            found = by_formula(facts, workload, precision, model)
            sizes = by_part([(one.moment, one.size) for one in found.segments])
            errors += [sizes[part] / size - 1 for part, size in real.items()]
            if number < len(WORKLOADS):
                assert abs(found.peak / max(real.values()) - 1) <= ERROR, (name, workload)
        close = sum(abs(one) < 0.003 for one in errors)
        assert (close, round(100 * min(errors), 1), round(100 * max(errors), 1)) == HOW_CLOSE[name], name


SMALL = {
    **config("llama", 64, 96, 8, 2, 100, head_dim=16, tie_word_embeddings=False),
    "num_hidden_layers": 2,
}
T, H, F, Q, K, V = 3 * 20, 64, 96, 128, 32, 100
LAYER = 2 * H + 2 * H * Q + 2 * H * K + 3 * H * F
PLAIN = Workload(3, 20)


class TestByHand:
    """Two layers of a LLaMA, three samples of 20 tokens in bf16. A token of a layer saves two norms (``4h + 2eh``
    each), queries, keys, values and result of attention, a number a head, and four copies of the inner width."""

    SAVED = 2 * (4 + 2 * 2) * H + 2 * (Q + 2 * K) + 2 * Q + 4 * 8 + 4 * 2 * F
    NORM = (4 + 2 * 2) * H
    TABLE = V * H
    """Of the embedding and of the head, elements."""

    def of(self, workload: Workload = PLAIN, precision: Any = "bf16", **changed: Any) -> list[tuple[str, int, int]]:
        facts = from_config(SMALL).model_copy(update=changed)
        found = by_formula(facts, workload, precision, SMALL)
        return [(one.moment, one.size, one.produced) for one in found.segments]

    def sizes(self, workload: Workload, precision: Any = "bf16", **changed: Any) -> list[int]:
        return [size for _, size, _ in self.of(workload, precision, **changed)]

    def test_every_segment(self) -> None:
        """Each token has 16 bytes of its own. Of a layer backward takes the gradient of the stream, and the inner
        gradient beside a weight's, or both inner ones. The last norm's result is kept for the head."""
        start, blocks = 16 * T, 2 * self.SAVED * T
        behind = 2 * H * T + max(2 * F * T + 2 * H * F, 2 * 2 * F * T)
        assert 2 * F * T + 2 * H * F > 2 * 2 * F * T
        ready = start + blocks + self.NORM * T
        assert self.of() == [
            ("forward", start + blocks + (8 + 2 * 2) * H * T, 0),
            ("loss", ready + (2 + 8) * T * V, 0),
            ("head backward", ready + 12 * T * V, 0),
            ("backward", start + blocks + behind, self.TABLE),
            ("backward", start + blocks // 2 + behind, self.TABLE + LAYER + H // 2),
            ("backward", start + 2 * H * T + 2 * self.TABLE, self.TABLE + 2 * LAYER + H),
        ]

    def test_of_many_tokens_both_inner_gradients_are_more_than_a_weight_s(self) -> None:
        tokens = 3 * 200
        found = self.sizes(Workload(3, 200))
        assert 2 * 2 * F * tokens > 2 * F * tokens + 2 * H * F
        assert found[3] == 16 * tokens + 2 * self.SAVED * tokens + 2 * H * tokens + 2 * 2 * F * tokens

    def test_of_few_tokens_the_gradient_of_the_head_is_more_than_that_of_the_logits(self) -> None:
        tokens = 4
        found = self.sizes(Workload(1, 4))
        ready = (16 + 2 * self.SAVED + self.NORM) * tokens
        assert found[2] == ready + 2 * tokens * V + 2 * H * tokens + 2 * self.TABLE > ready + 12 * tokens * V

    def test_in_fp32_grouped_heads_are_repeated_and_scores_exist(self) -> None:
        """Queries, keys, values and result of all heads, and 4 bytes a score; backward takes three scores."""
        norms, inner, scores = 2 * (4 + 2 * 4) * H, 4 * 4 * F, 8 * 20
        saved = norms + 4 * 4 * Q + 4 * scores + inner
        start, blocks = 16 * T, 2 * saved * T
        ready = start + blocks + (4 + 2 * 4) * H * T
        found = self.sizes(PLAIN, "fp32")
        assert found[:3] == [start + blocks + 16 * H * T, ready + 8 * T * V, ready + 12 * T * V]
        feed = max(4 * F * T + 4 * H * F, 2 * 4 * F * T)
        assert 12 * scores * T - inner * T < feed
        assert found[3] == start + blocks + 4 * H * T + feed
        long = self.sizes(Workload(1, 600), "fp32")
        assert long[3] == 600 * (16 + 2 * (norms + 16 * Q + 4 * 8 * 600 + inner) + 4 * H + 12 * 8 * 600 - inner)
        # With a key for each query there is a fused kernel.
        alone = self.sizes(PLAIN, "fp32", num_key_value_heads=8)
        assert alone[3] == start + 2 * (norms + 4 * 4 * Q + 4 * 8 + inner) * T + 4 * H * T + feed

    def test_eager_attention_keeps_scores_in_fp32_and_their_copy(self) -> None:
        saved = 2 * self.NORM + 4 * 2 * Q + (4 + 2) * 8 * 20 + 4 * 2 * F
        found = self.sizes(Workload(3, 20, attention="eager"))
        assert found[0] == (16 + 2 * saved + 12 * H) * T
        assert self.sizes(Workload(3, 20, attention="flash_attention_2")) == self.sizes(PLAIN)

    def test_with_checkpointing_a_layer_keeps_its_input(self) -> None:
        """Forward holds what the layer takes while it computes: three copies of the inner width and two of the stream,
        or three of the queries, the scores and the stream. Backward has all of one layer beside the inputs."""
        start, row = 16 * T, 2 * H * T
        wide = max(3 * 2 * F + 2 * 2 * H, 3 * 2 * Q + 2 * H)
        found = self.of(Workload(3, 20, True))
        behind = 2 * H * T + 2 * F * T + 2 * H * F
        assert [size for _, size, _ in found] == [
            start + 2 * row + max(wide, (8 + 2 * 2) * H) * T,
            start + 2 * row + self.NORM * T + (2 + 8) * T * V,
            start + 2 * row + self.NORM * T + 12 * T * V,
            start + 2 * row + self.SAVED * T + behind,
            start + row + self.SAVED * T + behind,
            start + row + 2 * self.TABLE,
        ]
        long = self.sizes(Workload(1, 600, True), "fp32")
        scores = 10 * 8 * 600 + 3 * 4 * Q + 4 * H
        assert long[0] == 600 * (16 + 2 * 4 * H + scores)

    def test_a_tied_head_waits_for_the_embedding(self) -> None:
        """Its gradient is held through backward, and three times where both are added; it is no tensor of its own."""
        tied = {"tied_embeddings": True, "parameters": self.TABLE + 2 * LAYER + H}
        apart, found = self.of(), self.of(**tied)
        assert [size for _, size, _ in found[:3]] == [size for _, size, _ in apart[:3]]
        more = [mine[1] - other[1] for mine, other in zip(found[3:], apart[3:], strict=True)]
        assert more == [2 * self.TABLE, 2 * self.TABLE, 2 * 2 * self.TABLE]
        assert [produced for *_, produced in found[3:]] == [0, LAYER + H // 2, 2 * LAYER + H]

    def test_frozen_parameters_have_no_gradients(self) -> None:
        """The head is taken for frozen with them; what is trained is shared among the layers."""
        found = self.of(Workload(1, 4), trainable_parameters=1000)
        whole = self.of(Workload(1, 4))
        assert found[2][1] == (16 + 2 * self.SAVED + self.NORM) * 4 + 12 * 4 * V
        assert found[5][1] == 16 * 4 + 2 * H * 4 and whole[5][1] == found[5][1] + 2 * self.TABLE
        assert [produced for *_, produced in found[3:]] == [0, 500, 1000]
        tied = self.of(Workload(1, 4), trainable_parameters=1000, tied_embeddings=True)
        assert tied == found

    def test_a_fused_loss_keeps_gradients_of_the_hidden_states_and_of_the_head(self) -> None:
        found = self.sizes(Workload(3, 20, fused_loss=True))
        ready = (16 + 2 * self.SAVED + self.NORM) * T
        assert found[1] == found[2] == ready + 2 * 2 * H * T + 2 * self.TABLE

    def test_a_completion_has_a_mask_and_tiles_of_logits(self) -> None:
        """Keys and values are repeated for every head; the mask is a row of numbers a token, in each layer and once."""
        found = self.sizes(Workload(3, 20, True, fused_loss=True, completion=8))
        saved = 2 * self.NORM + 4 * 2 * Q + 4 * 8 + 2 * 20 + 4 * 2 * F
        row, tile, scored = 2 * H * T, 2 * 24 * 32768, 3 * 8
        start = (16 + 20) * T
        ready = start + 2 * row + self.NORM * T
        assert found[1] == ready + scored * (2 * H + 28) + tile
        assert found[2] == ready + scored * (2 + 4 + 2) * H + (4 + 2) * self.TABLE + tile - row
        assert found[3] == start + 2 * row + saved * T + row + 2 * F * T + 2 * H * F
        flash = self.sizes(Workload(3, 20, True, "flash_attention_2", True, completion=8))
        assert flash[3] == 16 * T + 2 * row + self.SAVED * T + row + 2 * F * T + 2 * H * F
        frozen = self.sizes(Workload(3, 20, True, fused_loss=True, completion=8), trainable_parameters=1000)
        assert frozen[2] == found[2] - 6 * self.TABLE

    def test_experts_compute_what_they_are_sent(self) -> None:
        """Two of four of 48: inputs and results are gathered for each; a weight's gradient is that of all experts."""
        experts = {"num_experts": 4, "experts_per_token": 2, "model_type": "mixtral"}
        facts = from_config(SMALL).model_copy(update=experts)
        found = by_formula(facts, PLAIN, "bf16", {**SMALL, "moe_intermediate_size": 48})
        wide = 2 * 48 * 2
        saved = self.SAVED - 4 * 2 * F + 4 * wide + 2 * 2 * H * 2
        start = 16 * T
        assert found.segments[0].size == start + 2 * saved * T + 12 * H * T
        behind = 2 * H * T + max(wide * T + 2 * H * 48 * 4, 2 * wide * T)
        assert found.segments[3].size == start + 2 * saved * T + behind
        assert found.error == ERROR_UNKNOWN
        own = by_formula(facts, PLAIN, "bf16", SMALL)
        assert own.segments[0].size == start + 2 * (self.SAVED + 4 * 2 * F + 2 * 2 * H * 2) * T + 12 * H * T

    def test_how_other_families_differ_from_a_llama(self) -> None:
        """Bytes more that a token of a layer saves, by the classes of transformers: norms of queries and keys
        (``q_norm``: their input in fp32 and what is normalised), Gemma's norms, which multiply in fp32 (``8h + eh``
        each, and ``8h`` of each of two more behind), LayerNorm (``2eh``), and OPT's ReLU in place of a gate, of which
        one copy of the inner width is saved."""
        heads = Q + K
        gemma = 2 * (8 + 2) * H - 2 * (4 + 2 * 2) * H + 2 * 8 * H + 8 * heads
        layer_norm = 2 * 2 * 2 * H - 2 * (4 + 2 * 2) * H
        more = {
            **dict.fromkeys(("mixtral", "qwen2_moe", "qwen2_vl_text", "smollm3", "ernie4_5_moe", "solar_open"), 0),
            **dict.fromkeys(
                ("qwen3_moe", "olmoe", "minimax_m2", "qwen3_vl_text", "qwen3_vl_moe_text"), (4 + 2) * heads
            ),
            **dict.fromkeys(("gemma3", "gemma3_text"), gemma),
            "stablelm": layer_norm,
            "opt": layer_norm - 3 * 2 * F,
        }
        base = self.sizes(PLAIN)
        for family, extra in more.items():
            found = self.sizes(PLAIN, model_type=family)
            assert found[0] - base[0] == 2 * extra * T, family
            assert (found[3] - base[3]) - (found[4] - base[4]) == extra * T, family
            assert gated(from_config(SMALL).model_copy(update={"model_type": family})) is (family != "opt")

    @pytest.mark.parametrize(
        ("changed", "work", "error", "of"),
        [
            ({}, PLAIN, ERROR, "llama"),
            ({"model_type": "mistral"}, PLAIN, ERROR, "mistral"),
            ({"model_type": "unheard of"}, PLAIN, ERROR_UNKNOWN, "llama"),
            ({"trainable_parameters": 1000}, PLAIN, ERROR_UNKNOWN, "llama"),
            ({}, Workload(3, 20, True, "eager", True, completion=8), ERROR_UNKNOWN, "llama"),
            ({}, Workload(3, 20, True, "sdpa", True, completion=8), ERROR, "llama"),
        ],
    )
    def test_what_it_rests_on_is_said(self, changed: dict[str, Any], work: Workload, error: float, of: str) -> None:
        facts = from_config(SMALL).model_copy(update=changed)
        found = by_formula(facts, work, "bf16", SMALL)
        assert found.error == error and found.origin.endswith(f"of {of}")
        assert found.elements == facts.trainable

    def test_logits_are_known_where_they_are_the_most(self) -> None:
        few = by_formula(from_config({**SMALL, "vocab_size": 10}), PLAIN, "bf16", SMALL)
        many = by_formula(from_config({**SMALL, "vocab_size": 10_000}), PLAIN, "bf16", SMALL)
        assert (few.logits, many.logits) == (0, 12 * T * 10_000)


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
    lines = ",\n".join(
        f"{json.dumps(named(model))}: {json.dumps(peaks)}" for model, peaks in zip(MODELS, traced(), strict=True)
    )
    RECORD.write_text(f'{{"versions": {json.dumps(versions)}, "peaks": {{\n{lines}\n}}}}\n')
    print(f"wrote {RECORD}", file=sys.stderr)
