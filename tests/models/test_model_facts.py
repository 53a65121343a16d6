"""Model facts: the formulas against the real models on the meta device, widths against the real configs."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from zerocfg.models.families import FAMILIES
from zerocfg.models.model_facts import COMPOSITES, ModelFacts, from_config, inline

SHAPES_PER_FAMILY = 6
INSIDE = {"qwen2_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"}  # which exist only inside a multimodal model
LATENT = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa")
CAUSAL = sorted(set(FAMILIES) - INSIDE)


def random_config(model_type: str, draw: random.Random) -> dict[str, Any]:  # noqa: C901
    """A small config in the spelling of its own architecture, every switch that changes a tensor drawn."""
    heads = draw.choice([2, 4, 6])
    pairs = draw.choice([pair for pair in (1, 2, heads) if heads % pair == 0])
    width = draw.choice([4, 6, 10])
    hidden = heads * draw.choice([4, 8])
    flag = lambda: draw.random() < 0.5  # noqa: E731
    layers = draw.randint(1, 4)
    config: dict[str, Any] = {
        "vocab_size": draw.randint(50, 200),
        "hidden_size": hidden,
        "intermediate_size": draw.randint(20, 80),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": pairs,
        "max_position_embeddings": draw.randint(32, 64),
        "tie_word_embeddings": flag(),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    dense_layers = [layer for layer in range(layers) if draw.random() < 0.3]
    needs_own_head_dim = {
        *("glm", "glm4", "qwen3", "gemma", "gemma2", "gemma3_text", "gpt_oss", "ministral", "ministral3", "internlm3"),
        *("seed_oss", "ernie4_5", "cwm", "minimax_m2", "solar_open", "llama4_text"),
    }
    takes_head_dim = {
        *("llama", "mistral", "qwen2", "qwen3_moe", "mixtral", "granite", "smollm3", "olmo2", "olmo3"),
        *("exaone4", "apertus", "arcee", "jais2", "cohere2", "ernie4_5_moe"),
    }
    if model_type in needs_own_head_dim or (model_type in takes_head_dim and flag()):
        config["head_dim"] = width
    if model_type == "gemma3_text":
        config["sliding_window"] = draw.choice([8, 4096])
    elif model_type in {"mistral", "mixtral", "qwen2", "phi3"}:
        config["sliding_window"] = draw.choice([None, 16])

    switches = {
        "llama": ["attention_bias", "mlp_bias"],
        "granite": ["attention_bias", "mlp_bias"],
        "smollm3": ["attention_bias", "mlp_bias"],
        "seed_oss": ["attention_bias", "attention_out_bias", "mlp_bias"],
        "ernie4_5": ["use_bias"],
        "ernie4_5_moe": ["use_bias"],
        "arcee": ["attention_bias", "mlp_bias"],
        "jais2": ["attention_bias", "mlp_bias"],
        "cwm": ["mlp_bias"],
        "phi": ["qk_layernorm"],
        "cohere": ["attention_bias", "use_qk_norm"],
        "starcoder2": ["use_bias"],
        "phimoe": ["attention_bias", "lm_head_bias"],
        "qwen2_moe": ["qkv_bias"],
        "glm4_moe": ["attention_bias", "use_qk_norm"],
        "gpt_neox": ["attention_bias", "use_parallel_residual"],
        "falcon": ["bias", "multi_query", "new_decoder_architecture", "parallel_attn", "alibi"],
        "opt": ["enable_bias", "layer_norm_elementwise_affine", "do_layer_norm_before"],
    }
    with_attention_bias = {
        *("olmo", "olmo2", "glm4", "qwen3", "gemma", "gemma2", "gemma3_text"),
        *("granitemoe", "gpt_oss", "qwen3_moe", *LATENT),
        *("olmo3", "olmoe", "apertus", "cohere2", "glm", "solar_open", "llama4_text"),
    }
    names = switches.get(model_type, ["attention_bias"] if model_type in with_attention_bias else [])
    config |= {name: flag() for name in names}
    if model_type == "internlm3":  # whose class refuses two that differ
        config |= dict.fromkeys(("qkv_bias", "bias"), flag())

    experts = draw.randint(2, 5)
    if model_type in {"mixtral", "phimoe", "granitemoe", "gpt_oss", "minimax_m2"}:
        config |= {"num_local_experts": experts, "num_experts_per_tok": 1}
    elif model_type in {"qwen2_moe", "qwen3_moe"}:
        config |= {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
        config |= {"decoder_sparse_step": draw.choice([1, 2]), "mlp_only_layers": dense_layers}
        if model_type == "qwen2_moe":
            config["shared_expert_intermediate_size"] = draw.randint(4, 30)
    elif model_type == "olmoe":
        config |= {"num_experts": experts, "num_experts_per_tok": 1}
    elif model_type == "ernie4_5_moe":
        config |= {"moe_num_experts": experts, "moe_k": 2, "moe_intermediate_size": 12}
        config |= {"moe_num_shared_experts": draw.randint(0, 2), "moe_layer_interval": draw.choice([1, 2])}
        config |= {"moe_layer_start_index": draw.randint(0, 2), "moe_layer_end_index": draw.choice([-1, 0, layers - 1])}
    elif model_type == "llama4_text":
        config |= {"num_local_experts": experts, "intermediate_size_mlp": draw.randint(20, 80)}
        config |= {"interleave_moe_layer_step": draw.choice([1, 2]), "moe_layers": draw.choice([None, dense_layers])}
    elif model_type in {*LATENT, "glm4_moe", "solar_open"}:
        config |= {"n_routed_experts": 2 * experts, "n_shared_experts": draw.randint(1, 2), "n_group": 1}
        config |= {"topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
        if model_type != "solar_open":
            config["first_k_dense_replace"] = draw.randint(0, layers)
    if model_type in LATENT:
        config |= {"kv_lora_rank": 10, "q_lora_rank": draw.choice([None, 14]), "qk_nope_head_dim": 6}
        config |= {"qk_rope_head_dim": 4, "v_head_dim": draw.choice([5, 8]), "num_key_value_heads": heads}
    if FAMILIES[model_type].indexer:
        config |= {"q_lora_rank": 14, "index_n_heads": draw.choice([2, 3]), "index_head_dim": 8}
        if flag():
            config["mlp_layer_types"] = [draw.choice(["dense", "sparse"]) for _ in range(layers)]
        if model_type == "glm_moe_dsa" and flag():
            config["indexer_types"] = [draw.choice(["full", "shared"]) for _ in range(layers)]

    for ours, theirs in _spelling(model_type).items():
        if ours in config:
            config[theirs] = config.pop(ours)
    if model_type in {"gpt2", "gptj", "gpt_neo", "falcon"} and flag():
        config.pop("n_inner", config.pop("ffn_hidden_size", None))
    if model_type == "gptj":
        config["rotary_dim"] = 4
    if model_type == "gpt_neo":
        config["attention_types"] = [[["global"], layers]]
    if model_type == "opt":
        config["word_embed_proj_dim"] = draw.choice([hidden, hidden // 2])
    if model_type in {"gpt2", "gptj", "gpt_neo", "gpt_neox", "bloom", "opt"}:
        config.pop("num_key_value_heads", None)
    return config


def _spelling(model_type: str) -> dict[str, str]:
    named = {
        "gpt_neo": {"num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"},
        "bloom": {
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "intermediate_size": "_none",
        },
        "opt": {"intermediate_size": "ffn_dim"},
        "falcon": {"num_key_value_heads": "num_kv_heads", "intermediate_size": "ffn_hidden_size"},
    }
    if model_type in {"gpt2", "gptj"}:
        return {ours: theirs for theirs, ours in FAMILIES["gpt2"].aliases.items()}
    return named.get(model_type, {})


def real_model(config: Any) -> Any:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def assert_same_tensors(facts: ModelFacts, model: Any) -> None:
    """``model`` is a torch module or the list of modules whose parameters count."""
    sizes = Counter(parameter.numel() for parameter in model.parameters())
    assert facts.unknown_because is None
    assert facts.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert dict(facts.tensor_sizes) == dict(sizes)
    assert facts.largest_parameter == max(sizes)
    owned = (sum(p.numel() for p in module.parameters(recurse=False)) for module in model.modules())
    assert facts.largest_module == max(owned)


@pytest.mark.libs
@pytest.mark.parametrize("model_type", CAUSAL)
def test_random_shapes_have_the_tensors_of_the_real_model(model_type: str) -> None:
    mapping = pytest.importorskip("transformers").CONFIG_MAPPING
    draw = random.Random(model_type)
    for _ in range(SHAPES_PER_FAMILY):
        config = random_config(model_type, draw)
        real = mapping[model_type](**config)
        model = real_model(real)
        facts = from_config({"model_type": model_type, **config})
        assert_same_tensors(facts, model)
        saved = from_config(json.loads(real.to_json_string(use_diff=True)))
        assert saved.tensor_sizes == facts.tensor_sizes, "what save_pretrained writes gives the same facts"
        for consumer in ("accelerate", "transformers"):
            assert facts.hidden_size_for(consumer) == real.hidden_size  # type: ignore[arg-type]
        blocks = max(
            (module for module in model.modules() if type(module).__name__ == "ModuleList"),
            key=lambda module: sum(parameter.numel() for parameter in module.parameters()),
        )
        assert facts.largest_block == max(sum(p.numel() for p in block.parameters()) for block in blocks)
        present = {type(module).__name__ for module in model.modules()}
        sparse = facts.leaf_modules and any(size[0] for size in facts.tensor_sizes) and _has_sparse_layer(model)
        assert not sparse or set(facts.leaf_modules) <= present


def _has_sparse_layer(model: Any) -> bool:
    return any(name.split(".")[-2] == "experts" for name, _ in model.named_parameters() if "." in name)


@pytest.mark.libs
@pytest.mark.parametrize("model_type", [name for name in CAUSAL if name != "ministral"])
def test_a_config_that_names_only_its_type_has_the_class_defaults(model_type: str) -> None:
    """(ministral is left out: its class cannot be built without a head_dim.)"""
    real = pytest.importorskip("transformers").CONFIG_MAPPING[model_type]()
    assert_same_tensors(from_config({"model_type": model_type}), real_model(real))


@pytest.mark.libs
@pytest.mark.parametrize("model_type", sorted(COMPOSITES))
@pytest.mark.parametrize("tied", [None, False, True])
def test_the_text_part_of_multimodal_models(model_type: str, tied: bool | None) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    text = random_config(COMPOSITES[model_type], random.Random(7)) | {"num_hidden_layers": 2, "head_dim": 6}
    text.pop("tie_word_embeddings")
    config: dict[str, Any] = {"text_config": text}
    if tied is not None:
        config["tie_word_embeddings"] = tied
    real = transformers.CONFIG_MAPPING[model_type](**json.loads(json.dumps(config)))
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(real)
    language = [
        parameter
        for name, parameter in model.named_parameters()
        if "language_model" in name or name.startswith("lm_head")
    ]
    facts = from_config({"model_type": model_type, **config})
    assert facts.text_part_only == (facts.vision_parameters is None)
    assert facts.parameters is not None
    assert facts.parameters - (facts.vision_parameters or 0) == sum(parameter.numel() for parameter in language)
    assert facts.hidden_size_for("transformers") == real.text_config.hidden_size
    assert facts.hidden_size_for("accelerate") is None
    assert not hasattr(real, "hidden_size")


@pytest.mark.libs
def test_a_flat_qwen2_vl_config_keeps_its_width_in_the_text_part() -> None:
    transformers = pytest.importorskip("transformers")
    flat = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100}
    real = transformers.CONFIG_MAPPING["qwen2_vl"](**flat)
    facts = from_config({"model_type": "qwen2_vl", **flat})
    assert not hasattr(real, "hidden_size")
    assert facts.hidden_size_for("accelerate") is None
    assert facts.hidden_size_for("trl") == real.text_config.hidden_size == 64


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "names no model_type"),
        ({"model_type": "mamba"}, "'mamba' is not known"),
        ({"model_type": ["llama"]}, "names no model_type"),
        ({"model_type": "llama", "hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"model_type": "llama", "num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"model_type": "llama", "num_hidden_layers": 10**9}, "more than any model has"),
        ({"model_type": "gemma", "head_dim": None}, "head_dim is null"),
        ({"model_type": "llava", "text_config": {"model_type": "mamba"}}, "text part 'mamba'"),
        ({"model_type": "llava", "text_config": {"model_type": ["llama"]}}, "text part"),
        ({"model_type": "qwen2_moe", "mlp_only_layers": 3}, "mlp_only_layers"),
        ({"model_type": "gemma3"}, "text_config is missing"),
        ({"model_type": "glm_moe_dsa", "index_topk_freq": 4}, "which layers have an indexer"),
        ({"model_type": "glm_moe_dsa", "indexer_types": ["full"]}, "which layers have an indexer"),
        ({"model_type": "deepseek_v32", "mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        ({"model_type": "llama4_text", "moe_layers": 2}, "moe_layers is 2"),
        ({"model_type": "llama", "tie_word_embeddings": None}, None),
    ],
)
def test_what_cannot_be_counted_is_unknown_with_a_reason(config: dict[str, Any], reason: str | None) -> None:
    facts = from_config(config)
    if reason is None:
        assert facts.parameters == 6_738_415_616
    else:
        assert facts.parameters is None
        assert reason in str(facts.unknown_because)


def test_not_an_object() -> None:
    assert from_config([1]).parameters is None  # type: ignore[arg-type]


def test_the_width_of_an_unknown_type_is_still_read() -> None:
    vision = from_config({"model_type": "segformer", "hidden_sizes": [32, 64, 160]})
    assert vision.hidden_size_for("accelerate") == vision.hidden_size_for("trl") == 160
    wrapper = from_config({"model_type": "idefics9", "text_config": {"hidden_size": 64}})
    assert wrapper.hidden_size_for("accelerate") is None
    assert wrapper.hidden_size_for("transformers") == 64
    assert wrapper.hidden_size_for("deepspeed") is None


def test_small_tensors_that_stay_on_every_rank() -> None:
    facts = from_config({"model_type": "llama"})
    assert facts.elements_up_to(40_960) == 65 * 4096
    assert facts.elements_up_to(40_960, cap=1000) == 1000
    assert inline({"parameters": 10}).elements_up_to(10) is None


def test_inline_facts() -> None:
    facts = inline({"parameters": "7e9", "hidden_size": 4096.0, "trainable_parameters": 10})
    assert (facts.parameters, facts.trainable, facts.hidden_size_for("accelerate")) == (7 * 10**9, 10, 4096)
    with pytest.raises(ValueError, match="parametrs"):
        inline({"parametrs": 1})
    with pytest.raises(ValueError, match="parameters"):
        inline({"parameters": "many"})


def test_facts_satisfy_their_schema() -> None:
    import jsonschema

    from zerocfg.models.schema import SCHEMAS

    for config in (
        {"model_type": "mixtral"},
        {"model_type": "mamba"},
        {"model_type": "gemma3", "text_config": {}},
    ):
        facts = from_config(config)
        jsonschema.validate(json.loads(facts.model_dump_json()), SCHEMAS["model-facts"]())
        assert ModelFacts.model_validate_json(facts.model_dump_json()) == facts


def test_any_content_gives_facts_or_a_reason() -> None:
    draw = random.Random(1)
    values = [None, -1, 0, 1, 3, 2.5, "x", [], {}, True, 10**30, [1], float("nan")]
    names = {name for family in FAMILIES.values() for name in family.defaults}
    names |= {"head_dim", "mlp_only_layers", "decoder_sparse_step", "text_config", "hidden_sizes", "n_embd"}
    for _ in range(3000):
        config = {"model_type": draw.choice([*CAUSAL, *COMPOSITES, "x"])}
        config |= {name: draw.choice(values) for name in draw.sample(sorted(names), draw.randint(1, 3))}
        facts = from_config(config)
        assert (facts.parameters is None) == (facts.unknown_because is not None), config
