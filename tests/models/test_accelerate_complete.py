"""The accelerate models against the installed accelerate: no key too many or too few, facts as it acts.

The launcher's own functions are run (parser, merge of the file, environment of each launcher) and the plugins
of the job are built from such environments; nothing is spawned.
"""

from __future__ import annotations

import argparse
import os
import types
import typing
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from zerocfg.models.accelerate import ClusterConfig, Launcher, SageMakerConfig
from zerocfg.models.accelerate.deepspeed import MULTINODE_LAUNCHERS, DeepSpeedConfig
from zerocfg.models.accelerate.dynamo import DynamoConfig
from zerocfg.models.accelerate.fp8 import Fp8Config
from zerocfg.models.accelerate.fsdp import FsdpConfig
from zerocfg.models.accelerate.megatron import MegatronLmConfig
from zerocfg.models.accelerate.mpirun import MpirunConfig
from zerocfg.models.accelerate.parallelism import ParallelismConfig
from zerocfg.models.accelerate.torchrun import Torchrun

if TYPE_CHECKING:
    from pathlib import Path

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
FILE_ONLY = {"use_cpu", "tpu_name", "tpu_vm", "fsdp_ignored_modules", "fp8_use_mxfp8_block_scaling"}


def facts(model: type[Section], name: str) -> dict[str, Any]:
    extra = model.model_fields[name].json_schema_extra
    return extra["x-zerocfg"] if isinstance(extra, dict) else {}


def keys(model: type[Section], *without: str) -> set[str]:
    """Names of ``model`` whose facts hold none of ``without``."""
    return {name for name in model.model_fields if not any(word in facts(model, name) for word in without)}


def literals(annotation: Any) -> set[Any]:
    """Every Literal value anywhere in ``annotation``."""
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return set().union(*(literals(part) for part in typing.get_args(annotation))) if annotation else set()


def values_of(model: type[Section], name: str) -> set[Any]:
    return literals(model.model_fields[name].annotation)


def sentinel(name: str) -> Any:
    """A value that no default equals and that the launcher can work with."""
    special = {
        "mixed_precision": "fp8",
        "dynamo_backend": "eager",
        "gpu_ids": "0,1",
        "fp8_override_linear_precision": [True, False, True],
        "num_processes": 6,
        "num_machines": 1,
        "main_process_port": 29655,
        "tpu_vm": ["a"],
    }
    if name in special:
        return special[name]
    annotation = str(Launcher.model_fields[name].annotation)
    if "bool" in annotation:
        return Launcher.model_fields[name].default is not True
    return 3 if "int" in annotation or "float" in annotation else f"Some-{name}"


def merged(tmp_path: Path, config: dict[str, Any], *command_line: str) -> argparse.Namespace:
    """The launcher's arguments after it read ``config``."""
    path = tmp_path / "accelerate.yaml"
    path.write_text(yaml.safe_dump(config))
    parser = launch.launch_command_parser()
    arguments = parser.parse_args(["--config_file", str(path), *command_line, "train.py"])
    return launch._validate_launch_command(arguments)[0]


# Keys


def test_cluster_keys_are_the_fields_of_the_dataclass() -> None:
    assert keys(ClusterConfig, "removed", "deprecated") == set(config_args.ClusterConfig.__dataclass_fields__)


def test_sagemaker_keys_are_the_fields_of_the_dataclass() -> None:
    assert keys(SageMakerConfig) == set(config_args.SageMakerConfig.__dataclass_fields__)
    for name, field in config_args.SageMakerConfig.__dataclass_fields__.items():
        required = SageMakerConfig.model_fields[name].is_required()
        if isinstance(field.default, (str, int)) and not required:
            assert SageMakerConfig.model_fields[name].default == field.default, name


def test_defaults_of_the_top_level() -> None:
    for name, field in config_args.ClusterConfig.__dataclass_fields__.items():
        if isinstance(field.default, (str, int)):
            assert ClusterConfig.model_fields[name].default == field.default, name


@pytest.mark.parametrize("name", sorted(ClusterConfig.model_fields))
def test_only_removed_keys_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "accelerate.yaml"
    mapping = name.endswith("_config") and name != "ipex_config"
    value = (
        {} if mapping else {"distributed_type": "NO", "compute_environment": "LOCAL_MACHINE"}.get(name, "x")
    )
    path.write_text(yaml.safe_dump({"distributed_type": "NO", name: value}))
    if "removed" in facts(ClusterConfig, name):
        with pytest.raises(ValueError, match="unknown keys"):
            config_args.load_config_from_file(str(path))
    else:
        config_args.load_config_from_file(str(path))


def test_legacy_keys_are_converted(tmp_path: Path) -> None:
    arguments = merged(tmp_path, {"distributed_type": "NO", "fp16": True, "dynamo_backend": "EAGER"})
    assert arguments.mixed_precision == "fp16"
    assert arguments.dynamo_backend == "EAGER"


