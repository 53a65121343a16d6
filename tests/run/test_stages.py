"""Single steps between the files of a run and the engine, each side of where they change. What is expected is what
accelerate 1.15, transformers 5.23 and DeepSpeed 0.19.8 do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.run.test_effective import ACCELERATE, file, ignored, kinds, run
from tests.run.test_reader import TRAIN
from tests.run.test_settings_at_releases import launched
from zerocfg.run.config import Config, NotAMappingError
from zerocfg.run.lowered import with_front_end
from zerocfg.run.model import UNKNOWN, Call, Effective, FromLine, Origin, Run, Script, Setting
from zerocfg.run.resolve_settings import resolve_settings
from zerocfg.run.script import accelerator
from zerocfg.run.stages.admitted import AdmittedKeys, admitted_keys
from zerocfg.run.stages.arguments import _nearly, arguments_of, recipe_environment, recipe_untold
from zerocfg.run.stages.batches import world_of
from zerocfg.run.stages.engine import number, truth
from zerocfg.run.stages.fsdp import parallel_sizes, plugin_settings
from zerocfg.run.stages.options import options_at
from zerocfg.run.stages.plugin import Plugin, set_mixed_precision
from zerocfg.run.stages.prepare import Prepared, prepare
from zerocfg.run.stages.process_counts import launch_of
from zerocfg.run.stages.trainer import bucket_settings, training_steps, warmup_steps
from zerocfg.source.launch.line import LaunchLine, Word
from zerocfg.source.text import Span

HERE = Origin("flag", "here")


def at(effective: Effective, name: str) -> list[tuple[object, str]]:
    """A setting and what it replaced, newest first, each with the kind of its origin."""
    setting = effective.settings[name]
    return [(one.value, one.origin.kind) for one in (setting, *setting.overridden)]


def variable(effective: Effective, name: str) -> list[tuple[object, str]]:
    setting = effective.environment[name]
    return [(one.value, one.origin.kind) for one in (setting, *setting.overridden)]


# --- the launcher -----------------------------------------------------------------------------------------------------

SIMPLE = "distributed_type: 'NO'\nnum_processes: 2\n"


@pytest.mark.parametrize(
    ("flags", "failed"),
    [
        ({"multi_gpu": True, "num_processes": "1"}, ["multi-gpu-processes"]),
        ({"multi_gpu": True, "num_processes": "2"}, []),
        ({"num_processes": "1"}, []),
        ({"multi_gpu": True, "cpu": True, "num_processes": "2"}, ["flags-exclusive"]),
        ({"use_fsdp": True, "use_deepspeed": True, "num_processes": "2"}, ["flags-exclusive"]),
        ({"use_parallelism_config": True, "num_processes": "2"}, ["parallelism-without-fsdp2"]),
        # the launcher compares with the number 1, and its option is a text
        ({"use_parallelism_config": True, "use_fsdp": True, "fsdp_version": "1", "num_processes": "2"}, []),
        ({"use_parallelism_config": True, "use_fsdp": True, "fsdp_version": "2", "num_processes": "2"}, []),
        ({"num_procs": "2"}, ["flag-unknown"]),
        ({"num_processes": "two"}, ["flag-type"]),
        ({"mixed_precision": "fp32"}, ["flag-choice", "mixed-precision"]),
        ({"num_processes": UNKNOWN, "mixed_precision": UNKNOWN}, []),
    ],
)
def test_options_without_a_config(flags: dict[str, Any], failed: list[str]) -> None:
    line = LaunchLine("accelerate", (), None, (), (), {}, Span(0, 0))
    assert kinds(resolve_settings(run(launch=line, flags=flags))) == failed


def test_what_the_launch_line_beats() -> None:
    text = f"{ACCELERATE}  gradient_clipping: 0.5\nmixed_precision: bf16\n"
    both = launched(None, text, num_processes="2", mixed_precision="fp16", gradient_clipping="2")
    assert at(both, "num_processes") == [(2, "flag"), (4, "file")]
    assert variable(both, "ACCELERATE_MIXED_PRECISION") == [("fp16", "flag"), ("bf16", "file")]
    assert variable(both, "ACCELERATE_GRADIENT_CLIPPING") == [("2.0", "flag"), (0.5, "file")]
    alone = launched(None, text)
    assert at(alone, "num_processes") == [(4, "file")]
    assert variable(alone, "ACCELERATE_MIXED_PRECISION") == [("bf16", "file")]
    # null in the file is no word that is beaten
    null = launched(None, f"{ACCELERATE}mixed_precision: null\n", mixed_precision="fp16")
    assert variable(null, "ACCELERATE_MIXED_PRECISION") == [("fp16", "flag")]
    assert variable(launched(None, f"{ACCELERATE}mixed_precision: null\n"), "ACCELERATE_MIXED_PRECISION") == [
        ("no", "default")
    ]


def test_what_is_said_to_be_beaten_before_that_changed() -> None:
    """accelerate 1.4 lets the sections of the file win; a launch line is told so where the values differ."""
    text = f"{ACCELERATE}  gradient_clipping: 0.5\n  zero3_init_flag: true\n"
    found = launched("==1.4.0", text, zero_stage="2", gradient_clipping="0.5", zero3_init_flag=UNKNOWN)
    assert [(one.kind, one.place.kind, one.place.note, one.used and one.used.value) for one in found.ignored] == [
        ("file-wins", "flag", "--zero_stage", 3)
    ]
    assert [one.kind for one in launched(None, text, zero_stage="2").ignored] == ["flag-wins"]
    unused = text.replace("DEEPSPEED", "MULTI_GPU")
    assert [one.kind for one in launched("==1.4.0", unused, zero_stage="2").ignored] == ["section-not-used"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("distributed_type: MULTI_GPU\nnum_processes: 2\nfsdp_config: auto\n", ["section-type"]),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\nfsdp_config: {}\n", []),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n", ["section-not-used"]),
        ("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n", []),
        ("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_versions: 2}\n", ["dead-sub-key"]),
        ("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_ignored_modules: a}\n", []),
        (f"{ACCELERATE}  fsdp_version: 2\n", []),
        (f"{ACCELERATE}dynamo_config: {{dynamo_backend: INDUCTOR}}\n", ["dynamo-ignored"]),
        (f"{ACCELERATE}dynamo_config: {{}}\n", []),
        (f"{ACCELERATE}fp8_config: {{backend: TE}}\nmixed_precision: bf16\n", ["fp8-ignored"]),
        (f"{ACCELERATE}fp8_config: {{backend: TE}}\nmixed_precision: fp8\n", []),
        (f"{ACCELERATE}fp8_config: {{fp8_optimization_level: O1}}\nmixed_precision: fp8\n", ["dead-sub-key"]),
        (f"{ACCELERATE}same_network: false\n", []),
        (f"{ACCELERATE}same_network: null\n", []),
        (f"{ACCELERATE}same_network: true\n", ["dead-top-key"]),
        (f"{ACCELERATE}use_cpu: true\n", ["use-cpu-ignored"]),
        (f"{ACCELERATE}use_cpu: false\n", []),
        ("distributed_type: 'NO'\nuse_cpu: true\n", []),
    ],
)
def test_values_that_reach_nobody(text: str, found: list[str]) -> None:
    assert ignored(resolve_settings(run(accelerate=text))) == found


def test_an_option_that_an_older_launcher_had() -> None:
    text = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_backward_prefetch_policy: BACKWARD_PRE}\n"
    assert [one.kind for one in launched("==0.25.0", text).ignored] == []
    assert [one.kind for one in launched(None, text).ignored] == ["dead-sub-key"]


@pytest.mark.parametrize(
    ("more", "flags", "failed"),
    [
        ("main_process_ip: 10.0.0.1\n", {}, []),
        ("main_process_ip: 10\n", {}, ["main-process-ip-type"]),
        ("", {"main_process_ip": UNKNOWN}, []),
        ("num_machines: two\n", {}, ["num-machines-type"]),
        ("num_machines: 2\n", {}, ["main-process-missing"]),
        ("num_machines: 2\nmain_process_ip: h\n", {}, ["main-process-missing"]),
        ("num_machines: 2\nmain_process_ip: h\nmain_process_port: 1\n", {}, []),
        ("num_machines: 1\n", {}, []),
        ("use_cpu: maybe\n", {}, ["use-cpu-type"]),
        ("use_cpu: 'yes'\n", {}, []),
        ("dynamo_config: {dynamo_mode: 1}\n", {}, ["dynamo-mode-type"]),
        ("dynamo_config: {dynamo_mode: default}\n", {}, []),
    ],
)
def test_the_simple_launcher(more: str, flags: dict[str, Any], failed: list[str]) -> None:
    assert kinds(launched(None, SIMPLE + more, **flags)) == failed


def test_variables_of_the_simple_launcher() -> None:
    """accelerate/utils/launch.py, prepare_simple_launcher_cmd_env."""

    def found(more: str, *names: str, base: str = SIMPLE) -> list[object]:
        environment = launched(None, base + more).environment
        return [environment[name].value if name in environment else None for name in names]

    network = ("MASTER_ADDR", "MASTER_PORT")
    assert found("", *network) == ["127.0.0.1", "29500"]
    assert found("", *network, base="distributed_type: 'NO'\nnum_processes: 1\n") == [None, None]
    assert found("main_process_ip: h\nmain_process_port: 7\n", *network) == ["h", "7"]
    cpu = ("ACCELERATE_USE_CPU", "KMP_AFFINITY", "KMP_BLOCKTIME")
    assert found("use_cpu: true\n", *cpu) == ["True", "granularity=fine,compact,1,0", "1"]
    assert found("use_cpu: false\n", *cpu) == ["False", None, None]
    assert found("enable_cpu_affinity: true\n", "ACCELERATE_CPU_AFFINITY") == [None], "the option's default wins"
    assert found("debug: true\ngpu_ids: '1'\n", "ACCELERATE_DEBUG_MODE", "CUDA_VISIBLE_DEVICES") == ["true", "1"]
    assert found("gpu_ids: all\n", "ACCELERATE_DEBUG_MODE", "CUDA_VISIBLE_DEVICES") == [None, None]
    bound = launched(None, SIMPLE, enable_cpu_affinity=True, num_cpu_threads_per_process="3").environment
    assert (bound["ACCELERATE_CPU_AFFINITY"].value, bound["OMP_NUM_THREADS"].value) == ("1", "3")


def test_choices_and_defaults_of_older_options() -> None:
    """`accelerate launch --help` of 0.20.3 and 0.34.2: the backends of Dynamo, and what FSDP is given."""
    today, then = options_at(AdmittedKeys("accelerate")), options_at(admitted_keys("accelerate", "==0.25.0"))
    assert (today["fsdp_sharding_strategy"].default, then["fsdp_sharding_strategy"].default) == ("FULL_SHARD", 1)
    assert set(then["mixed_precision"].choices) == {"no", "fp16", "bf16", "fp8"}
    assert {"parallelism_config_tp_size", "fsdp_version"} & set(then) == set()
    assert then["num_processes"].kind == today["num_processes"].kind == "int"


# --- accelerate's plugins ---------------------------------------------------------------------------------------------


def config(**data: Any) -> Config:
    return Config(data, lambda path: Origin("file", path=path))


@pytest.mark.parametrize(
    ("word", "data", "fp16", "bf16", "cast", "failed"),
    [
        ("fp16", {}, True, False, True, []),
        ("bf16", {}, False, True, None, []),
        ("fp8", {}, False, True, None, []),
        ("no", {}, False, False, None, []),
        (UNKNOWN, {}, UNKNOWN, UNKNOWN, None, []),
        (UNKNOWN, {"fp16": {"enabled": False}}, False, UNKNOWN, None, []),
        (UNKNOWN, {"fp16": {"enabled": "auto"}}, UNKNOWN, UNKNOWN, None, []),
        ("fp16", {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, True, False, None, []),
        ("bf16", {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, False, True, None, []),
        ("fp16", {"bf16": {"enabled": True}}, True, True, True, ["ds-precision-conflict"]),
        ("fp16", {"bf16": {"enabled": "True"}}, True, "True", True, ["ds-precision-conflict"]),
        ("bf16", {"fp16": {"enabled": True}}, True, True, None, ["ds-precision-conflict"]),
        ("no", {"fp16": {"enabled": True}}, True, False, None, []),
        ("bf16", {"bf16": {"enabled": False}}, False, False, None, []),
    ],
)
def test_precision_of_the_plugin(
    word: object, data: dict[str, Any], fp16: object, bf16: object, cast: object, failed: list[str]
) -> None:
    plugin = Plugin(config(**data), [])
    set_mixed_precision(plugin, Setting(word, HERE))
    found = [plugin.config.get(name) for name in ("fp16.enabled", "bf16.enabled", "fp16.auto_cast")]
    assert found == [fp16, bf16, cast]
    assert [failure.kind for failure in plugin.failures] == failed


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("FULL_SHARD", "FULL_SHARD"),
        ("hybrid_shard", "HYBRID_SHARD"),
        ("0", UNKNOWN),
        ("1", "FULL_SHARD"),
        ("2", "SHARD_GRAD_OP"),
        ("5", "HYBRID_SHARD_ZERO2"),
        ("6", UNKNOWN),
        ("half", UNKNOWN),
    ],
)
def test_the_strategy_of_fsdp_by_name_and_number(text: str, strategy: object) -> None:
    """torch's ShardingStrategy numbers its members from 1."""
    found = plugin_settings({"FSDP_SHARDING_STRATEGY": Setting(text, HERE)})
    assert found["fsdp_config.fsdp_sharding_strategy"].value == strategy


