"""Low-rank adapters of PEFT, and the bytes of a base model that bitsandbytes keeps in 4 or 8 bits (QLoRA).

For dense decoders whose linear layers follow from ``config.json``; experts are stacked tensors in transformers 5, which
PEFT's ``target_modules`` do not reach. Shapes are held against the real classes by ``tests/memory/test_lora.py``, which
also has the bytes that bitsandbytes 0.50.2 kept in a run on a processor. There, with PEFT 0.21.2, autograd saved
the same tensors beside a base in 4 bit as beside one in 16 (``MatMul4Bit`` saves its packed weight alone).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from zerocfg.models.architectures import Decoder, UnknownShapeError, complete, tensors_of
from zerocfg.models.families import FAMILIES

Linears = dict[str, tuple[int, int]]
"""The linear layers of one block by their path in it, as (inputs, outputs)."""

WIDTH = 2  # bytes of an element that is computed with: 16 bit

_BLOCK = 64  # weights that share a maximum; bitsandbytes/functional.py: quantize_4bit
_OUTER_BLOCK = 256  # maxima that share a fp32 one, with double quantisation
_TABLES = 16 * 4, 256 * 4 + 4  # bytes of each weight's lookup tables; the second and an offset with double quantisation


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How bitsandbytes keeps the linear layers. ``double`` is ``bnb_4bit_use_double_quant``, off by default."""

    bits: Literal[4, 8]
    double: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """Bytes of a frozen base model: ``size`` of what is kept of it, ``unpacked`` of its largest quantised weight in 16
    bit, as backward computes with it."""

    size: int
    unpacked: int


def _split(hidden: int, queries: int, keys: int, output: str) -> Linears:
    return {
        "self_attn.q_proj": (hidden, queries),
        "self_attn.k_proj": (hidden, keys),
        "self_attn.v_proj": (hidden, keys),
        f"self_attn.{output}": (queries, hidden),
    }


def _llama(hidden: int, inner: int, queries: int, keys: int) -> Linears:
    return _split(hidden, queries, keys, "o_proj") | {
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }


def _phi3(hidden: int, inner: int, queries: int, keys: int) -> Linears:
    return {
        "self_attn.qkv_proj": (hidden, queries + 2 * keys),
        "self_attn.o_proj": (queries, hidden),
        "mlp.gate_up_proj": (hidden, 2 * inner),
        "mlp.down_proj": (inner, hidden),
    }


def _phi(hidden: int, inner: int, queries: int, keys: int) -> Linears:
    return _split(hidden, queries, keys, "dense") | {"mlp.fc1": (hidden, inner), "mlp.fc2": (inner, hidden)}


def _opt(hidden: int, inner: int, queries: int, keys: int) -> Linears:
    return _split(hidden, queries, keys, "out_proj") | {"fc1": (hidden, inner), "fc2": (inner, hidden)}


def _starcoder2(hidden: int, inner: int, queries: int, keys: int) -> Linears:
    return _split(hidden, queries, keys, "o_proj") | {"mlp.c_fc": (hidden, inner), "mlp.c_proj": (inner, hidden)}


def _gpt2(hidden: int, inner: int, queries: int, keys: int) -> Linears:
    return {
        "attn.c_attn": (hidden, 3 * hidden),
        "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (hidden, inner),
        "mlp.c_proj": (inner, hidden),
    }


def _gpt_neox(hidden: int, inner: int, queries: int, keys: int) -> Linears:
    return {
        "attention.query_key_value": (hidden, 3 * hidden),
        "attention.dense": (hidden, hidden),
        "mlp.dense_h_to_4h": (hidden, inner),
        "mlp.dense_4h_to_h": (inner, hidden),
    }


_LIKE_LLAMA = "llama mistral granite smollm3 olmo olmo2 cohere qwen2 qwen3 gemma gemma2 gemma3_text".split()
_BLOCKS: dict[str, Callable[[int, int, int, int], Linears]] = {
    **dict.fromkeys(_LIKE_LLAMA, _llama),
    "phi3": _phi3,
    "phi": _phi,
    "opt": _opt,
    "starcoder2": _starcoder2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
}
# peft/utils/constants.py: TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
_DEFAULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("llama mistral gemma gemma2 gemma3_text qwen2 qwen3 opt".split(), ("q_proj", "v_proj")),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    "gpt2": ("c_attn",),
    "gpt_neox": ("query_key_value",),
}


