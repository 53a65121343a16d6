"""Numbers of well-known models, as their published config.json has them, for those that are in no cache."""

from __future__ import annotations

from typing import Any

_COLUMNS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_TABLE = """
meta-llama/Llama-2-7b-hf          llama   32000  4096 11008  32  32  32 float16  -
meta-llama/Llama-2-13b-hf         llama   32000  5120 13824  40  40  40 float16  -
meta-llama/Llama-3.1-8B           llama  128256  4096 14336  32  32   8 bfloat16 -
meta-llama/Llama-3.1-70B          llama  128256  8192 28672  80  64   8 bfloat16 -
meta-llama/Llama-3.1-405B         llama  128256 16384 53248 126 128   8 bfloat16 -
meta-llama/Llama-3.2-1B           llama  128256  2048  8192  16  32   8 bfloat16 tied
meta-llama/Llama-3.2-3B           llama  128256  3072  8192  28  24   8 bfloat16 tied
mistralai/Mistral-7B-v0.1         mistral 32000  4096 14336  32  32   8 bfloat16 -
mistralai/Mixtral-8x7B-v0.1       mixtral 32000  4096 14336  32  32   8 bfloat16 -
Qwen/Qwen2.5-0.5B                 qwen2  151936   896  4864  24  14   2 bfloat16 tied
Qwen/Qwen2.5-1.5B                 qwen2  151936  1536  8960  28  12   2 bfloat16 tied
Qwen/Qwen2.5-3B                   qwen2  151936  2048 11008  36  16   2 bfloat16 tied
Qwen/Qwen2.5-7B                   qwen2  152064  3584 18944  28  28   4 bfloat16 -
Qwen/Qwen2.5-14B                  qwen2  152064  5120 13824  48  40   8 bfloat16 -
Qwen/Qwen2.5-32B                  qwen2  152064  5120 27648  64  40   8 bfloat16 -
Qwen/Qwen2.5-72B                  qwen2  152064  8192 29568  80  64   8 bfloat16 -
"""
"""Name on the hub, model_type, the columns above, heads of keys and values, dtype, whether the embeddings are tied."""
_SUFFIXES = ("-instruct", "-chat-hf", "-instruct-v0.1", "-v0.1", "-hf")
_LIKE = {"llama-3-8b": "llama-3.1-8b", "llama-3-70b": "llama-3.1-70b", "llama-3.3-70b": "llama-3.1-70b"}
"""Names of models that have the tensors of another."""
_MOE = {"mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2}}

HIDDEN_SIZES = (512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6656, 8192, 12288, 16384)
HEAD = 128  # as many hidden units has a head, and so many times fewer layers a model of Llama's shape


def known_config(name: str) -> dict[str, Any] | None:
    """The config of a well-known model by its name on the hub, with or without its owner; None for another one."""
    return _KNOWN.get(_plain(name))


def known_names() -> list[str]:
    """The names on the hub, in the order of the table."""
    return [line.split()[0] for line in _TABLE.strip().splitlines()]


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


def _plain(name: str) -> str:
    plain = name.lower().rpartition("/")[2].removeprefix("meta-")
    plain = next((plain.removesuffix(end) for end in _SUFFIXES if plain.endswith(end)), plain)
    return _LIKE.get(plain, plain)


def _read() -> dict[str, dict[str, Any]]:
    found = {}
    for line in _TABLE.strip().splitlines():
        name, kind, *numbers, dtype, tied = line.split()
        *values, shared = map(int, numbers)
        found[_plain(name)] = {
            "model_type": kind,
            **dict(zip(_COLUMNS, values, strict=True)),
            "num_key_value_heads": shared,
            "tie_word_embeddings": tied == "tied",
            "dtype": dtype,
            **_MOE.get(kind, {}),
        }
    return found


_KNOWN = _read()