def test_launcher_arguments_are_those_of_the_parsers() -> None:
    from torch.distributed.run import get_args_parser

    own = {action.dest for action in launch.launch_command_parser()._actions} - {"help"}
    torchrun = {action.dest for action in get_args_parser()._actions} - {"help"}
    assert keys(Torchrun) == torchrun - own
    assert keys(Launcher, "renamed_to") == own | torchrun | FILE_ONLY


@pytest.mark.parametrize(
    ("title", "section"),
    [
        ("DeepSpeed Arguments", DeepSpeedConfig),
        ("FSDP Arguments", FsdpConfig),
        ("Megatron-LM Arguments", MegatronLmConfig),
        ("FP8 Arguments", Fp8Config),
        ("MPI Arguments", MpirunConfig),
        ("ParallelismConfig Arguments", ParallelismConfig),
    ],
)
def test_section_keys_are_those_of_the_argument_group(title: str, section: type[Section]) -> None:
    groups = launch.launch_command_parser()._action_groups
    group = next(group for group in groups if group.title == title)
    assert keys(section, "renamed_to") - FILE_ONLY == {action.dest for action in group._group_actions}


def test_dynamo_keys_are_those_with_the_prefix() -> None:
    parser = launch.launch_command_parser()
    assert keys(DynamoConfig) == {a.dest for a in parser._actions if a.dest.startswith("dynamo_")}


def type_name(action: argparse.Action) -> str:
    converters = {None: "str", str: "str", int: "int", float: "float", bool: "truth"}
    if action.type in converters:
        return converters[action.type]  # type: ignore[index]
    return (
        "bools"
        if action.dest == "fp8_override_linear_precision"
        else action.type.__name__.removeprefix("str_to_")
    )  # type: ignore[union-attr]


def test_options_match_the_parser() -> None:
    actions: dict[str, argparse.Action] = {}
    for action in launch.launch_command_parser()._actions:
        if action.option_strings and action.dest != "help":
            actions.setdefault(action.dest, action)
    declared = {
        name: facts(Launcher, name)["cli"] for name in keys(Launcher) if "cli" in facts(Launcher, name)
    }
    assert set(declared) == set(actions)
    for name, action in actions.items():
        cli = declared[name]
        flags = {flag for flag in action.option_strings if "-" not in flag.lstrip("-")}
        assert set(cli["flags"]) == flags, name
        default = list(action.default) if isinstance(action.default, tuple) else action.default
        assert cli.get("default") == default, name
        assert cli.get("choices", []) == list(action.choices or []), name
        assert (cli["action"] == "store_true") == (action.nargs == 0), name
        if cli["action"] != "store_true":
            assert cli["type"] == type_name(action), name


# Merging the file


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in keys(ClusterConfig, "removed", "deprecated") & set(Launcher.model_fields)
        if not name.endswith("_config")
    ),
)
def test_top_level_keys_reach_the_launcher_unless_inert(tmp_path: Path, name: str) -> None:
    config = {"distributed_type": "XLA", "num_processes": 2, name: sentinel(name)}
    reached = getattr(merged(tmp_path, config), name) == sentinel(name)
    assert reached != ("inert" in facts(ClusterConfig, name))


def test_any_launcher_argument_takes_effect_in_any_section(tmp_path: Path) -> None:
    given_on_the_command_line = {"config_file", "training_script", "training_script_args"}
    wanted = {name: sentinel(name) for name in keys(Launcher) - given_on_the_command_line}
    for section in ("deepspeed_config", "parallelism_config", "megatron_lm_config", "mpirun_config"):
        arguments = merged(tmp_path, {"distributed_type": "NO", "num_processes": 1, section: wanted})
        assert {name: getattr(arguments, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "section", [n for n in ClusterConfig.model_fields if n.endswith("_config") and n != "ipex_config"]
)
def test_prefixes_of_sections(tmp_path: Path, section: str) -> None:
    model = next(part for part in typing.get_args(ClusterConfig.model_fields[section].annotation) if part)
    if not model.prefix:
        return
    name = next(iter(model.model_fields))
    short = name.removeprefix(model.prefix)
    config = {"distributed_type": "NO", "num_processes": 1}
    written = merged(tmp_path, {**config, section: {name: "given"}})
    assert getattr(written, name) == "given"
    shortened = merged(tmp_path, {**config, section: {short: "given"}})
    assert (getattr(shortened, name) == "given") == model.prefix_optional


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"gpu_ids": 0}, AttributeError),
        ({"mixed_precision": False}, AttributeError),
        ({"dynamo_config": {"dynamo_backend": False}}, AttributeError),
        ({"num_machines": "1"}, TypeError),
        ({"main_process_port": "29500"}, TypeError),
        ({"parallelism_config": {"parallelism_config_cp_size": "2"}}, TypeError),
        ({"parallelism_config": {"parallelism_config_sp_size": "2"}}, TypeError),
        ({"num_processes": "2", "machine_rank": "0", "debug": "no", "main_process_ip": 10}, None),
        ({"use_cpu": "no"}, None),
        ({"parallelism_config": {"parallelism_config_tp_size": "2"}, "fsdp_config": {"version": "2"}}, None),
    ],
)
def test_raw_values_break_the_launch_and_others_become_text(
    tmp_path: Path, config: dict[str, Any], error: type[Exception] | None
) -> None:
    def prepared() -> dict[str, str]:
        return launch_env.prepare_multi_gpu_env(merged(tmp_path, {**running, **config}))

    running = {"distributed_type": "FSDP", "num_processes": 2}
    if error is None:
        assert prepared()["ACCELERATE_USE_FSDP"] == "true"
        return
    ((name, value),) = (next(iter(config.values())) if name_of_section(config) else config).items()
    model = Launcher if name_of_section(config) else ClusterConfig
    assert facts(model, name)["reads"] == "raw", value
    with pytest.raises(error):
        prepared()


