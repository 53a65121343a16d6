"""Runs that a prediction left a part of out without a word: each says what is missing, and nobody calls it fitting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.build.test_register import DDP, MODEL, PLAIN, RECIPE, TRAIN_SFT, Job, divided, planned, zero
from zerocfg.cli.screens.plan_table import text as table
from zerocfg.hardware.profile import load_hardware, write_text
from zerocfg.memory.verdict import Verdict, Word
from zerocfg.models.hardware import Host
from zerocfg.resolve.explain.alternatives import alternatives
from zerocfg.resolve.explain.forecast import forecast
from zerocfg.resolve.model.gaps import Gap, verdict_with
from zerocfg.resolve.model.register import Standing

GIB = 1 << 30
LLAMA_8B = MODEL | {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "dtype": "bfloat16",
}
PARAMETERS_8B = 8_030_261_248  # of meta-llama/Meta-Llama-3-8B, as its card and every count of its tensors says


def parallel(**sizes: int) -> Any:
    accelerate = pytest.importorskip("accelerate")
    return accelerate.ParallelismConfig(**{f"{name}_size": size for name, size in sizes.items()})


# -- parallelism -------------------------------------------------------------------------------------------------------


@pytest.mark.libs
@pytest.mark.parametrize("sizes", [{"dp_replicate": 8, "dp_shard": 2}, {"dp_replicate": 2, "dp_shard": 8}])
def test_hybrid_shards_are_those_of_the_mesh_of_accelerate(sizes: dict[str, int], tmp_path: Path) -> None:
    """FSDP 2 keeps fp32 shards over the mesh dimension dp_shard_cp."""
    mesh = parallel(**sizes)
    shapes = dict(zip(*mesh._get_mesh(), strict=True))
    ranks = 1
    for name in mesh.dp_shard_cp_dim_names:
        ranks *= shapes[name]
    job = replace(divided(**sizes), model=LLAMA_8B, run={"hardware": "16xH100-80GB"})
    _, data, _ = planned(tmp_path, job)
    (shard,) = [term["size"] for term in data["phases"]["save"]["terms"] if term["name"] == "parameters"]
    assert shard == pytest.approx(4 * PARAMETERS_8B / ranks, rel=1e-3)
    assert data["not_modelled"] == []
    assert data["verdict"] == {2: "unlikely", 8: "fits"}[ranks]


@pytest.mark.libs
@pytest.mark.parametrize(("ranks", "sizes"), [(8, {"sp": 8}), (8, {"sp": 2, "dp_shard": 4}), (8, {"sp": 1})])
def test_the_batch_of_ulysses_is_that_of_accelerate(ranks: int, sizes: dict[str, int], tmp_path: Path) -> None:
    """accelerate counts `train_batch_size` over ParallelismConfig.data_parallel_size."""
    section = {f"parallelism_config_{name}_size": size for name, size in sizes.items()}
    job = Job(
        accelerate={
            "distributed_type": "DEEPSPEED",
            "num_processes": ranks,
            "mixed_precision": "bf16",
            "deepspeed_config": {"zero_stage": 3},
            "parallelism_config": section,
        },
        recipe={**RECIPE, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    )
    built, data, _ = planned(tmp_path, job)
    assert built.plan is not None
    groups = parallel(**sizes).data_parallel_size if sizes["sp"] > 1 else ranks
    assert built.plan.settings["train_batch_size"].value == 4 * 2 * groups
    assert data["complete"] is (sizes["sp"] == 1)
    if sizes["sp"] > 1:
        assert data["verdict"] == "unknown"
        assert data["time"]["samples_per_second"] > 0


@pytest.mark.libs
@pytest.mark.parametrize("sizes", [{"cp": 2, "dp_shard": 4}, {"cp": 8}])
def test_the_batch_of_context_parallelism_is_that_of_the_trainer(sizes: dict[str, int], tmp_path: Path) -> None:
    """`Trainer.get_total_train_batch_size`, asked of a stand-in with accelerate's own sizes."""
    transformers = pytest.importorskip("transformers")
    from types import SimpleNamespace

    pc = parallel(**sizes)
    asked = SimpleNamespace(
        _train_batch_size=2,
        get_tp_size=lambda: pc.tp_size,
        get_cp_size=lambda: pc.cp_size,
        get_sp_size=lambda: pc.sp_size,
    )
    arguments = SimpleNamespace(world_size=8, gradient_accumulation_steps=1)
    expected = transformers.Trainer.get_total_train_batch_size(asked, arguments)
    built, data, _ = planned(tmp_path, divided(**sizes))
    assert built.plan is not None and built.plan.settings["train_batch_size"].value == expected
    assert data["verdict"] == "unknown" and data["complete"] is False


