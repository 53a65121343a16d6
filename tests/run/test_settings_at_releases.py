"""Effective settings, exported variables and predicted failures at the releases that a run admits. What is expected
here was seen by running those releases (`make releases`, schemas/releases)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zerocfg.run.model import UNKNOWN, Effective, Origin, Run, Setting, SourceFile
from zerocfg.run.resolve_settings import resolve_settings, with_releases
from zerocfg.run.stages.admitted import guessed
from zerocfg.run.stages.parser import parser_of
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

CLIPPING, STEPS = "gradient_clipping", "steps_per_print"
BASE = '"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}'


def engine(declared: str | None, more: str = "") -> Effective:
    """What a script's own loop gets of a DeepSpeed config."""
    source = SourceText("ds.json", "{" + BASE + more + "}")
    file = SourceFile("ds.json", "deepspeed", source, load_as(source, "json"))
    versions = {} if declared is None else {"deepspeed": declared}
    return resolve_settings(Run("", consumer="deepspeed", deepspeed_route="engine", deepspeed=file, versions=versions))


def launched(declared: str | None, text: str, **flags: str) -> Effective:
    source = SourceText("acc.yaml", text)
    file = SourceFile("acc.yaml", "accelerate", source, load_as(source, "yaml"))
    line = LaunchLine("accelerate", (), None, (), (), {}, Span(0, 0))
    given = {name: Setting(value, Origin("flag", f"--{name}")) for name, value in flags.items()}
    versions = {} if declared is None else {"accelerate": declared}
    return resolve_settings(Run("", launch=line, flags=given, accelerate=file, versions=versions))


@pytest.mark.parametrize(
    ("declared", "name", "value", "origin"),
    [
        (None, CLIPPING, 1.0, "deepspeed 0.19.8"),
        ("==0.14.5", CLIPPING, 0.0, "deepspeed 0.14.5"),
        ("0.19.2", CLIPPING, 0.0, "deepspeed 0.19.2"),
        ("==0.19.3", CLIPPING, 1.0, "deepspeed 0.19.3"),
        (">=0.16,<0.17", CLIPPING, 0.0, "deepspeed >=0.16,<0.17"),
        (">=0.19.3", CLIPPING, 1.0, "deepspeed >=0.19.3"),
        (">=0.18", CLIPPING, UNKNOWN, "deepspeed >=0.18: 0.0, from 0.19.3 on 1.0"),
        ("==0.9.5", CLIPPING, UNKNOWN, "deepspeed 0.10.0, the oldest known: 0.0, from 0.19.3 on 1.0"),
        ("==0.15.1", STEPS, 10, "deepspeed 0.15.1"),
        ("==0.15.2", STEPS, None, "deepspeed 0.15.2"),
        ("==0.14.5", "zero_optimization.reduce_bucket_size", 500_000_000, "deepspeed 0.14.5"),
        ("==0.21.0", CLIPPING, 1.0, "deepspeed 0.19.8"),
    ],
)
def test_defaults(declared: str | None, name: str, value: Any, origin: str) -> None:
    setting = engine(declared).settings[name]
    assert (setting.value, setting.origin.kind, setting.origin.note) == (value, "default", origin)


def test_a_key_that_an_admitted_release_lacks_has_no_default() -> None:
    assert "gradient_allreduce_op" in engine(None).settings
    assert "gradient_allreduce_op" not in engine("==0.19.5").settings
    assert "gradient_allreduce_op" not in engine(">=0.19").settings


