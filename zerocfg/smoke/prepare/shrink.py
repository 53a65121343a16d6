"""A model's config.json made smaller without becoming another architecture: fewer layers, or smaller sizes as well.

At least one layer of each kind stays (full and sliding attention, dense and sparse, recurrent and not), grouped heads
stay grouped, tied embeddings tied, experts several. No library is asked: these are the names that configs use.
"""

from __future__ import annotations

from typing import Any

from zerocfg.smoke.model.reduction import Cut

LAYERS = 2
HEADS = 4
HEAD_SIZE = 16
HIDDEN_SIZE = HEADS * HEAD_SIZE
VOCABULARY = 1024
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "depth")
"""What the number of layers is called; ``num_decoder_layers`` of T5 goes with ``num_layers``."""
# Every number of a config.json that is cut to at most this; what is not named stays.
LIMITS = {
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": HEAD_SIZE,
    "intermediate_size": 4 * HIDDEN_SIZE,
    "ffn_dim": 4 * HIDDEN_SIZE,
    "encoder_ffn_dim": 4 * HIDDEN_SIZE,
    "decoder_ffn_dim": 4 * HIDDEN_SIZE,
    "ffn_hidden_size": 4 * HIDDEN_SIZE,
    "n_inner": 4 * HIDDEN_SIZE,
    "d_ff": 4 * HIDDEN_SIZE,
    "d_kv": HEAD_SIZE,
    "word_embed_proj_dim": HIDDEN_SIZE,
    "embedding_size": HIDDEN_SIZE,
    "moe_intermediate_size": 2 * HIDDEN_SIZE,
    "shared_expert_intermediate_size": 2 * HIDDEN_SIZE,
    "num_local_experts": 4,
    "num_experts": 4,
    "moe_num_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "kv_lora_rank": 2 * HEAD_SIZE,
    "q_lora_rank": 2 * HEAD_SIZE,
    "qk_rope_head_dim": HEAD_SIZE,
    "qk_nope_head_dim": HEAD_SIZE,
    "qk_head_dim": 2 * HEAD_SIZE,
    "v_head_dim": HEAD_SIZE,
    "image_size": 64,
    "max_position_embeddings": 2048,
    "n_positions": 2048,
}
DENSE_FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
"""Layers at the beginning that have no experts: one of them stays, and one with experts behind it."""
HIDDEN = ("hidden_size", "n_embd", "d_model", "embed_dim")
QUERIES = (
    "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"
)  # fmt: skip
KEYS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
PERIODS = (
    "sliding_window_pattern", "attn_layer_period", "expert_layer_period", "full_attention_interval",
    "interleave_moe_layer_step", "no_rope_layer_interval", "decoder_sparse_step", "moe_layer_interval",
    "global_attn_every_n_layers",
)  # fmt: skip
"""Every so many layers one is of another kind."""
KINDS = 6
"""More different entries than these in a list are no kinds of layers."""
INDEXES = (
    "mlp_only_layers", "attn_layer_indices", "full_attn_idxs", "hybrid_layer_ids", "moe_layers", "no_rope_layers_idx",
    "cross_attention_layers", "attention_layers_idx",
)  # fmt: skip
"""Lists of layers by their number."""
SECTIONS = ("text_config", "vision_config", "audio_config", "encoder", "decoder")
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 4 * HIDDEN_SIZE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


def shrink(config: dict[str, Any]) -> tuple[dict[str, Any], list[Cut]]:
    """A small copy of ``config`` and the numbers that were changed."""
    changes: list[Cut] = []
    return _small(config, "", changes), changes


def layers_of(config: dict[str, Any]) -> int | None:
    """How many layers the language model has; None where the config does not say it under a known name."""
    name, part = _count(config)
    return int(part[name]) if name else None


def least_layers(config: dict[str, Any]) -> int:
    """The fewest layers that hold one of each kind."""
    name, part = _count(config)
    if not name:
        return 1
    return len(_kept(part, int(part[name]), 1))


