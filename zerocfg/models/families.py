"""The architecture families: what differs between Llama, Qwen, Gemma, GPT-2, DeepSeek and their kin.

Defaults are those of the configuration classes of transformers 5.23, only for keys that change a tensor
(or that other analyses ask for).
"""

from __future__ import annotations

from typing import Any

from zerocfg.models.architectures import Decoder, Experts


def _sizes(
    vocab: int,
    hidden: int,
    inner: int | None,
    layers: int,
    heads: int,
    pairs: int | None,
    positions: int,
    *,
    tied: bool = False,
    **more: Any,
) -> dict[str, Any]:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": pairs,
        "max_position_embeddings": positions,
        "tie_word_embeddings": tied,
        **more,
    }


def _four_times_hidden(config: dict[str, Any]) -> None:
    if config.get("intermediate_size") is None and isinstance(config.get("hidden_size"), int):
        config["intermediate_size"] = 4 * config["hidden_size"]


def _bloom(config: dict[str, Any]) -> None:
    config["intermediate_size"] = None  # there is no such key: always 4 x hidden_size
    _four_times_hidden(config)


def _falcon(config: dict[str, Any]) -> None:
    _four_times_hidden(config)
    grouped = config.get("new_decoder_architecture")
    if not grouped and config.get("multi_query"):
        config["num_key_value_heads"] = 1
    elif not grouped:
        config["num_key_value_heads"] = config.get("num_attention_heads")
    parallel_norms = config.get("num_ln_in_parallel_attn")
    if parallel_norms is None and grouped:
        parallel_norms = 2
    config["norms"] = 2 if not config.get("parallel_attn") or parallel_norms == 2 else 1


def _opt(config: dict[str, Any]) -> None:
    if config.get("word_embed_proj_dim") is None:
        config["word_embed_proj_dim"] = config.get("hidden_size")
    config["final_norm"] = bool(config.get("do_layer_norm_before")) and not config.get("_remove_final_layer_norm")


GPT2_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "n_inner": "intermediate_size",
}
_LLAMA: dict[str, Any] = {"qkv_bias": "attention_bias", "out_bias": "attention_bias", "mlp_bias": "mlp_bias"}
_ATTENTION_BIAS: dict[str, Any] = {"qkv_bias": "attention_bias", "out_bias": "attention_bias"}
_PLAIN_BLOCK: dict[str, Any] = {"mlp": "plain", "mlp_bias": True, "norm_vectors": 2}