@pytest.mark.parametrize(
    ("declared", "more", "name", "value"),
    [
        ("==0.17.1", ', "bf16": {"enabled": "auto"}', "bf16.enabled", False),
        ("==0.17.0", ', "bf16": {"enabled": "auto"}', "bf16.enabled", "auto"),
        (">=0.16", ', "bf16": {"enabled": "auto"}', "bf16.enabled", UNKNOWN),
        (">=0.16", ', "bf16": {"enabled": true}', "bf16.enabled", True),
        ("==0.14.5", ', "zero_optimization": {"stage": "auto"}', "zero_optimization.stage", 0),
        ("==0.14.5", ', "gradient_clipping": 0.5', CLIPPING, 0.5),
    ],
)
def test_what_is_written_is_read_as_then(declared: str, more: str, name: str, value: Any) -> None:
    assert engine(declared, more).settings[name].value == value


@pytest.mark.parametrize(
    ("declared", "more", "kinds"),
    [
        (None, ', "amp": {"enabled": true}', ["ds-removed-key"]),
        ("==0.19.7", ', "amp": {"enabled": true}', []),
        (">=0.19", ', "amp": {"enabled": true}', []),
        (None, ', "gradient_allreduce_op": "sum", "compile": {"deepcompile": true}', ["ds-allreduce-sum"]),
        ("==0.19.5", ', "gradient_allreduce_op": "sum", "compile": {"deepcompile": true}', []),
        ("==0.14.5", ', "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}', ["ds-fp16-and-bf16"]),
        (None, ', "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}', []),
        ("==0.14.5", ', "fp16": {"enabled": true, "initial_scale_power": "16"}', ["ds-scale-power-type"]),
        ("==0.14.5", ', "fp16": {"enabled": false, "initial_scale_power": "16"}', []),
        (None, ', "fp16": {"enabled": true, "initial_scale_power": "16"}', []),
        (
            "==0.18.2",
            ', "fp16": {"enabled": true, "fp16_master_weights_and_grads": true}, "zero_optimization": {"stage": 3}',
            ["ds-master-weights-stage"],
        ),
        ("==0.18.2", ', "fp16": {"enabled": true, "fp16_master_weights_and_grads": true}', []),
        (
            "==0.18.3",
            ', "fp16": {"enabled": true, "fp16_master_weights_and_grads": true}, "zero_optimization": {"stage": 3}',
            [],
        ),
        ("==0.19.3", ', "sequence_parallel_size": 0', ["ds-batch-zero"]),
        ("==0.19.2", ', "sequence_parallel_size": 0', []),
        (">=0.19", ', "sequence_parallel_size": 0', []),
    ],
)
def test_what_the_parser_refuses(declared: str | None, more: str, kinds: list[str]) -> None:
    assert [failure.kind for failure in engine(declared, more).failures] == kinds


FSDP = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"


