"""What GRPO takes, against GRPOTrainer of TRL itself, which trains a small Llama while every storage is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.conftest import ROOT
from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.activations.generation import generated, scored
from zerocfg.memory.options import Workload
from zerocfg.models.model_facts import from_config

LLAMA = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 8000,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
CONFIG = {"model_type": "llama", **LLAMA}
PARAMETERS = 2 * 8000 * 512 + 512 + 4 * (2 * 512 + 2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1376)
SAMPLED = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 48}
CASES: dict[str, dict[str, Any]] = {
    "recomputed, beside a reference": {
        "prompt": 96,
        "arguments": SAMPLED | {"gradient_accumulation_steps": 2, "gradient_checkpointing": True, "beta": 0.04},
    },
    "all activations kept, a short prompt": {
        "prompt": 16,
        "arguments": SAMPLED | {"gradient_checkpointing": False, "steps_per_generation": 4, "temperature": 0.7},
    },
    "eager attention": {
        "attention": "eager",
        "prompt": 64,
        "arguments": SAMPLED | {"gradient_checkpointing": True},
    },
}


@cache
def measured(name: str) -> dict[str, Any]:
    case = {"model": LLAMA, "attention": "sdpa", **CASES[name]}
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.grpo_run"],
        input=json.dumps(case),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def workload(name: str) -> Workload:
    case = CASES[name]
    arguments = case["arguments"]
    completion = arguments["max_completion_length"]
    return Workload(
        arguments["per_device_train_batch_size"],
        case["prompt"] + completion,
        arguments["gradient_checkpointing"],
        case.get("attention", "sdpa"),
        True,
        completion=completion,
    )


def peaks(found: list[tuple[str, int]]) -> dict[str, int]:
    """The most in forward and in backward."""
    parts = {"forward": ("forward", "loss"), "backward": ("head backward", "backward")}
    return {name: max(size for moment, size in found if moment in moments) for name, moments in parts.items()}


@pytest.mark.libs
@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_are_those_that_are_traced(name: str) -> None:
    from tests.memory.traced import run

    work, real = workload(name), measured(name)["peaks"]
    traced = peaks([(moment, size) for moment, _, size, _ in run(CONFIG, work, "bf16", alike=True).stretches])
    for moment, size in traced.items():
        assert real[moment] == pytest.approx(size, rel=5e-4), moment


@pytest.mark.libs
@pytest.mark.parametrize("name", [name for name in CASES if "attention" not in CASES[name]])
def test_so_they_are_of_the_closed_formula(name: str) -> None:
    timeline = by_formula(from_config(CONFIG), workload(name), "bf16", CONFIG)
    found = peaks([(one.moment, one.size) for one in timeline.segments])
    for moment, size in found.items():
        assert size == pytest.approx(measured(name)["peaks"][moment], rel=0.005), moment


@pytest.mark.libs
@pytest.mark.parametrize("name", CASES)
def test_generating_takes_its_cache_and_its_logits(name: str) -> None:
    arguments = CASES[name]["arguments"]
    steps = arguments.get("steps_per_generation", arguments.get("gradient_accumulation_steps", 1))
    sequences = steps * arguments["per_device_train_batch_size"]
    per_logit = 22 if "temperature" in arguments else 18
    found = generated(from_config(CONFIG), workload(name), sequences, per_logit, "bf16", CONFIG)
    # What `multinomial` takes inside, 4 bytes a logit, is not seen here.
    assert found == pytest.approx(measured(name)["peaks"]["generation"], rel=0.06)


@pytest.mark.libs
def test_a_reference_is_a_copy_and_scores_without_keeping_anything() -> None:
    name = "recomputed, beside a reference"
    found = measured(name)
    assert found["parameters"] == from_config(CONFIG).parameters == PARAMETERS
    assert found["reference"] == 2 * PARAMETERS
    scoring = scored(from_config(CONFIG), workload(name), "bf16", CONFIG)
    assert found["peaks"]["scoring"] == pytest.approx(scoring, rel=0.05)
    assert found["peaks"]["scoring"] < found["peaks"]["forward"]


@pytest.mark.libs
def test_without_beta_there_is_none() -> None:
    assert measured("eager attention")["reference"] == 0