def fsdp(**texts: str) -> dict[str, object]:
    found = plugin_settings({f"FSDP_{name}": Setting(text, HERE) for name, text in texts.items()})
    return {name.removeprefix("fsdp_config.fsdp_"): setting.value for name, setting in found.items()}


def test_what_the_plugin_of_fsdp_reads() -> None:
    both = {"offload_params", "auto_wrap_policy", "cpu_ram_efficient_loading", "activation_checkpointing"}
    first = both | {"ignored_modules", "version", "sharding_strategy", "state_dict_type", "backward_prefetch"}
    first |= {"forward_prefetch", "use_orig_params", "sync_module_states"}
    second = both | {"ignored_modules", "version", "reshard_after_forward", "state_dict_type"}
    second |= {"activation_checkpointing_offload"}
    assert set(fsdp()) == first and set(fsdp(VERSION="2")) == second
    assert set(fsdp(VERSION="3")) == both | {"ignored_modules", "version"}
    assert fsdp()["state_dict_type"] == "FULL_STATE_DICT"
    assert fsdp(VERSION="2")["state_dict_type"] == "SHARDED_STATE_DICT"
    assert fsdp(AUTO_WRAP_POLICY="size_based_wrap", MIN_NUM_PARAMS="12")["min_num_params"] == 12
    assert "min_num_params" not in fsdp(AUTO_WRAP_POLICY="TRANSFORMER_BASED_WRAP", MIN_NUM_PARAMS="12")
    assert fsdp(BACKWARD_PREFETCH="NO_PREFETCH")["backward_prefetch"] is None
    assert fsdp(BACKWARD_PREFETCH="2")["backward_prefetch"] == "BACKWARD_POST"
    assert fsdp(OFFLOAD_PARAMS="on")["offload_params"] is True and fsdp(OFFLOAD_PARAMS="2")["offload_params"] is UNKNOWN


