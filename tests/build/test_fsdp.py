"""FSDP: what is emitted is what accelerate's plugin reads, what nobody sets is chosen, what cannot be is refused."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.build.conftest import Files, Workplace, job, spec
from tests.llamas import LLAMA_3_8B
from tests.proofs.harness import observe
from zerocfg.memory.options import TorchOptions
from zerocfg.models.spec import RunSpec
from zerocfg.resolve.model.setup import setup_of
from zerocfg.run.model import UNKNOWN, Origin, Setting
from zerocfg.run.stages.fsdp import plugin_settings

FULL = "FULL_STATE_DICT"


def sharded(section: dict[str, Any] | None = None, **run: Any) -> Files:
    """A job of eight ranks, with an accelerate config of FSDP when ``section`` is given."""
    entry = {"deepspeed": None, "model": "model.json", **run}
    files = {**job(), "model.json": LLAMA_3_8B}
    if section is not None:
        entry.setdefault("accelerate", "accelerate.yaml")
        files["accelerate.yaml"] = {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": section}
    return {**files, "zerocfg.yaml": spec(**entry)}


def emitted(workplace: Workplace, files: Files) -> tuple[dict[str, Any], dict[str, Any]]:
    """The accelerate config and the lock."""
    _, lock = workplace.built(files)
    return yaml.safe_load((workplace.folder / "out" / "a" / "accelerate.yaml").read_text()), lock


def refused(workplace: Workplace, files: Files) -> str:
    result = workplace.build(workplace.write(files))
    assert result.exit_code == 1, result.output
    return result.output


def test_an_engine_without_a_file(workplace: Workplace) -> None:
    config, lock = emitted(workplace, sharded(engine="fsdp"))
    assert (config["distributed_type"], config["mixed_precision"]) == ("FSDP", "bf16")
    assert config["fsdp_config"] == {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": True,
        "fsdp_offload_params": False,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
        "fsdp_state_dict_type": FULL,
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_activation_checkpointing": False,
        "fsdp_activation_checkpointing_offload": False,
    }
    assert lock["plan"]["engine"] == "fsdp"
    for name in ("fsdp_version", "fsdp_auto_wrap_policy", "fsdp_state_dict_type"):
        setting = lock["settings"][f"fsdp_config.{name}"]
        assert setting["kind"] == "chosen" and setting["reason"].startswith("zerocfg's choice"), setting


def test_what_the_author_writes_is_kept(workplace: Workplace) -> None:
    section = {
        "fsdp_version": 2,
        "reshard_after_forward": False,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_offload_params": True,
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_ignored_modules": ".*router",
    }
    config, lock = emitted(workplace, sharded(section))
    found = config["fsdp_config"]
    assert (found["fsdp_reshard_after_forward"], found["fsdp_offload_params"]) == (False, True)
    assert (found["fsdp_state_dict_type"], found["fsdp_ignored_modules"]) == ("SHARDED_STATE_DICT", ".*router")
    assert lock["settings"]["fsdp_config.fsdp_state_dict_type"]["kind"] == "file"
    section = {"fsdp_version": 1, "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 1000000}
    config, _ = emitted(workplace, sharded(section))
    assert config["fsdp_config"]["fsdp_min_num_params"] == 1000000
    assert "fsdp_transformer_layer_cls_to_wrap" not in config["fsdp_config"]


def test_a_key_of_version_1_alone_means_version_1(workplace: Workplace) -> None:
    config, lock = emitted(workplace, sharded({"fsdp_sharding_strategy": 2, "fsdp_backward_prefetch": "backward_pre"}))
    found = config["fsdp_config"]
    assert (found["fsdp_version"], found["fsdp_sharding_strategy"]) == (1, "SHARD_GRAD_OP")
    assert (found["fsdp_backward_prefetch"], found["fsdp_sync_module_states"]) == ("BACKWARD_PRE", True)
    assert "fsdp_reshard_after_forward" not in found
    assert "fsdp_backward_prefetch" in lock["settings"]["fsdp_config.fsdp_version"]["reason"]


@pytest.mark.parametrize(
    ("release", "version", "absent"),
    [
        ("0.20.3", None, {"fsdp_activation_checkpointing", "fsdp_cpu_ram_efficient_loading"}),
        ("0.30.1", None, {"fsdp_activation_checkpointing"}),
        ("0.33.0", None, set()),
        ("1.5.2", None, set()),
        ("1.6.0", 2, set()),
    ],
)
def test_an_older_release_gets_what_it_reads(
    workplace: Workplace, release: str, version: int | None, absent: set[str]
) -> None:
    """Its launcher has the options of the file's keys: activation_checkpointing came with 0.31.0, cpu_ram_efficient_
    loading with 0.24.0, fsdp_version with 1.6.0."""
    section = {"fsdp_offload_params": False}
    files = sharded(section, consumer="accelerate", recipe=None, versions={"accelerate": f"=={release}"})
    config, _ = emitted(workplace, files)
    found = config["fsdp_config"]
    assert found.get("fsdp_version") == version
    optional = {"fsdp_activation_checkpointing", "fsdp_cpu_ram_efficient_loading"}
    assert optional - set(found) == absent


def test_a_model_that_is_not_known_names_its_own_layers(workplace: Workplace) -> None:
    files = sharded(engine="fsdp", model={"parameters": 7e9, "hidden_size": 4096})
    config, _ = emitted(workplace, files)
    assert config["fsdp_config"]["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    assert "fsdp_transformer_layer_cls_to_wrap" not in config["fsdp_config"]


def test_a_deepspeed_config_is_left_out_and_its_precision_kept(workplace: Workplace) -> None:
    files = sharded({}, engine="fsdp", consumer="accelerate", recipe=None)
    section = {"distributed_type": "DEEPSPEED", "num_processes": 8, "mixed_precision": "fp16"}
    config, lock = emitted(workplace, {**files, "accelerate.yaml": {**section, "deepspeed_config": {"zero_stage": 3}}})
    assert (config["distributed_type"], config["mixed_precision"]) == ("FSDP", "fp16")
    assert "leaves out the accelerate config" in lock["notes"][0]


def test_sections_of_the_source_that_reach_the_job(workplace: Workplace) -> None:
    files = sharded({"fsdp_version": 2})
    files["accelerate.yaml"]["parallelism_config"] = {
        "parallelism_config_dp_replicate_size": 2,
        "parallelism_config_dp_shard_size": 4,
    }
    files["accelerate.yaml"]["dynamo_config"] = {"backend": "INDUCTOR"}
    config, _ = emitted(workplace, files)
    assert config["parallelism_config"] == files["accelerate.yaml"]["parallelism_config"]
    assert config["dynamo_config"] == {"dynamo_backend": "INDUCTOR"}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"consumer": "deepspeed", "recipe": None}, "does not train with FSDP"),
        ({"hardware": "2xCPU"}, "has no accelerator"),
        ({"launcher": "torchrun"}, "hands no fsdp_config to the job"),
    ],
)
def test_refused(workplace: Workplace, run: dict[str, Any], said: str) -> None:
    assert said in refused(workplace, sharded(engine="fsdp", **run))


def test_a_recipe_with_fsdp_of_its_own_is_refused(workplace: Workplace) -> None:
    files = {**sharded(), "recipe.yaml": {**job()["recipe.yaml"], "fsdp": True}}
    assert "`engine: fsdp`" in refused(workplace, files)


# -- arguments in the script -------------------------------------------------------------------------------------------

TRAINER = """
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=4{more})
Trainer(model=make(), args=arguments).train()
"""
SECTION = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_cpu_ram_efficient_loading": True,
}


def with_arguments_in_the_script(section: dict[str, Any], more: str, **source: Any) -> Files:
    files = sharded(section, recipe=None, model=None)
    del files["recipe.yaml"]
    files["accelerate.yaml"] |= source
    return {**files, "train.py": TRAINER.format(more=more)}


def launched(path: Path) -> dict[str, str]:
    """What accelerate's real launcher exports for a config file."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_multi_gpu_env

    arguments = launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    exported = prepare_multi_gpu_env(launch._validate_launch_command(arguments)[0])
    return {name: value for name, value in exported.items() if name.startswith(("FSDP_", "ACCELERATE_"))}


