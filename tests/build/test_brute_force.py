"""The plan search against brute force.

On random small jobs every combination of the open values is predicted, and a few lines written after the documented
order ("How plans are ranked" in docs/choosing-a-stage.md) choose among them. The search has to take the same plan, or
refuse the job where none of them may fit.

``ZEROCFG_SEARCHES`` sets the number of jobs, ``ZEROCFG_PARITY_SEED`` draws others.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import Workplace, spec
from zerocfg.catalog.known_models import known_config
from zerocfg.hardware.profile import load_hardware, read_profile, write_text
from zerocfg.memory.options import TorchOptions
from zerocfg.memory.overhead import GIB
from zerocfg.models.hardware import Host, Mount
from zerocfg.models.model_facts import from_config
from zerocfg.resolve.build import model_file
from zerocfg.resolve.collect_inputs import collect_inputs
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.search.candidates import Candidate
from zerocfg.resolve.search.choice import Choice, Prefer
from zerocfg.resolve.search.engine_search import Search, candidates_of, ranked_plans, searches_of
from zerocfg.resolve.search.search_space import ContradictionError
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.run.discover import Files
from zerocfg.run.link import runs_from_spec

COUNT = int(os.environ.get("ZEROCFG_SEARCHES", "24"))
SEED = int(os.environ.get("ZEROCFG_PARITY_SEED", "20260"))
SHARDS = 2

ZERO = "zero_optimization"
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "vocab_size": 32000, "num_attention_heads": 16, "num_key_value_heads": 4},
    "qwen2": {"model_type": "qwen2", "vocab_size": 151936, "num_attention_heads": 16, "tie_word_embeddings": True},
    "mixtral": {"model_type": "mixtral", "vocab_size": 32000, "num_attention_heads": 16, "num_key_value_heads": 4},
    "qwen3_moe": {"model_type": "qwen3_moe", "vocab_size": 151936, "num_attention_heads": 16, "num_experts": 16},
}


@dataclass(frozen=True)
class Job:
    """The files of a random job, and its goals."""

    files: dict[str, Any]
    goals: dict[str, Any] | None


def job(draw: random.Random, folder: Path) -> Job:
    nodes, each = draw.choice([(1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (3, 2), (2, 8), (4, 8)])
    hidden = draw.choice([1024, 2048, 4096])
    kind = draw.choice(list(MODELS))
    model = {
        **MODELS[kind],
        "hidden_size": hidden,
        "intermediate_size": draw.choice([2, 3]) * hidden,
        "moe_intermediate_size": hidden // 2,
        "num_hidden_layers": draw.randint(1, 8),
        "torch_dtype": draw.choice(["bfloat16", "float32"]),
    }
    card = load_hardware(draw.choice(["A100-80GB", "H100", "RTX4090", "V100", "MI300X", "L4"]))
    device = card.accelerator.model_copy(update={"usable_gib": memory(draw, model, nodes * each)})
    host = None
    if draw.random() < 0.5:
        drives = [Mount(path="/nvme", free_gib=draw.choice([1, 200]))] if draw.random() < 0.4 else []
        host = Host(ram_gib=draw.choice([8, 64, 512]), nvme=drives)
    link = load_hardware("8xA100-80GB").link_within_node if each > 1 else None
    profile = card.model_copy(
        update={
            "nodes": nodes,
            "accelerators_per_node": each,
            "accelerator": device,
            "host": host,
            "link_within_node": link,
        }
    )
    (folder / "hw.json").write_text(write_text(profile))

    lora = draw.random() < 0.2
    loop = not lora and draw.random() < 0.15
    engine = "deepspeed" if loop else draw.choice([None, None, "deepspeed", "fsdp", "fsdp", "ddp"])
    recipe: dict[str, Any] = {"output_dir": "out", "max_steps": 10}
    if lora:
        recipe["use_peft"] = True
    if draw.random() < 0.15:
        recipe["per_device_train_batch_size"] = draw.choice([1, 2, 4])
    if draw.random() < 0.15:
        recipe["gradient_accumulation_steps"] = draw.choice([1, 2, 4])
    if draw.random() < 0.2:
        recipe["gradient_checkpointing"] = draw.choice([True, False])
    goals: dict[str, Any] | None = {"prefer": draw.choice(["throughput", "throughput", "memory", "cost"])}
    if draw.random() < 0.9:
        goals["global_batch_size"] = nodes * each * draw.choice([1, 2, 3, 4, 6, 8, 16])
    entry: dict[str, Any] = {
        "consumer": "deepspeed" if loop else "trl" if lora else "transformers",
        "model": "config.json",
        "recipe": None if loop else "recipe.yaml",
        "deepspeed": None,
        "engine": engine,
        "hardware": "hw.json",
        "sequence_length": draw.choice([128, 256, 512, 1024, 2048]),
        "goals": goals,
    }
    files: dict[str, Any] = {"config.json": model, "train.py": "import deepspeed\n" if loop else ""}
    if not loop:
        files["recipe.yaml"] = recipe
    if engine == "deepspeed" and draw.random() < 0.5:
        zero: dict[str, Any] = {}
        if draw.random() < 0.5:
            zero["stage"] = draw.choice([0, 1, 2, 3])
        if zero.get("stage", 3) == 3 and draw.random() < 0.3:
            zero["offload_optimizer"] = {"device": draw.choice(["cpu", "none"])}
        files["ds.json"] = {"bf16": {"enabled": "auto"}, **({ZERO: zero} if zero else {})}
        files["ds.json"] |= dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
        entry["deepspeed"] = "ds.json"
    files["zerocfg.yaml"] = spec(**entry)
    return Job(files, goals)


def memory(draw: random.Random, model: dict[str, Any], ranks: int) -> float:
    """GiB of a device: context, NCCL and a share of the states of the model; often too little for all of its
    gradients, which is where one accumulation step needs less than several."""
    parameters = from_config(model).parameters
    assert parameters is not None
    states, gradients = parameters * 16 / ranks / GIB, parameters * 2 / GIB
    if draw.random() < 0.4:
        return round(2.5 + states * draw.uniform(0.9, 1.5) + gradients * draw.uniform(0.1, 1.2), 2)
    return round(2.0 + states * draw.uniform(0.7, 3.0) + draw.uniform(0.0, 4.0), 2)


def inputs_of(path: Path) -> Inputs:
    """What the job is resolved from, before anything is chosen."""
    read, files = read_spec(path), Files()
    assert read.spec is not None, read
    entry = read.spec.runs["a"]
    (run,) = runs_from_spec(path, files)
    profile = read_profile(path.parent / "hw.json")
    return collect_inputs(run, entry, read.folder, profile, model_file(entry, read.folder, files))


# -- the oracle --------------------------------------------------------------------------------------------------------


def every_choice(search: Search) -> Iterator[Choice]:
    """All combinations of the values that are open."""
    space = search.space
    places: list[tuple[Any, Any]] = [(None, None)] if space.offloads is None else list(space.offloads)
    for nodes, each in space.layouts:
        ranks = nodes * each
        if space.engine == "fsdp" and ranks == 1:
            continue
        for micro, steps in every_batch(search, ranks // space.sharing):
            for recompute in space.checkpointing:
                for stage in space.stages:
                    for optimizer, parameters in places if stage is not None else [(None, None)]:
                        least = {"cpu": 2, "nvme": 3}.get(optimizer, 0)
                        if stage is not None and stage < (3 if parameters in ("cpu", "nvme") else least):
                            continue
                        yield Choice(nodes, each, stage, optimizer, parameters, micro, steps, recompute, space.engine)


def every_batch(search: Search, ranks: int) -> Iterator[tuple[int | None, int | None]]:
    space = search.space
    if space.global_batch is None:
        yield from ((size, None) for size in (1, 2, 4, 8, 16, 32, 64)) if space.micro_open else ((None, None),)
        return
    for micro in range(1, 65):
        for steps in range(1, space.global_batch + 1):
            if micro * steps * ranks != space.global_batch:
                continue
            if (space.micro_open or micro == space.micro) and (space.steps_open or steps == space.steps):
                yield (micro if space.micro_open else None), (steps if space.steps_open else None)


def by_hand(plans: list[Candidate], prefer: Prefer) -> Candidate | None:
    """The plan that the documented order puts first; None where none may fit."""
    with_masters = [plan for plan in plans if not trains_halves(plan)]
    for pool in (with_masters, plans):
        fitting = [plan for plan in pool if plan.judged.chance is not None and plan.judged.chance >= 0.5]
        fitting = fitting or [plan for plan in pool if plan.judged.chance is None and not plan.short]
        if fitting:
            return first(fitting, prefer)
    return None


def trains_halves(plan: Candidate) -> bool:
    options = plan.setup.options
    return isinstance(options, TorchOptions) and not options.master and plan.setup.lora is None


def first(fitting: list[Candidate], prefer: Prefer) -> Candidate:
    timed = all(plan.seconds_per_token for plan in fitting)
    if prefer == "memory":
        least = min(plan.prediction.device.expected for plan in fitting)
        close = [plan for plan in fitting if plan.prediction.device.expected <= 1.03 * least]
        return min(close, key=lambda plan: (plan.seconds_per_token or 0.0, machinery(plan)))
    if not timed:
        return min(fitting, key=lambda plan: (doubt(plan), machinery(plan)))

    def price(plan: Candidate) -> float:
        assert plan.seconds_per_token is not None
        devices = plan.choice.nodes * plan.choice.per_node if prefer == "cost" else 1
        return plan.seconds_per_token * devices / (1.0 if plan.judged.chance is None else plan.judged.chance)

    least = min(map(price, fitting))
    close = [plan for plan in fitting if price(plan) <= 1.03 * least]
    return min(close, key=lambda plan: (doubt(plan), machinery(plan)))


def doubt(plan: Candidate) -> float:
    """0 where the whole band is within the memory, else whole percents to certainty."""
    chance = plan.judged.chance
    return 0.0 if plan.word == "fits" or chance is None else 1.0 - round(chance, 2)


def machinery(plan: Candidate) -> tuple[int, ...]:
    choice = plan.choice
    moved = {"none": 0, None: 0, "cpu": 1, "nvme": 3}
    return (
        moved[choice.offload_optimizer] + moved[choice.offload_param],
        3 if choice.engine == "fsdp" else choice.stage or 0,
        ["ddp", "deepspeed", "fsdp"].index(choice.engine or "ddp"),
        int(choice.checkpointing is True),
        choice.micro_batch or 0,
        -choice.nodes * choice.per_node,
    )


# -- the comparison ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_search_takes_what_brute_force_takes(shard: int, workplace: Workplace) -> None:
    seen: Counter[str] = Counter()
    for number in range(shard, COUNT, SHARDS):
        draw = random.Random(f"{SEED}-{number}")
        one = job(draw, workplace.folder)
        inputs = inputs_of(workplace.write(one.files))
        seen[compared(inputs, number)] += 1
    assert seen["chosen"] > COUNT / SHARDS / 3 and seen["refused"], seen


def compared(inputs: Inputs, number: int) -> str:
    if inputs.problems:
        return "problem"
    searches = searches_of(inputs)
    if not searches:
        return "nothing open"
    searches = [_without_levers(search) for search in searches]
    goals = inputs.spec.goals
    assert goals is not None
    plans: list[Candidate] = []
    for search in searches:
        with suppress(ValueError):
            predictor = candidates_of(search.inputs, search.before, resize=True)
            for choice in every_choice(search):
                with suppress(ValueError):
                    plans.append(predictor.of(choice))
    try:
        rows, _ = ranked_plans(searches)
    except ContradictionError:
        assert not plans, number
        return "contradiction"
    except ValueError:
        assert not plans, number
        return "not predicted"
    best, short = rows[0]
    expected = by_hand(plans, goals.prefer)
    if expected is None:
        assert short, (number, best.choice)
        return "refused"
    assert not short, (number, short, expected.choice, str(expected.judged))
    assert best.choice == expected.choice, (number, str(best.judged), str(expected.judged))
    return "chosen"


QWEN3_30B = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "torch_dtype": "bfloat16",
}
"""Qwen3-30B-A3B. Mixtral-8x7B is a model that zerocfg knows by its name."""


@pytest.mark.parametrize(
    ("model", "hardware", "micro"),
    [(known_config("mistralai/Mixtral-8x7B-v0.1"), "2x8xA100-80GB", 4), (QWEN3_30B, "2x8xH100-80GB", 4)],
    ids=["mixtral", "qwen3"],
)
def test_fsdp_fits_where_gradients_are_not_accumulated(
    model: dict[str, Any], hardware: str, micro: int, workplace: Workplace
) -> None:
    """With several accumulation steps FSDP 2 keeps whole gradients: 2 bytes a parameter, 87 GiB of Mixtral."""
    (workplace.folder / "hw.json").write_text(write_text(load_hardware(hardware)))
    goals = {"global_batch_size": 64}
    entry = spec(model="config.json", engine="fsdp", deepspeed=None, sequence_length=2048, goals=goals)
    files = {"zerocfg.yaml": entry, "config.json": model, "train.py": "", "recipe.yaml": {"output_dir": "out"}}
    searches = [_without_levers(search) for search in searches_of(inputs_of(workplace.write(files)))]
    rows, _ = ranked_plans(searches)
    best, short = rows[0]
    assert not short and (best.choice.micro_batch, best.choice.accumulation) == (micro, 1), short
    assert best.judged.chance is not None and best.judged.chance > 0.9
    accumulating = [plan for plan, _ in rows if plan.choice.accumulation != 1]
    assert accumulating and all(plan.word in ("unlikely", "does not fit") for plan in accumulating)
    assert compared(inputs_of(workplace.folder / "zerocfg.yaml"), 0) == "chosen"


def _without_levers(search: Search) -> Search:
    return replace(search, space=replace(search.space, levers=frozenset()))