@pytest.mark.libs
def test_the_batch_of_tensor_parallelism_is_that_of_the_trainer(tmp_path: Path) -> None:
    """One micro batch for all eight ranks, and a word that says so."""
    transformers = pytest.importorskip("transformers")
    from types import SimpleNamespace

    alone = {f"get_{name}_size": lambda: 1 for name in ("cp", "sp")}
    asked = SimpleNamespace(_train_batch_size=2, get_tp_size=lambda: 8, **alone)
    arguments = SimpleNamespace(world_size=8, gradient_accumulation_steps=1)
    expected = transformers.Trainer.get_total_train_batch_size(asked, arguments)
    section = {"parallelism_config": {"parallelism_config_tp_size": 8}}
    job = replace(PLAIN, accelerate={**(PLAIN.accelerate or {}), **section})
    built, data, text = planned(tmp_path, job)
    assert built.plan is not None and built.plan.settings["train_batch_size"].value == expected == 2
    assert "2 samples an optimizer step: the 8 ranks that share each layer read the same ones" in " ".join(text.split())
    assert data["verdict"] == "fits" and data["complete"] is True and data["time"] is None


# -- what is trained ---------------------------------------------------------------------------------------------------


SIGHTED = {
    "model_type": "qwen2_5_vl",
    "text_config": {
        "model_type": "qwen2_5_vl_text",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
    },
    "vision_config": {"depth": 32, "hidden_size": 1280, "out_hidden_size": 3584},
}


def test_a_model_with_eyes_is_not_its_language_part(tmp_path: Path) -> None:
    model = {**SIGHTED, "model_type": "llava_onevision", "vision_config": {"hidden_size": 1152}}
    model["text_config"] = {**SIGHTED["text_config"], "model_type": "qwen2"}  # type: ignore[dict-item]
    _, data, text = planned(tmp_path, replace(zero(3), model=model))
    assert data["complete"] is False and data["verdict"] == "unknown"
    assert "not modelled: `vision_config: {1 keys}` (only the language part of the model is counted)\n" in text
    assert "  verdict    not known without `vision_config`: needs at least " in text


def sighted(**images: Any) -> Job:
    return replace(zero(3), model=SIGHTED, run={"sequence_length": 2048, "images": images or None})


def test_of_a_known_tower_only_the_images_are_missing(tmp_path: Path) -> None:
    built, data, text = planned(tmp_path, sighted())
    assert built.inputs.facts.parameters == 8_292_166_656 and not data["not_modelled"]
    assert data["complete"] is False and data["verdict"] == "unknown"
    assert "add `images: {per_sample: 1, pixels: 1003520}` to the run in the spec" in text
    assert "activations and temporaries" not in text and "logits and loss" not in text


def test_with_its_images_a_verdict_is_given(tmp_path: Path) -> None:
    """An image of 1,280 tokens in each of two samples; every change of tower and images is in the figures."""
    jobs = {
        "one": sighted(per_sample=1, pixels=1003520),
        "none": sighted(per_sample=0),
        "small": sighted(per_sample=1, pixels=501760),
        "two small": sighted(per_sample=2, pixels=501760),
        "shallow": replace(
            sighted(per_sample=1, pixels=1003520),
            model={**SIGHTED, "vision_config": {"depth": 16, "hidden_size": 1280}},
        ),
    }
    peaks, times = {}, {}
    for name, job in jobs.items():
        _, data, _ = planned(tmp_path / name, job)
        assert data["complete"] and data["verdict"] == "fits" and data["not_modelled"] == []
        peaks[name], times[name] = data["allocated"]["expected"], data["time"]["seconds"]["expected"]
    assert peaks["none"] < peaks["small"] < peaks["two small"] and peaks["shallow"] < peaks["one"]
    assert abs(peaks["two small"] / peaks["one"] - 1) < 0.01, "as many patches"
    assert times["none"] < times["small"] < times["one"] and times["shallow"] < times["one"]


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ({"per_sample": 1}, "add `pixels:` to `images:`"),
        ({"per_sample": 2, "pixels": 1003520}, "2,560 tokens, more than its 2,048"),
    ],
)
def test_images_that_cannot_be_counted_give_no_figure(tmp_path: Path, images: dict[str, int], says: str) -> None:
    _, data, text = planned(tmp_path, sighted(**images))
    assert data["complete"] is False and data["verdict"] == "unknown" and says in text


