"""The table of well-known models: each row against the class of transformers and the size in its name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from zerocfg.catalog.known_models import known_config, known_names, nearest_names
from zerocfg.models.model_facts import from_config

_SIZE = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z])", re.IGNORECASE)
OTHER_SIZES = {
    "ERNIE-4.5-0.3B-PT": 0.36e9,
    "Falcon3-1B-Base": 1.67e9,
    "Llama-3.2-1B": 1.24e9,
    "Llama-4-Maverick-17B-128E-Instruct": 402e9,
    "Llama-4-Scout-17B-16E-Instruct": 109e9,
    "Ministral-3-3B-Instruct-2512": 3.85e9,
    "Mixtral-8x22B-Instruct-v0.1": 140.6e9,
    "Mixtral-8x22B-v0.1": 140.6e9,
    "Mixtral-8x7B-v0.1": 46.7e9,
    "OLMo-1B-hf": 1.18e9,
    "OLMoE-1B-7B-0924": 6.92e9,
    "Qwen1.5-MoE-A2.7B": 14.3e9,
    "Qwen2.5-VL-7B-Instruct": 8.29e9,
    "codegemma-7b-it": 8.54e9,
    "gemma-2-2b": 2.61e9,
    "gemma-2-2b-jpn-it": 2.61e9,
    "gemma-2b": 2.51e9,
    "gemma-7b": 8.54e9,
    "granite-3.0-1b-a400m-base": 1.33e9,
    "granite-3.1-2b-base": 2.53e9,
    "olmOCR-2-7B-1025": 8.29e9,
}
"""Sizes on the models' pages, where the name rounds coarsely, or counts the parameters of one expert or one token."""


def config_of(name: str) -> dict[str, Any]:
    config = known_config(name)
    assert config is not None, name
    return config


@pytest.mark.parametrize("name", known_names())
def test_the_parameters_agree_with_the_size_in_the_name(name: str) -> None:
    facts = from_config(config_of(name))
    assert facts.unknown_because is None and not facts.text_part_only and facts.parameters is not None
    short = name.rpartition("/")[2]
    size = _SIZE.search(short)
    if short in OTHER_SIZES:
        assert facts.parameters == pytest.approx(OTHER_SIZES[short], rel=0.005)
    elif size is not None:
        stated = float(size[2]) * (1e9 if size[3] in "bB" else 1e6)
        assert facts.parameters == pytest.approx(stated, rel=0.15), f"{facts.parameters:,}"


@pytest.mark.libs
@pytest.mark.parametrize("name", known_names())
def test_the_parameters_are_those_of_transformers(name: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = config_of(name)
    kind = config.pop("model_type")
    real = transformers.CONFIG_MAPPING[kind](**config)
    build = transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = build.from_config(real)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert from_config({"model_type": kind, **config}).parameters == counted


def test_no_two_rows_have_one_name() -> None:
    assert len({name.lower().rpartition("/")[2] for name in known_names()}) == len(known_names()) >= 183


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen3-235B-A22B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistralai/Mistral-7B-v0.3"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistralai/Mistral-7B-v0.1"),
        ("google/gemma-2-9b-it", "google/gemma-2-9b"),
        ("unsloth/llama-3.2-1b-instruct", "meta-llama/Llama-3.2-1B"),
        ("Qwen/Qwen3-VL-32B-Thinking", "Qwen/Qwen3-VL-32B-Instruct"),
        ("google/gemma-3-12b-pt", "google/gemma-3-12b-it"),
    ],
)
def test_a_tuned_variant_has_the_shape_of_its_base_model(name: str, row: str) -> None:
    assert config_of(name) == config_of(row)


def test_a_variant_with_other_tensors_has_its_own_row() -> None:
    base, tuned = (config_of(f"mistralai/Mixtral-8x22B-{end}")["vocab_size"] for end in ("v0.1", "Instruct-v0.1"))
    assert (base, tuned) == (32000, 32768)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-9B", "meta-llama/Llama-3.1-8c", "gpt-oss", "", "x" * 5000])
def test_another_name_is_not_known(name: str) -> None:
    assert known_config(name) is None


def test_the_nearest_names_are_listed_the_closest_first() -> None:
    assert nearest_names("meta-llama/Llama-3.1-8c") == [
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Meta-Llama-3-8B",
        "meta-llama/Llama-3.1-70B",
    ]
    assert nearest_names("nosuch/model") == []