@pytest.mark.parametrize(
    ("sync", "loading", "version", "value"),
    [
        ("false", "true", "1", True),
        ("false", "false", "1", False),
        ("true", "false", "1", True),
        ("maybe", "true", "1", UNKNOWN),
        ("false", "true", "2", None),
    ],
)
def test_weights_are_sent_where_one_rank_loads_them(sync: str, loading: str, version: str, value: object) -> None:
    found = fsdp(SYNC_MODULE_STATES=sync, CPU_RAM_EFFICIENT_LOADING=loading, VERSION=version)
    assert found.get("sync_module_states") == value


# --- the Trainer ------------------------------------------------------------------------------------------------------


def given(**values: Any) -> Any:
    parts = {name: Setting(value, HERE) for name, value in values.items()}
    return arguments_of(Run("a", consumer="transformers", arguments_whole=True, arguments=parts))


@pytest.mark.parametrize(
    ("written", "total", "steps"),
    [
        ("0", 100, 1),
        ("0.004", 100, 1),
        ("0.1", 100, 10),
        ("0.101", 100, 11),
        ("0.5", UNKNOWN, UNKNOWN),
        ("1", UNKNOWN, 1),
        ("1.9", 100, 1),
        ("2", 100, 2),
        ("7.5", UNKNOWN, 7),
        ("inf", 100, UNKNOWN),
        ("nan", 100, UNKNOWN),
        (UNKNOWN, 100, UNKNOWN),
    ],
)
def test_steps_of_warming_up(written: object, total: object, steps: object) -> None:
    """TrainingArguments.get_warmup_steps: from 1 on a number of steps, below a share; and 1 is the least."""
    assert warmup_steps(given(warmup_steps=written), total).value == steps