@pytest.mark.parametrize(
    ("trainer", "recipe"),
    [
        ("KTOTrainer", {}),
        ("RewardTrainer", {}),
        ("DPOTrainer", {}),
        ("RLOOTrainer", {}),
        ("SFTTrainer", {}),
        (None, {"desirable_weight": 1.0}),
        (None, {}),
    ],
)
def test_other_trainers_than_sft_and_grpo_have_no_verdict(
    trainer: str | None, recipe: dict[str, Any], tmp_path: Path
) -> None:
    script = f"from trl import {trainer}\n{trainer}(model=None).train()\n" if trainer else ""
    job = Job(
        deepspeed={"zero_optimization": {"stage": 3}},
        recipe={**RECIPE, **recipe},
        run={"consumer": "trl"},
        script=script,
    )
    _, data, text = planned(tmp_path, job)
    known = trainer == "SFTTrainer" or (trainer is None and not recipe)
    assert data["verdict"] == ("fits" if known else "unknown")
    assert ("only supervised fine-tuning and GRPO are modelled" in text) is not known
    assert known or trainer is None or trainer in text


@pytest.mark.parametrize(
    ("consumer", "recipe", "more"),
    [
        ("transformers", {"per_device_eval_batch_size": 2}, False),
        ("transformers", {"per_device_eval_batch_size": 3}, True),
        ("transformers", {"per_device_eval_batch_size": 2, "use_liger_kernel": True}, True),
        ("trl", {"per_device_eval_batch_size": 2}, False),
        ("trl", {"per_device_eval_batch_size": 3}, True),
        ("transformers", {"per_device_eval_batch_size": 64, "eval_strategy": "no"}, False),
        ("transformers", {}, True),  # of the library's 8 samples
    ],
)
def test_evaluation_counts_where_it_may_hold_more(
    consumer: str, recipe: dict[str, Any], more: bool, tmp_path: Path
) -> None:
    job = replace(zero(3), recipe={**RECIPE, "eval_strategy": "steps", **recipe}, run={"consumer": consumer})
    _, data, _ = planned(tmp_path, replace(job, script=TRAIN_SFT if consumer == "trl" else ""))
    assert data["verdict"] == ("unknown" if more else "fits")
    assert [gap["figures_are"] for gap in data["not_modelled"]] == (["at least"] if more else [])


def test_generation_beside_training_is_named_where_it_is_in_no_figure(tmp_path: Path) -> None:
    def rloo(**recipe: Any) -> dict[str, Any]:
        job = Job(
            deepspeed={"zero_optimization": {"stage": 3}},
            recipe={**RECIPE, "use_vllm": True, **recipe},
            run={"consumer": "trl"},
            script=TRAIN_SFT.replace("SFT", "RLOO"),
        )
        return planned(tmp_path, job)[1]

    (gap,) = rloo()["not_modelled"]
    assert gap["keys"] == {"use_vllm": True} and gap["figures_are"] == "at least"
    assert rloo(vllm_mode="server")["not_modelled"] == []


# -- the words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "standings", "left"),
    [
        ("fits", [], "fits"),
        ("fits", ["at most"], "fits"),
        ("fits", ["at least"], "unknown"),
        ("fits", ["at most", "at least"], "unknown"),
        ("fits", ["not modelled"], "unknown"),
        ("likely", ["at most"], "likely"),
        ("likely", ["at least"], "unknown"),
        ("unlikely", ["at most"], "unknown"),
        ("unlikely", ["at least"], "unlikely"),
        ("does not fit", ["at least"], "does not fit"),
        ("does not fit", ["at most"], "unknown"),
        ("does not fit", ["not modelled"], "unknown"),
        ("unknown", [], "unknown"),
    ],
)
def test_what_is_left_of_a_verdict(word: Word, standings: list[Standing], left: Word) -> None:
    gaps = [Gap((("a", 1),), "", standing, ("memory", "time")) for standing in standings]
    verdict = Verdict(word, 0.5)
    assert verdict_with(verdict, gaps) == (verdict if left == word != "unknown" or not gaps else Verdict("unknown"))
    assert verdict_with(verdict, [replace(gap, touches=("time",)) for gap in gaps]) == verdict


@pytest.mark.parametrize("change", [{"run": {"sequence_length": None}}, {"recipe": {**RECIPE, "torch_compile": True}}])
def test_table_and_header_agree(change: dict[str, Any], tmp_path: Path) -> None:
    built, data, _ = planned(tmp_path, replace(zero(3), **change))
    rows = alternatives(built)
    assert data["verdict"] == "unknown"
    assert {row.candidate.verdict for row in rows} <= {"unknown", "does not fit"}
    shown = table(rows)
    assert "not known to fit" in shown and "best" not in shown and "fits as well" not in shown
    first = next(line for line in shown.splitlines() if line.rstrip().endswith("not known to fit"))
    assert ("> " in first[3:]) is ("run" in change)  # without activations the device is a bound


