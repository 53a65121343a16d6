"""The vision part of multimodal models: every parameter against the real classes on the meta device."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from zerocfg.models.model_facts import from_config
from zerocfg.models.vision import vision_of

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 99,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_vl": {
        "model_type": "qwen2_vl",
        "text_config": TEXT,
        "vision_config": {"depth": 3, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 3},
    },
    "qwen2_vl, tied": {
        "model_type": "qwen2_vl",
        "tie_word_embeddings": True,
        "text_config": TEXT,
        "vision_config": {"depth": 1, "embed_dim": 48, "hidden_size": 64, "num_heads": 2, "patch_size": 7},
    },
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl",
        "text_config": TEXT,
        "vision_config": {
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_heads": 2,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [1],
        },
    },
    "llava": {
        "model_type": "llava",
        "text_config": {**TEXT, "model_type": "llama"},
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 56,
            "patch_size": 14,
        },
    },
    "llava, no bias": {
        "model_type": "llava",
        "multimodal_projector_bias": False,
        "text_config": {**TEXT, "model_type": "llama"},
        "vision_config": {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1},
    },
    "llava, defaults": {"model_type": "llava", "text_config": {**TEXT, "model_type": "llama"}},
    "qwen2_vl, defaults": {"model_type": "qwen2_vl", "text_config": {**TEXT, "hidden_size": 3584}},
    "qwen2_5_vl, defaults": {"model_type": "qwen2_5_vl", "text_config": {**TEXT, "hidden_size": 3584}},
}


def real(config: dict[str, Any]) -> Any:
    import torch
    import transformers

    kind = transformers.CONFIG_MAPPING[config["model_type"]]
    with torch.device("meta"):
        return transformers.AutoModelForImageTextToText.from_config(kind(**copy.deepcopy(config)))


@pytest.mark.libs
@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_by_name(name: str) -> None:
    config, model = CONFIGS[name], real(CONFIGS[name])
    seen = [one for one in model.named_parameters() if "language_model" not in one[0] and "lm_head" not in one[0]]
    vision = vision_of(config)
    assert vision is not None
    found = list(vision.tensors())
    assert [one.size for one in found] == [parameter.numel() for _, parameter in seen]
    for one, (path, _) in zip(found, seen, strict=True):
        module = path.rpartition(".")[0]
        assert module.endswith(one.module) or one.module == "vision_tower.embeddings" in path
        assert (one.block is not None) == any(part in path for part in (".blocks.", ".layers."))
    facts = from_config(config)
    assert facts.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert facts.vision_parameters == sum(one.size for one in found) and not facts.text_part_only
    assert sum(size * count for size, count in facts.tensor_sizes) == facts.parameters


def test_published_counts() -> None:
    """As the safetensors of the hub count them: Qwen2.5-VL-7B and llava-1.5-7b."""
    text = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
    text |= {"num_key_value_heads": 4, "vocab_size": 152064}
    qwen = {"model_type": "qwen2_5_vl", "text_config": text, "vision_config": {"hidden_size": 1280}}
    assert from_config(qwen).parameters == 8_292_166_656
    llava = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}}
    assert from_config(llava).parameters == 7_063_427_072


def test_what_an_image_becomes() -> None:
    qwen, llava = vision_of(CONFIGS["qwen2_5_vl"]), vision_of(CONFIGS["llava"])
    assert qwen is not None and llava is not None
    assert qwen.patches(28 * 28 * 1280) == 4 * 1280 and qwen.tokens(28 * 28 * 1280) == 1280
    assert qwen.tokens(28 * 28 * 1280 + 1) == 1281, "a part of a token is one"
    assert llava.tokens(None) == 16 == llava.patches(10**9)
    with pytest.raises(ValueError, match="`pixels:`"):
        qwen.tokens(None)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llava", "vision_config": {"model_type": "siglip_vision_model"}},
        {"model_type": "llava_next"},
        {"model_type": "llama", "vision_config": {}},
        {},
    ],
)
def test_other_towers_are_not_known(config: dict[str, Any]) -> None:
    assert vision_of(config) is None
    facts = from_config({**config, "text_config": {**TEXT, "model_type": "llama"}})
    assert facts.parameters is None or facts.text_part_only or config["model_type"] == "llama"


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen2_vl", "vision_config": {"depth": "3"}},
        {"model_type": "qwen2_5_vl", "vision_config": {"hidden_size": 0}},
        {"model_type": "llava", "vision_feature_layer": [-2, -5]},
        {"model_type": "llava", "vision_feature_select_strategy": "full"},
        {"model_type": "qwen2_5_vl", "vision_config": {"depth": 10**9}},
    ],
)
def test_values_that_no_model_has_give_a_reason(config: dict[str, Any]) -> None:
    facts = from_config({**config, "text_config": {**TEXT, "model_type": "llama"}})
    assert facts.parameters is None and facts.unknown_because