def adapters(
    config: Mapping[str, object], rank: int, targets: Sequence[str] | None = None
) -> tuple[list[tuple[int, int]], int]:
    """Sizes of the adapters' tensors as (elements, how many), largest first, and all their elements.

    ``targets`` as ``target_modules`` of ``LoraConfig``: names of modules or ends of their paths, ``["all-linear"]``, or
    None for PEFT's choice. Raises ValueError for a model whose linear layers are not known, or that has none of them.
    """
    layers: int = _read(config)[1]["num_hidden_layers"]
    sizes = Counter(of_layer(config, rank, targets))
    found = sorted(((size, count * layers) for size, count in sizes.items()), reverse=True)
    return found, sum(size * count for size, count in found)


def of_layer(config: Mapping[str, object], rank: int, targets: Sequence[str] | None = None) -> list[int]:
    """Elements of the adapters' matrices in one decoder layer, in the order in which forward comes to them.

    Arguments and errors as of :func:`adapters`.
    """
    if rank < 1:
        raise ValueError("the rank of an adapter is at least 1")
    linears = _read(config)[2]
    targets = default_targets(config) if targets is None else targets
    everything = [name.lower() for name in targets] == ["all-linear"]
    found = [
        width * rank
        for path, shape in linears.items()
        if everything or any(path == name or path.endswith(f".{name}") for name in targets)
        for width in shape
    ]
    if not found:
        raise ValueError(f"none of {', '.join(targets)} is a linear layer of {config['model_type']}")
    return found


def default_targets(config: Mapping[str, object]) -> tuple[str, ...]:
    """``target_modules`` that PEFT chooses for a model type. Raises ValueError where it has none."""
    found = _DEFAULTS.get(str(config.get("model_type")))
    if found is None:
        raise ValueError(f"PEFT has no default target_modules for {config.get('model_type')}: state them")
    return tuple(found)


def quantised_base(config: Mapping[str, object], how: Quantisation) -> Base:
    """A model loaded in 4 or 8 bits: the linear layers of its blocks; all else keeps 16 bit.

    Embedding, norms, biases and the output head stay as they were (transformers/quantizers/base.py:
    get_keys_to_not_convert). Raises ValueError as :func:`adapters`.
    """
    family, filled, linears = _read(config)
    every = sum(tensor.size for tensor in tensors_of(family, filled))
    layers: int = filled["num_hidden_layers"]
    weights = [wide * out for wide, out in linears.values()]
    packed = sum(_packed(wide, out, how) for wide, out in linears.values())
    return Base(layers * packed + WIDTH * (every - layers * sum(weights)), WIDTH * max(weights))


def _packed(wide: int, out: int, how: Quantisation) -> int:
    """Bytes of one weight. In 8 bits each output has a fp32 maximum (``Int8Params``: CB, SCB)."""
    return wide * out + 4 * out if how.bits == 8 else _four_bit(wide * out, how.double)


def _four_bit(elements: int, double: bool) -> int:
    blocks = ceil(elements / _BLOCK)
    table, outer = _TABLES
    statistics = blocks + 4 * ceil(blocks / _OUTER_BLOCK) + outer if double else 4 * blocks
    return ceil(elements / 2) + table + statistics


def _read(config: Mapping[str, object]) -> tuple[Decoder, dict[str, Any], Linears]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in _BLOCKS:
        raise ValueError(f"the linear layers of model type {model_type!r} are not known")
    family = FAMILIES[model_type]
    try:
        filled = complete(family, config)
        sum(tensor.size for tensor in tensors_of(family, filled))
    except UnknownShapeError as error:
        raise ValueError(f"{model_type}: {error}") from None
    hidden, heads = filled["hidden_size"], filled["num_attention_heads"]
    if filled.get("word_embed_proj_dim", hidden) != hidden:
        raise ValueError(f"{model_type}: projections around the embedding are not known")
    each = filled.get("head_dim") if family.head_dim else None
    each = each or hidden // heads
    pairs = filled["num_key_value_heads"]
    linears = _BLOCKS[model_type](hidden, filled["intermediate_size"], heads * each, pairs * each)
    return family, filled, linears
