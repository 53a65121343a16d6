"""The models whose loss Liger's kernels compute without all logits, by the release of liger-kernel that first has them.

Read off `MODEL_TYPE_TO_APPLY_LIGER_FN` of liger_kernel/transformers/monkey_patch.py, of which the functions count that
turn `fused_linear_cross_entropy` on unless told otherwise, in 0.3.0, 0.3.1, 0.4.0, 0.4.2, 0.5.0, 0.5.2, 0.5.5, 0.5.8,
0.5.10, 0.6.0, 0.6.2, 0.6.4, 0.7.0, 0.8.0 and 0.8.5; a release between two of these may have had a model sooner. Of any
other model the Trainer says nothing, and its logits stay whole (`granite` and `pixtral` get other kernels only).
"""

from __future__ import annotations

_NEW: dict[str, str] = {
    "0.3.0": "gemma llama mistral mixtral phi3 qwen2 qwen2_vl",
    "0.4.0": "mllama mllama_text_model",
    "0.4.2": "gemma2",
    "0.5.5": "olmo2 qwen2_5_vl",
    "0.5.8": "gemma3 gemma3_text llava paligemma",
    "0.5.10": "glm4 qwen3 qwen3_moe",
    "0.6.0": "llama4 llama4_text qwen2_5_vl_text qwen2_vl_text",
    "0.6.2": "glm4v smollm3",
    "0.6.4": "falcon_h1 glm4v_moe hunyuan_v1_dense hunyuan_v1_moe internvl olmo3 qwen3_next qwen3_vl qwen3_vl_moe "
    "qwen3_vl_moe_text qwen3_vl_text smolvlm",
    "0.7.0": "exaone4 gpt_oss",
    "0.8.0": "gemma4_text ministral nemotron qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text",
    "0.8.5": "deepseek_v2 deepseek_v3 deepseek_v4 gemma4 muse_glimmer",
}
FUSED_SINCE: dict[str, str] = {name: release for release, names in _NEW.items() for name in names.split()}
"""By `model_type` of config.json."""
NEWEST = "0.8.5"
"""The release with which two ranks trained under ZeRO 2 and 3 of DeepSpeed 0.19.8, as transformers 5.23.0 starts it,
without logits (Triton's interpreter, gloo; Llama and Qwen3, tied or not). An untied Llama under ZeRO-3 had the same
losses to 1e-6 as without it, recomputed or not. Earlier releases are reported to stop under ZeRO-3 (Liger-Kernel issues
767 and 1048)."""
