"""Adapters and bases in 4 and 8 bits: shapes from the config against the real classes on the meta device."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from zerocfg.memory import lora
from zerocfg.memory.lora import Quantisation

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 99}
CONFIGS: dict[str, dict[str, Any]] = {
    name: SMALL | {"num_key_value_heads": 2} | ({"head_dim": 32} if "gemma" in name or name == "qwen3" else {})
    for name in lora._BLOCKS
    if name not in ("gpt2", "opt", "gpt_neox")
}
CONFIGS["phi3"]["pad_token_id"] = 0
CONFIGS["smollm3"]["pad_token_id"] = 0
CONFIGS["gpt_neox"] = SMALL
CONFIGS["gpt2"] = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 99, "n_positions": 32}
CONFIGS["opt"] = {
    "hidden_size": 64,
    "word_embed_proj_dim": 64,
    "ffn_dim": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 99,
}


def real(model_type: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(model_type, **CONFIGS[model_type])
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def linears(model: Any) -> dict[str, tuple[int, int]]:
    """What PEFT takes for linear: torch's and GPT-2's class, without the output head."""
    import torch
    from transformers.pytorch_utils import Conv1D

    found = {}
    for name, module in model.named_modules():
        if module is model.get_output_embeddings():
            continue
        if isinstance(module, torch.nn.Linear):
            found[name] = (module.in_features, module.out_features)
        elif isinstance(module, Conv1D):
            found[name] = tuple(module.weight.shape)
    return found


@pytest.mark.libs
@pytest.mark.parametrize("model_type", CONFIGS)
def test_shapes_are_those_of_the_real_class(model_type: str) -> None:
    model = real(model_type)
    config = CONFIGS[model_type] | {"model_type": model_type}
    expected = Counter(8 * width for shape in linears(model).values() for width in shape)
    sizes, total = lora.adapters(config, 8, ["all-linear"])
    assert dict(sizes) == dict(expected)
    assert total == sum(size * count for size, count in expected.items())

    paths = lora._read(config)[2]
    for path, shape in paths.items():  # each by the end of its path, as PEFT matches it
        matching = [real for name, real in linears(model).items() if name.endswith(f".{path}")]
        assert matching == [shape] * 3
    weights = sum(a * b for a, b in linears(model).values())
    every = sum(parameter.numel() for parameter in model.parameters())
    packed = sum(a * b // 2 + 64 + 4 * -(-a * b // 64) for a, b in linears(model).values())
    largest = max(a * b for a, b in linears(model).values())
    found = lora.quantised_base(config, Quantisation(4))
    assert found == lora.Base(packed + 2 * (every - weights), 2 * largest)
    whole = sum(a * b + 4 * b for a, b in linears(model).values())
    assert lora.quantised_base(config, Quantisation(8)).size == whole + 2 * (every - weights)


Q, K = 64, 32  # four heads of 16 and two of keys; of 32 and two where a family says so
SPLIT = [64, Q, 64, K, 64, K, Q, 64]
MATRICES: dict[str, list[int]] = {
    **dict.fromkeys(
        ("llama", "mistral", "granite", "smollm3", "olmo", "olmo2", "cohere", "qwen2"), SPLIT + [64, 96] * 2 + [96, 64]
    ),
    **dict.fromkeys(
        ("qwen3", "gemma", "gemma2", "gemma3_text"), [64, 128, 64, 64, 64, 64, 128, 64] + [64, 96] * 2 + [96, 64]
    ),
    "phi3": [64, Q + 2 * K, Q, 64, 64, 2 * 96, 96, 64],
    "phi": [*SPLIT, 64, 96, 96, 64],
    "starcoder2": [*SPLIT, 64, 96, 96, 64],
    "opt": [64, 64] * 4 + [64, 96, 96, 64],
    "gpt2": [64, 3 * 64, 64, 64, 64, 256, 256, 64],
    "gpt_neox": [64, 3 * 64, 64, 64, 64, 96, 96, 64],
}
"""Inputs and outputs of each linear layer of a block in the order of its forward pass, counted by hand from the classes
of transformers."""


def test_matrices_of_every_family() -> None:
    assert MATRICES.keys() == CONFIGS.keys()
    for name, widths in MATRICES.items():
        config = CONFIGS[name] | {"model_type": name}
        assert lora.of_layer(config, 8, ["all-linear"]) == [8 * width for width in widths], name
        sizes, total = lora.adapters(config, 8, ["ALL-linear"])
        assert total == 3 * 8 * sum(widths)
        assert sizes == sorted(((8 * width, 3 * n) for width, n in Counter(widths).items()), reverse=True)


def test_what_peft_chooses() -> None:
    """peft/utils/constants.py; queries and values where they are apart."""
    for name in ("llama", "mistral", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3", "opt"):
        assert lora.default_targets({"model_type": name}) == ("q_proj", "v_proj")
    assert lora.default_targets({"model_type": "gpt2"}) == ("c_attn",)
    assert lora.default_targets({"model_type": "gpt_neox"}) == ("query_key_value",)
    phi = CONFIGS["phi"] | {"model_type": "phi"}
    assert lora.of_layer(phi, 1) == [64, Q, 64, K, 64, 96, 96, 64]
    assert lora.of_layer(CONFIGS["gpt2"] | {"model_type": "gpt2"}, 1) == [64, 192]


def test_a_base_in_4_or_8_bits_counted_by_hand() -> None:
    """Weights of a block in blocks of 64 with a fp32 maximum each and a table of 16 fp32 numbers; in 8 bits a maximum
    for each output. The rest (99 words twice, two norms a layer and one) is in 16 bit."""
    config = CONFIGS["llama"] | {"model_type": "llama"}
    weights = [64 * Q, 64 * K, 64 * K, Q * 64, 64 * 96, 64 * 96, 96 * 64]
    outputs = [Q, K, K, 64, 96, 96, 64]
    rest = 2 * (2 * 99 * 64 + 3 * 2 * 64 + 64)
    four = sum(one // 2 + 64 + 4 * one // 64 for one in weights)
    assert lora.quantised_base(config, Quantisation(4)) == lora.Base(3 * four + rest, 2 * 64 * 96)
    twice = sum(one // 2 + 64 + one // 64 + 4 * 1 + 256 * 4 + 4 for one in weights)
    assert lora.quantised_base(config, Quantisation(4, double=True)).size == 3 * twice + rest
    eight = sum(weights) + 4 * sum(outputs)
    assert lora.quantised_base(config, Quantisation(8)).size == 3 * eight + rest


def test_a_projection_around_the_embedding_is_not_known() -> None:
    opt = CONFIGS["opt"] | {"model_type": "opt"}
    assert lora.adapters(opt, 1)
    with pytest.raises(ValueError, match="projections around the embedding"):
        lora.adapters(opt | {"word_embed_proj_dim": 32}, 1)
    assert lora.adapters({"model_type": "llama", "num_hidden_layers": 2}, 1)[1] == 2 * 4 * 4096


@pytest.mark.parametrize(
    ("how", "measured"),
    [(Quantisation(4), 2_024_256), (Quantisation(4, double=True), 1_963_332), (Quantisation(8), 2_821_632)],
)
def test_what_bitsandbytes_kept(how: Quantisation, measured: int) -> None:
    """Bytes of all storages behind the parameters, their quantisation states included, as bitsandbytes 0.50.2 and
    transformers 5.23 loaded this model in bf16 on a processor (``from_pretrained`` with a BitsAndBytesConfig)."""
    config = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}
    assert lora.quantised_base(config, how) == lora.Base(measured, 2 * 256 * 512)


def test_seven_billion() -> None:
    """r = 8 on the queries and values of Llama-2-7B: the 4.2 million of the LoRA recipes."""
    llama = {"model_type": "llama", "num_hidden_layers": 32}
    sizes, total = lora.adapters(llama, 8)
    assert total == 4_194_304 and sizes == [(32768, 128)]
    assert lora.adapters(llama, 64, ["all-linear"])[1] == 159_907_840
    once, twice = (lora.quantised_base(llama, Quantisation(4, double)).size for double in (False, True))
    linear, outside = 32 * (4 * 4096**2 + 3 * 4096 * 11008), 2 * 32000 * 4096 + 65 * 4096
    assert once == pytest.approx(linear * (0.5 + 4 / 64) + 2 * outside, rel=1e-5)
    assert twice == pytest.approx(linear * (0.5 + 1 / 64 + 4 / 64 / 256) + 2 * outside, rel=1e-4)


def test_paths_choose_between_modules_of_one_name() -> None:
    gpt2 = CONFIGS["gpt2"] | {"model_type": "gpt2"}
    both, one = lora.adapters(gpt2, 4, ["c_proj"])[1], lora.adapters(gpt2, 4, ["mlp.c_proj"])[1]
    assert both == 3 * 4 * (64 + 64 + 256 + 64) and one == 3 * 4 * (256 + 64)


@pytest.mark.parametrize(
    ("config", "rank", "targets", "says"),
    [
        ({"model_type": "mixtral"}, 8, None, "not known"),
        ({}, 8, None, "not known"),
        ({"model_type": "llama"}, 0, None, "rank"),
        ({"model_type": "llama"}, 8, ["c_attn"], "none of c_attn"),
        ({"model_type": "phi3"}, 8, None, "state them"),
        ({"model_type": "llama", "hidden_size": "wide"}, 8, None, "hidden_size"),
    ],
)
def test_what_is_not_known_is_refused(config: dict[str, Any], rank: int, targets: list[str] | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        lora.adapters(config, rank, targets)