def test_steps_of_a_training() -> None:
    found = [training_steps(given(max_steps=written)).value for written in ("5", "0", "-1", UNKNOWN)]
    assert found == [5, 0, UNKNOWN, UNKNOWN]


def test_apex_where_the_config_asks_for_it() -> None:
    """transformers before 5 compares `amp` of the config, and fills it; where there is none it asks nothing."""
    parts: dict[str, Any] = {"consumer": "transformers", "deepspeed_route": "trainer"}
    parts |= {"versions": {"transformers": "==4.57.6", "deepspeed": "==0.19.7"}}

    def found(config: str) -> Effective:
        return resolve_settings(run(deepspeed=config, arguments={"output_dir": "out"}, **parts))

    base = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}%s}'
    assert kinds(found(base % "")) == []
    assert kinds(found(base % ', "amp": {"enabled": true}')) == ["trainer-mismatch"]
    filled = found(base % ', "amp": {"enabled": "auto", "opt_level": "auto"}')
    assert (filled.value("amp.enabled"), filled.value("amp.opt_level")) == (False, "O1")


@pytest.mark.parametrize(
    ("name", "wanted", "near"),
    [
        ("learning_rat", "learning_rate", True),
        ("learningrate", "learning_rate", True),
        ("learning_rates_", "learning_rate", True),
        ("learning_rates_x", "learning_rate", False),
        ("laerning_rate", "learning_rate", True),
        ("learning_decay", "learning_rate", False),
        ("max_stepz", "max_steps", True),  # nine letters
        ("max_step", "max_steps", True),
        ("optimx", "optim", False),
        ("adam_eps", "adam_beta", False),
    ],
)
def test_names_that_differ_by_a_slip(name: str, wanted: str, near: bool) -> None:
    assert _nearly(name, wanted) is near


@pytest.mark.parametrize(
    ("words", "arguments", "untold"),
    [
        ([], {}, False),
        (["recipe.yaml"], {}, True),
        (["recipe.json"], {}, True),
        (["recipe.py"], {}, False),
        ([None], {}, True),
        (["--lr"], {"config": "recipe.yml"}, True),
        (["--lr"], {"config": "small"}, False),
        (["--lr"], {"config": UNKNOWN}, True),
        (["--lr"], {"configs": "recipe.yaml"}, False),
    ],
)
def test_a_recipe_that_nobody_can_look_into(words: list[str | None], arguments: dict[str, Any], untold: bool) -> None:
    line = LaunchLine(
        "torchrun", (), None, tuple(Word(one or "$R", one, Span(0, 1)) for one in words), (), {}, Span(0, 1)
    )
    named = run(launch=line, arguments=arguments)
    assert recipe_untold(named) is untold
    assert not recipe_untold(run(launch=line, arguments=arguments, recipe="a: 1\n"))
    assert not recipe_untold(run(arguments=arguments))


# --- the engine -------------------------------------------------------------------------------------------------------


def parsed(config: str, **versions: str) -> Effective:
    return resolve_settings(run(consumer="deepspeed", deepspeed_route="engine", deepspeed=config, versions=versions))


@pytest.mark.parametrize(
    ("zero", "failed"),
    [
        ('"auto"', ["ds-section-type"]),
        ("[]", ["ds-section-type"]),
        ("3", ["ds-section-type"]),
        ("true", []),
        ("{}", []),
    ],
)
def test_what_stands_in_the_place_of_the_section(zero: str, failed: list[str]) -> None:
    found = parsed(f'{{"train_batch_size": 8, "zero_optimization": {zero}}}')
    assert kinds(found) == failed
    assert all(failure.places[0].path == ("zero_optimization",) for failure in found.failures)


def test_typed_sections_convert_what_is_written() -> None:
    """As pydantic reads the words: DeepSpeedZeroConfig and its neighbours."""
    zero = '"stage": "2", "overlap_comm": "yes", "reduce_bucket_size": 5e8, "sub_group_size": "1000"'
    found = parsed(f'{{"train_batch_size": 8, "zero_optimization": {{{zero}}}, "gradient_clipping": "1"}}')
    names = ("stage", "overlap_comm", "reduce_bucket_size", "sub_group_size")
    values = [found.value(f"zero_optimization.{name}") for name in names]
    assert values == [2, True, 500_000_000, 1000] and [type(one) for one in values] == [int, bool, int, int]
    assert at(found, "zero_optimization.stage") == [(2, "file"), ("2", "file")]
    assert at(found, "gradient_clipping") == [("1", "file")], "no typed section"
    plain = parsed('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": true}}')
    assert at(plain, "zero_optimization.stage") == [(2, "file")]


