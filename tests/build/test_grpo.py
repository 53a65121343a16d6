"""GRPO in `zerocfg plan`: the share of vLLM, the reference, what is gathered to generate; and what is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.build.test_register import DDP, MODEL, RECIPE, TRAIN_GRPO, Job, fsdp, planned
from zerocfg.hardware.profile import load_hardware

VOCABULARY, WIDTH, INNER, LAYERS = 32000, 2048, 5632, 16
BLOCK = 2 * WIDTH + 2 * WIDTH * WIDTH + 2 * WIDTH * 1024 + 3 * WIDTH * INNER
PARAMETERS = 2 * VOCABULARY * WIDTH + WIDTH + LAYERS * BLOCK  # two norms, four projections with 8 of 16 heads, an MLP
CACHE = 2 * LAYERS * 1024 * 2
"""Bytes that a token has in the cache: keys and values of 8 heads of 128 in 16 bit, in each layer."""
OWN = {"num_generations": 4, "max_completion_length": 512, "gradient_accumulation_steps": 2}


def grpo(stage: int = 3, **recipe: Any) -> Job:
    return Job(
        deepspeed={"zero_optimization": {"stage": stage}},
        recipe={**RECIPE, **OWN, **recipe},
        run={"consumer": "trl"},
        script=TRAIN_GRPO,
    )


def torch_job(engine: Job, **recipe: Any) -> Job:
    model = {**MODEL, "dtype": "bfloat16"}
    return replace(engine, recipe={**grpo().recipe, "dtype": "bfloat16", **recipe}, model=model, **SCRIPTED)


SCRIPTED: dict[str, Any] = {"run": {"consumer": "trl"}, "script": TRAIN_GRPO}


def terms(data: dict[str, Any], phase: str) -> dict[str, int]:
    return {term["name"]: term["size"] for term in data["phases"].get(phase, {}).get("terms", ())}


def plan(folder: Path, job: Job) -> dict[str, Any]:
    _, data, text = planned(folder, job)
    assert data, text
    return data


def test_a_complete_prediction(tmp_path: Path) -> None:
    data = plan(tmp_path, grpo())
    assert data["complete"] is True and data["verdict"] == "fits" and 0.95 < data["chance"] <= 1
    (gap,) = data["not_modelled"]
    assert gap["keys"] == {"num_generations": 4} and gap["touches"] == ["time"] and gap["figures_are"] == "at least"
    assert list(data["phases"]) == ["init", "generation", "forward+backward", "step", "save"]


def test_to_generate_zero_3_gathers_the_whole_model(tmp_path: Path) -> None:
    """Two micro batches of two samples are generated at once; their cache is the least that generating takes."""
    found = terms(plan(tmp_path / "a", grpo()), "generation")
    assert found["model gathered to generate"] == 2 * PARAMETERS
    assert 4 * 1024 * CACHE < found["cache and logits of completions"] < 2 * 4 * 1024 * CACHE
    apart = terms(plan(tmp_path / "b", grpo(ds3_gather_for_generation=False)), "generation")
    assert "model gathered to generate" not in apart and apart["parameters gathered to generate"] > 2 * BLOCK
    whole = terms(plan(tmp_path / "c", grpo(stage=2)), "generation")
    assert whole["parameters"] == 2 * PARAMETERS and not [name for name in whole if "gathered" in name]


def test_twice_the_steps_of_a_generation_are_twice_the_cache(tmp_path: Path) -> None:
    name = "cache and logits of completions"
    one = terms(plan(tmp_path / "one", grpo()), "generation")[name]
    two = terms(plan(tmp_path / "two", grpo(steps_per_generation=4)), "generation")[name]
    assert two == pytest.approx(2 * one, rel=1e-3)


def test_colocated_vllm_takes_its_share_of_the_card_for_good(tmp_path: Path) -> None:
    total = load_hardware("8xH200").accelerator.planning_gib or 0.0
    served = plan(tmp_path / "server", grpo(stage=2, use_vllm=True, vllm_mode="server"))
    for written, share in (({}, 0.3), ({"vllm_gpu_memory_utilization": 0.45}, 0.45)):
        data = plan(tmp_path / str(share), grpo(stage=2, use_vllm=True, **written))
        bytes_ = int(total * share * (1 << 30))
        assert data["complete"] is True
        for phase in data["phases"]:
            assert terms(data, phase)["share of the card for vLLM"] == pytest.approx(bytes_, abs=1)
        for figure in ("allocated", "reserved", "device"):
            for end in ("low", "expected", "high"):
                assert data[figure][end] - served[figure][end] == pytest.approx(bytes_, abs=1), (figure, end)


def test_while_it_sleeps_it_takes_nothing(tmp_path: Path) -> None:
    data = plan(tmp_path, grpo(stage=2, use_vllm=True, vllm_enable_sleep_mode=True))
    holds = [phase for phase in data["phases"] if "share of the card for vLLM" in terms(data, phase)]
    assert holds == ["generation"]


def test_a_share_beside_which_nothing_fits(tmp_path: Path) -> None:
    """0.9 of the card is vLLM's; the model, its gradients and its activations need more than the rest."""
    recipe = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.9, "gradient_checkpointing": False}
    near = plan(tmp_path / "near", grpo(stage=2, **recipe))
    over = plan(tmp_path / "over", grpo(stage=2, **recipe, per_device_train_batch_size=16))
    assert near["verdict"] in ("fits", "likely") and over["verdict"] == "does not fit"


