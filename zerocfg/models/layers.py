"""Class names of transformers' modules: the decoder layer of each architecture, which FSDP wraps.

Compared with the real classes in `tests/models/test_layers.py`.
"""

from __future__ import annotations

from zerocfg.models.families import FAMILIES

LAYER_CLASSES = {
    "llama": "LlamaDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "ministral": "MinistralDecoderLayer",
    "granite": "GraniteDecoderLayer",
    "smollm3": "SmolLM3DecoderLayer",
    "olmo": "OlmoDecoderLayer",
    "olmo2": "Olmo2DecoderLayer",
    "olmo3": "Olmo3DecoderLayer",
    "olmoe": "OlmoeDecoderLayer",
    "internlm3": "LlamaDecoderLayer",
    "seed_oss": "SeedOssDecoderLayer",
    "exaone4": "Exaone4DecoderLayer",
    "ernie4_5": "Ernie4_5DecoderLayer",
    "ernie4_5_moe": "Ernie4_5_MoeDecoderLayer",
    "apertus": "ApertusDecoderLayer",
    "arcee": "ArceeDecoderLayer",
    "ministral3": "Ministral3DecoderLayer",
    "cwm": "CwmDecoderLayer",
    "jais2": "Jais2DecoderLayer",
    "cohere2": "Cohere2DecoderLayer",
    "glm": "GlmDecoderLayer",
    "minimax_m2": "MiniMaxM2DecoderLayer",
    "solar_open": "SolarOpenDecoderLayer",
    "llama4_text": "Llama4TextDecoderLayer",
    "cohere": "CohereDecoderLayer",
    "glm4": "Glm4DecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gemma3_text": "Gemma3DecoderLayer",
    "phi": "PhiDecoderLayer",
    "phi3": "Phi3DecoderLayer",
    "starcoder2": "Starcoder2DecoderLayer",
    "gpt2": "GPT2Block",
    "gptj": "GPTJBlock",
    "gpt_neo": "GPTNeoBlock",
    "gpt_neox": "GPTNeoXLayer",
    "bloom": "BloomBlock",
    "opt": "OPTDecoderLayer",
    "falcon": "FalconDecoderLayer",
    "mixtral": "MixtralDecoderLayer",
    "phimoe": "PhimoeDecoderLayer",
    "granitemoe": "GraniteMoeDecoderLayer",
    "gpt_oss": "GptOssDecoderLayer",
    "qwen2_moe": "Qwen2MoeDecoderLayer",
    "qwen3_moe": "Qwen3MoeDecoderLayer",
    "glm4_moe": "Glm4MoeDecoderLayer",
    "deepseek_v2": "DeepseekV2DecoderLayer",
    "deepseek_v3": "DeepseekV3DecoderLayer",
    "deepseek_v32": "DeepseekV32DecoderLayer",
    "glm_moe_dsa": "GlmMoeDsaDecoderLayer",
}


def foreign_classes(model_type: str) -> frozenset[str]:
    """Decoder layers and expert blocks of the other architectures: classes that this model does not hold."""
    experts = {name: family.experts.block for name, family in FAMILIES.items() if family.experts is not None}
    own = {LAYER_CLASSES.get(model_type), experts.get(model_type)}
    return frozenset((set(LAYER_CLASSES.values()) | set(experts.values())) - own)