FAMILIES: dict[str, Decoder] = {
    "llama": Decoder(_sizes(32000, 4096, 11008, 32, 32, None, 2048), **_LLAMA),
    "mistral": Decoder(_sizes(32000, 4096, 14336, 32, 32, 8, 131072)),
    "ministral": Decoder(_sizes(32000, 4096, 14336, 32, 32, 8, 131072)),
    "granite": Decoder(_sizes(32000, 4096, 11008, 32, 32, None, 2048), **_LLAMA),
    "smollm3": Decoder(_sizes(128256, 2048, 11008, 36, 16, 4, 32768, tied=True), **_LLAMA),
    "olmo": Decoder(_sizes(50304, 4096, 11008, 32, 32, None, 2048), norm_vectors=0, **_ATTENTION_BIAS),
    "olmo2": Decoder(_sizes(50304, 4096, 11008, 32, 32, None, 2048), qk_norm="all_heads", **_ATTENTION_BIAS),
    "olmo3": Decoder(_sizes(50304, 4096, 11008, 32, 32, None, 2048), qk_norm="all_heads", **_ATTENTION_BIAS),
    "internlm3": Decoder(
        _sizes(128512, 4096, 10240, 48, 32, 2, 32768, head_dim=128),
        aliases={"qkv_bias": "attention_bias", "bias": "mlp_bias"},
        **_LLAMA,
    ),
    "seed_oss": Decoder(
        _sizes(155136, 4096, 27648, 64, 80, 8, 524288, head_dim=128, attention_bias=True),
        qkv_bias="attention_bias",
        out_bias="attention_out_bias",
        mlp_bias="mlp_bias",
    ),
    "exaone4": Decoder(_sizes(102400, 4096, 16384, 32, 32, 32, 2048), qk_norm="head"),
    "ernie4_5": Decoder(
        _sizes(103424, 1024, 3072, 18, 16, 2, 131072, tied=True, head_dim=128),
        qkv_bias="use_bias",
        out_bias="use_bias",
        mlp_bias="use_bias",
    ),
    "apertus": Decoder(
        _sizes(131072, 4096, 14336, 32, 32, None, 65536),
        qk_norm="head",
        mlp="plain",
        activation_scalars=2,
        **_ATTENTION_BIAS,
    ),
    "arcee": Decoder(_sizes(32000, 2560, 18432, 32, 32, None, 4096), mlp="plain", **_LLAMA),
    "ministral3": Decoder(_sizes(131072, 4096, 14336, 34, 32, 8, 262144, head_dim=128)),
    "cwm": Decoder(_sizes(128256, 6144, 21504, 64, 48, 8, 131072, head_dim=128), mlp_bias="mlp_bias"),
    "jais2": Decoder(
        _sizes(150272, 3328, 26624, 32, 26, None, 8192, attention_bias=True, mlp_bias=True),
        mlp="plain",
        norm_vectors=2,
        **_LLAMA,
    ),
    "cohere2": Decoder(_sizes(256000, 8192, 22528, 40, 64, None, 8192, tied=True), norms=1, **_ATTENTION_BIAS),
    "glm": Decoder(
        _sizes(151552, 4096, 13696, 40, 32, 2, 131072, head_dim=128, attention_bias=True),
        qkv_bias="attention_bias",
        mlp="fused_gated",
    ),
    "cohere": Decoder(
        _sizes(256000, 8192, 22528, 40, 64, None, 8192, tied=True),
        norms=1,
        qk_norm="all_heads",
        qk_norm_if="use_qk_norm",
        **_ATTENTION_BIAS,
    ),
    "glm4": Decoder(
        _sizes(151552, 4096, 13696, 40, 32, 2, 131072, head_dim=128, attention_bias=True),
        qkv_bias="attention_bias",
        mlp="fused_gated",
        norms=4,
    ),
    "qwen2": Decoder(_sizes(151936, 4096, 22016, 32, 32, 32, 32768), qkv_bias=True),
    "qwen2_vl_text": Decoder(_sizes(152064, 8192, 29568, 80, 64, 8, 32768), head_dim=False, qkv_bias=True),
    "qwen3": Decoder(_sizes(151936, 4096, 22016, 32, 32, 32, 32768, head_dim=128), qk_norm="head", **_ATTENTION_BIAS),
    "qwen3_vl_text": Decoder(
        _sizes(151936, 4096, 22016, 32, 32, 32, 128000, head_dim=128), qk_norm="head", **_ATTENTION_BIAS
    ),
    "gemma": Decoder(_sizes(256000, 3072, 24576, 28, 16, 16, 8192, tied=True, head_dim=256), **_ATTENTION_BIAS),
    "gemma2": Decoder(_sizes(256000, 2304, 9216, 26, 8, 4, 8192, tied=True, head_dim=256), norms=4, **_ATTENTION_BIAS),
    "gemma3_text": Decoder(
        _sizes(262208, 2304, 9216, 26, 8, 4, 131072, tied=True, head_dim=256),
        norms=4,
        qk_norm="head",
        **_ATTENTION_BIAS,
    ),
    "phi": Decoder(
        _sizes(51200, 2048, 8192, 24, 32, None, 2048),
        qkv_bias=True,
        out_bias=True,
        qk_norm="head_affine",
        qk_norm_if="qk_layernorm",
        norms=1,
        head_bias=True,
        **_PLAIN_BLOCK,
    ),
    "phi3": Decoder(_sizes(32064, 3072, 8192, 32, 32, None, 4096), fused_qkv=True, mlp="fused_gated"),
    "starcoder2": Decoder(
        _sizes(49152, 3072, 12288, 30, 24, 2, 4096, tied=True, use_bias=True),
        qkv_bias="use_bias",
        out_bias="use_bias",
        mlp="plain",
        mlp_bias="use_bias",
        norm_vectors=2,
    ),
    "gpt2": Decoder(
        _sizes(50257, 768, None, 12, 12, None, 1024, tied=True),
        prepare=_four_times_hidden,
        head_dim=False,
        fused_qkv=True,
        qkv_bias=True,
        out_bias=True,
        position_rows=0,
        aliases=GPT2_NAMES,
        **_PLAIN_BLOCK,
    ),
    "gptj": Decoder(
        _sizes(50400, 4096, None, 28, 16, None, 2048),
        prepare=_four_times_hidden,
        head_dim=False,
        norms=1,
        head_bias=True,
        aliases=GPT2_NAMES,
        **_PLAIN_BLOCK,
    ),
    "gpt_neo": Decoder(
        _sizes(50257, 2048, None, 24, 16, None, 2048, tied=True),
        prepare=_four_times_hidden,
        head_dim=False,
        out_bias=True,
        position_rows=0,
        aliases={"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"},
        **_PLAIN_BLOCK,
    ),
    "gpt_neox": Decoder(
        _sizes(50432, 6144, 24576, 44, 64, None, 2048, attention_bias=True),
        head_dim=False,
        fused_qkv=True,
        qkv_bias="attention_bias",
        out_bias="attention_bias",
        **_PLAIN_BLOCK,
    ),
    "bloom": Decoder(
        _sizes(250880, 64, None, 2, 8, None, 2048, tied=True),
        prepare=_bloom,
        head_dim=False,
        fused_qkv=True,
        qkv_bias=True,
        out_bias=True,
        embedding_norm=True,
        aliases={"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_embed": "hidden_size"},
        **_PLAIN_BLOCK,
    ),
    "opt": Decoder(
        _sizes(
            50272,
            768,
            3072,
            12,
            12,
            None,
            2048,
            tied=True,
            word_embed_proj_dim=768,
            enable_bias=True,
            layer_norm_elementwise_affine=True,
            do_layer_norm_before=True,
        ),
        prepare=_opt,
        head_dim=False,
        qkv_bias="enable_bias",
        out_bias="enable_bias",
        mlp="plain",
        mlp_bias="enable_bias",
        norm_vectors=2,
        norm_vectors_if="layer_norm_elementwise_affine",
        final_norm="final_norm",
        position_rows=2,
        embedding_dim="word_embed_proj_dim",
        aliases={"ffn_dim": "intermediate_size"},
    ),
    "falcon": Decoder(
        _sizes(65024, 4544, None, 32, 71, None, 2048, tied=True, multi_query=True, parallel_attn=True),
        prepare=_falcon,
        head_dim=False,
        fused_qkv=True,
        qkv_bias="bias",
        out_bias="bias",
        mlp="plain",
        mlp_bias="bias",
        norms="norms",
        norm_vectors=2,
        aliases={
            "num_kv_heads": "num_key_value_heads",
            "ffn_hidden_size": "intermediate_size",
            "n_embed": "hidden_size",
        },
    ),
    "mixtral": Decoder(
        _sizes(32000, 4096, 14336, 32, 32, 8, 131072, num_local_experts=8),
        experts=Experts("MixtralSparseMoeBlock"),
        aliases={"num_experts": "num_local_experts"},
    ),
    "minimax_m2": Decoder(
        _sizes(200064, 3072, 1536, 62, 48, 8, 196608, head_dim=128, num_local_experts=256),
        qk_norm="all_heads",
        experts=Experts("MiniMaxM2SparseMoeBlock"),
        aliases={"num_experts": "num_local_experts"},
    ),
    "olmoe": Decoder(
        _sizes(50304, 2048, 2048, 16, 16, None, 4096, num_experts=64),
        qk_norm="all_heads",
        experts=Experts("OlmoeSparseMoeBlock", "num_experts"),
        aliases={"num_local_experts": "num_experts"},
        **_ATTENTION_BIAS,
    ),
    "ernie4_5_moe": Decoder(
        _sizes(
            103424,
            2560,
            12288,
            28,
            20,
            4,
            131072,
            tied=True,
            moe_intermediate_size=1536,
            moe_num_experts=64,
            n_shared_experts=2,
            moe_layer_start_index=1,
            moe_layer_end_index=-1,
            moe_layer_interval=1,
        ),
        qkv_bias="use_bias",
        out_bias="use_bias",
        mlp_bias="use_bias",
        head_bias="use_bias",
        experts=Experts(
            "Ernie4_5_MoeSparseMoeBlock",
            "moe_num_experts",
            "moe_intermediate_size",
            layers="range",
            shared="optional_count",
            shared_bias="use_bias",
            score_bias=True,
        ),
        aliases={
            "num_experts": "moe_num_experts",
            "moe_num_shared_experts": "n_shared_experts",
            "moe_k": "num_experts_per_tok",
        },
    ),
    "solar_open": Decoder(
        _sizes(
            196608,
            4096,
            None,
            48,
            64,
            8,
            131072,
            head_dim=128,
            n_routed_experts=128,
            n_shared_experts=1,
            moe_intermediate_size=1280,
        ),
        qkv_bias="attention_bias",
        experts=Experts("SolarOpenMoE", "n_routed_experts", "moe_intermediate_size", shared="count"),
        aliases={"num_local_experts": "n_routed_experts"},
    ),
    "llama4_text": Decoder(
        _sizes(
            202048,
            5120,
            8192,
            48,
            40,
            8,
            131072,
            head_dim=128,
            intermediate_size_mlp=16384,
            num_local_experts=16,
            interleave_moe_layer_step=1,
        ),
        mlp_width="intermediate_size_mlp",
        experts=Experts("Llama4TextMoe", layers="listed", shared="one"),
        **_ATTENTION_BIAS,
    ),
    "phimoe": Decoder(
        _sizes(32064, 4096, 6400, 32, 32, 8, 131072, num_local_experts=16),
        experts=Experts("PhimoeSparseMoeBlock"),
        norm_vectors=2,
        head_bias="lm_head_bias",
        **_ATTENTION_BIAS,
    ),
    "granitemoe": Decoder(
        _sizes(32000, 4096, 11008, 32, 32, None, 2048, num_local_experts=8),
        experts=Experts("GraniteMoeMoE"),
        **_ATTENTION_BIAS,
    ),
    "gpt_oss": Decoder(
        _sizes(201088, 2880, 2880, 36, 64, 8, 131072, head_dim=64, attention_bias=True, num_local_experts=128),
        sinks=True,
        experts=Experts("GptOssMLP", bias=True),
        **_ATTENTION_BIAS,
    ),
    "qwen2_moe": Decoder(
        _sizes(
            151936,
            2048,
            5632,
            24,
            16,
            16,
            32768,
            num_experts=60,
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
            decoder_sparse_step=1,
            qkv_bias=True,
        ),
        qkv_bias="qkv_bias",
        experts=Experts(
            "Qwen2MoeSparseMoeBlock", "num_experts", "moe_intermediate_size", layers="step", shared="width"
        ),
    ),
    "qwen3_moe": Decoder(
        _sizes(
            151936,
            2048,
            6144,
            24,
            32,
            4,
            32768,
            num_local_experts=128,
            moe_intermediate_size=768,
            decoder_sparse_step=1,
        ),
        qk_norm="head",
        experts=Experts("Qwen3MoeSparseMoeBlock", width="moe_intermediate_size", layers="step"),
        aliases={"num_experts": "num_local_experts"},
        **_ATTENTION_BIAS,
    ),
    "qwen3_vl_moe_text": Decoder(
        _sizes(
            151936,
            2048,
            5632,
            24,
            16,
            16,
            128000,
            tied=True,
            num_experts=60,
            moe_intermediate_size=1408,
            decoder_sparse_step=1,
        ),
        qk_norm="head",
        experts=Experts("Qwen3VLMoeTextSparseMoeBlock", "num_experts", "moe_intermediate_size", layers="step"),
        **_ATTENTION_BIAS,
    ),
    "glm4_moe": Decoder(
        _sizes(
            151552,
            4096,
            10944,
            46,
            96,
            8,
            131072,
            n_routed_experts=128,
            n_shared_experts=1,
            moe_intermediate_size=1408,
            first_k_dense_replace=1,
        ),
        qkv_bias="attention_bias",
        qk_norm="head",
        qk_norm_if="use_qk_norm",
        experts=Experts(
            "Glm4MoeMoE", "n_routed_experts", "moe_intermediate_size", layers="after_first_k", shared="count"
        ),
    ),
}


