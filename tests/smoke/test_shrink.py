"""A config.json made smaller: every number by hand, on configs as the families write them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from zerocfg.smoke.model.reduction import Cut
from zerocfg.smoke.prepare.shrink import fewer_layers, layers_of, least_layers, shrink

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "eos_token_id": [128001, 7],
    "bos_token_id": 128000,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}


def test_a_llama() -> None:
    before = copy.deepcopy(LLAMA)
    small, changes = shrink(LLAMA)
    assert before == LLAMA
    assert small == {
        **LLAMA,
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 1024,
        "max_position_embeddings": 2048,
        "eos_token_id": [1023, 7],
        "bos_token_id": 1023,
    }
    assert set(changes) == {
        Cut(key, LLAMA[key], small[key])
        for key in (
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "vocab_size",
            "max_position_embeddings",
            "bos_token_id",
        )
    }


def test_what_is_small_stays() -> None:
    small = {
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "vocab_size": 1024,
        "eos_token_id": 1023,
        "max_position_embeddings": 2048,
    }
    assert shrink(small) == (small, [])
    wider = {**small, "hidden_size": 65, "vocab_size": 1025, "num_hidden_layers": 3, "eos_token_id": 1024}
    cut, changes = shrink(wider)
    assert cut == {**small, "num_attention_heads": 4} and len(changes) == 5


@pytest.mark.parametrize(("keys", "queries", "left"), [(1, 8, 1), (2, 8, 2), (7, 8, 2), (8, 8, 4)])
def test_keys_stay_as_many_as_queries_fewer_or_one(keys: int, queries: int, left: int) -> None:
    small, _ = shrink({"hidden_size": 512, "num_attention_heads": queries, "num_key_value_heads": keys})
    assert (small["num_attention_heads"], small["num_key_value_heads"]) == (4, left)


class TestKinds:
    def test_without_kinds_the_first_layers_stay(self) -> None:
        assert layers_of(LLAMA) == 32 and least_layers(LLAMA) == 1
        assert fewer_layers(LLAMA, 5) == {**LLAMA, "num_hidden_layers": 5}
        assert fewer_layers(LLAMA, 40) == LLAMA

    def test_one_of_each_listed_kind_stays(self) -> None:
        kinds = ["full"] * 3 + ["sliding"] * 3 + ["linear"] * 2
        config = {"num_hidden_layers": 8, "layer_types": kinds, "sliding_window_pattern": 6}
        assert least_layers(config) == 3
        assert fewer_layers(config, 1)["layer_types"] == ["full", "sliding", "linear"]
        four = fewer_layers(config, 4)
        assert four["layer_types"] == ["full", "full", "sliding", "linear"] and four["num_hidden_layers"] == 4

    def test_figures_of_each_layer_are_no_kinds_from_seven_on(self) -> None:
        six = {"n_layer": 12, "widths": [1, 2, 3, 4, 5, 6] * 2}
        seven = {"n_layer": 12, "widths": [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5]}
        assert least_layers(six) == 6 and least_layers(seven) == 1
        assert fewer_layers(seven, 3)["widths"] == [1, 2, 3]

    def test_tokens_are_none_of_layers(self) -> None:
        config = {"num_hidden_layers": 2, "eos_token_id": [1, 2], "bad_token_ids": [3, 4], "other": [5, 6]}
        assert fewer_layers(config, 1) == {**config, "num_hidden_layers": 2}
        assert least_layers({"num_hidden_layers": 2, "eos_token_id": [1, 2]}) == 1
        assert least_layers({"num_hidden_layers": 1, "other": [5]}) == 1

    def test_lists_of_layers_by_their_number(self) -> None:
        config = {"num_hidden_layers": 8, "mlp_only_layers": [0, 5], "moe_layers": [1, 2, 3, 4, 6, 7]}
        assert least_layers(config) == 2
        less = fewer_layers(config, 3)
        assert (less["mlp_only_layers"], less["moe_layers"]) == ([0], [1, 2])
        late = {"num_hidden_layers": 8, "cross_attention_layers": [5]}
        assert fewer_layers(late, 2) == {"num_hidden_layers": 2, "cross_attention_layers": [1]}

    @pytest.mark.parametrize(
        ("more", "least"),
        [
            ({"attn_layer_period": 3}, 3),
            ({"attn_layer_period": 3, "expert_layer_period": 5}, 5),
            ({"attn_layer_period": 8}, 8),
            ({"attn_layer_period": 9}, 1),
            ({"attn_layer_period": 0}, 1),
            ({"attn_layer_period": 3, "layer_types": ["a"] * 8}, 1),
            ({"first_k_dense_replace": 3}, 4),
            ({"first_k_dense_replace": 7}, 8),
            ({"first_k_dense_replace": 8}, 1),
            ({"moe_layer_start_index": 1, "num_dense_layers": 2}, 3),
        ],
    )
    def test_periods_and_layers_without_experts_at_the_beginning(self, more: dict[str, Any], least: int) -> None:
        assert least_layers({"num_hidden_layers": 8, **more}) == least

    def test_numbers_of_layers_do_not_exceed_what_is_left(self) -> None:
        config = {
            "num_hidden_layers": 8,
            "max_window_layers": 8,
            "num_dense_layers": 1,
            "num_kv_shared_layers": 3,
            "layer_types": ["a", "a", "a", "a", "b", "a", "a", "c"],
        }
        less = fewer_layers(config, 1)
        # Layers 0, 4 and 7 stay, of which the last one shares its keys.
        assert less["num_hidden_layers"] == less["max_window_layers"] == 3
        assert (less["num_kv_shared_layers"], less["num_dense_layers"]) == (1, 1)

    def test_a_number_of_layers_that_is_just_left_stays(self) -> None:
        config = {"num_hidden_layers": 8, "max_window_layers": 3, "num_dense_layers": 2}
        assert fewer_layers(config, 3) == {**config, "num_hidden_layers": 3}
        assert fewer_layers({**config, "max_window_layers": 4}, 3)["max_window_layers"] == 3

    def test_a_config_for_each_layer(self) -> None:
        config: dict[str, Any] = {"num_hidden_layers": 5, "per_layer_config": {"0": "a", "3": "b", "4": "b"}}
        # Layers 0, 1 (nothing said) and 3 are of three kinds.
        assert fewer_layers(config, 1) == {"num_hidden_layers": 3, "per_layer_config": {"0": "a", "2": "b"}}
        numbered = {"num_hidden_layers": 3, "per_layer_config": {0: "a", 2: "b"}}
        assert fewer_layers(numbered, 1)["per_layer_config"] == {0: "a", 2: "b"}

    def test_gpt_neo_lists_kinds_with_how_often_they_come(self) -> None:
        config = {"num_layers": 6, "attention_types": [[["global", "local"], 3]]}
        assert fewer_layers(config, 3)["attention_types"] == [[["global", "local", "global"], 1]]

    def test_both_halves_of_t5(self) -> None:
        config = {"num_layers": 6, "num_decoder_layers": 6, "d_model": 512}
        assert fewer_layers(config, 2) == {**config, "num_layers": 2, "num_decoder_layers": 2}
        apart = fewer_layers({**config, "num_decoder_layers": 4}, 2)
        assert (apart["num_layers"], apart["num_decoder_layers"]) == (2, 4)

    def test_the_language_model_of_a_larger_one(self) -> None:
        config = {"text_config": {"num_hidden_layers": 8, "hidden_size": 9}, "num_hidden_layers": 3, "x": 1}
        assert layers_of(config) == 8
        assert fewer_layers(config, 2) == {**config, "text_config": {"num_hidden_layers": 2, "hidden_size": 9}}
        for silent in ({"hidden_size": 9}, {"num_hidden_layers": True}, {"num_hidden_layers": 0}):
            assert layers_of(silent) is None and least_layers(silent) == 1
            assert fewer_layers(silent, 2) == silent


class TestParts:
    def test_experts_stay_several(self) -> None:
        config = {
            "num_hidden_layers": 12,
            "first_k_dense_replace": 3,
            "n_routed_experts": 256,
            "num_experts_per_tok": 8,
            "n_group": 8,
            "n_shared_experts": 2,
            "q_lora_rank": 1536,
            "qk_rope_head_dim": 64,
            "interleave_moe_layer_step": 4,
        }
        small, _ = shrink(config)
        assert small == {
            "num_hidden_layers": 2,
            "first_k_dense_replace": 1,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "n_shared_experts": 1,
            "q_lora_rank": 32,
            "qk_rope_head_dim": 16,
            "interleave_moe_layer_step": 2,
        }

    def test_periods_are_cut_to_two_and_offsets_with_them(self) -> None:
        config = {"num_hidden_layers": 32, "attn_layer_period": 8, "attn_layer_offset": 5, "expert_layer_period": 2}
        small, _ = shrink(config | {"expert_layer_offset": 1})
        assert (small["attn_layer_period"], small["attn_layer_offset"]) == (2, 1)
        assert (small["expert_layer_period"], small["expert_layer_offset"]) == (2, 1)
        listed, _ = shrink({"num_hidden_layers": 2, "sliding_window_pattern": 6, "layer_types": ["a", "b"]})
        assert listed["sliding_window_pattern"] == 6

    def test_lists_of_sizes_are_cut_item_by_item(self) -> None:
        small, changes = shrink({"intermediate_size": [100, 1000, None], "hidden_size": 64})
        assert small["intermediate_size"] == [100, 256, None] and changes == []

    def test_sections_are_cut_like_the_whole(self) -> None:
        config = {
            "model_type": "llava",
            "text_config": {"hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 32000},
            "vision_config": {"hidden_size": 1024, "image_size": 336},
            "quantization_config": {"vocab_size": 5000},
            "other": {"vocab_size": 5000},
            "image_token_id": 31999,
        }
        small, changes = shrink(config)
        assert small["text_config"] == {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 1024}
        assert small["vision_config"] == {"hidden_size": 64, "image_size": 64}
        assert small["quantization_config"] == {"vocab_size": 1024} and small["other"] == {"vocab_size": 5000}
        assert small["image_token_id"] == 1023
        assert Cut("text_config.hidden_size", 4096, 64) in changes and Cut("image_token_id", 31999, 1023) in changes

    def test_rotations_of_a_head_that_became_small(self) -> None:
        rope = {
            "short_factor": list(range(64)),
            "long_factor": list(range(64)),
            "mrope_section": [16, 24, 24],
            "theta": [1] * 64,
            "full": {"short_factor": list(range(64))},
        }
        small, _ = shrink({"hidden_size": 3072, "rope_scaling": rope})
        assert small["rope_scaling"] == {
            "short_factor": list(range(8)),
            "long_factor": list(range(8)),
            "mrope_section": [4, 2, 2],
            "theta": [1] * 64,
            "full": {"short_factor": list(range(8))},
        }
        same, _ = shrink({"hidden_size": 64, "rope_scaling": rope})
        assert same["rope_scaling"] == rope
        item, _ = shrink({"hidden_size": 3072, "rope_parameters": {"mrope_section": [9]}})
        assert item["rope_parameters"] == {"mrope_section": [9]}

    def test_state_space_models_widen_by_a_factor(self) -> None:
        mamba, _ = shrink({"hidden_size": 2048, "expand": 2, "head_dim": 64, "num_heads": 64})
        assert (mamba["num_heads"], mamba["head_dim"]) == (2 * 64 // 16, 16)
        narrow, _ = shrink({"hidden_size": 2048, "expand": 1, "head_dim": 64, "num_heads": 32})
        assert (narrow["num_heads"], narrow["head_dim"]) == (64 // 16, 16)
        bamba, _ = shrink(
            {"hidden_size": 2048, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_expand": 3, "mamba_d_ssm": 9}
        )
        assert (bamba["mamba_n_heads"], bamba["mamba_d_head"], bamba["mamba_d_ssm"]) == (12, 16, 12 * 16)
        plain, _ = shrink({"hidden_size": 2048, "mamba_n_heads": 128})
        assert plain == {"hidden_size": 64, "mamba_n_heads": 8}

    def test_tokens_of_the_small_vocabulary(self) -> None:
        small, _ = shrink(
            {"vocab_size": 500, "a_token_id": 499, "b_token_id": 500, "c_token_id": -1, "d_token_id": "x"}
        )
        assert small == {"vocab_size": 500, "a_token_id": 499, "b_token_id": 499, "c_token_id": -1, "d_token_id": "x"}
        none, _ = shrink({"a_token_id": 2000})
        assert none == {"a_token_id": 1023}
        nested, _ = shrink({"text_config": {"vocab_size": 300}, "a_token_id": [2000, "x"]})
        assert nested["a_token_id"] == [299, "x"]