def test_a_run_that_is_followed_whole_is_judged_as_before(tmp_path: Path) -> None:
    built, data, text = planned(tmp_path, zero(3))
    assert data["verdict"] == "fits" and data["complete"] is True and data["not_modelled"] == []
    assert "not modelled" not in text
    assert table(alternatives(built)).count("  best\n") == 1


# -- the memory of the host --------------------------------------------------------------------------------------------


def on(folder: Path, hardware: str, host: Host | None, job: Job) -> tuple[Any, dict[str, Any], str]:
    """The job on a machine of which the host is known, or not."""
    profile = load_hardware(hardware).model_copy(update={"host": host})
    folder.mkdir(exist_ok=True)
    (folder / "box.json").write_text(write_text(profile))
    return planned(folder, replace(job, run={**job.run, "hardware": "box.json"}))


OFFLOAD = replace(zero(2, offload_optimizer={"device": "cpu"}), model=LLAMA_8B)


@pytest.mark.parametrize(
    ("ram", "verdict", "of_the_node", "text"),
    [
        (None, "fits", "unknown", "verdict    fits on the card: >99%, needs "),
        (64, "does not fit", "does not fit", "verdict    does not fit: the ranks need "),
        (512, "fits", "fits", "verdict    fits: >99%, needs "),
    ],
)
def test_an_offloaded_model_needs_a_host(
    ram: float | None, verdict: str, of_the_node: str, text: str, tmp_path: Path
) -> None:
    host = None if ram is None else Host(ram_gib=ram)
    _, data, shown = on(tmp_path, "1xH200", host, OFFLOAD)
    assert data["node"]["host"] > 12 * PARAMETERS_8B  # fp32 masters and both moments lie there
    assert (data["verdict"], data["node"]["verdict"]) == (verdict, of_the_node)
    assert text in shown and ("its size is not known" in shown) is (ram is None)


@pytest.mark.parametrize(("ram", "verdict"), [(23, "does not fit"), (2000, "fits"), (None, "unknown")])
def test_ranks_on_a_processor_share_the_memory_of_the_node(ram: float | None, verdict: str, tmp_path: Path) -> None:
    job = replace(DDP, model=LLAMA_8B, recipe={**RECIPE, "per_device_train_batch_size": 1})
    built, data, text = on(tmp_path, "2xcpu", None if ram is None else Host(ram_gib=ram), job)
    assert built.plan is not None and data["verdict"] == verdict
    if ram is not None:
        assert data["capacity"] == int(ram * GIB) // 2
    if verdict == "fits":
        assert "each rank has 1000.0" in text


def test_a_processor_is_not_told_to_fit_what_it_has_not(tmp_path: Path) -> None:
    job = replace(zero(3), model=LLAMA_8B, run={"goals": {"prefer": "throughput", "global_batch_size": 8}})
    job = replace(job, recipe={name: value for name, value in RECIPE.items() if "batch" not in name}, deepspeed={})
    built, _, text = on(tmp_path, "2xcpu", Host(ram_gib=23), job)
    assert built.plan is None and "no plan fits" in text
    built, _, _ = on(tmp_path, "2xcpu", Host(ram_gib=23), replace(job, model=MODEL | {"num_hidden_layers": 1}))
    assert built.plan is not None
    best = forecast(built, tracing=False)
    assert best.word == "fits" and best.room is not None and best.host.high <= best.room
    assert json.dumps(built.plan.notes).count("may not fit") == 0


def test_adapters_of_a_script_can_be_said_as_numbers(tmp_path: Path) -> None:
    """What is trained of a model outside TRL: gradients, fp32 weights and moments are those of the adapters alone."""
    whole = {"parameters": 8_000_000_000, "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256}
    shape = {"num_attention_heads": 32, "intermediate_size": 14336}
    job = replace(zero(2), run={"model": {**whole, **shape}})
    adapted = replace(job, run={"model": {**whole, **shape, "trainable_parameters": 20_000_000}})
    sizes = {}
    for name, one in (("whole", job), ("adapted", adapted)):
        _, data, text = planned(tmp_path / name, one)
        assert data, text
        terms = {term["name"]: term["size"] for term in data["phases"]["step"]["terms"]}
        sizes[name] = terms["master weights"]
        assert data["phases"]["save"]["terms"], name
    assert sizes["whole"] == pytest.approx(4 * 8e9 / 8, rel=1e-3)
    assert sizes["adapted"] == pytest.approx(4 * 20e6 / 8, rel=1e-2)