def test_a_section_of_which_nobody_knows_what_it_holds() -> None:
    found = parsed('{"train_batch_size": 8, "zero_optimization": $ZERO\n}')
    assert found.value("zero_optimization.stage") is UNKNOWN
    assert found.settings["zero_optimization.stage"].origin.path == ("zero_optimization",)
    known = parsed('{"train_batch_size": 8, "bf16": $BF16\n"zero_optimization": {"stage": 1}}')
    assert (known.value("zero_optimization.stage"), known.value("bf16.enabled")) == (1, UNKNOWN)
    assert known.value("fp16.enabled") is False


def test_numbers_and_switches_as_pydantic_reads_them() -> None:
    values = (3, 3.0, 3.5, "3", "3.5", True, None, [], UNKNOWN, math.inf)
    assert [number(one) for one in values] == [3, 3, None, 3, None, 1, None, None, UNKNOWN, None]
    assert [truth(one) for one in (True, 1, 1.0, "On", "y", 2, "2", 0, None)] == [True] * 5 + [False] * 4


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"zero_optimization": {"cpu_offload": true}', {"zero_optimization.offload_optimizer.device": "cpu"}),
        ('"zero_optimization": {"cpu_offload": false}', {"zero_optimization.offload_optimizer.device": "none"}),
        ('"zero_optimization": {"cpu_offload_param": true}', {"zero_optimization.offload_param.device": "cpu"}),
        ('"zero_optimization": true', {"zero_optimization.stage": 1}),
        ('"zero_optimization": false', {"zero_optimization.stage": 0}),
        (
            '"zero_optimization": {"stage3_gather_fp16_weights_on_model_save": true}',
            {"zero_optimization.stage3_gather_16bit_weights_on_model_save": True},
        ),
        ('"bfloat16": {"enabled": true}', {"bf16.enabled": True}),
        ('"bfloat16": {"enabled": true}, "bf16": {}', {"bf16.enabled": False}),
    ],
)
def test_older_spellings(text: str, names: dict[str, object]) -> None:
    found = parsed(f'{{"train_batch_size": 8, {text}}}')
    assert {name: found.value(name) for name in names} == names


# --- what the files leave open ----------------------------------------------------------------------------------------


def accelerator_call(*, complete: bool = True, **arguments: Any) -> Run:
    """A run whose script calls `Accelerator()` so."""
    given = {name: Setting(value, HERE) for name, value in arguments.items()}
    call = Call("accelerate.Accelerator", given, TRAIN, Span(0, 1), complete)
    options = {"steps": Setting("8", HERE)}
    return Run("a", consumer="accelerate", script=Script(TRAIN, "accelerate", calls=(call,)), arguments=options)


@pytest.mark.parametrize(
    ("run_", "steps"),
    [
        (Run("a"), UNKNOWN),
        (accelerator_call(), 1),
        (accelerator_call(complete=False), UNKNOWN),
        (accelerator_call(gradient_accumulation_steps=4), 4),
        (accelerator_call(gradient_accumulation_steps="4"), 4),
        (accelerator_call(gradient_accumulation_steps="four"), UNKNOWN),
        (accelerator_call(gradient_accumulation_steps=None), UNKNOWN),
        (accelerator_call(gradient_accumulation_steps=UNKNOWN), UNKNOWN),
        (accelerator_call(gradient_accumulation_steps=FromLine("steps", 1)), 8),
        (accelerator_call(gradient_accumulation_steps=FromLine("other", 2)), 2),
        (accelerator_call(gradient_accumulation_steps=4, gradient_accumulation_plugin=UNKNOWN), UNKNOWN),
    ],
)
def test_steps_that_an_accelerator_is_given(run_: Run, steps: object) -> None:
    assert accelerator.accumulation(run_).value == steps


def test_what_else_an_accelerator_is_given() -> None:
    assert not accelerator.makes_accelerator(Run("a")) and accelerator.makes_accelerator(accelerator_call())
    assert not accelerator.own_plugin(Run("a")) and not accelerator.own_plugin(accelerator_call(deepspeed_plugin=None))
    assert accelerator.own_plugin(accelerator_call(deepspeed_plugin=UNKNOWN))
    assert accelerator.own_plugin(accelerator_call(deepspeed_plugins=UNKNOWN))
    asked = accelerator_call(mixed_precision=FromLine("other", "no"), x=FromLine("steps", 1))
    assert accelerator.is_open_option(asked, "mixed_precision") and not accelerator.is_open_option(asked, "x")
    assert not accelerator.is_open_option(asked, "y")
    exported = Setting("fp16", HERE)
    for run_, found in (
        (accelerator_call(), ["fp16"]),
        (accelerator_call(mixed_precision="bf16"), ["bf16", "fp16"]),
        (accelerator_call(mixed_precision=None), ["fp16"]),
        (Run("a"), ["fp16"]),
    ):
        setting = accelerator.precision(run_, exported)
        assert [one.value for one in (setting, *setting.overridden)] == found
    assert accelerator.precision(Run("a"), None).value is UNKNOWN
    two = accelerator_call(mixed_precision="bf16")
    assert two.script is not None
    calls = (*two.script.calls, *(accelerator_call().script or two.script).calls)
    either = replace(two, script=replace(two.script, calls=calls))
    assert accelerator.precision(either, None).value is UNKNOWN, "which of the two it is"


