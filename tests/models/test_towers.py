"""Vision parts that are counted alone: every parameter against the real classes on the meta device."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from zerocfg.models.model_facts import from_config
from zerocfg.models.towers import tower_of
from zerocfg.models.vision import vision_of

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 99,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
SIGLIP = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2}
SIGLIP |= {"image_size": 56, "patch_size": 14}
QWEN3 = {"depth": 4, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "out_hidden_size": 64}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_vl": {"text_config": TEXT, "vision_config": {**QWEN3, "deepstack_visual_indexes": [1, 2]}},
    "qwen3_vl, none stacked": {
        "text_config": TEXT,
        "tie_word_embeddings": True,
        "vision_config": {**QWEN3, "deepstack_visual_indexes": [], "patch_size": 8, "num_position_embeddings": 100},
    },
    "qwen3_vl, defaults": {"text_config": TEXT},
    "qwen3_vl_moe": {"text_config": {**TEXT, **EXPERTS}, "vision_config": QWEN3},
    "gemma3": {"text_config": TEXT, "vision_config": SIGLIP},
    "gemma3, no head": {"text_config": TEXT, "vision_config": {**SIGLIP, "vision_use_head": False}},
    "gemma3, defaults": {"text_config": TEXT},
    "mistral3": {"text_config": TEXT, "vision_config": {**SIGLIP, "model_type": "pixtral"}, "spatial_merge_size": 3},
    "mistral3, bias": {
        "text_config": {**TEXT, "model_type": "ministral3"},
        "vision_config": {**SIGLIP, "model_type": "pixtral", "head_dim": 16},
        "multimodal_projector_bias": True,
    },
    "mistral3, defaults": {"text_config": TEXT},
    "llama4": {
        "text_config": {**TEXT, "num_local_experts": 4, "intermediate_size_mlp": 80, "interleave_moe_layer_step": 2},
        "vision_config": {
            **SIGLIP,
            "vision_output_dim": 72,
            "projector_input_dim": 20,
            "projector_output_dim": 20,
        },
    },
    "llama4, defaults": {"text_config": {**TEXT, "tie_word_embeddings": True}},
}


@pytest.mark.libs
@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_is_that_of_the_real_class(name: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind, config = name.partition(",")[0], CONFIGS[name]
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(
            transformers.CONFIG_MAPPING[kind](**copy.deepcopy(config))
        )
    facts = from_config({"model_type": kind, **config})
    sizes = Counter(parameter.numel() for parameter in model.parameters())
    assert dict(facts.tensor_sizes) == dict(sizes)
    assert facts.parameters == sum(parameter.numel() for parameter in model.parameters())
    language = sum(
        parameter.numel()
        for part, parameter in model.named_parameters()
        if "language_model" in part or part.startswith("lm_head")
    )
    assert facts.vision_parameters == facts.parameters - language and not facts.text_part_only
    present = {type(module).__name__ for module in model.modules()}
    assert set(facts.leaf_modules) <= present


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llava", "text_config": TEXT},
        {"model_type": "gemma3", "text_config": TEXT, "vision_config": {"model_type": "clip_vision_model"}},
        {"model_type": "mistral3", "text_config": TEXT, "vision_config": {"model_type": "siglip_vision_model"}},
        {"model_type": "gemma3_text", **TEXT},
        {},
    ],
)
def test_no_other_tower_is_counted(config: dict[str, Any]) -> None:
    assert tower_of(config) is None


def test_no_model_has_two_known_vision_parts() -> None:
    for name, config in CONFIGS.items():
        assert vision_of({"model_type": name.partition(",")[0], **config}) is None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "qwen3_vl", "vision_config": {"deepstack_visual_indexes": 3}}, "deepstack_visual_indexes is 3"),
        ({"model_type": "gemma3", "vision_config": {"patch_size": 0}}, "patch_size is 0"),
        ({"model_type": "gemma3", "vision_config": {"image_size": [896, 896]}}, "image_size is"),
        ({"model_type": "mistral3", "vision_feature_layer": [-1, -2]}, "several layers"),
        ({"model_type": "llama4", "vision_config": {"num_hidden_layers": True}}, "num_hidden_layers is True"),
    ],
)
def test_what_no_tower_can_be_is_unknown(config: dict[str, Any], reason: str) -> None:
    facts = from_config({**config, "text_config": TEXT})
    assert facts.parameters is None and reason in str(facts.unknown_because)


def test_a_tower_of_too_many_layers_is_not_listed() -> None:
    facts = from_config({"model_type": "qwen3_vl", "text_config": TEXT, "vision_config": {"depth": 10**9}})
    assert facts.parameters is None and "tensors" in str(facts.unknown_because)