@pytest.mark.parametrize(
    ("declared", "variable", "text"),
    [
        (None, "FSDP_VERSION", "1"),
        ("==1.6.0", "FSDP_VERSION", "1"),
        ("==1.5.2", "FSDP_VERSION", None),
        ("==0.25.0", "FSDP_SHARDING_STRATEGY", "1"),
        ("==0.26.0", "FSDP_SHARDING_STRATEGY", "FULL_SHARD"),
        ("==1.12.0", "FSDP_MIN_NUM_PARAMS", "100000000.0"),
        (None, "FSDP_MIN_NUM_PARAMS", "100000000"),
        ("==1.6.0", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", None),
        ("==1.7.0", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "False"),
    ],
)
def test_exported_variables(declared: str | None, variable: str, text: str | None) -> None:
    exported = launched(declared, FSDP).environment
    assert (exported[variable].value if variable in exported else None) == text


@pytest.mark.parametrize(("declared", "handed_on"), [("==1.11.0", False), ("==1.12.0", True), (None, True)])
def test_deepspeed_and_parallelism(declared: str | None, handed_on: bool) -> None:
    text = PARALLEL.replace("MULTI_GPU", "DEEPSPEED") + "deepspeed_config: {zero_stage: 2}\n"
    assert ("PARALLELISM_CONFIG_TP_SIZE" in launched(declared, text).environment) is handed_on


@pytest.mark.parametrize(
    ("declared", "value", "bound"),
    [
        ("==1.7.0", "true", False),
        ("==1.8.0", "false", True),
        ("==1.12.0", "true", True),
        ("==1.13.0", "true", False),
        ("==1.15.0", "true", True),
        (None, "false", False),
    ],
)
def test_threads_bound_to_cores(declared: str | None, value: str, bound: bool) -> None:
    effective = launched(declared, f"distributed_type: 'NO'\nuse_cpu: {value}\n")
    assert ("KMP_AFFINITY" in effective.environment) is bound


def test_a_default_that_the_releases_do_not_share_is_not_known() -> None:
    assert launched(">=0.25,<0.27", FSDP).environment["FSDP_SHARDING_STRATEGY"].value is UNKNOWN


NO = "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: no\n"


@pytest.mark.parametrize(("declared", "word"), [("==0.23.0", "no"), ("==0.33.0", "no"), ("<1.0", UNKNOWN)])
def test_false_that_is_taken_for_no(declared: str, word: object) -> None:
    effective = launched(declared, NO)
    assert effective.environment["ACCELERATE_MIXED_PRECISION"].value == word
    assert not effective.failures


UNUSED = "distributed_type: MULTI_GPU\nnum_processes: 2\n%s\n"
SEVERAL = "distributed_type: 'NO'\nnum_processes: 2\nnum_machines: 2\n"
PARALLEL = "distributed_type: MULTI_GPU\nnum_processes: 2\nparallelism_config: {parallelism_config_tp_size: 2}\n"


@pytest.mark.parametrize(
    ("declared", "text", "kinds"),
    [
        ("==0.34.2", PARALLEL, ["newer-top-key"]),
        ("==1.10.0", PARALLEL, []),
        (">=1.0", PARALLEL, []),
        ("==1.12.0", "distributed_type: 'NO'\nipex_config: {}\n", []),
        (None, "distributed_type: 'NO'\nipex_config: {}\n", ["unknown-top-key"]),
        ("==0.33.0", "distributed_type: 'NO'\n", ["num-processes-missing"]),
        ("==0.34.0", "distributed_type: 'NO'\n", []),
        ("==0.27.2", "distributed_type: TPU\nnum_processes: 8\n", []),
        ("==0.28.0", "distributed_type: TPU\nnum_processes: 8\n", ["distributed-type"]),
        ("==0.34.0", NO, ["mixed-precision-type"]),
        (None, NO, ["mixed-precision-type"]),
        ("==0.30.1", NO.replace("no", "yes"), ["mixed-precision-type"]),
        ("==1.4.0", "distributed_type: MULTI_HPU\nnum_processes: 2\n", ["distributed-type"]),
        ("==1.5.0", "distributed_type: MULTI_HPU\nnum_processes: 2\n", []),
        (">=1.0", "distributed_type: MULTI_HPU\nnum_processes: 2\n", []),
        ("==1.4.0", UNUSED % "fsdp_config: auto", ["section-type"]),
        ("==1.4.0", UNUSED % "fsdp_config: 1", ["section-type"]),
        ("==1.4.0", UNUSED % "fsdp_config: ''", []),
        ("==1.5.0", UNUSED % "fsdp_config: auto", []),
        ("==1.3.0", UNUSED % "fp8_config: auto", []),
        (">=1.4", UNUSED % "fsdp_config: auto", []),
        ("==1.7.0", SEVERAL + "main_process_ip: 10.0.0.1\n", []),
        ("==1.7.0", SEVERAL, ["main-process-missing"]),
        ("==1.8.0", SEVERAL + "main_process_ip: 10.0.0.1\n", ["main-process-missing"]),
        (">=1.7", SEVERAL + "main_process_ip: 10.0.0.1\n", []),
        ("==1.7.0", "distributed_type: null\nnum_processes: null\n", ["num-processes-type"]),
        ("==1.8.0", "distributed_type: null\nnum_processes: null\n", []),
        ("==0.33.0", "distributed_type: MULTI_GPU\n", ["num-processes-missing"]),
        ("==0.33.0", "distributed_type: MULTI_GPU\nnum_processes: -1\n", []),
        ("==0.34.0", "distributed_type: MULTI_GPU\nnum_processes: -1\n", ["num-processes-missing"]),
        ("==1.14.0", "distributed_type: 'NO'\nuse_cpu: [1]\n", []),
        ("==1.15.0", "distributed_type: 'NO'\nuse_cpu: [1]\n", ["use-cpu-type"]),
    ],
)
def test_what_the_launcher_refuses(declared: str | None, text: str, kinds: list[str]) -> None:
    assert [failure.kind for failure in launched(declared, text).failures if failure.phase == "launch"] == kinds


@pytest.mark.parametrize(
    ("declared", "stage"),
    [("==1.4.0", "2"), ("==1.5.0", "3"), (None, "3"), (">=1.5", "3"), (">=1.4", UNKNOWN)],
)
def test_who_wins_when_file_and_launch_line_differ(declared: str | None, stage: object) -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: 2}\n"
    assert launched(declared, text, zero_stage="3").environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"].value == stage