@pytest.mark.parametrize(
    ("name", "text", "value", "failed"),
    [
        ("learning_rate", "1e-4", 0.0001, []),
        ("learning_rate", "fast", UNKNOWN, ["argument-type"]),
        ("learning_rate", "<lr>", UNKNOWN, []),
        ("learning_rate", "$LR", UNKNOWN, []),
        ("gradient_accumulation_steps", "4", 4, []),
        ("gradient_accumulation_steps", "4.0", UNKNOWN, ["argument-type"]),
        ("bf16", "yes", True, []),
        ("bf16", "maybe", UNKNOWN, ["argument-type"]),
        ("bf16", None, True, []),
        ("max_steps", None, UNKNOWN, []),
    ],
)
def test_texts_of_a_command_line(name: str, text: str | None, value: object, failed: list[str]) -> None:
    found = given(**{name: text})
    assert (found.get(name), [one.kind for one in found.failures]) == (value, failed)


def test_literals_of_the_code_are_not_converted() -> None:
    def literal(name: str, value: object) -> object:
        arguments = {name: Setting(value, Origin("file", file=TRAIN))}
        run_ = Run("a", consumer="transformers", arguments_whole=True, arguments=arguments)
        return arguments_of(run_).get(name)

    assert literal("learning_rate", "1e-4") is UNKNOWN and literal("learning_rate", 0.1) == 0.1
    assert literal("optim", "adamw_torch") == "adamw_torch" and literal("bf16", None) is None


def test_the_environment_of_a_recipe() -> None:
    """TrlParser puts `env:` into the environment, and wins over launcher and shell."""
    text = "output_dir: o\nenv: {A: 1, ACCELERATE_MIXED_PRECISION: fp16}\n"
    found = recipe_environment(run(consumer="trl", recipe=text))
    assert {name: (one.value, one.origin.path) for name, one in found.items()} == {
        "A": ("1", ("env", "A")),
        "ACCELERATE_MIXED_PRECISION": ("fp16", ("env", "ACCELERATE_MIXED_PRECISION")),
    }
    assert recipe_environment(run(consumer="transformers", recipe=text)) == {}
    assert recipe_environment(run(consumer="trl", recipe="env: [A]\n")) == {}
    parts: dict[str, Any] = {"accelerate": f"{ACCELERATE}mixed_precision: bf16\n", "recipe": f"{text}bf16: false\n"}
    assert resolve_settings(run(consumer="trl", **parts)).value("mixed_precision") == "fp16"


def test_a_trainer_whose_launcher_turned_deepspeed_off() -> None:
    recipe = "output_dir: o\nbf16: false\nper_device_train_batch_size: 3\ngradient_accumulation_steps: 2\n"
    parts: dict[str, Any] = {"consumer": "transformers", "accelerate": ACCELERATE, "recipe": recipe}
    found = resolve_settings(run(environment={"ACCELERATE_USE_CPU": "true"}, **parts))
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    assert [found.value(name) for name in ("engine", *names)] == ["ddp", 24, 3, 2, 1.0]
    assert "zero_optimization.stage" not in found.settings
    plain = {**parts, "accelerate": ACCELERATE.replace("DEEPSPEED", "MULTI_GPU")}
    assert [resolve_settings(run(**plain)).value(name) for name in ("engine", *names)] == ["ddp", 24, 3, 2, 1.0]


def test_a_config_file_that_is_not_here() -> None:
    """What the launcher names and nobody can read says nothing: no plugin's value stands in its place."""
    named = f"{ACCELERATE}  deepspeed_config_file: elsewhere.json\n"
    consumers: tuple[Any, ...] = (None, "accelerate", "transformers")
    for consumer in consumers:
        found = resolve_settings(run(consumer=consumer, accelerate=named, arguments={"output_dir": "o"}))
        assert found.value("engine") == "deepspeed"
        assert [name for name in found.settings if name.startswith("zero_optimization")] == []
        there = resolve_settings(run(consumer=consumer, accelerate=ACCELERATE, arguments={"output_dir": "o"}))
        assert there.value("zero_optimization.stage") == 3


def test_a_config_of_which_nobody_knows_how_it_gets_there() -> None:
    """Without a route a Trainer may be given it, unless the launcher names a file by itself."""
    config = '{"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": "auto"}'
    parts: dict[str, Any] = {"consumer": "transformers", "deepspeed": config, "arguments": {"output_dir": "o"}}
    assert resolve_settings(run(**parts)).value("zero_optimization.stage") == 1
    parts["environment"] = {
        "ACCELERATE_DEEPSPEED_CONFIG_FILE": "x.json",
        "ACCELERATE_USE_DEEPSPEED": "true",
    }
    parts["arguments"] = {"output_dir": "o"}
    elsewhere = resolve_settings(run(**parts))
    assert elsewhere.settings["engine"].origin.note == "the DeepSpeed launcher"


