"""The config of a model that is known only by its number of parameters: the shape of Llama."""

from __future__ import annotations

from typing import Any

_COLUMNS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
HIDDEN_SIZES = (512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6656, 8192, 12288, 16384)
HEAD = 128  # as many hidden units has a head, and so many times fewer layers a model of Llama's shape


def llama_of(parameters: int) -> dict[str, Any]:
    """The config of a model of about that many parameters in the shape of Llama, with Llama 2's vocabulary.

    Raises ValueError where no such shape has as few or as many.
    """
    vocabulary = 32000
    shapes = []
    for hidden in HIDDEN_SIZES:
        inner = -(-8 * hidden // 3 // 256) * 256
        layers = round((parameters - 2 * vocabulary * hidden) / (4 * hidden**2 + 3 * hidden * inner))
        if layers > 0:
            shapes.append((abs(layers * HEAD - hidden), hidden, inner, layers))
    if not shapes:
        raise ValueError(f"{parameters} parameters are too few for a model")
    _, hidden, inner, layers = min(shapes)
    if layers > 4 * hidden // HEAD:
        raise ValueError(f"{parameters} parameters are more than any known model has")
    heads = max(hidden // HEAD, 1)
    values = (vocabulary, hidden, inner, layers, heads)
    return {"model_type": "llama", **dict(zip(_COLUMNS, values, strict=True)), "dtype": "bfloat16"}
