"""The parameters of decoder-only language models, as a closed formula for each architecture.

``tensors_of(config)`` lists every parameter tensor that transformers 5 creates for
``AutoModelForCausalLM`` from the same ``config.json``: which module owns it and how many elements it has.
Nothing is built and no library is imported. The formulas are compared with the real models on the meta
device in ``tests/models/test_model_facts.py``.

Two things follow from the release: experts of one layer are stacked in two tensors (transformers 4 had
one small matrix for each expert, so the sum is the same and the largest tensor is not), and a key that a
``config.json`` leaves out has the default of the configuration class, which is what ``defaults`` below
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Config = Mapping[str, Any]
MAX_LAYERS = 10_000


class UnknownShapeError(Exception):
    """The parameters of this config cannot be computed; the message gives the reason."""


@dataclass(frozen=True)
class Tensor:
    """One parameter: ``block`` is its decoder layer (None outside of them), ``size`` counts elements."""

    block: int | None
    module: str
    size: int


@dataclass(frozen=True)
class Experts:
    """The mixture-of-experts part of a family; strings name config keys."""

    block: str  # class name of the module that routes: what ZeRO-3 has to treat as one leaf
    count: str = "num_local_experts"
    width: str = "intermediate_size"
    layers: Literal["all", "step", "after_first_k", "listed", "range"] = "all"
    shared: Literal["none", "width", "count", "optional_count", "one"] = "none"
    shared_bias: bool | str = False
    bias: bool = False
    typed: bool = False  # `mlp_layer_types` wins over the first layers that are dense
    score_bias: bool = False  # a trained number for each expert, in a module of its own


@dataclass(frozen=True)
class Decoder:
    """One architecture family. ``bool | str`` fields: fixed, or the config key that switches it."""

    defaults: Config
    prepare: Callable[[dict[str, Any]], None] | None = None
    attention: Literal["heads", "latent"] = "heads"
    indexer: bool = False  # latent attention looks only at the tokens that a small attention chooses
    head_dim: bool = True  # False: always hidden_size / num_attention_heads, whatever `head_dim` says
    fused_qkv: bool = False
    qkv_bias: bool | str = False
    out_bias: bool | str = False
    qk_norm: Literal["none", "head", "head_affine", "all_heads"] = "none"
    qk_norm_if: bool | str = True
    sinks: bool = False
    mlp: Literal["gated", "fused_gated", "plain"] = "gated"
    mlp_bias: bool | str = False
    mlp_width: str = "intermediate_size"  # of dense layers
    activation_scalars: int = 0  # single trained numbers of the activation function
    norms: int | str = 2  # of hidden_size, in each layer
    norm_vectors: Literal[0, 1, 2] = 1  # none, weight, weight and bias
    norm_vectors_if: bool | str = True
    final_norm: bool | str = True
    embedding_norm: bool = False
    position_rows: int | None = None  # learned positions: rows beyond max_position_embeddings
    embedding_dim: str = "hidden_size"
    head_bias: bool | str = False
    experts: Experts | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)  # config key -> the name used here


def tensors_of(family: Decoder, config: Config) -> Iterator[Tensor]:
    """Every parameter tensor of the model that ``config`` describes.

    ``config`` is the result of :func:`complete`. Raises UnknownShapeError for values that no model can have.
    """
    hidden, vocab, embedding = (size_of(config, name) for name in ("hidden_size", "vocab_size", family.embedding_dim))
    layers = size_of(config, "num_hidden_layers")
    if layers > MAX_LAYERS:
        raise UnknownShapeError(f"num_hidden_layers is {layers}, more than any model has")

    yield Tensor(None, "embed_tokens", vocab * embedding)
    if family.position_rows is not None:
        rows = size_of(config, "max_position_embeddings") + family.position_rows
        yield Tensor(None, "embed_positions", rows * hidden)
    if embedding != hidden:
        yield Tensor(None, "project_in", embedding * hidden)
        yield Tensor(None, "project_out", embedding * hidden)
    if family.embedding_norm:
        yield from _norm(family, config, None, "embed_norm")

    for block in range(layers):
        yield from (_latent_attention if family.attention == "latent" else _attention)(family, config, block)
        if family.experts and _is_sparse(family.experts, config, block):
            yield from _experts(family.experts, config, block)
        else:
            yield from _mlp(family, config, block, "mlp", size_of(config, family.mlp_width))
        count = config[family.norms] if isinstance(family.norms, str) else family.norms
        for index in range(count):
            yield from _norm(family, config, block, f"norm{index}")

    if _on(config, family.final_norm):
        yield from _norm(family, config, None, "norm")
    tied = bool(config["tie_word_embeddings"])
    if not tied:
        yield Tensor(None, "lm_head", vocab * embedding)
    if _on(config, family.head_bias):
        # A tied head owns the shared matrix as well, so its bias counts to the same module.
        yield Tensor(None, "embed_tokens" if tied else "lm_head", vocab)


def complete(family: Decoder, config: Config) -> dict[str, Any]:
    """The config with the family's own key names translated and missing keys filled with class defaults."""
    filled: dict[str, Any] = dict(family.defaults)
    for name, value in config.items():
        name = family.aliases.get(name, name)
        if value is None and isinstance(family.defaults.get(name), int) and name == "head_dim":
            raise UnknownShapeError("head_dim is null, which this architecture does not accept")
        filled[name] = value
    if family.prepare:
        family.prepare(filled)
    if filled.get("num_key_value_heads") is None:
        filled["num_key_value_heads"] = filled.get("num_attention_heads")
    return filled


