"""The register of keys that decide memory, time or batch: complete, and every key of it flipped in turn."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.build import untouched
from zerocfg.catalog.schema import Section, load_schema
from zerocfg.cli.screens.plan import Shown, as_data, as_text
from zerocfg.resolve.build import BuildResult, build_plans
from zerocfg.resolve.explain.alternatives import alternatives
from zerocfg.resolve.explain.forecast import Forecast, forecast
from zerocfg.resolve.model.register import PARALLEL, REGISTER, ZERO, Key
from zerocfg.resolve.model.setup import setup_of_run
from zerocfg.resolve.model.trl_trainer import SFT, trainer_of_arguments
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.run.stages.engine import current_name

MODEL = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 5632,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}
RECIPE = {"output_dir": "out", "bf16": True, "max_steps": 10, "per_device_train_batch_size": 2}
RUN = {
    "consumer": "transformers",
    "script": "train.py",
    "model": "config.json",
    "recipe": "recipe.yaml",
    "hardware": "8xH200",
    "sequence_length": 1024,
}
YAML = {"compute_environment": "LOCAL_MACHINE", "num_processes": 8, "num_machines": 1, "mixed_precision": "bf16"}
TRAIN_SFT = "from trl import SFTTrainer\nSFTTrainer(model=None).train()\n"


@dataclass(frozen=True)
class Job:
    """The files of one run, as data."""

    deepspeed: dict[str, Any] | None = None
    accelerate: dict[str, Any] | None = None
    recipe: dict[str, Any] = field(default_factory=lambda: dict(RECIPE))
    model: dict[str, Any] = field(default_factory=lambda: dict(MODEL))
    run: dict[str, Any] = field(default_factory=dict)
    script: str = ""


def zero(stage: int, **section: Any) -> Job:
    return Job(deepspeed={"zero_optimization": {"stage": stage, **section}})


def fsdp(version: int = 2, **section: Any) -> Job:
    own = {"fsdp_version": version, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    return Job(accelerate={**YAML, "distributed_type": "FSDP", "fsdp_config": {**own, **section}})


def own_loop(**config: Any) -> Job:
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
        **config,
    }
    return Job(deepspeed=config, run={"consumer": "deepspeed", "recipe": None})


def trl(**recipe: Any) -> Job:
    return Job(
        deepspeed={"zero_optimization": {"stage": 3}},
        recipe={**RECIPE, "use_peft": True, "lora_target_modules": ["q_proj"], **recipe},
        run={"consumer": "trl", "sequence_length": None},
        script=TRAIN_SFT,
    )


OFFLOADED = zero(3, offload_optimizer={"device": "cpu"})
ON_DRIVES = zero(
    3,
    offload_optimizer={"device": "nvme", "nvme_path": "/nvme"},
    offload_param={"device": "nvme", "nvme_path": "/nvme"},
)
DDP = Job(accelerate={**YAML, "distributed_type": "MULTI_GPU"}, model={**MODEL, "dtype": "bfloat16"})
QLORA = replace(
    trl(dtype="bfloat16"), deepspeed=None, accelerate=DDP.accelerate, run={"consumer": "trl", "sequence_length": None}
)
PLAIN = replace(
    DDP, accelerate={**(DDP.accelerate or {}), "mixed_precision": "no"}, recipe={**RECIPE, "bf16": False}, model=MODEL
)
EVALUATED = Job(deepspeed={"zero_optimization": {"stage": 3}}, recipe={**RECIPE, "eval_strategy": "steps"})
VISION = Job(
    deepspeed={"zero_optimization": {"stage": 3}},
    model={
        "model_type": "llava_next",
        "text_config": {**MODEL},
    },
)


def divided(**sizes: int) -> Job:
    section = {f"parallelism_config_{name}_size": size for name, size in sizes.items()}
    return Job(accelerate={**(fsdp().accelerate or {}), "parallelism_config": section})


# Key -> the run that it is flipped in, and its other value; what else has to be there stands in the run.
FLIPS: dict[tuple[str, str], tuple[Job, Any]] = {
    ("engine", "train_micro_batch_size_per_gpu"): (own_loop(), 4),
    ("engine", "gradient_accumulation_steps"): (own_loop(), 4),
    ("engine", "train_batch_size"): (own_loop(), 64),
    ("engine", ZERO + "stage"): (own_loop(), 3),
    ("engine", ZERO + "offload_optimizer.device"): (zero(3), "cpu"),
    ("engine", ZERO + "offload_param.device"): (OFFLOADED, "cpu"),
    ("engine", "bf16.enabled"): (own_loop(), False),
    ("engine", "fp16.enabled"): (own_loop(bf16={"enabled": False}), True),
    ("engine", "data_types.grad_accum_dtype"): (own_loop(), "fp32"),
    ("engine", "optimizer.type"): (own_loop(optimizer={"type": "Adam"}), "OneBitAdam"),
    ("engine", "optimizer.params.momentum"): (own_loop(optimizer={"type": "SGD"}), 0.9),
    ("engine", "optimizer.params.torch_adam"): (
        own_loop(optimizer={"type": "Adam"}, zero_optimization={"stage": 3, "reduce_bucket_size": 1_000_000}),
        True,
    ),
    ("engine", "optimizer.params.amsgrad"): (own_loop(optimizer={"type": "Adam"}), True),
    ("engine", ZERO + "reduce_bucket_size"): (zero(3), 1_000_000),
    ("engine", ZERO + "stage3_prefetch_bucket_size"): (zero(3), 500_000_000),
    ("engine", ZERO + "stage3_param_persistence_threshold"): (zero(3), 50_000_000),
    ("engine", ZERO + "stage3_model_persistence_threshold"): (
        zero(3, stage3_param_persistence_threshold=50_000_000),
        1000,
    ),
    ("engine", ZERO + "stage3_max_live_parameters"): (zero(3), 1_000_000),
    ("engine", ZERO + "stage3_max_reuse_distance"): (zero(3), 10**10),
    ("engine", ZERO + "sub_group_size"): (zero(3, reduce_bucket_size=1_000_000), 1_000_000),
    ("engine", ZERO + "zero_hpz_partition_size"): (zero(3), 2),
    ("engine", ZERO + "offload_optimizer.buffer_count"): (ON_DRIVES, 8),
    ("engine", ZERO + "offload_param.buffer_count"): (ON_DRIVES, 9),
    ("engine", ZERO + "offload_param.buffer_size"): (ON_DRIVES, 500_000_000),
    ("engine", ZERO + "offload_param.max_in_cpu"): (ON_DRIVES, 1_000_000),
    ("engine", ZERO + "overlap_comm"): (zero(2, overlap_comm=False), True),
    ("engine", ZERO + "contiguous_gradients"): (zero(2), False),
    ("engine", ZERO + "offload_optimizer.pin_memory"): (
        zero(3, offload_optimizer={"device": "cpu", "pin_memory": True}),
        False,
    ),
    ("engine", ZERO + "stage3_gather_16bit_weights_on_model_save"): (
        zero(3, stage3_gather_16bit_weights_on_model_save=False),
        True,
    ),
    ("engine", ZERO + "offload_optimizer.ratio"): (
        zero(3, sub_group_size=10_000_000, offload_optimizer={"device": "cpu"}),
        0.1,
    ),
    ("engine", ZERO + "offload_optimizer.super_offload"): (OFFLOADED, True),
    ("engine", ZERO + "zenflow.topk_ratio"): (zero(2, offload_optimizer={"device": "cpu"}), 0.2),
    ("engine", ZERO + "zenflow.select_strategy"): (zero(2, offload_optimizer={"device": "cpu"}), "step"),
    ("engine", ZERO + "zenflow.select_interval"): (zero(2, offload_optimizer={"device": "cpu"}), 4),
    ("engine", ZERO + "zenflow.update_interval"): (zero(2, offload_optimizer={"device": "cpu"}), 4),
    ("engine", ZERO + "zenflow.overlap_step"): (zero(2, offload_optimizer={"device": "cpu"}), True),
    ("engine", ZERO + "zenflow.offload"): (zero(2, offload_optimizer={"device": "cpu"}), True),
    ("engine", ZERO + "zenflow.auto_ratio"): (zero(2, offload_optimizer={"device": "cpu"}), 0.5),
    ("engine", ZERO + "zenflow.full_warm_up_rounds"): (zero(2, offload_optimizer={"device": "cpu"}), 2),
    ("engine", ZERO + "zenflow.pt_reserved_cores_perc"): (zero(2, offload_optimizer={"device": "cpu"}), 0.25),
    ("engine", ZERO + "zenflow.steps_per_epoch"): (zero(2, offload_optimizer={"device": "cpu"}), 100),
    ("engine", ZERO + "zero_quantized_weights"): (zero(3), True),
    ("engine", ZERO + "zero_quantized_gradients"): (zero(3), True),
    ("engine", ZERO + "zero_quantized_nontrainable_weights"): (zero(3), True),
    ("engine", "weight_quantization.enabled"): (own_loop(), True),
    ("engine", ZERO + "memory_efficient_linear"): (zero(3), False),
    ("engine", ZERO + "stage3_module_granularity_threshold"): (zero(3), 1_000_000),
    ("engine", ZERO + "stage3_use_all_reduce_for_fetch_params"): (zero(3), True),
    ("engine", ZERO + "stage3_allgather_sequential"): (zero(3), True),
    ("engine", ZERO + "leaf_module.classes"): (zero(3), ["LlamaMLP"]),
    ("engine", ZERO + "leaf_module.names"): (zero(3), ["mlp"]),
    ("engine", ZERO + "leaf_module.name_suffixes"): (zero(3), ["mlp"]),
    ("engine", ZERO + "reduce_scatter"): (zero(2), False),
    ("engine", ZERO + "use_multi_rank_bucket_allreduce"): (zero(2), False),
    ("engine", "communication_data_type"): (zero(2), "fp32"),
    ("engine", "sequence_parallel_size"): (own_loop(data_parallel_size=4), 2),
    ("engine", "tensor_parallel.autotp_size"): (zero(2), 2),
    ("engine", "expert_parallel.enabled"): (zero(2), True),
    ("engine", "hybrid_engine.enabled"): (own_loop(), True),
    ("engine", "compile.deepcompile"): (zero(3), True),
    ("engine", "torch_autocast.enabled"): (own_loop(bf16={"enabled": False}), True),
    ("engine", "bf16.bf16_master_weights_and_grads"): (own_loop(), True),
    ("engine", "bf16.bf16_optimizer_states"): (own_loop(), True),
    ("engine", "fp16.fp16_master_weights_and_grads"): (
        own_loop(bf16={"enabled": False}, fp16={"enabled": True}),
        True,
    ),
    ("engine", "bf16.immediate_grad_update"): (own_loop(), True),
    ("engine", "activation_checkpointing.partition_activations"): (own_loop(), True),
    ("engine", "activation_checkpointing.cpu_checkpointing"): (own_loop(), True),
    ("engine", "data_efficiency.enabled"): (own_loop(), True),
    ("engine", "autotuning.enabled"): (own_loop(), True),
    ("engine", "wall_clock_breakdown"): (own_loop(), True),
    ("engine", "flops_profiler.enabled"): (own_loop(), True),
    ("engine", "comms_logger.enabled"): (own_loop(), True),
    ("engine", "memory_breakdown"): (own_loop(), True),
    ("launcher", "num_processes"): (Job(accelerate={**DDP.accelerate, "num_processes": 8}, run={"hardware": None}), 4),  # type: ignore[dict-item]
    ("launcher", "engine"): (DDP, "FSDP"),
    ("launcher", "num_machines"): (
        Job(
            accelerate={**fsdp(1, fsdp_sharding_strategy="HYBRID_SHARD").accelerate},  # type: ignore[dict-item]
            run={"hardware": None},
        ),
        2,
    ),
    ("launcher", "mixed_precision"): (replace(DDP, recipe={**RECIPE, "bf16": False}), "fp8"),
    ("launcher", PARALLEL + "dp_replicate_size"): (divided(dp_shard=4), 2),
    ("launcher", PARALLEL + "dp_shard_size"): (divided(dp_replicate=4, dp_shard=2), 4),
    ("launcher", PARALLEL + "tp_size"): (divided(dp_shard=4), 2),
    ("launcher", PARALLEL + "cp_size"): (divided(dp_shard=4), 2),
    ("launcher", PARALLEL + "sp_size"): (
        Job(accelerate={**YAML, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}}),
        8,
    ),
    ("launcher", "fsdp_config.fsdp_version"): (fsdp(1), 2),
    ("launcher", "fsdp_config.fsdp_sharding_strategy"): (fsdp(1), "SHARD_GRAD_OP"),
    ("launcher", "fsdp_config.fsdp_reshard_after_forward"): (fsdp(), False),
    ("launcher", "fsdp_config.fsdp_offload_params"): (fsdp(), True),
    ("launcher", "fsdp_config.fsdp_activation_checkpointing"): (fsdp(), True),
    ("launcher", "fsdp_config.fsdp_backward_prefetch"): (fsdp(1), "BACKWARD_PRE"),
    ("launcher", "fsdp_config.fsdp_forward_prefetch"): (
        replace(fsdp(1), recipe={**RECIPE, "gradient_checkpointing": True}),
        True,
    ),
    ("launcher", "fsdp_config.fsdp_auto_wrap_policy"): (fsdp(1, fsdp_min_num_params=1000), "SIZE_BASED_WRAP"),
    ("launcher", "fsdp_config.fsdp_transformer_layer_cls_to_wrap"): (fsdp(), "LlamaMLP"),
    ("launcher", "fsdp_config.fsdp_activation_checkpointing_offload"): (fsdp(fsdp_activation_checkpointing=True), True),
    ("launcher", "fsdp_config.fsdp_ignored_modules"): (fsdp(), "lm_head"),
    ("launcher", "dynamo_config.dynamo_backend"): (DDP, "INDUCTOR"),
    ("arguments", "per_device_train_batch_size"): (zero(3), 4),
    ("arguments", "gradient_accumulation_steps"): (zero(3), 4),
    ("arguments", "bf16"): (zero(3), False),
    ("arguments", "fp16"): (PLAIN, True),
    ("arguments", "gradient_checkpointing"): (zero(3), True),
    ("arguments", "activation_checkpointing"): (zero(3), True),
    ("arguments", "gradient_checkpointing_kwargs"): (zero(3), {"every_n_layers": 2}),
    ("arguments", "activation_checkpointing_kwargs"): (zero(3), {"every_n_layers": 2}),
    ("arguments", "use_liger_kernel"): (zero(3), True),
    ("arguments", "attn_implementation"): (zero(3), "eager"),
    ("arguments", "ddp_bucket_cap_mb"): (DDP, 4000),
    ("arguments", "optim"): (zero(3), "galore_adamw"),
    ("arguments", "optim_target_modules"): (zero(3), ["attn"]),
    ("arguments", "auto_find_batch_size"): (zero(3), True),
    ("arguments", "torch_compile"): (zero(3), True),
    ("arguments", "torch_compile_backend"): (zero(3), "inductor"),
    ("arguments", "torch_compile_mode"): (zero(3), "max-autotune"),
    ("arguments", "torchdynamo"): (zero(3), "inductor"),
    ("arguments", "adafactor"): (zero(3), True),
    ("arguments", "per_gpu_train_batch_size"): (zero(3), 4),
    ("arguments", "split_batches"): (zero(3), True),
    ("arguments", "full_determinism"): (zero(3), True),
    ("arguments", "half_precision_backend"): (zero(3), "apex"),
    ("arguments", "max_seq_length"): (trl(), 2048),
    ("arguments", "use_liger"): (trl(), True),
    ("arguments", "use_liger_loss"): (trl(), True),
    ("arguments", "model_init_kwargs"): (trl(), {"dtype": "bfloat16"}),
    ("arguments", "eval_strategy"): (zero(3), "steps"),
    ("arguments", "eval_on_start"): (zero(3), True),
    ("arguments", "per_device_eval_batch_size"): (EVALUATED, 4),
    ("arguments", "label_smoothing_factor"): (zero(3), 0.1),
    ("arguments", "torch_empty_cache_steps"): (zero(3), 10),
    ("arguments", "parallelism_config"): (zero(3), {"tp_size": 2}),
    ("arguments", "accelerator_config.split_batches"): (zero(3), True),
    ("arguments", "tf32"): (PLAIN, True),
    ("arguments", "max_length"): (trl(), 2048),
    ("arguments", "loss_type"): (trl(label_smoothing_factor=0.1), "dft"),
    ("arguments", "lora_r"): (trl(), 64),
    ("arguments", "lora_target_modules"): (trl(), ["q_proj", "v_proj"]),
    ("arguments", "lora_dropout"): (trl(), 0),
    ("arguments", "use_peft"): (
        Job(
            accelerate=fsdp(1).accelerate,
            recipe={**RECIPE, "use_peft": False},
            run={"consumer": "trl", "sequence_length": None},
            script=TRAIN_SFT,
        ),
        True,
    ),
    ("arguments", "dtype"): (Job(accelerate=DDP.accelerate, run={"consumer": "trl"}, script=TRAIN_SFT), "bfloat16"),
    ("arguments", "torch_dtype"): (
        Job(accelerate=DDP.accelerate, run={"consumer": "trl"}, script=TRAIN_SFT),
        "bfloat16",
    ),
    ("arguments", "load_in_4bit"): (QLORA, True),
    ("arguments", "load_in_8bit"): (QLORA, True),
    ("arguments", "use_bnb_nested_quant"): (
        replace(QLORA, recipe={**QLORA.recipe, "load_in_4bit": True}),
        True,
    ),
    ("arguments", "lora_modules_to_save"): (trl(), ["lm_head"]),
    ("arguments", "lora_target_parameters"): (trl(), ["w1"]),
    ("arguments", "use_dora"): (trl(), True),
    ("arguments", "padding_free"): (trl(), True),
    ("arguments", "activation_offloading"): (trl(), True),
    ("arguments", "use_vllm"): (zero(3), True),
    ("arguments", "predict_with_generate"): (zero(3), True),
    ("model", "hidden_size"): (zero(3), 1024),
    ("model", "num_hidden_layers"): (zero(3), 8),
    ("model", "num_attention_heads"): (zero(3), 8),
    ("model", "num_key_value_heads"): (zero(3), 2),
    ("model", "intermediate_size"): (zero(3), 4096),
    ("model", "vocab_size"): (zero(3), 64000),
    ("model", "head_dim"): (zero(3), 64),
    ("model", "tie_word_embeddings"): (zero(3), True),
    ("model", "dtype"): (replace(DDP, model=MODEL), "bfloat16"),
    ("model", "torch_dtype"): (replace(DDP, model=MODEL), "bfloat16"),
    ("model", "quantization_config"): (zero(3), {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    ("model", "vision_config"): (VISION, {"hidden_size": 1280, "depth": 32}),
    ("model", "audio_config"): (VISION, {"hidden_size": 1280}),
}


def nested(files: dict[str, Any], name: str, value: Any) -> None:
    """Sets a value by its dotted name."""
    *parents, last = name.split(".")
    for part in parents:
        files = files.setdefault(part, {})
    files[last] = value


def flipped(job: Job, key: Key, value: Any) -> Job:
    """The same files with one value more."""
    job = copy.deepcopy(job)
    if (key.place, key.name) == ("launcher", "engine"):
        nested(job.accelerate or {}, "distributed_type", value)
    elif key.place == "launcher":
        assert job.accelerate is not None
        nested(job.accelerate, key.name, value)
    else:
        files = {"engine": job.deepspeed, "arguments": job.recipe, "model": job.model}[key.place]
        assert files is not None
        nested(files, key.name, value)
    return job


def planned(folder: Path, job: Job) -> tuple[BuildResult, dict[str, Any], str]:
    """The result of a build, the JSON and the text of `zerocfg plan`; a run without a plan tells its problems."""
    folder.mkdir(parents=True, exist_ok=True)
    run = {**RUN, **job.run}
    if job.deepspeed is not None:
        auto = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
        config = (
            job.deepspeed if run["consumer"] == "deepspeed" else {**auto, "bf16": {"enabled": "auto"}, **job.deepspeed}
        )
        (folder / "ds.json").write_text(json.dumps(config))
        run["deepspeed"] = "ds.json"
    if job.accelerate is not None:
        (folder / "accelerate.yaml").write_text(json.dumps(job.accelerate))
        run["accelerate"] = "accelerate.yaml"
    (folder / "recipe.yaml").write_text(json.dumps(job.recipe))
    (folder / "config.json").write_text(json.dumps(job.model))
    (folder / "train.py").write_text(job.script)
    entry = {name: value for name, value in run.items() if value is not None}
    (folder / "zerocfg.yaml").write_text(json.dumps({"version": 1, "runs": {"a": entry}}))
    (built,) = build_plans(read_spec(folder / "zerocfg.yaml"))
    if built.plan is None:
        return built, {}, " ".join(f"{one.key}: {one.message}" for one in built.problems)
    found: Forecast | str
    try:
        found = forecast(built, tracing=False, changes=False)
    except ValueError as error:
        found = str(error)
    shown = [Shown(built, found, [])]
    return built, json.loads(as_data(shown))["runs"][0], as_text(shown)


def figures(built: BuildResult, data: dict[str, Any]) -> str:
    """Everything that is a figure of memory, time or batch."""
    names = ("allocated", "reserved", "device", "phases", "host", "nvme", "node", "time")
    assert built.plan is not None
    values = {name: one.value for name, one in built.plan.settings.items()}
    batch = {name: value for name, value in values.items() if "batch_size" in name}
    # Dropout of adapters is followed by traced activations alone: here by what the tracer would be asked.
    asked = str(setup_of_run(built.run, values.get, built.inputs.spec, 8).lora)
    return json.dumps([{name: data.get(name) for name in names}, batch, asked], sort_keys=True, default=str)


@lru_cache
def keys() -> dict[tuple[str, str], Key]:
    return {(one.place, one.name): one for one in REGISTER}


def test_every_key_of_the_register_is_flipped_and_none_stands_there_twice() -> None:
    assert len(keys()) == len(REGISTER)
    assert set(FLIPS) == set(keys())
    print(f"{len(FLIPS)} keys are flipped")


def leaves(section: Section, name: str = "", depth: int = 5) -> Iterator[str]:
    """Every key of a schema by its dotted name, one that moved under its present name."""
    schema = load_schema(name)
    for key in map(section.key, section.raw["properties"]):
        assert key is not None
        below = key.section(schema)
        if below is not None and below.keys and depth:
            yield from (f"{key.name}.{rest}" for rest in leaves(below, name, depth - 1))
        else:
            yield key.name


@pytest.mark.parametrize(
    ("schema", "places", "sections"),
    [
        ("deepspeed", ("engine",), ("DEEPSPEED",)),
        ("accelerate", ("launcher",), ("ACCELERATE",)),
        ("training-arguments", ("arguments",), ("ARGUMENTS",)),
        ("trl", ("arguments",), ("ARGUMENTS", "TRL")),
    ],
)
def test_every_key_of_a_schema_is_judged(schema: str, places: tuple[str, ...], sections: tuple[str, ...]) -> None:
    patterns = [word for one in sections for words in getattr(untouched, one).values() for word in words.split()]
    held = {name for place, name in keys() if place in places}
    unjudged = []
    for name in leaves(load_schema(schema).root, schema):
        today = current_name(name) if schema == "deepspeed" else spelled(name)
        other = schema == "trl" and trainer_of_arguments({name: 1}) not in (None, SFT)
        if not other and today not in held and not any(fnmatch(today, pattern) for pattern in patterns):
            unjudged.append(name)
    assert unjudged == []


def spelled(name: str) -> str:
    """A key of fsdp_config may leave out its prefix."""
    section, _, last = name.rpartition(".")
    return f"{section}.fsdp_{last}" if section == "fsdp_config" and not last.startswith("fsdp_") else name


@pytest.mark.parametrize("name", FLIPS, ids=lambda name: ":".join(name))
def test_a_flipped_key_is_in_the_figures_or_in_the_words(name: tuple[str, str], tmp_path: Path) -> None:
    job, value = FLIPS[name]
    key = keys()[name]
    before, own, said = planned(tmp_path / "before", job)
    assert before.plan is not None and "error" not in own, said
    last = key.name.rpartition(".")[2]
    built, data, text = planned(tmp_path / "after", flipped(job, key, value))
    if "verdict" not in data:
        assert last.removeprefix("parallelism_config_") in text  # refused, by name
        return
    named = [gap for gap in data["not_modelled"] if any(one.rpartition(".")[2] == last for one in gap["keys"])]
    if not named:
        assert key.standing == "modelled"
        assert figures(built, data) != figures(before, own)
        assert own["not_modelled"] == data["not_modelled"]
        return
    assert key.standing != "modelled" or key.quiet is not None
    assert all(one["figures_are"] == key.standing or key.standing == "modelled" for one in named)
    assert last in text.split("on each device")[0]
    assert not [gap for gap in own["not_modelled"] if last in str(gap["keys"])] or name == (
        "arguments",
        "per_device_eval_batch_size",
    )
    if "memory" in key.touches:
        assert data["complete"] is False
        assert data["verdict"] == ("fits" if key.standing == "at most" else "unknown")
        assert own["verdict"] == "fits" or own["not_modelled"]
    if "time" in key.touches and named[0]["figures_are"] == "not modelled":
        assert data["time"] is None


def test_a_base_in_4_bits_is_in_the_figures_of_every_plan(tmp_path: Path) -> None:
    """Adapters of rank 16 on the queries of 16 layers, 2048 wide, in 16 bit; the rest as bitsandbytes keeps it."""
    packed = replace(QLORA, recipe={**QLORA.recipe, "load_in_4bit": True})
    linear = 16 * (2 * 2048 * 2048 + 2 * 2048 * 1024 + 3 * 2048 * 5632)
    rest = 2 * (2 * 32000 * 2048 + (2 * 16 + 1) * 2048)
    expected = linear // 2 + 4 * linear // 64 + 7 * 16 * 64 + rest + 2 * 16 * 16 * (2048 + 2048)
    built, data, _ = planned(tmp_path, packed)
    assert data["complete"] and data["time"] is not None and data["verdict"] == "fits"
    rows = alternatives(built)
    assert {row.own for row in rows} == {True, False}
    terms = [(term["name"], term["size"]) for term in data["phases"]["init"]["terms"]]
    for each in (terms, *([(one.name, one.size) for one in row.candidate.prediction.estimate.terms] for row in rows)):
        assert [size for name, size in each if name == "parameters"] == [expected]


def test_what_another_engine_makes_of_a_base_in_4_bits_is_not_said(tmp_path: Path) -> None:
    """No change is offered where the job does not fit: the cheapest ones take it to DeepSpeed."""
    recipe = {**QLORA.recipe, "per_device_train_batch_size": 512, "gradient_checkpointing": False}
    plain, _, _ = planned(tmp_path / "plain", replace(QLORA, recipe=recipe))
    packed, _, _ = planned(tmp_path / "packed", replace(QLORA, recipe={**recipe, "load_in_4bit": True}))
    before, after = (forecast(built, tracing=False) for built in (plain, packed))
    assert before.word == after.word == "does not fit"
    assert before.ladder is not None and after.ladder is None
