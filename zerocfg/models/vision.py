"""The vision part of a model that reads images: its parameters, and what an image is to it.

Known are Qwen2-VL, Qwen2.5-VL and LLaVA with a tower of CLIP, as transformers 5.23 builds them; held against the real
classes by ``tests/models/test_vision.py``. Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zerocfg.models.architectures import Tensor, UnknownShapeError, size_of

_SIDE = 14  # pixels of a patch
_QWEN2: dict[str, Any] = {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "num_heads": 16}
_QWEN25: dict[str, Any] = {
    "depth": 32,
    "hidden_size": 3584,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 3584,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
_QWEN: dict[str, Any] = {"in_channels": 3, "patch_size": _SIDE, "spatial_merge_size": 2, "temporal_patch_size": 2}
_CLIP: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
}
# LlavaConfig without a vision_config
_LLAVA = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
_LLAVA |= {"image_size": 336, "patch_size": _SIDE}


@dataclass(frozen=True, slots=True)
class Vision:
    """A tower and the projector behind it.

    ``width``, ``inner``, ``heads`` and ``layers`` are those of the tower, ``out`` the width of the text. ``values``:
    numbers of one patch, of ``side`` by ``side`` pixels. ``merged``: patches that become one token of the text.
    ``fixed``: pixels of an image where the model takes one size only. ``classes``: tokens of the tower that stand for
    no patch, for each image. ``used``: layers whose result reaches the text. ``window``: patches that attend to each
    other in all but ``whole`` of the layers; None: all of an image do.
    """

    kind: Literal["qwen2", "qwen2.5", "clip"]
    width: int
    inner: int
    heads: int
    layers: int
    used: int
    out: int
    values: int
    side: int
    merged: int
    fixed: int | None = None
    classes: int = 0
    window: int | None = None
    whole: int = 0
    bias: bool = True

    def patches(self, pixels: int | None) -> int:
        """Patches of one image. Raises ValueError where its size is not known."""
        size = self.fixed or pixels
        if size is None:
            raise ValueError("nothing says how large an image is; add `pixels:` to `images:` of the run in the spec")
        return -(-size // (self.side**2 * self.merged)) * self.merged

    def tokens(self, pixels: int | None) -> int:
        """Tokens of the text that one image becomes. Raises ValueError as :meth:`patches`."""
        return self.patches(pixels) // self.merged

    def products(self, pixels: int | None) -> int:
        """Multiply-adds of one image with weights, forward. Raises ValueError as :meth:`patches`."""
        patches = self.patches(pixels)
        layer = self.width * (4 * self.width + (3 if self.kind == "qwen2.5" else 2) * self.inner)
        joined = self.width * self.merged
        between = self.out if self.kind == "clip" else joined
        projector = patches // self.merged * (joined + self.out) * between
        return (patches + self.classes) * self.layers * layer + patches * self.values * self.width + projector

    def scores(self, pixels: int | None) -> int:
        """Multiply-adds of one image in attention, forward. Raises ValueError as :meth:`patches`."""
        rows = self.patches(pixels) + self.classes
        near = min(self.window, rows) if self.window else rows
        return 2 * self.width * rows * (self.whole * rows + (self.layers - self.whole) * near)

    def tensors(self) -> Iterator[Tensor]:
        """Every parameter in the order of the model. Layers have negative numbers: those of the text count from 0."""
        yield from (_of_clip if self.kind == "clip" else _of_qwen)(self)


def vision_of(config: Mapping[str, Any]) -> Vision | None:
    """The vision part that a config.json describes; None: it has none, or one that is not known.

    Raises UnknownShapeError for values that no model can have.
    """
    kind, own = config.get("model_type"), config.get("vision_config")
    given: dict[str, Any] = dict(own) if isinstance(own, Mapping) else {}
    if kind == "qwen2_vl":
        return _qwen("qwen2", {**_QWEN, **_QWEN2, **given})
    if kind == "qwen2_5_vl":
        return _qwen("qwen2.5", {**_QWEN, **_QWEN25, **given})
    if kind == "llava" and given.get("model_type", "clip_vision_model") == "clip_vision_model":
        return _clip(config, {**_CLIP, **(_LLAVA if own is None else {}), **given})
    return None


def _qwen(kind: Literal["qwen2", "qwen2.5"], config: dict[str, Any]) -> Vision:
    old = kind == "qwen2"
    width, side, merge = (
        size_of(config, name) for name in ("embed_dim" if old else "hidden_size", "patch_size", "spatial_merge_size")
    )
    layers = size_of(config, "depth")
    inner = width * size_of(config, "mlp_ratio") if old else size_of(config, "intermediate_size")
    whole = config.get("fullatt_block_indexes")
    return Vision(
        kind,
        width,
        inner,
        size_of(config, "num_heads"),
        layers,
        layers,
        size_of(config, "hidden_size" if old else "out_hidden_size"),
        size_of(config, "in_channels") * size_of(config, "temporal_patch_size") * side**2,
        side,
        merge**2,
        window=None if old else (size_of(config, "window_size") // side) ** 2,
        whole=len(whole) if isinstance(whole, list) else 0,
    )


def _clip(config: Mapping[str, Any], own: dict[str, Any]) -> Vision:
    text = config.get("text_config")
    layers, side, image = (size_of(own, name) for name in ("num_hidden_layers", "patch_size", "image_size"))
    chosen = config.get("vision_feature_layer", -2)
    if not isinstance(chosen, int) or config.get("vision_feature_select_strategy", "default") != "default":
        raise UnknownShapeError("the features of several layers, or of the class token, are not known")
    used = chosen if chosen >= 0 else layers + 1 + chosen
    return Vision(
        "clip",
        size_of(own, "hidden_size"),
        size_of(own, "intermediate_size"),
        size_of(own, "num_attention_heads"),
        layers,
        min(max(used, 0), layers),
        size_of({"hidden_size": 4096, **(text if isinstance(text, Mapping) else {})}, "hidden_size"),
        size_of(own, "num_channels") * side**2,
        side,
        1,
        fixed=(image // side * side) ** 2,
        classes=1,
        bias=bool(config.get("multimodal_projector_bias", True)),
    )


def _linear(block: int | None, module: str, inputs: int, outputs: int, bias: bool = True) -> Iterator[Tensor]:
    yield Tensor(block, module, inputs * outputs)
    if bias:
        yield Tensor(block, module, outputs)


def _norm(block: int | None, module: str, width: int, vectors: int) -> Iterator[Tensor]:
    for _ in range(vectors):
        yield Tensor(block, module, width)


def _of_qwen(vision: Vision) -> Iterator[Tensor]:
    vectors = 2 if vision.kind == "qwen2" else 1
    yield Tensor(None, "visual.patch_embed.proj", vision.values * vision.width)
    for block in range(-vision.layers, 0):
        for name in ("norm1", "norm2"):
            yield from _norm(block, name, vision.width, vectors)
        yield from _linear(block, "attn.qkv", vision.width, 3 * vision.width)
        yield from _linear(block, "attn.proj", vision.width, vision.width)
        names = ("mlp.fc1",) if vision.kind == "qwen2" else ("mlp.gate_proj", "mlp.up_proj")
        for name in names:
            yield from _linear(block, name, vision.width, vision.inner)
        yield from _linear(block, "mlp.fc2" if vision.kind == "qwen2" else "mlp.down_proj", vision.inner, vision.width)
    wide = vision.width * vision.merged
    yield from _norm(None, "visual.merger.ln_q", vision.width, vectors)
    yield from _linear(None, "visual.merger.mlp.0", wide, wide)
    yield from _linear(None, "visual.merger.mlp.2", wide, vision.out)


def _of_clip(vision: Vision) -> Iterator[Tensor]:
    positions = (vision.fixed or 0) // vision.side**2 + vision.classes
    yield Tensor(None, "vision_tower.embeddings", vision.width)  # the class token
    yield Tensor(None, "vision_tower.embeddings.patch_embedding", vision.values * vision.width)
    yield Tensor(None, "vision_tower.embeddings.position_embedding", positions * vision.width)
    yield from _norm(None, "vision_tower.pre_layrnorm", vision.width, 2)
    for block in range(-vision.layers, 0):
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from _linear(block, f"self_attn.{name}", vision.width, vision.width)
        yield from _norm(block, "layer_norm1", vision.width, 2)
        yield from _linear(block, "mlp.fc1", vision.width, vision.inner)
        yield from _linear(block, "mlp.fc2", vision.inner, vision.width)
        yield from _norm(block, "layer_norm2", vision.width, 2)
    yield from _norm(None, "vision_tower.post_layernorm", vision.width, 2)
    yield from _linear(None, "multi_modal_projector.linear_1", vision.width, vision.out, vision.bias)
    yield from _linear(None, "multi_modal_projector.linear_2", vision.out, vision.out, vision.bias)
