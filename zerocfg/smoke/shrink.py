"""A model's config.json made small enough for the device at hand: fewer layers, smaller sizes, same architecture."""

from __future__ import annotations

from typing import Any

LAYERS = 2
HEADS = 4
HEAD_SIZE = 16
VOCABULARY = 1024
# Every number of a config.json that is cut to at most this; what is not named stays.
LIMITS = {
    "num_hidden_layers": LAYERS,
    "n_layer": LAYERS,
    "num_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "intermediate_size": 4 * HEADS * HEAD_SIZE,
    "ffn_dim": 4 * HEADS * HEAD_SIZE,
    "n_inner": 4 * HEADS * HEAD_SIZE,
    "moe_intermediate_size": 2 * HEADS * HEAD_SIZE,
    "shared_expert_intermediate_size": 2 * HEADS * HEAD_SIZE,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
HIDDEN = ("hidden_size", "n_embd", "d_model")
WIDTHS = ("num_attention_heads", "n_head", "num_key_value_heads")
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HEADS * HEAD_SIZE,
    "intermediate_size": 4 * HEADS * HEAD_SIZE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


def shrink(config: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A small copy of ``config`` and what was changed, as "name old to new"."""
    changes: list[str] = []
    return _section(config, "", changes), changes


def _section(config: dict[str, Any], prefix: str, changes: list[str]) -> dict[str, Any]:
    small = dict(config)

    def change(name: str, value: int) -> None:
        if small.get(name) != value:
            changes.append(f"{prefix}{name} {small[name]} to {value}")
            small[name] = value

    for name, limit in LIMITS.items():
        if isinstance(small.get(name), int) and small[name] > limit:
            change(name, limit)
    hidden = next((name for name in HIDDEN if isinstance(small.get(name), int)), None)
    if hidden is not None and small[hidden] > HEADS * HEAD_SIZE:
        for name in WIDTHS:
            if isinstance(small.get(name), int):
                # grouped heads stay grouped: half as many keys and values as queries
                grouped = name == "num_key_value_heads" and small[name] < config.get("num_attention_heads", 0)
                single = name == "num_key_value_heads" and small[name] == 1
                change(name, 1 if single else HEADS // 2 if grouped else HEADS)
        change(hidden, HEADS * HEAD_SIZE)
        if isinstance(small.get("head_dim"), int):
            change("head_dim", HEAD_SIZE)
    layers = next((small[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if name in small), None)
    for name, value in list(small.items()):
        if isinstance(value, list) and isinstance(layers, int) and name in ("layer_types", "mlp_layer_types"):
            small[name] = value[:layers]
        elif name.endswith("_token_id") and isinstance(value, int) and value >= small.get("vocab_size", VOCABULARY):
            small[name] = small.get("vocab_size", VOCABULARY) - 1
        elif name.endswith("_token_id") and isinstance(value, list):
            small[name] = [min(item, VOCABULARY - 1) if isinstance(item, int) else item for item in value]
        elif isinstance(value, dict) and name == "text_config":
            small[name] = _section(value, f"{name}.", changes)
    return small