def _on(config: Config, switch: bool | str) -> bool:
    return bool(config.get(switch)) if isinstance(switch, str) else switch


def size_of(config: Config, name: str, least: int = 1) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UnknownShapeError(f"{name} is {value!r}, not a whole number of at least {least}")
    return value


def _linear(block: int, module: str, inputs: int, outputs: int, bias: bool) -> Iterator[Tensor]:
    yield Tensor(block, module, inputs * outputs)
    if bias:
        yield Tensor(block, module, outputs)


def _norm(family: Decoder, config: Config, block: int | None, module: str) -> Iterator[Tensor]:
    for _ in range(family.norm_vectors if _on(config, family.norm_vectors_if) else 0):
        yield Tensor(block, module, size_of(config, "hidden_size"))


def _head_dim(family: Decoder, config: Config) -> int:
    if family.head_dim and config.get("head_dim") is not None:
        return size_of(config, "head_dim")
    return size_of(config, "hidden_size") // size_of(config, "num_attention_heads")


def _attention(family: Decoder, config: Config, block: int) -> Iterator[Tensor]:
    hidden, heads = size_of(config, "hidden_size"), size_of(config, "num_attention_heads")
    pairs, width = size_of(config, "num_key_value_heads"), _head_dim(family, config)
    bias = _on(config, family.qkv_bias)
    if family.fused_qkv:
        yield from _linear(block, "qkv", hidden, (heads + 2 * pairs) * width, bias)
    else:
        yield from _linear(block, "q", hidden, heads * width, bias)
        yield from _linear(block, "k", hidden, pairs * width, bias)
        yield from _linear(block, "v", hidden, pairs * width, bias)
    yield from _linear(block, "o", heads * width, hidden, _on(config, family.out_bias))
    if family.sinks:
        yield Tensor(block, "attention", heads)
    if family.qk_norm != "none" and _on(config, family.qk_norm_if):
        for module, count in (("q_norm", heads), ("k_norm", pairs)):
            size = width * count if family.qk_norm == "all_heads" else width
            yield Tensor(block, module, size)
            if family.qk_norm == "head_affine":
                yield Tensor(block, module, size)


def _latent_attention(family: Decoder, config: Config, block: int) -> Iterator[Tensor]:
    """DeepSeek's multi-head latent attention: queries and key-values pass through low-rank projections."""
    hidden, heads = size_of(config, "hidden_size"), size_of(config, "num_attention_heads")
    rope, plain, value = (size_of(config, f"{part}_head_dim") for part in ("qk_rope", "qk_nope", "v"))
    rank, bias = size_of(config, "kv_lora_rank"), _on(config, family.qkv_bias)
    if config.get("q_lora_rank") is None:
        yield from _linear(block, "q", hidden, heads * (rope + plain), False)
    else:
        query_rank = size_of(config, "q_lora_rank")
        yield from _linear(block, "q_a", hidden, query_rank, bias)
        yield Tensor(block, "q_a_norm", query_rank)
        yield from _linear(block, "q_b", query_rank, heads * (rope + plain), False)
    yield from _linear(block, "kv_a", hidden, rank + rope, bias)
    yield Tensor(block, "kv_a_norm", rank)
    yield from _linear(block, "kv_b", rank, heads * (plain + value), False)
    yield from _linear(block, "o", heads * value, hidden, bias)
    if family.indexer and not _shares_indexer(config, block):
        query_rank, index_heads, index_width = (
            size_of(config, name) for name in ("q_lora_rank", "index_n_heads", "index_head_dim")
        )
        yield Tensor(block, "indexer.wq_b", query_rank * index_heads * index_width)
        yield Tensor(block, "indexer.wk", hidden * index_width)
        yield Tensor(block, "indexer.k_norm", index_width)
        yield Tensor(block, "indexer.k_norm", index_width)
        yield Tensor(block, "indexer.weights_proj", hidden * index_heads)