@pytest.mark.libs
@pytest.mark.parametrize("section", [SECTION, {**SECTION, "fsdp_version": 1, "fsdp_sharding_strategy": "HYBRID_SHARD"}])
@pytest.mark.parametrize("more", ["", ", **extra()", ", bf16=half()"])
def test_a_script_with_arguments_of_its_own(workplace: Workplace, section: dict[str, Any], more: str) -> None:
    """Known or not, they leave the launcher's part as it is."""
    files = with_arguments_in_the_script(section, more, mixed_precision="bf16")
    emitted(workplace, files)
    exported = launched(workplace.folder / "accelerate.yaml")
    assert exported["ACCELERATE_MIXED_PRECISION"] == "bf16" and exported["FSDP_VERSION"] == str(section["fsdp_version"])
    assert launched(workplace.folder / "out" / "a" / "accelerate.yaml") == exported


def test_the_script_tells_the_batch(workplace: Workplace) -> None:
    _, lock = emitted(workplace, with_arguments_in_the_script(SECTION, ""))
    assert (lock["settings"]["train_batch_size"]["value"], lock["settings"]["engine"]["value"]) == (8 * 2 * 4, "fsdp")
    batch = lock["settings"]["gradient_accumulation_steps"]
    assert (batch["value"], batch["kind"]) == (4, "file")


