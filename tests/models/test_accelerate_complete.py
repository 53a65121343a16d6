"""The accelerate models against the installed accelerate: no key too many or too few, facts as it acts.

The launcher's own parser and merge of the file are run; nothing is spawned.
"""

from __future__ import annotations

import contextlib
import typing
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from accelerate_facts import FILE_ONLY, facts, keys, merged, sentinel, values_of

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
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from zerocfg.models.base import Section

pytestmark = pytest.mark.libs
accelerate = pytest.importorskip("accelerate")

launch = pytest.importorskip("accelerate.commands.launch")
launch_env = pytest.importorskip("accelerate.utils.launch")
config_args = pytest.importorskip("accelerate.commands.config.config_args")
dataclasses_ = pytest.importorskip("accelerate.utils.dataclasses")
constants = pytest.importorskip("accelerate.utils.constants")


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
    value = {} if mapping else {"distributed_type": "NO", "compute_environment": "LOCAL_MACHINE"}.get(name, "x")
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
    if action.dest == "fp8_override_linear_precision":
        return "bools"
    name = getattr(action.type, "__name__", "str")
    return {"bool": "truth", "str_to_bool": "bool"}.get(name, name)


def test_options_match_the_parser() -> None:
    actions: dict[str, argparse.Action] = {}
    for action in launch.launch_command_parser()._actions:
        if action.option_strings and action.dest != "help":
            actions.setdefault(action.dest, action)
    declared = {name: facts(Launcher, name)["cli"] for name in keys(Launcher) if "cli" in facts(Launcher, name)}
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


def accelerate_files(corpus: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(corpus.rglob("*.y*ml")):
        with contextlib.suppress(yaml.YAMLError):
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            if isinstance(content, dict) and "distributed_type" in content:
                yield path, content


def test_real_files_load_when_the_model_knows_their_keys(corpus: Path) -> None:
    checked = 0
    for path, content in accelerate_files(corpus):
        local = content.get("compute_environment", "LOCAL_MACHINE") == "LOCAL_MACHINE"
        model = ClusterConfig if local else SageMakerConfig
        known = keys(model, "removed") | {"num_processes"}  # added by the reader itself, also for SageMaker
        try:
            config_args.load_config_from_file(str(path))
            loads = True
        except (ValueError, TypeError):
            loads = False
        assert loads == (set(content) <= known and loads_otherwise(local, content)), path
        checked += 1
    assert checked > 20


def loads_otherwise(local: bool, content: dict[str, Any]) -> bool:
    """The reader puts num_processes into a SageMaker file of type NO, and then refuses it."""
    return local or content["distributed_type"] != "NO"


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
    assert values_of(Fp8Config, "fp8_amax_compute_algo") == set(typing.get_args(dataclasses_.AmaxComputeAlgorithm))
    assert values_of(Fp8Config, "fp8_opt_level") == set(typing.get_args(dataclasses_.OptLevel))
    assert tuple(constants.DEEPSPEED_MULTINODE_LAUNCHERS) == MULTINODE_LAUNCHERS


def test_fsdp_values_are_names_and_numbers_of_torch() -> None:
    from torch.distributed.fsdp import BackwardPrefetch, ShardingStrategy, StateDictType

    def names_and_numbers(enum: Any) -> set[Any]:
        return {item.name for item in enum} | {item.value for item in enum}

    strategies = {s for s in names_and_numbers(ShardingStrategy) if s not in ("_HYBRID_SHARD_ZERO2",)}
    assert values_of(FsdpConfig, "fsdp_sharding_strategy") - {"HYBRID_SHARD_ZERO2"} == strategies
    assert values_of(FsdpConfig, "fsdp_state_dict_type") == names_and_numbers(StateDictType)
    assert values_of(FsdpConfig, "fsdp_backward_prefetch") == names_and_numbers(BackwardPrefetch) | {"NO_PREFETCH"}
    assert values_of(FsdpConfig, "fsdp_auto_wrap_policy") == set(constants.FSDP_AUTO_WRAP_POLICY)


def test_a_lower_case_fp8_backend_is_not_known() -> None:
    """The command line offers lower case only, which the job then refuses."""
    for choice in facts(Fp8Config, "fp8_backend")["cli"]["choices"]:
        with pytest.raises(ValueError, match="FP8BackendType"):
            dataclasses_.FP8BackendType(choice)
