"""The environment that the launcher makes, and how the job reads it, against the facts of the models.

The launcher's own functions make the environment, and the plugins of the job are built from such; nothing is
spawned.
"""

from __future__ import annotations

import argparse
import os
import types
import typing
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import pytest
from accelerate_facts import facts, keys, sentinel, variables
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocfg.models.accelerate import Launcher
from zerocfg.models.accelerate.deepspeed import DeepSpeedConfig
from zerocfg.models.accelerate.fp8 import Fp8Config
from zerocfg.models.accelerate.fsdp import FsdpConfig
from zerocfg.models.accelerate.megatron import MegatronLmConfig
from zerocfg.models.accelerate.parallelism import ParallelismConfig

if TYPE_CHECKING:
    from zerocfg.models.base import Section

pytestmark = pytest.mark.libs
accelerate = pytest.importorskip("accelerate")

launch = pytest.importorskip("accelerate.commands.launch")
launch_env = pytest.importorskip("accelerate.utils.launch")
config_args = pytest.importorskip("accelerate.commands.config.config_args")
dataclasses_ = pytest.importorskip("accelerate.utils.dataclasses")
constants = pytest.importorskip("accelerate.utils.constants")


# Variables that no single key becomes: the launcher computes them.
COMPUTED = {
    "PYTHONPATH",
    "MASTER_ADDR",
    "MASTER_PORT",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "ACCELERATE_CONFIG_DS_FIELDS",
}
# Set by the file alone: attributes that the parser does not make.


# The environment of the job


def exported(arguments: argparse.Namespace, launcher: str) -> dict[str, str]:
    """The variables that the facts promise for ``arguments``."""
    environment = {}
    for name in Launcher.model_fields:
        for variable in facts(Launcher, name).get("env", []):
            value = getattr(arguments, name, None)
            if launcher not in variable["launchers"] or not holds(variable.get("needs", {}), arguments):
                continue
            if (variable["when"] == "set" and value is None) or (variable["when"] == "true" and not value):
                continue
            if "item" in variable:
                value = value[variable["item"]]
            texts = {"str": str, "lower": lambda v: str(v).lower(), "upper": lambda v: str(v).upper()}
            environment[variable["name"]] = variable.get("value") or texts[variable["text"]](value)
    return environment