def test_settings_that_a_framework_keeps_for_itself() -> None:
    """LLaMA-Factory sets `remove_unused_columns` by itself (hparams/parser.py); axolotl and ms-swift name others."""
    own = "fp8: true\nremove_unused_columns: true\nlabel_names: [a]\nreport_to: none\n"
    recipe = file("neighbour", "stage: sft\nmodel_name_or_path: m\ntemplate: t\nlearning_rate: 1.0e-4\n" + own)
    found = with_front_end(Run("a"), "llamafactory", recipe)
    assert found.consumer == "llamafactory" and found.framework_recipe is recipe
    assert found.arguments.keys() == {"learning_rate"}


def test_the_processes_of_each_launcher() -> None:
    def found(launcher: Any, **flags: Any) -> list[object]:
        line = LaunchLine(launcher, (), None, (), (), {}, Span(0, 0))
        effective = resolve_settings(run(launch=line, flags=flags))
        return [effective.value(name) for name in ("num_processes", "num_machines")]

    assert found("torchrun") == [1, 1] and found("torchrun", nproc_per_node="2") == [2, 1]
    assert found("torchrun", nnodes="2") == [2, 2] and found("torchrun", nnodes="1:4") == [UNKNOWN, UNKNOWN]
    assert found("deepspeed") == [UNKNOWN, 1] and found("deepspeed", hostfile="h") == [UNKNOWN, UNKNOWN]
    assert found("deepspeed", num_gpus="4") == [4, 1] and found("deepspeed", num_gpus="4", num_nodes="2") == [8, 2]
    assert found("deepspeed", num_gpus="4", hostfile="h") == [UNKNOWN, UNKNOWN]
    assert found("deepspeed", include="a:0,1@b:2") == [3, 2] and found("deepspeed", include="a@b:2") == [UNKNOWN, 1]
    assert found("deepspeed", include="") == [UNKNOWN, 1] and found("python") == [1, 1]


def test_null_in_the_place_of_the_other_precision() -> None:
    """accelerate asks `config["bf16"].get("enabled")` where fp16 is wanted, and the reverse."""
    for word, other in (("fp16", "bf16"), ("bf16", "fp16")):
        with pytest.raises(NotAMappingError, match=other):
            set_mixed_precision(Plugin(config(**{other: None}), []), Setting(word, HERE))
        for held in ({}, {"enabled": False}):
            plugin = Plugin(config(**{other: held}), [])
            set_mixed_precision(plugin, Setting(word, HERE))
            assert plugin.failures == []
    set_mixed_precision(Plugin(config(bf16=None, fp16=None), []), Setting("no", HERE))


@pytest.mark.parametrize(
    ("deepspeed", "why"),
    [
        ("x.json", "`deepspeed` of TrainingArguments"),
        (UNKNOWN, "the DeepSpeed launcher"),
        ("", "the DeepSpeed launcher"),
    ],
)
def test_whose_config_a_trainer_takes(deepspeed: object, why: str) -> None:
    """A config of its own, though it is not here, comes before the launcher's."""
    parts: dict[str, Any] = {"consumer": "transformers", "accelerate": ACCELERATE}
    found = resolve_settings(run(arguments={"output_dir": "o", "deepspeed": deepspeed}, **parts))
    assert (found.value("engine"), found.settings["engine"].origin.note) == ("deepspeed", why)


def test_an_engine_that_nobody_knows() -> None:
    plain = ACCELERATE.replace("DEEPSPEED", "MULTI_GPU")
    found = resolve_settings(
        run(consumer="transformers", accelerate=plain, arguments={"output_dir": "o", "deepspeed": UNKNOWN})
    )
    assert found.value("engine") is UNKNOWN
    launched_otherwise = {
        "tpu": ("XLA", "xla"),
        "fsdp": ("FSDP", "fsdp"),
        "megatron": ("MEGATRON_LM", "megatron"),
        "none": ("'NO'", "single"),
    }
    for kind, engine in launched_otherwise.values():
        text = f"distributed_type: {kind}\nnum_processes: 4\n"
        assert resolve_settings(run(consumer="accelerate", accelerate=text)).value("engine") == engine


@pytest.mark.parametrize(
    ("sizes", "total"),
    [
        ("parallelism_config_tp_size: 2", 24),
        ("parallelism_config_dp_shard_size: 4", 48),
        ("parallelism_config_tp_size: 2\n  parallelism_config_cp_size: 2", 12),
        ("parallelism_config_tp_size: 1", 48),
        ("parallelism_config_tp_size: 3", UNKNOWN),
    ],
)
def test_ranks_that_share_a_batch(sizes: str, total: object) -> None:
    """Tensor and context parallel ranks get the same samples: 8 processes, 3 samples, 2 steps."""
    text = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
    recipe = "output_dir: o\nbf16: false\nper_device_train_batch_size: 3\ngradient_accumulation_steps: 2\n"
    parts: dict[str, Any] = {"consumer": "transformers", "recipe": recipe}
    found = resolve_settings(run(accelerate=f"{text}parallelism_config:\n  {sizes}\n", **parts))
    assert found.value("train_batch_size") == total


@pytest.mark.parametrize(
    ("ids", "machines", "failed"),
    [
        ("'0'", 1, ["gpu-ids-count"]),
        ("'0'", 2, []),
        ("'0'", 0, ["gpu-ids-count"]),
        ("'0,1'", 1, []),
        ("'0,1,2'", 1, []),
        ("all", 1, []),
        ("[0, 1]", 1, ["gpu-ids-type"]),
        ("0", 1, ["gpu-ids-type"]),
    ],
)
def test_accelerators_of_one_machine(ids: str, machines: int, failed: list[str]) -> None:
    text = f"distributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: {machines}\ngpu_ids: {ids}\n"
    found = kinds(resolve_settings(run(accelerate=text, flags={"main_process_ip": "h", "main_process_port": "1"})))
    assert [one for one in found if one.startswith("gpu-ids")] == failed


