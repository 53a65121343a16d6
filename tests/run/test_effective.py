"""Settings with their origins, refusals, and values that reach nobody, run by run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zerocfg.run.facts import ModelSummary
from zerocfg.run.model import UNKNOWN, Effective, Origin, Run, Setting, SourceFile
from zerocfg.run.resolve_settings import resolve_settings
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

ACCELERATE = """\
distributed_type: DEEPSPEED
num_processes: 4
deepspeed_config:
  zero_stage: 3
"""


def file(kind: Any, text: str) -> SourceFile:
    form: Any = "json" if kind == "deepspeed" else "yaml"
    source = SourceText(f"{kind}.{form}", text)
    return SourceFile(source.name, kind, source, load_as(source, form))


def run(**parts: Any) -> Run:
    """A run of texts: ``accelerate``, ``deepspeed`` and ``recipe`` are file contents."""
    for kind in ("accelerate", "deepspeed", "recipe"):
        if kind in parts:
            parts[kind] = file(kind, parts[kind])
    for name in ("arguments", "flags", "environment"):
        if name in parts:
            parts[name] = {key: Setting(value, Origin("flag", key)) for key, value in parts[name].items()}
    return Run("run", **parts)


def kinds(effective: Effective) -> list[str]:
    return [failure.kind for failure in effective.failures]


def ignored(effective: Effective) -> list[str]:
    return [entry.kind for entry in effective.ignored]


def test_trainer_fills_what_the_launcher_leaves_open() -> None:
    recipe = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\nbf16: true\n"
    effective = resolve_settings(run(consumer="transformers", accelerate=ACCELERATE, recipe=recipe))
    assert effective.failures == ()
    assert effective.value("train_batch_size") == 64
    steps = effective.get("gradient_accumulation_steps")
    assert steps is not None
    assert (steps.value, steps.origin.kind, steps.origin.path) == (8, "file", ("gradient_accumulation_steps",))
    stage = effective.get("zero_optimization.stage")
    assert stage is not None
    assert (stage.value, stage.origin.path) == (3, ("deepspeed_config", "zero_stage"))
    assert effective.value("bf16.enabled") is True
    assert effective.value("zero_optimization.overlap_comm") is True


def test_flags_win_over_sections_and_sections_over_the_top_level() -> None:
    text = ACCELERATE + "  num_processes: 8\n  gradient_clipping: 0.5\n"
    effective = resolve_settings(run(accelerate=text, flags={"gradient-clipping": "2"}))
    processes = effective.get("num_processes")
    assert processes is not None
    assert (processes.value, [old.value for old in processes.overridden]) == (8, [4])
    clipping = effective.environment["ACCELERATE_GRADIENT_CLIPPING"]
    assert (clipping.value, clipping.origin.kind) == ("2.0", "flag")
    assert [old.value for old in clipping.overridden] == [0.5]
    assert "flag-wins" in ignored(effective)


def test_auto_of_two_precisions_where_nobody_knows_the_reader() -> None:
    """DeepSpeed before 0.17.1 takes the word for true, and a Trainer or accelerate puts a value in its place."""
    both = '{"train_batch_size": 8, "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}'
    open_ = run(deepspeed=both, versions={"deepspeed": "==0.15.4"})
    assert "ds-fp16-and-bf16" not in kinds(resolve_settings(replace(open_, consumer=None)))
    assert "ds-fp16-and-bf16" in kinds(resolve_settings(replace(open_, consumer="deepspeed", deepspeed_route="engine")))


def test_dead_keys() -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 2\nsame_network: true\nuse_cpu: true\n"
        "deepspeed_config:\n  reduce_bucket_size: 5e8\n  offload_param_nvme_path: /x\n"
        "fsdp_config:\n  fsdp_version: 2\n"
    )
    found = ignored(resolve_settings(run(accelerate=text)))
    assert found == ["dead-top-key", "section-not-used", "dead-sub-key", "nvme-path-dead", "use-cpu-ignored"]


def test_launch_refusals() -> None:
    for text, kind in {
        "num_processes: 2\n": "distributed-type-missing",
        "distributed_type: DEEPSPEED\n": "num-processes-missing",
        "distributed_type: deepspeed\nnum_processes: 2\n": "distributed-type",
        "distributed_type: DEEPSPEED\nnum_processes: 2\nuse_xpu: true\n": "unknown-top-key",
        "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: no\n": "mixed-precision-type",
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: ds.json\n": "section-type",
        "distributed_type: DEEPSPEED\nnum_processes: 2\ngpu_ids: 0\n": "gpu-ids-type",
        "- a\n": "not-a-mapping",
        "": "not-a-mapping",
    }.items():
        effective = resolve_settings(run(accelerate=text))
        assert kinds(effective) == [kind], text
        assert effective.failures[0].phase == "launch"


def test_a_quoted_number_of_processes_for_mpirun() -> None:
    config = "distributed_type: 'NO'\nnum_processes: '8'\n"
    batch = '{"train_micro_batch_size_per_gpu": 1}'
    line = LaunchLine("accelerate", (), None, (), (), {}, Span(0, 0))
    mpirun = run(consumer="deepspeed", accelerate=config, deepspeed=batch, launch=line, flags={"mpirun_hostfile": "h"})
    effective = resolve_settings(mpirun)
    assert "num-processes-type" in kinds(effective) and effective.value("num_processes") is UNKNOWN


def test_mismatch_names_both_places() -> None:
    config = '{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}'
    effective = resolve_settings(
        run(
            consumer="transformers",
            deepspeed=config,
            deepspeed_route="trainer",
            arguments={"output_dir": "out", "gradient_accumulation_steps": "2"},
        )
    )
    (failure,) = [failure for failure in effective.failures if failure.kind == "trainer-mismatch"]
    assert "ds gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2" in failure.message
    assert [place.kind for place in failure.places] == ["file", "flag"]


def test_unknown_values_refuse_nothing() -> None:
    config = (
        '{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5,'
        ' "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "zero_optimization": {"stage": 3}}'
    )
    unknown = dict.fromkeys(("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate"), UNKNOWN)
    effective = resolve_settings(
        run(consumer="transformers", deepspeed=config, deepspeed_route="trainer", arguments=unknown)
    )
    assert effective.failures == ()
    effective = resolve_settings(run(consumer="deepspeed", deepspeed=config, deepspeed_route="engine"))
    assert effective.failures == ()


def test_script_decides_without_trainer_options() -> None:
    effective = resolve_settings(
        run(consumer="transformers", accelerate=ACCELERATE + "  gradient_accumulation_steps: 4\n")
    )
    assert effective.failures == ()
    assert effective.value("train_batch_size") is UNKNOWN


def test_lone_deepspeed_json_keeps_its_autos() -> None:
    effective = resolve_settings(run(deepspeed='{"zero_optimization": {"stage": "auto"}, "train_batch_size": "auto"}'))
    assert effective.value("zero_optimization.stage") == "auto"
    assert effective.value("train_batch_size") == "auto"
    assert "gradient_clipping" not in effective.settings
    assert effective.failures == ()


def test_engine_drops_autos_of_strict_sections() -> None:
    config = '{"zero_optimization": {"stage": "auto"}, "bf16": {"enabled": "auto"}, "train_batch_size": 8}'
    effective = resolve_settings(run(consumer="deepspeed", deepspeed=config, deepspeed_route="engine"))
    stage = effective.get("zero_optimization.stage")
    assert stage is not None
    assert (stage.value, stage.overridden[0].value) == (0, "auto")
    assert effective.value("bf16.enabled") is False


def test_hidden_size_in_text_config_only() -> None:
    """The Trainer finds it there; accelerate, which fills the stage-3 sizes of a stage-2 config, does not."""
    config = (
        '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization":'
        ' {"stage": %d, "reduce_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}}'
    )
    model = ModelSummary("multimodal", text_hidden_size=32)
    parts: dict[str, Any] = {"consumer": "transformers", "deepspeed_route": "trainer", "model": model}
    parts["arguments"] = {"output_dir": "out"}
    three = resolve_settings(run(deepspeed=config % 3, **parts))
    assert three.failures == ()
    assert three.value("zero_optimization.reduce_bucket_size") == 1024
    parts["arguments"] = {"output_dir": "out"}
    two = resolve_settings(run(deepspeed=config % 2, **parts))
    assert kinds(two) == ["hidden-size-missing"]


def test_use_cpu_variable_turns_deepspeed_off() -> None:
    effective = resolve_settings(
        run(
            consumer="transformers",
            accelerate=ACCELERATE,
            recipe="bf16: false\n",
            environment={"ACCELERATE_USE_CPU": "true"},
        )
    )
    assert effective.value("engine") == "ddp"


def test_inline_deepspeed_of_a_recipe() -> None:
    recipe = (
        "bf16: true\ndeepspeed:\n  zero_optimization: {stage: 2}\n  train_batch_size: auto\n  bf16: {enabled: auto}\n"
    )
    effective = resolve_settings(run(consumer="transformers", recipe=recipe))
    stage = effective.get("zero_optimization.stage")
    assert stage is not None
    assert (stage.value, stage.origin.path) == (2, ("deepspeed", "zero_optimization", "stage"))
    assert effective.value("bf16.enabled") is True


def test_readers_convert_differently() -> None:
    recipe = "learning_rate: 1e-5\nbf16: false\n"
    trl = resolve_settings(run(consumer="trl", recipe=recipe, recipe_reader="trl"))
    assert trl.failures == ()
    plain = resolve_settings(run(consumer="transformers", recipe=recipe, recipe_reader="hf"))
    assert kinds(plain) == ["argument-type"]


def test_deepspeed_file_in_a_section_that_nobody_reads() -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    config = '{"zero_optimization": {"stage": 3}}'
    for consumer in (None, "accelerate"):
        effective = resolve_settings(
            run(consumer=consumer, accelerate=text, deepspeed=config, deepspeed_route="accelerate")
        )
        assert effective.value("engine") == "ddp"
        assert "zero_optimization.stage" not in effective.settings


def test_accelerate_script_with_a_deepspeed_file_and_no_launch() -> None:
    config = '{"zero_optimization": {"stage": "auto"}, "train_micro_batch_size_per_gpu": 2}'
    effective = resolve_settings(run(consumer="accelerate", deepspeed=config, deepspeed_route="accelerate"))
    assert effective.value("engine") == "deepspeed"
    assert effective.value("zero_optimization.stage") == 2


def test_processes_of_the_other_launchers() -> None:
    lines = {
        "torchrun": ({"nproc_per_node": "4", "nnodes": "2"}, 8),
        "deepspeed": ({"include": "localhost:0,1,2"}, 3),
        "python": ({}, 1),
    }
    for name, (flags, count) in lines.items():
        launched = run(consumer="transformers", recipe="bf16: true\n", flags=flags)
        line = LaunchLine(name, (), None, (), (), {}, Span(0, 0))  # type: ignore[arg-type]
        assert resolve_settings(replace(launched, launch=line)).value("num_processes") == count
    line = LaunchLine("torchrun", (), None, (), (), {}, Span(0, 0))
    assert (
        resolve_settings(replace(run(flags={"nproc_per_node": "gpu"}), launch=line)).value("num_processes") is UNKNOWN
    )


TWO = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
NODES = f"{TWO}num_processes: 8\nmain_process_ip: h\n"


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        (f"{TWO}num_processes: 8\n", []),
        (f"{TWO}num_processes: 8\nnum_machines: two\n", ["num-machines-type"]),
        (f"{TWO}num_processes: 8\nnum_machines: 1\nmachine_rank: first\n", []),  # one machine: nobody reads it
        (f"{NODES}main_process_port: 29500\nnum_machines: 2\nmachine_rank: 0\n", []),
        (f"{NODES}main_process_port: 29500\nnum_machines: 2\nmachine_rank: first\n", ["machine-rank-type"]),
        # only the machine of rank 0 binds the port
        (f"{NODES}main_process_port: 70000\nnum_machines: 2\nmachine_rank: 0\n", ["main-process-port-type"]),
        (f"{NODES}main_process_port: 70000\nnum_machines: 2\nmachine_rank: 1\n", []),
        (f"{TWO}num_processes: 8\nmain_process_port: 65535\n", []),
        (f"{TWO}num_processes: 8\nmain_process_port: 65536\n", ["main-process-port-type"]),
        (f"{TWO}num_processes: 8\nmain_process_port: -1\n", ["main-process-port-type"]),
        (f"{TWO}num_processes: 8\nmain_process_port: '29500'\n", ["main-process-port-type"]),
    ],
)
def test_machines_ranks_and_ports(text: str, failed: list[str]) -> None:
    """As torchrun and DeepSpeed's runner take them: `int()` of the rank, a port from 0 to 65535."""
    assert kinds(resolve_settings(run(consumer="accelerate", accelerate=text))) == failed


@pytest.mark.parametrize(
    ("stage", "failed", "level"), [(2, [], "O2"), (2, [], None), (3, ["msamp-zero3"], "O2")], ids=str
)
def test_ms_amp(stage: int, failed: list[str], level: str | None) -> None:
    """accelerate's plugin writes a section for the FP8 backend MSAMP, and refuses it at stage 3."""
    text = ACCELERATE.replace("zero_stage: 3", f"zero_stage: {stage}")
    environment = {"ACCELERATE_FP8_BACKEND": "MSAMP"} | ({"ACCELERATE_FP8_OPT_LEVEL": level} if level else {})
    effective = resolve_settings(run(consumer="accelerate", accelerate=text, environment=environment))
    assert kinds(effective) == failed
    assert (effective.value("msamp.enabled"), effective.value("msamp.opt_level")) == (True, level or "O1")
