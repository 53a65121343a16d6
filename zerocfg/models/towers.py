"""Vision parts whose parameters are counted, and whose activations are not modelled.

Qwen3-VL, SigLIP as Gemma 3 uses it, Pixtral as Mistral 3 uses it, and Llama 4, as transformers 5.23 builds them; held
against the real classes by ``tests/models/test_towers.py``. Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from zerocfg.models.architectures import Tensor, UnknownShapeError, size_of

_QWEN3: dict[str, Any] = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [8, 16, 24],
}
_SIGLIP: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 16,
    "vision_use_head": True,
}
_PIXTRAL: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_channels": 3,
    "patch_size": 16,
}
# Mistral3Config without a vision_config
_MISTRAL3: dict[str, Any] = {"patch_size": 14}
_LLAMA4: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 34,
    "num_channels": 3,
    "intermediate_size": 5632,
    "vision_output_dim": 7680,
    "image_size": 448,
    "patch_size": 14,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
}

_Sizes = list[tuple[str, int]]
"""The module that owns each tensor, and its elements."""


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision part as its tensors: those before its layers, those of one layer, and those after them."""

    name: str
    before: tuple[Tensor, ...]
    layer: tuple[Tensor, ...]
    layers: int
    after: tuple[Tensor, ...]

    def tensors(self) -> Iterator[Tensor]:
        """Every parameter in the order of the model. Layers have negative numbers: those of the text count from 0."""
        yield from self.before
        for block in range(-self.layers, 0):
            yield from (replace(tensor, block=block) for tensor in self.layer)
        yield from self.after


def tower_of(config: Mapping[str, Any]) -> Tower | None:
    """The counted vision part that a config.json describes; None for any other model.

    Raises UnknownShapeError for values that no model can have.
    """
    make = _TOWERS.get(str(config.get("model_type")))
    own = config.get("vision_config")
    return make(config, dict(own) if isinstance(own, Mapping) else {}) if make else None


def _qwen3_vl(_config: Mapping[str, Any], own: dict[str, Any]) -> Tower | None:
    own = {**_QWEN3, **own}
    width, inner, out = (size_of(own, name) for name in ("hidden_size", "intermediate_size", "out_hidden_size"))
    values = size_of(own, "in_channels") * size_of(own, "temporal_patch_size") * size_of(own, "patch_size") ** 2
    joined = width * size_of(own, "spatial_merge_size") ** 2
    stacked = own["deepstack_visual_indexes"]
    if not isinstance(stacked, list):
        raise UnknownShapeError(f"deepstack_visual_indexes is {stacked!r}, not a list")
    before = [*_linear("patch_embed.proj", values, width)]
    before.append(("pos_embed", size_of(own, "num_position_embeddings") * width))
    after = _qwen3_merger("merger", width, joined, out)
    for index in range(len(stacked)):
        after += _qwen3_merger(f"deepstack_merger_list.{index}", joined, joined, out)
    layer = [
        *_norm("norm1", width),
        *_norm("norm2", width),
        *_linear("attn.qkv", width, 3 * width),
        *_linear("attn.proj", width, width),
        *_linear("mlp.linear_fc1", width, inner),
        *_linear("mlp.linear_fc2", inner, width),
    ]
    return _tower("Qwen3-VL", before, layer, size_of(own, "depth"), after)


def _qwen3_merger(name: str, normed: int, joined: int, out: int) -> _Sizes:
    fc1, fc2 = _linear(f"{name}.linear_fc1", joined, joined), _linear(f"{name}.linear_fc2", joined, out)
    return [*_norm(f"{name}.norm", normed), *fc1, *fc2]