def _deepseek(block: str, defaults: dict[str, Any], *, indexer: bool = False) -> Decoder:
    ranks = {"kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 128}
    heads = {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    return Decoder(
        {**ranks, **heads, **defaults},
        attention="latent",
        indexer=indexer,
        qkv_bias="attention_bias",
        experts=Experts(
            block,
            "n_routed_experts",
            "moe_intermediate_size",
            layers="after_first_k",
            typed=indexer,
            shared="count",
        ),
    )


FAMILIES["deepseek_v2"] = _deepseek(
    "DeepseekV2Moe",
    _sizes(
        102400,
        4096,
        11008,
        32,
        32,
        None,
        2048,
        n_routed_experts=64,
        n_shared_experts=2,
        moe_intermediate_size=1407,
        first_k_dense_replace=0,
    ),
)
FAMILIES["deepseek_v3"] = _deepseek(
    "DeepseekV3MoE",
    _sizes(
        129280,
        7168,
        18432,
        61,
        128,
        None,
        4096,
        n_routed_experts=256,
        n_shared_experts=1,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
    ),
)
FAMILIES["deepseek_v32"] = _deepseek(
    "DeepseekV32MoE",
    {**FAMILIES["deepseek_v3"].defaults, "index_n_heads": 64, "index_head_dim": 128},
    indexer=True,
)
FAMILIES["glm_moe_dsa"] = _deepseek(
    "GlmMoeDsaMoE",
    _sizes(
        154880,
        6144,
        12288,
        78,
        64,
        None,
        202752,
        n_routed_experts=256,
        n_shared_experts=1,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        q_lora_rank=2048,
        qk_nope_head_dim=192,
        v_head_dim=256,
        index_n_heads=32,
        index_head_dim=128,
    ),
    indexer=True,
)