@pytest.mark.parametrize(("size", "known"), [(4096, True), (10**15, True), (10**15 + 1, False), (UNKNOWN, False)])
def test_bucket_sizes_of_a_width(size: object, known: bool) -> None:
    """As transformers fills them: the square, nine tenths of it, ten times the width."""
    found = bucket_settings(size)
    assert [setting.value for setting in found.values()] == (
        [size * size, int(0.9 * size * size), 10 * size] if known and isinstance(size, int) else [UNKNOWN] * 3
    )
    assert list(found) == [
        "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_prefetch_bucket_size",
        "zero_optimization.stage3_param_persistence_threshold",
    ]


def test_accelerators_that_only_the_shell_knows() -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 2\n"
    found = launched(None, text, gpu_ids=UNKNOWN)
    assert kinds(found) == [] and found.environment["CUDA_VISIBLE_DEVICES"].value is UNKNOWN


def test_sizes_of_a_parallelism_config() -> None:
    """Each is 1 unless it is exported, and none without the variable that switches it on."""
    on = {"ACCELERATE_USE_PARALLELISM_CONFIG": Setting("true", HERE), "PARALLELISM_CONFIG_TP_SIZE": Setting("4", HERE)}
    sizes = {name.rpartition("config_")[2]: setting.value for name, setting in parallel_sizes(on).items()}
    assert sizes == {"dp_replicate_size": 1, "dp_shard_size": 1, "tp_size": 4, "cp_size": 1, "sp_size": 1}
    assert parallel_sizes({"PARALLELISM_CONFIG_TP_SIZE": Setting("4", HERE)}) == {}


@pytest.mark.parametrize(
    ("share", "world", "ranks"),
    [(None, 8, 8), (2, 8, 4.0), (8, 8, 1.0), (0, 8, UNKNOWN), ("2", 8, UNKNOWN), (2, UNKNOWN, UNKNOWN)],
)
def test_ranks_of_a_sequence_share_a_batch(share: object, world: object, ranks: object) -> None:
    assert world_of(share, Setting(world, HERE)).value == ranks


@pytest.mark.parametrize(
    ("zero", "failed"),
    [
        ({"zero_optimization": None}, ["offload-optimizer-null"]),
        ({"zero_optimization": {"offload_optimizer": None}}, ["offload-optimizer-null"]),
        ({"zero_optimization": {"offload_optimizer": {}}}, []),
        ({"zero_optimization": {}}, []),
        ({}, []),
        ({"zero_optimization": None, "optimizer": {"type": "Adam"}}, []),
    ],
)
def test_an_optimizer_of_the_script_beside_a_null(zero: dict[str, Any], failed: list[str]) -> None:
    """accelerate asks the section for its device, where the config brings no optimizer."""
    data = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, **zero}
    state = Prepared(config(**data), Setting(2, HERE), Setting(1, HERE), None)
    assert [one.kind for one in prepare(state, trainer=False)] == failed


def test_the_launcher_that_accelerate_takes() -> None:
    """Without a config it starts one process on each accelerator, where the line does not say one."""
    line = LaunchLine("accelerate", (), None, (), (), {}, Span(0, 0))

    def taken(text: str | None = None, **flags: Any) -> str:
        parts: dict[str, Any] = {} if text is None else {"accelerate": text}
        given = {
            name: value if isinstance(value, bool) or value is UNKNOWN else str(value) for name, value in flags.items()
        }
        return launch_of(run(launch=line, flags=given, **parts)).launcher

    assert taken() == taken(num_processes=2) == taken(num_processes=UNKNOWN) == "multi_gpu"
    assert taken(num_processes=1) == taken(cpu=True, num_processes=2) == taken(SIMPLE) == "simple"
    assert taken(use_deepspeed=True) == taken(ACCELERATE) == "deepspeed"
    assert taken(use_deepspeed=True, cpu=True) == "simple"
    assert taken(use_fsdp=True) == taken(use_fsdp=True, multi_gpu=True) == "fsdp"
    assert taken(tpu=True) == "tpu" and taken(use_megatron_lm=True) == "megatron"
    for kind, launcher in (("FSDP", "fsdp"), ("MULTI_GPU", "multi_gpu"), ("XLA", "tpu"), ("MEGATRON_LM", "megatron")):
        text = f"distributed_type: {kind}\nnum_processes: 2\n"
        assert taken(text) == launcher
        assert taken(text, use_deepspeed=True) == "deepspeed", "the line decides"


def test_the_option_that_takes_a_cluster_of_tpus_back() -> None:
    """accelerate's parser stores false for it in the place of `--tpu_cluster`: the file says what is started."""
    there = launched(None, ACCELERATE)
    assert there.value("engine") == launched(None, ACCELERATE, no_tpu_cluster=True).value("engine")
    back = launched(None, ACCELERATE, no_tpu_cluster=True)
    assert back.environment["ACCELERATE_USE_DEEPSPEED"].value == "true" and kinds(back) == kinds(there)
    assert "ACCELERATE_USE_DEEPSPEED" not in launched(None, ACCELERATE, tpu_cluster=True).environment