def test_what_the_sources_leave_open_is_chosen_for_such_a_script(workplace: Workplace) -> None:
    """Read back, the choices stand in the emitted file, though nobody knows whether the script beats them."""
    config, lock = emitted(workplace, with_arguments_in_the_script({"fsdp_version": 2}, ", **extra()"))
    assert config["fsdp_config"]["fsdp_state_dict_type"] == FULL
    assert config["fsdp_config"]["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    assert lock["settings"]["fsdp_config.fsdp_state_dict_type"]["kind"] == "chosen"


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "dtype", "options"),
    [
        ({"fsdp_version": 2}, None, {"kind": "fsdp2"}),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": False}, None, {"reshard_after_forward": False}),
        ({"fsdp_version": 2, "fsdp_offload_params": True}, "bfloat16", {"cpu_offload": True, "master": True}),
        ({"fsdp_version": 1}, None, {"kind": "fsdp1", "backward_prefetch": "none"}),
        ({"fsdp_version": 1, "fsdp_backward_prefetch": "BACKWARD_PRE"}, None, {"backward_prefetch": "pre"}),
        ({"fsdp_version": 1, "fsdp_sharding_strategy": "SHARD_GRAD_OP"}, None, {"reshard_after_forward": False}),
        ({"fsdp_version": 1, "fsdp_sharding_strategy": "NO_SHARD"}, None, {"shard_ranks": 1}),
        ({"fsdp_version": 1, "fsdp_sharding_strategy": "HYBRID_SHARD"}, None, {"shard_ranks": 4}),
        ({"fsdp_version": 2, "dp_replicate": 4, "dp_shard": 2}, None, {"shard_ranks": 2}),
        ({"fsdp_version": 2, "dp_replicate": 2, "dp_shard": 2, "cp": 2}, None, {"shard_ranks": 4}),
        ({"fsdp_version": 2, "mixed_precision": "no"}, "bfloat16", {"master": False, "precision": "bf16"}),
        ({"fsdp_version": 2, "mixed_precision": "no"}, None, {"master": True, "precision": "fp32"}),
    ],
)
def test_settings_become_options(settings: dict[str, Any], dtype: str | None, options: dict[str, Any]) -> None:
    found = options_of(settings, dtype)
    assert {name: getattr(found, name) for name in options} == options


def options_of(settings: dict[str, Any], dtype: str | None = None) -> TorchOptions:
    values = {"engine": "fsdp", "mixed_precision": "bf16", "num_machines": 2, "train_micro_batch_size_per_gpu": 1}
    for name, value in settings.items():
        sizes = {"dp_replicate", "dp_shard", "cp", "tp"}
        key = f"parallelism_config.parallelism_config_{name}_size" if name in sizes else f"fsdp_config.{name}"
        values["mixed_precision" if name == "mixed_precision" else key] = value
    found = setup_of(values.get, {}, RunSpec(consumer="transformers", script="t", sequence_length=64), 8, dtype)
    assert isinstance(found.options, TorchOptions) and found.workload and not found.workload.autocast
    return found.options


def test_what_is_not_modelled_is_not_predicted() -> None:
    with pytest.raises(ValueError, match="gathers the whole model"):
        options_of({"fsdp_version": 2, "fsdp_auto_wrap_policy": "NO_WRAP"})
    with pytest.raises(ValueError, match="tp_size 2"):
        options_of({"fsdp_version": 2, "tp": 2})


def test_a_plan_knows_fsdp(workplace: Workplace) -> None:
    """8B parameters over 8 ranks, fp32: 3.7 GiB each."""
    path = workplace.write(sharded({"fsdp_activation_checkpointing": True}, sequence_length=1024))
    result = workplace.zerocfg("plan", path, "--no-trace")
    assert result.exit_code == 0, result.output
    assert "FSDP 2, bf16" in result.output and "gradient checkpointing" in result.output
    assert any(line.split()[:2] == ["parameters", "3.74"] for line in result.output.splitlines()), result.output