def name_of_section(config: dict[str, Any]) -> str | None:
    name = next(iter(config))
    return name if name.endswith("_config") else None


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


def really_exported(
    arguments: argparse.Namespace, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    monkeypatch.setattr(os, "environ", types.SimpleNamespace(copy=dict, get=lambda *_: None))
    monkeypatch.setattr(launch_env, "is_fp8_available", lambda: True)
    monkeypatch.setattr(launch_env, "is_port_in_use", lambda *_: False)
    monkeypatch.setattr(launch_env, "env_var_path_add", lambda *_: "")
    result = LAUNCHERS[launcher](argparse.Namespace(**vars(arguments)))
    monkeypatch.undo()
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
def test_environment_is_what_the_facts_promise(
    case: str, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = arguments_for(case)
    assert really_exported(arguments, launcher, monkeypatch) == exported(arguments, launcher)


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


def variables(model: type[Section]) -> dict[str, str]:
    """Environment variable -> key."""
    return {entry["name"]: name for name in model.model_fields for entry in facts(model, name).get("env", [])}


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


# Values


def test_values_are_those_of_the_enums() -> None:
    distributed = {item.value for item in dataclasses_.DistributedType}
    assert values_of(ClusterConfig, "distributed_type") == distributed | {False}
    sagemaker = {item.value for item in dataclasses_.SageMakerDistributedType}
    assert values_of(SageMakerConfig, "distributed_type") == sagemaker | {False}
    environments = {item.value for item in dataclasses_.ComputeEnvironment}
    both = values_of(ClusterConfig, "compute_environment") | values_of(SageMakerConfig, "compute_environment")
    assert both == environments
    assert values_of(ClusterConfig, "mixed_precision") == set(map(str, dataclasses_.PrecisionType.list()))
    assert values_of(DynamoConfig, "dynamo_backend") == set(map(str, dataclasses_.DynamoBackend.list()))
    assert values_of(DynamoConfig, "dynamo_mode") == set(constants.TORCH_DYNAMO_MODES)
    assert values_of(Fp8Config, "fp8_backend") == {b.value for b in dataclasses_.FP8BackendType} - {"NO"}
    assert values_of(Fp8Config, "fp8_format") == set(typing.get_args(dataclasses_.FP8Format))
    assert values_of(Fp8Config, "fp8_amax_compute_algo") == set(
        typing.get_args(dataclasses_.AmaxComputeAlgorithm)
    )
    assert values_of(Fp8Config, "fp8_opt_level") == set(typing.get_args(dataclasses_.OptLevel))
    assert tuple(constants.DEEPSPEED_MULTINODE_LAUNCHERS) == MULTINODE_LAUNCHERS


def test_fsdp_values_are_names_and_numbers_of_torch() -> None:
    from torch.distributed.fsdp import BackwardPrefetch, ShardingStrategy, StateDictType

    def names_and_numbers(enum: Any) -> set[Any]:
        return {item.name for item in enum} | {item.value for item in enum}

    strategies = {s for s in names_and_numbers(ShardingStrategy) if s not in ("_HYBRID_SHARD_ZERO2",)}
    assert values_of(FsdpConfig, "fsdp_sharding_strategy") - {"HYBRID_SHARD_ZERO2"} == strategies
    assert values_of(FsdpConfig, "fsdp_state_dict_type") == names_and_numbers(StateDictType)
    assert values_of(FsdpConfig, "fsdp_backward_prefetch") == names_and_numbers(BackwardPrefetch) | {
        "NO_PREFETCH"
    }
    assert values_of(FsdpConfig, "fsdp_auto_wrap_policy") == set(constants.FSDP_AUTO_WRAP_POLICY)


def test_a_lower_case_fp8_backend_is_not_known() -> None:
    """The command line offers lower case only, which the job then refuses."""
    for choice in facts(Fp8Config, "fp8_backend")["cli"]["choices"]:
        with pytest.raises(ValueError, match="FP8BackendType"):
            dataclasses_.FP8BackendType(choice)