@pytest.mark.parametrize(
    ("job", "share"),
    [
        (grpo(stage=2), 1),
        (grpo(stage=3), 8),
        (torch_job(DDP), 1),
        (torch_job(fsdp()), 8),
        (torch_job(fsdp(1)), 8),
    ],
    ids=["ZeRO-2", "ZeRO-3", "DDP", "FSDP 2", "FSDP 1"],
)
def test_a_reference_is_kept_whole_or_sharded(job: Job, share: int, tmp_path: Path) -> None:
    """trl/models/utils.py: prepare_deepspeed makes stage 0 of every stage but 3."""
    without = plan(tmp_path / "without", job)
    beside = plan(tmp_path / "beside", replace(job, recipe={**job.recipe, "beta": 0.04}))
    for phase in beside["phases"]:
        found = terms(beside, phase)
        assert found["reference model"] == -(-PARAMETERS // share) * 2, phase
        assert "reference model" not in terms(without, phase)


def test_adapters_are_switched_off_instead(tmp_path: Path) -> None:
    data = plan(tmp_path, grpo(beta=0.04, use_peft=True, lora_target_modules=["q_proj"]))
    assert data["complete"] is True
    assert not [name for phase in data["phases"] for name in terms(data, phase) if "reference" in name]


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (replace(grpo(), run={"consumer": "trl", "sequence_length": None}), "add `sequence_length:` to the run"),
        (replace(grpo(), run={"consumer": "trl", "sequence_length": 512}), "more than the 512 tokens of `max_compl"),
        (
            replace(grpo(), run={"consumer": "trl", "versions": {"trl": "1.14.0"}}),
            "GRPOTrainer is modelled for TRL 1.15.0 and later",
        ),
        (torch_job(DDP, dtype="float32"), "load the model in 16 bit"),
        (grpo(use_transformers_continuous_batching=True), "continuous batching"),
    ],
)
def test_what_is_not_known_is_said_with_what_to_write(job: Job, says: str, tmp_path: Path) -> None:
    _, data, text = planned(tmp_path, job)
    assert data["complete"] is False and data["verdict"] == "unknown" and says in text


def test_one_token_of_a_prompt_is_enough(tmp_path: Path) -> None:
    job = replace(grpo(), run={"consumer": "trl", "sequence_length": 513})
    assert plan(tmp_path, job)["complete"] is True


def test_a_batch_of_a_step_has_whole_groups(tmp_path: Path) -> None:
    def chosen(samples: int) -> tuple[Any, str]:
        recipe = {key: value for key, value in grpo().recipe.items() if "batch" not in key and "accum" not in key}
        run = {"consumer": "trl", "goals": {"global_batch_size": samples}}
        job = Job(recipe={**recipe, "num_generations": 6}, run=run, script=TRAIN_GRPO)
        built, _, text = planned(tmp_path / str(samples), job)
        return built.plan, text

    plan_of_64, text = chosen(64)
    assert plan_of_64 is None and "64 completions of a step are no whole groups of 6" in text
    plan_of_48, _ = chosen(48)
    assert plan_of_48 is not None and plan_of_48.settings["train_batch_size"].value == 48


def test_json_has_the_phase_of_generation_only_where_there_is_one(tmp_path: Path) -> None:
    trained = replace(grpo(), script=TRAIN_GRPO.replace("GRPO", "SFT"), recipe=RECIPE)
    assert "generation" not in json.dumps(plan(tmp_path, trained)["phases"])