# -- the real libraries ------------------------------------------------------------------------------------------------

VALUES = {
    "VERSION": ["1", "2"],
    "SHARDING_STRATEGY": ["FULL_SHARD", "shard_grad_op", "3", "HYBRID_SHARD"],
    "RESHARD_AFTER_FORWARD": ["true", "false"],
    "OFFLOAD_PARAMS": ["true", "false", "no"],
    "AUTO_WRAP_POLICY": ["TRANSFORMER_BASED_WRAP", "size_based_wrap", "NO_WRAP"],
    "TRANSFORMER_CLS_TO_WRAP": ["LlamaDecoderLayer", "A,B"],
    "MIN_NUM_PARAMS": ["100000000", "5"],
    "BACKWARD_PREFETCH": ["BACKWARD_PRE", "backward_post", "NO_PREFETCH", "2"],
    "FORWARD_PREFETCH": ["true", "false"],
    "USE_ORIG_PARAMS": ["true", "false"],
    "STATE_DICT_TYPE": ["FULL_STATE_DICT", "sharded_state_dict", "1"],
    "CPU_RAM_EFFICIENT_LOADING": ["true", "false"],
    "SYNC_MODULE_STATES": ["true"],
    "ACTIVATION_CHECKPOINTING": ["true", "false"],
    "IGNORED_MODULES": [".*gate"],
}
CASES = 200


@pytest.mark.libs
def test_the_plugin_reads_what_is_predicted(tmp_path: Path, count: Callable[[str, int], None]) -> None:
    chance = random.Random(5)
    environments = [
        {f"FSDP_{name}": chance.choice(values) for name, values in VALUES.items() if chance.random() < 0.7}
        for _ in range(CASES)
    ]
    (tmp_path / "in.json").write_text(json.dumps(environments))
    worker = Path(__file__).with_name("plugin_worker.py")
    subprocess.run([warm.python(), str(worker), str(tmp_path / "in.json"), str(tmp_path / "out.json")], check=True)
    compared = 0
    for variables, real in zip(environments, json.loads((tmp_path / "out.json").read_text()), strict=True):
        assert "error" not in real, (variables, real)
        found = plugin_settings({name: Setting(text, Origin("computed")) for name, text in variables.items()})
        for name, setting in found.items():
            key = name.removeprefix("fsdp_config.")
            attribute = key if key == "fsdp_version" else key.removeprefix("fsdp_")
            assert setting.value == real[attribute], (variables, name, setting.value, real[attribute])
            compared += 1
        read = {name.removeprefix("fsdp_config.fsdp_") for name in found}
        unread = {name for name, value in real.items() if name not in read | {"fsdp_version"} and value is not None}
        # Version 1 leaves reshard_after_forward alone, version 2 says false for what it does not do.
        assert not unread or all(real[name] is False for name in unread), (variables, unread)
    count("values of FSDP plugins compared", compared)


@pytest.mark.libs
@pytest.mark.parametrize("consumer", ["transformers", "accelerate"])
def test_the_emitted_file_shards_and_saves(workplace: Workplace, consumer: str) -> None:
    """Two ranks (of processors that accelerate takes for cards) train with the emitted file as it is."""
    recipe = None if consumer == "accelerate" else "recipe.yaml"
    run = {"engine": "fsdp", "hardware": "2xA100-80GB", "consumer": consumer, "recipe": recipe}
    workplace.built(sharded(**run))
    files = {"accelerate.yaml": (workplace.folder / "out" / "a" / "accelerate.yaml").read_text()}
    if recipe:
        files["recipe.yaml"] = "output_dir: out\nbf16: true\nper_device_train_batch_size: 2\nmax_steps: 2\n"
    seen = observe(files, consumer, "save", ranks=2)
    assert seen.error is None, str(seen.error)
    assert (seen.value("engine.kind"), seen.value("engine.share")) == ("fsdp", 0.5)
    assert seen.value("engine.units").count("LlamaDecoderLayer") == 2
    assert (seen.value("plugin.fsdp_version"), seen.value("plugin.state_dict_type")) == (2, FULL)
    assert seen.value("weights") == "complete"


def test_a_text_that_stops_the_plugin_is_no_value() -> None:
    found = plugin_settings({"FSDP_VERSION": Setting("two", Origin("computed"))})
    assert found["fsdp_config.fsdp_version"].value is UNKNOWN
    assert "fsdp_config.fsdp_state_dict_type" not in found