@pytest.mark.parametrize(
    ("declared", "key", "mode"),
    [
        ("==1.13.0", "mode", "default"),
        ("==1.13.0", "dynamo_mode", "max-autotune"),
        ("==1.14.0", "mode", "max-autotune"),
        (">=1.13", "mode", UNKNOWN),
        (">=1.13", "dynamo_mode", "max-autotune"),
    ],
)
def test_keys_of_dynamo_with_and_without_their_prefix(declared: str, key: str, mode: object) -> None:
    text = UNUSED % f"dynamo_config: {{dynamo_backend: INDUCTOR, {key}: max-autotune}}"
    assert launched(declared, text).environment["ACCELERATE_DYNAMO_MODE"].value == mode


def test_a_run_whose_project_admits_other_releases_is_computed_again() -> None:
    source = SourceText("ds.json", "{" + BASE + "}")
    file = SourceFile("ds.json", "deepspeed", source, load_as(source, "json"))
    run = Run("", consumer="deepspeed", deepspeed_route="engine", deepspeed=file)
    run = replace(run, effective=resolve_settings(run))
    assert with_releases(run, {"deepspeed": "==0.14.5"}, {}).effective.value(CLIPPING) == 0.0
    same = with_releases(run, {"deepspeed": "==0.19.8", "torch": "2.4"}, {})
    assert same.effective is run.effective


@pytest.mark.parametrize(
    ("declared", "value"),
    [(">=0.18", True), (">=0.18,<0.19", False), ("==0.9.5", False), ("==0.19.5", True), (None, True)],
)
def test_who_decides_for_one_release_takes_the_newest(declared: str | None, value: bool) -> None:
    run = Run("", versions={} if declared is None else {"deepspeed": declared})
    name = "zero_optimization.offload_optimizer.pin_memory"
    found = parser_of(run).newest(name)
    assert found.value is value
    assert (
        found.origin.note
        == {
            ">=0.18": "deepspeed 0.19.8, the newest of >=0.18",
            ">=0.18,<0.19": "deepspeed >=0.18,<0.19",
            "==0.9.5": "deepspeed 0.10.0, the oldest known",
            "==0.19.5": "deepspeed 0.19.5",
            None: "deepspeed 0.19.8",
        }[declared]
    )


@pytest.mark.parametrize(
    ("declared", "nearest"),
    [("==0.20.1", "0.19.8"), ("==0.9.5", "0.10.0"), ("==0.11.0", "0.10.3"), (">=0.18", None), ("newest", None)],
)
def test_releases_that_are_not_known(declared: str, nearest: str | None) -> None:
    assert guessed(Run("", versions={"deepspeed": declared}), "deepspeed") == nearest
    assert guessed(Run(""), "deepspeed") is None