def holds(needs: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> bool:
    def one(value: Any, schema: dict[str, Any]) -> bool:
        if "not" in schema:
            return not one(value, schema["not"])
        return value == schema["const"] if "const" in schema else value > schema["exclusiveMinimum"]

    return all(one(getattr(arguments, name), schema) for name, schema in needs.items())


LAUNCHERS = {
    "simple": lambda arguments: launch_env.prepare_simple_launcher_cmd_env(arguments)[1],
    "multi_gpu": launch_env.prepare_multi_gpu_env,
    "deepspeed": lambda arguments: launch_env.prepare_deepspeed_cmd_env(arguments)[1],
}


def really_exported(arguments: argparse.Namespace, launcher: str) -> dict[str, str]:
    """What the launcher sets for a job that it starts from an empty environment."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(launch_env, "os", types.SimpleNamespace(**{**vars(os), "environ": {}}))
        monkeypatch.setattr(launch_env, "is_fp8_available", lambda: True)
        monkeypatch.setattr(launch_env, "is_port_in_use", lambda *_: False)
        monkeypatch.setattr(launch_env, "env_var_path_add", lambda *_: "")
        result = LAUNCHERS[launcher](argparse.Namespace(**vars(arguments)))
    return {name: text for name, text in result.items() if name not in COMPUTED}


MODES = ("use_fsdp", "use_megatron_lm", "use_parallelism_config")


def arguments_for(case: str) -> argparse.Namespace:
    """Launcher arguments: all defaults, every key at its sentinel, or that without one mode."""
    arguments = launch.launch_command_parser().parse_args(["train.py"])
    names = keys(Launcher) - {
        "training_script",
        "training_script_args",
        "module",
        "no_python",
        "mpirun_hostfile",
    }
    for name in names if case != "defaults" else ():
        setattr(arguments, name, sentinel(name))
    if case == "defaults":
        arguments.mixed_precision, arguments.dynamo_backend = "no", "no"
        arguments.gpu_ids, arguments.num_processes, arguments.num_machines = "all", 1, 1
        arguments.num_cpu_threads_per_process, arguments.use_cpu = 1, False
    if case == "without cpu":
        arguments.cpu = False
    if case == "small":
        arguments.parallelism_config_cp_size = arguments.parallelism_config_sp_size = 1
        arguments.mixed_precision = "bf16"
    if case in MODES:
        setattr(arguments, case, False)
    arguments.machine_rank = 0
    arguments.use_deepspeed = True  # a condition of the DeepSpeed launcher itself
    arguments.deepspeed_fields_from_accelerate_config = ""
    return arguments


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("case", ["defaults", "all", "without cpu", "small", *MODES])
def test_environment_is_what_the_facts_promise(case: str, launcher: str) -> None:
    arguments = arguments_for(case)
    assert really_exported(arguments, launcher) == exported(arguments, launcher)


def drawn(data: st.DataObject) -> argparse.Namespace:
    """Launcher arguments: each key at its default, at another value, or None where that is allowed."""
    arguments = arguments_for("defaults")
    fixed = {"num_machines", "num_processes", "mpirun_hostfile", "module", "no_python", "machine_rank"}
    fixed |= {"use_deepspeed", "training_script", "training_script_args", "main_process_port", "gpu_ids"}
    fixed |= {
        "num_cpu_threads_per_process",
        "dynamo_backend",
        "mixed_precision",
        "fsdp_sync_module_states",
    }
    for name in sorted(keys(Launcher, "renamed_to") - fixed):
        choices = [getattr(arguments, name, None), sentinel(name)]
        if type(None) in typing.get_args(Launcher.model_fields[name].annotation):
            choices.append(None)
        setattr(arguments, name, data.draw(st.sampled_from(choices), name))
    arguments.mixed_precision = data.draw(st.sampled_from(["no", "BF16", "fp8"]), "mixed_precision")
    arguments.dynamo_backend = data.draw(st.sampled_from(["no", "Inductor"]), "dynamo_backend")
    arguments.gpu_ids = data.draw(st.sampled_from(["all", "0,1", None]), "gpu_ids")
    return arguments


@settings(max_examples=60, deadline=None)
@given(data=st.data(), launcher=st.sampled_from(sorted(LAUNCHERS)))
def test_environment_of_any_arguments(data: st.DataObject, launcher: str) -> None:
    arguments = drawn(data)
    assert really_exported(arguments, launcher) == exported(arguments, launcher)


class Recorded(MutableMapping[str, str]):
    """An environment that notes the name of every look-up."""

    def __init__(self, content: dict[str, str]) -> None:
        self.content, self.asked = dict(content), set[str]()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self.content[name]

    def __setitem__(self, name: str, value: str) -> None:
        self.content[name] = value

    def __delitem__(self, name: str) -> None:
        del self.content[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)


def built(plugin: Any, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, set[str]]:
    """``plugin()`` under ``environment``, and the names that it looked up."""
    recorded = Recorded(environment)
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", recorded)
        return plugin(), recorded.asked


FSDP_BOTH_WRAPS = (
    {"FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP"},
    {"FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"},
)


@pytest.mark.parametrize("version", [1, 2])
def test_fsdp_plugin_reads_the_keys_of_its_version(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.fsdp import fully_sharded_data_parallel  # noqa: F401  (its import reads variables)

    asked: set[str] = set()
    for wrap in FSDP_BOTH_WRAPS:
        environment = {"FSDP_VERSION": str(version), "FSDP_SHARDING_STRATEGY": "FULL_SHARD", **wrap}
        asked |= built(dataclasses_.FullyShardedDataParallelPlugin, environment, monkeypatch)[1]
    names = variables(FsdpConfig)
    declared = {n for n, k in names.items() if version in facts(FsdpConfig, k).get("versions", [1, 2])}
    read = {n for n in asked if n.startswith("FSDP_")}
    # Version 2 reads two variables only to warn about them or to refuse the setting.
    told_off = {"FSDP_BACKWARD_PREFETCH"} if version == 2 else {"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD"}
    assert read == declared | told_off


def test_deepspeed_plugin_reads_what_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, asked = built(dataclasses_.DeepSpeedPlugin, {}, monkeypatch)
    names = variables(DeepSpeedConfig)
    late = {"ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES"}  # looked up once there is a model
    nvme = {f"ACCELERATE_DEEPSPEED_OFFLOAD_{part}_NVME_PATH" for part in ("OPTIMIZER", "PARAM")}
    elsewhere = {"ACCELERATE_FP8_BACKEND", "ACCELERATE_FP8_OPT_LEVEL"}
    assert {n for n in asked if n.startswith("ACCELERATE_")} == (set(names) - late) | nvme | elsewhere
    for name in (
        "zero_stage",
        "offload_optimizer_device",
        "offload_param_device",
        "gradient_accumulation_steps",
    ):
        assert getattr(plugin, name) == DeepSpeedConfig.model_fields[name].default
    assert plugin.gradient_clipping == DeepSpeedConfig.model_fields["gradient_clipping"].default
    assert plugin.zero3_save_16bit_model == DeepSpeedConfig.model_fields["zero3_save_16bit_model"].default


@pytest.mark.parametrize("name", sorted({*DeepSpeedConfig.model_fields, "mixed_precision"}))
def test_keys_that_conflict_with_a_deepspeed_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def plugin() -> Any:
        return dataclasses_.DeepSpeedPlugin(hf_ds_config={"zero_optimization": {"stage": 2}})

    conflicts = name == "mixed_precision" or "conflicts" in facts(DeepSpeedConfig, name)
    if conflicts:
        with pytest.raises(ValueError, match=name):
            built(plugin, {"ACCELERATE_CONFIG_DS_FIELDS": name}, monkeypatch)
    else:
        built(plugin, {"ACCELERATE_CONFIG_DS_FIELDS": name}, monkeypatch)


def test_parallelism_reads_what_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.parallelism_config import ParallelismConfig as Real

    asked: set[str] = set()
    one_each = ({"PARALLELISM_CONFIG_CP_SIZE": "2"}, {"PARALLELISM_CONFIG_SP_SIZE": "2"})
    for environment in one_each:
        fixed = {
            "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE": "False",
            "PARALLELISM_CONFIG_SP_SEQ_LENGTH": "8",
        }
        asked |= built(Real, {**environment, **fixed}, monkeypatch)[1]
    assert {name for name in asked if name.startswith("PARALLELISM_")} == set(variables(ParallelismConfig))


def test_megatron_plugin_reads_what_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, asked = built(dataclasses_.MegatronLMPlugin, {}, monkeypatch)
    assert {name for name in asked if name.startswith("MEGATRON_LM_")} == set(variables(MegatronLmConfig))
    for name, field in MegatronLmConfig.model_fields.items():
        assert getattr(plugin, name.removeprefix("megatron_lm_")) == field.default, name


def test_fp8_recipes_read_what_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("is_transformer_engine_available", "is_msamp_available"):
        monkeypatch.setattr(dataclasses_, library, lambda: True)
    te, te_asked = built(dataclasses_.TERecipeKwargs, {}, monkeypatch)
    msamp, msamp_asked = built(dataclasses_.MSAMPRecipeKwargs, {}, monkeypatch)
    for recipe, asked, backend in ((te, te_asked, "TE"), (msamp, msamp_asked, "MSAMP")):
        names = variables(Fp8Config)
        declared = {n for n, k in names.items() if facts(Fp8Config, k).get("backends") == [backend]}
        assert {name for name in asked if name.startswith("ACCELERATE_FP8_")} == declared
        for name in {names[variable] for variable in declared}:
            attribute = name if hasattr(recipe, name) else name.removeprefix("fp8_")
            default = Fp8Config.model_fields[name].get_default(call_default_factory=True)
            read = getattr(recipe, attribute)
            assert default == (list(read) if isinstance(read, tuple) else read), name


BAD_TEXT = {"int": "x1", "float": "x1", "bool": "maybe"}
PLUGINS = {
    DeepSpeedConfig: (dataclasses_.DeepSpeedPlugin, {}),
    FsdpConfig: (dataclasses_.FullyShardedDataParallelPlugin, {"FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP"}),
    MegatronLmConfig: (dataclasses_.MegatronLMPlugin, {}),
}


@pytest.mark.parametrize(
    ("section", "name"),
    [
        (section, name)
        for section in PLUGINS
        for name in section.model_fields
        if facts(section, name).get("reads") in BAD_TEXT and name != "gradient_accumulation_steps"
    ],
)
def test_text_that_is_no_number_or_truth_word_is_refused(
    section: type[Section], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, environment = PLUGINS[section]
    fact = facts(section, name)
    version = {"FSDP_VERSION": str(fact.get("versions", [1])[0])} if section is FsdpConfig else {}
    variable = fact["env"][0]["name"]
    with pytest.raises(ValueError, match=BAD_TEXT[fact["reads"]]):
        built(plugin, {**environment, **version, variable: BAD_TEXT[fact["reads"]]}, monkeypatch)


@pytest.mark.parametrize("text", ["yes", "on", "1", "TRUE"])
def test_saving_the_16_bit_model_wants_the_word_true(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": text}
    plugin, _ = built(dataclasses_.DeepSpeedPlugin, environment, monkeypatch)
    assert plugin.zero3_save_16bit_model == (text == "TRUE")