def _shares_indexer(config: Config, block: int) -> bool:
    """Whether a layer uses the choice of the layer before it (GLM-5.2), and has no indexer."""
    types = config.get("indexer_types")
    if types is None and config.get("index_topk_pattern") is None and config.get("index_topk_freq") in (None, 1):
        return False
    if not isinstance(types, list) or block >= len(types):
        raise UnknownShapeError("which layers have an indexer is not known")
    return bool(types[block] == "shared")


def _mlp(family: Decoder, config: Config, block: int, name: str, width: int) -> Iterator[Tensor]:
    hidden, bias = size_of(config, "hidden_size"), _on(config, family.mlp_bias)
    if family.mlp == "gated":
        yield from _linear(block, f"{name}.gate", hidden, width, bias)
    doubled = 2 if family.mlp == "fused_gated" else 1
    yield from _linear(block, f"{name}.up", hidden, doubled * width, bias)
    yield from _linear(block, f"{name}.down", width, hidden, bias)
    for _ in range(family.activation_scalars):
        yield Tensor(block, f"{name}.activation", 1)


def _is_sparse(experts: Experts, config: Config, block: int) -> bool:
    if experts.layers == "after_first_k":
        types = config.get("mlp_layer_types") if experts.typed else None
        if types is not None:
            if not isinstance(types, list) or block >= len(types):
                raise UnknownShapeError("mlp_layer_types does not list every layer")
            return bool(types[block] == "sparse")
        return block >= size_of(config, "first_k_dense_replace", least=0)
    if experts.layers == "step":
        step, dense = size_of(config, "decoder_sparse_step"), config.get("mlp_only_layers") or []
        if not isinstance(dense, list):
            raise UnknownShapeError(f"mlp_only_layers is {dense!r}, not a list")
        return block not in dense and size_of(config, experts.count, least=0) > 0 and (block + 1) % step == 0
    if experts.layers == "listed":
        sparse = config.get("moe_layers")
        if sparse is None:
            return (block + 1) % size_of(config, "interleave_moe_layer_step") == 0
        if not isinstance(sparse, list):
            raise UnknownShapeError(f"moe_layers is {sparse!r}, not a list")
        return block in sparse
    if experts.layers == "range":
        first, last = (
            size_of(config, "moe_layer_start_index", least=0),
            size_of(config, "moe_layer_end_index", least=-1),
        )
        within = first <= block and (last == -1 or block <= last)
        return within and (block + 1) % size_of(config, "moe_layer_interval") == 0
    return True


def _experts(experts: Experts, config: Config, block: int) -> Iterator[Tensor]:
    hidden, width, count = (size_of(config, name) for name in ("hidden_size", experts.width, experts.count))
    yield from _linear(block, "router", hidden, count, experts.bias)
    if experts.score_bias:
        yield Tensor(block, "router.score_bias", count)
    yield Tensor(block, "experts", count * 2 * width * hidden)
    yield Tensor(block, "experts", count * width * hidden)
    if experts.bias:
        yield Tensor(block, "experts", count * 2 * width)
        yield Tensor(block, "experts", count * hidden)
    if experts.shared == "width":
        shared = size_of(config, "shared_expert_intermediate_size")
        yield Tensor(block, "shared_expert_gate", hidden)
    elif experts.shared == "count":
        shared = width * size_of(config, "n_shared_experts")
    elif experts.shared == "optional_count":
        shared = width * size_of(config, "n_shared_experts", least=0)
    else:
        shared = width if experts.shared == "one" else 0
    if shared:
        bias = _on(config, experts.shared_bias)
        for part, inputs, outputs in (("gate", hidden, shared), ("up", hidden, shared), ("down", shared, hidden)):
            yield from _linear(block, f"shared_expert.{part}", inputs, outputs, bias)