def _gemma3(config: Mapping[str, Any], own: dict[str, Any]) -> Tower | None:
    if own.get("model_type", "siglip_vision_model") != "siglip_vision_model":
        return None
    own = {**_SIGLIP, **own}
    width, inner, side = (size_of(own, name) for name in ("hidden_size", "intermediate_size", "patch_size"))
    out = _text_width(config, 2304)
    before = _linear("embeddings.patch_embedding", size_of(own, "num_channels") * side**2, width)
    before.append(("embeddings.position_embedding", (size_of(own, "image_size") // side) ** 2 * width))
    after = _norm("post_layernorm", width)
    if own["vision_use_head"]:
        after += [("head", width), *_linear("head.attention", width, 3 * width)]
        after += [*_linear("head.attention.out_proj", width, width), *_norm("head.layernorm", width)]
        after += [*_linear("head.mlp.fc1", width, inner), *_linear("head.mlp.fc2", inner, width)]
    after += [("multi_modal_projector", width * out), ("multi_modal_projector.mm_soft_emb_norm", width)]
    return _tower("SigLIP", before, _encoder_layer(width, inner), size_of(own, "num_hidden_layers"), after)


def _mistral3(config: Mapping[str, Any], own: dict[str, Any]) -> Tower | None:
    if own.get("model_type", "pixtral") != "pixtral":
        return None
    own = {**_PIXTRAL, **({} if own else _MISTRAL3), **own}
    width, inner, side = (size_of(own, name) for name in ("hidden_size", "intermediate_size", "patch_size"))
    merged = size_of({"spatial_merge_size": 2, **config}, "spatial_merge_size") ** 2
    chosen = config.get("vision_feature_layer", -1)
    if not isinstance(chosen, int):
        raise UnknownShapeError("the features of several layers are not known")
    out, bias = _text_width(config, 4096), bool(config.get("multimodal_projector_bias", False))
    layer: _Sizes = [("attention_norm", width)]
    layer += [(f"feed_forward.{name}", width * inner) for name in ("gate_proj", "up_proj", "down_proj")]
    layer += [(f"attention.{name}", width * width) for name in ("k_proj", "v_proj", "q_proj", "o_proj")]
    layer.append(("ffn_norm", width))
    after: _Sizes = [("multi_modal_projector.norm", width)]
    after.append(("multi_modal_projector.patch_merger.merging_layer", width * merged * width))
    after += _linear("multi_modal_projector.linear_1", width, out, bias)
    after += _linear("multi_modal_projector.linear_2", out, out, bias)
    before = [("patch_conv", size_of(own, "num_channels") * side**2 * width), ("ln_pre", width)]
    return _tower("Pixtral", before, layer, size_of(own, "num_hidden_layers"), after)


def _llama4(config: Mapping[str, Any], own: dict[str, Any]) -> Tower | None:
    own = {**_LLAMA4, **own}
    width, inner, side = (size_of(own, name) for name in ("hidden_size", "intermediate_size", "patch_size"))
    into, through = size_of(own, "projector_input_dim"), size_of(own, "projector_output_dim")
    before: _Sizes = [("vision_model", width)]
    before.append(("vision_model", ((size_of(own, "image_size") // side) ** 2 + 1) * width))
    before.append(("patch_embedding.linear", size_of(own, "num_channels") * side**2 * width))
    before += [*_norm("layernorm_pre", width), *_norm("layernorm_post", width)]
    after = [
        ("vision_adapter.mlp.fc1", inner * into),
        ("vision_adapter.mlp.fc2", through * through),
        ("multi_modal_projector.linear_1", size_of(own, "vision_output_dim") * _text_width(config, 5120)),
    ]
    return _tower("Llama 4", before, _encoder_layer(width, inner), size_of(own, "num_hidden_layers"), after)


_TOWERS: dict[str, Callable[[Mapping[str, Any], dict[str, Any]], Tower | None]] = {
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "gemma3": _gemma3,
    "mistral3": _mistral3,
    "llama4": _llama4,
}


def _encoder_layer(width: int, inner: int) -> _Sizes:
    attention = [size for name in ("k", "v", "q", "o") for size in _linear(f"self_attn.{name}_proj", width, width)]
    norms = [*_norm("layer_norm1", width), *_norm("layer_norm2", width)]
    return [*norms, *attention, *_linear("mlp.fc1", width, inner), *_linear("mlp.fc2", inner, width)]


def _text_width(config: Mapping[str, Any], default: int) -> int:
    text = config.get("text_config")
    return size_of({"hidden_size": default, **(text if isinstance(text, Mapping) else {})}, "hidden_size")


def _linear(module: str, inputs: int, outputs: int, bias: bool = True) -> _Sizes:
    return [(module, inputs * outputs), (module, outputs)] if bias else [(module, inputs * outputs)]


def _norm(module: str, width: int) -> _Sizes:
    return [(module, width), (module, width)]


def _tower(name: str, before: _Sizes, layer: _Sizes, layers: int, after: _Sizes) -> Tower:
    def tensors(sizes: Iterable[tuple[str, int]], within: str) -> tuple[Tensor, ...]:
        return tuple(Tensor(None, f"{within}.{module}", size) for module, size in sizes)

    return Tower(name, tensors(before, "vision"), tensors(layer, "layer"), layers, tensors(after, "projector"))