def fewer_layers(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """A copy with so many layers, or with one of each kind where those are more; every width stays."""
    name, part = _count(config)
    if not name:
        return dict(config)
    less = _cut(part, name, layers)
    return less if part is config else config | {"text_config": less}


def _count(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of the number of layers, and the part of the config that holds it."""
    nested = config.get("text_config")
    for part in (nested, config) if isinstance(nested, dict) else (config,):
        for name in COUNTS:
            if _whole(part.get(name)):
                return name, part
    return "", config


def _cut(config: dict[str, Any], name: str, layers: int) -> dict[str, Any]:
    """``config`` with fewer of the layers that ``name`` counts, and everything that is told for each layer."""
    count = int(config[name])
    kept = _kept(config, count, layers)
    less = dict(config)
    for other in (*COUNTS, "num_decoder_layers"):
        if _whole(less.get(other)) and less[other] == count:
            less[other] = len(kept)
    for key, value in config.items():
        if not isinstance(value, list):
            continue
        if key in INDEXES:
            less[key] = [kept.index(item) for item in value if item in kept]
        elif _for_each_layer(key, value, count):
            less[key] = [value[index] for index in kept]
    for key in ("max_window_layers", *DENSE_FIRST):
        if _whole(less.get(key)) and less[key] > len(kept):
            less[key] = len(kept)
    if _whole(config.get("num_kv_shared_layers")):  # the last layers, which use the keys and values of others
        less["num_kv_shared_layers"] = sum(1 for index in kept if index >= count - config["num_kv_shared_layers"])
    by_layer = config.get("per_layer_config")
    if isinstance(by_layer, dict):
        less["per_layer_config"] = {
            type(index)(kept.index(int(index))): value for index, value in by_layer.items() if int(index) in kept
        }
    if isinstance(config.get("attention_types"), list):  # GPT-Neo: [[["global", "local"], 12]]
        kinds = [kind for part, times in config["attention_types"] for _ in range(times) for kind in part]
        less["attention_types"] = [[[kinds[index] for index in kept if index < len(kinds)], 1]]
    return less


def _kept(config: dict[str, Any], count: int, wanted: int) -> list[int]:
    """The layers that stay, by their number: one of each kind, else the first ones."""
    patterns = [
        value for key, value in config.items() if isinstance(value, list) and _for_each_layer(key, value, count)
    ]
    apart = config.get("per_layer_config")
    if isinstance(apart, dict):
        patterns.append([apart.get(index, apart.get(str(index))) for index in range(count)])
    patterns += [[index in value for index in range(count)] for key, value in config.items()
             if key in INDEXES and isinstance(value, list)]  # fmt: skip
    # A figure for each layer, such as a width, makes no kinds.
    patterns = [value for value in patterns if len({repr(item) for item in value}) <= KINDS]
    first: dict[str, int] = {}
    for index in range(count):
        first.setdefault(repr([value[index] for value in patterns]), index)
    kept = set(first.values())
    period = max((config[key] for key in PERIODS if _whole(config.get(key)) and config[key] <= count), default=1)
    dense = max((config[key] for key in DENSE_FIRST if _whole(config.get(key)) and config[key] < count), default=0)
    if "layer_types" not in config:
        wanted = max(wanted, period)
    for index in range(count):
        if len(kept) >= wanted and (not dense or max(kept) >= dense):
            break
        kept.add(index)
    return sorted(kept)


def _for_each_layer(key: str, value: list[Any], count: int) -> bool:
    named = key not in INDEXES and not key.endswith(("token_id", "token_ids"))
    return named and count > 1 and len(value) == count


def _small(config: dict[str, Any], prefix: str, changes: list[Cut]) -> dict[str, Any]:
    cut = dict(config)
    for name in DENSE_FIRST:
        if _whole(cut.get(name)) and cut[name] > 1:
            cut[name] = 1
    for name in PERIODS:
        if _whole(cut.get(name)) and cut[name] > 2 and "layer_types" not in cut:
            cut[name] = 2
    for name in COUNTS:
        if _whole(cut.get(name)) and cut[name] > LAYERS:
            cut = _cut(cut, name, LAYERS)
    for name, offset in (("attn_layer_period", "attn_layer_offset"), ("expert_layer_period", "expert_layer_offset")):
        if _whole(cut.get(name)) and isinstance(cut.get(offset), int):
            cut[offset] %= cut[name]
    for name, limit in LIMITS.items():
        value = cut.get(name)
        if _whole(value) and cut[name] > limit:
            cut[name] = limit
        elif isinstance(value, list):
            cut[name] = [min(item, limit) if _whole(item) else item for item in value]
    hidden = next((name for name in HIDDEN if _whole(cut.get(name))), None)
    if hidden is not None and cut[hidden] > HIDDEN_SIZE:
        _heads(config, cut)
        cut[hidden] = HIDDEN_SIZE
    for name, value in list(cut.items()):
        if isinstance(value, dict):
            if name in SECTIONS or name.endswith("_config"):
                cut[name] = _small(value, f"{prefix}{name}.", changes)
            elif name in ("rope_parameters", "rope_scaling") and cut.get(hidden or "") != config.get(hidden or ""):
                cut[name] = _rope(value)
        elif name.endswith("_token_id"):
            cut[name] = _token(value, cut)
    for name, value in cut.items():
        if isinstance(value, int) and not isinstance(value, bool) and value != config.get(name):
            changes.append(Cut(f"{prefix}{name}", config.get(name), value))
    return cut


def _heads(config: dict[str, Any], cut: dict[str, Any]) -> None:
    """Fewer heads; keys and values stay as many as queries, fewer, or one."""
    queries = next((int(config[name]) for name in QUERIES if _whole(config.get(name))), HEADS)
    for name in QUERIES:
        if _whole(cut.get(name)):
            cut[name] = HEADS
    for name in KEYS:
        if _whole(cut.get(name)):
            cut[name] = 1 if cut[name] == 1 else HEADS // 2 if cut[name] < queries else HEADS
    for name in ("head_dim", "global_head_dim", "attention_head_dim", "rotary_dim", "d_head"):
        if _whole(cut.get(name)) and cut[name] > HEAD_SIZE:
            cut[name] = HEAD_SIZE
    # State space models widen by a factor: heads of the inner width.
    if _whole(config.get("expand")) and "head_dim" in config:
        cut["num_heads"] = config["expand"] * HIDDEN_SIZE // int(cut["head_dim"])
    if _whole(config.get("mamba_n_heads")):
        if "mamba_d_head" in config:
            cut["mamba_d_head"] = HEAD_SIZE
        cut["mamba_n_heads"] = int(config.get("mamba_expand") or 2) * HEADS
        if _whole(config.get("mamba_d_ssm")):
            cut["mamba_d_ssm"] = cut["mamba_n_heads"] * HEAD_SIZE


def _rope(parameters: dict[str, Any]) -> dict[str, Any]:
    """Lists with an item for each half of a head's size, of a head that became small."""
    cut = dict(parameters)
    half = HEAD_SIZE // 2
    for name, value in parameters.items():
        if name in ("short_factor", "long_factor") and isinstance(value, list):
            cut[name] = value[:half]
        elif name == "mrope_section" and isinstance(value, list) and len(value) > 1:
            each = half // len(value)
            cut[name] = [half - each * (len(value) - 1), *[each] * (len(value) - 1)]
        elif isinstance(value, dict):  # one set of parameters for each kind of layer
            cut[name] = _rope(value)
    return cut


def _token(value: Any, config: dict[str, Any]) -> Any:
    """A token that the small vocabulary has."""
    nested = config.get("text_config")
    last = int(config.get("vocab_size") or (nested or {}).get("vocab_size") or VOCABULARY) - 1
    if isinstance(value, list):
        return [min(item, last) if isinstance(item, int) else item for item in value]
    return min(value, last) if _whole(value) else value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
