"""From the sources of a run to the job that is launched, step by step: both sides of each guard, without a build."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zerocfg.hardware.profile import load_hardware, write_text
from zerocfg.models.hardware import Host, Mount
from zerocfg.models.model_facts import ModelFacts
from zerocfg.models.spec import RunSpec
from zerocfg.resolve import collect_inputs, training_steps
from zerocfg.resolve.engine import engine_selection
from zerocfg.resolve.engine.accelerate import accelerate_keys
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.plan import Decision
from zerocfg.resolve.provenance import BUCKETS, Provenance, _plain
from zerocfg.resolve.resolve import ALWAYS, GATHER, _open, _profile_file, _refused, _Resolver
from zerocfg.resolve.search import precision, search_space, take_plan
from zerocfg.resolve.search.apply_choice import apply_to_engine
from zerocfg.resolve.search.choice import MICRO, OPTIMIZER_DEVICE, PARAM_DEVICE, STAGE, STEPS, Choice
from zerocfg.run.facts import HardwareSummary, ModelSummary
from zerocfg.run.model import UNKNOWN, Effective, Failure, Origin, Run, Setting, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span, Where

ZERO = "zero_optimization."
NAMES = {"accelerate": "accelerate.yaml", "deepspeed": "ds.json", "recipe": "recipe.yaml"}


def source(role: Any, data: Any) -> SourceFile:
    text = SourceText(NAMES[role], json.dumps(data))
    return SourceFile(text.name, role, text, load_as(text, "json"))


def run_of(consumer: Any = "transformers", **more: Any) -> Run:
    """A run of these files, given as their data, and of further attributes."""
    files = {role: source(role, more.pop(role)) for role in NAMES if role in more}
    return Run("a", consumer, **files, **more)


def inputs_of(
    run: Run,
    engine: Any = "deepspeed",
    hardware: str | None = "8xA100-80GB",
    folder: Path = Path(),
    asked: str | None = None,
    **spec: Any,
) -> Inputs:
    """What that run is resolved from: with this engine, which the spec asks for by name where ``asked`` says so."""
    entry = RunSpec.model_validate({"consumer": run.consumer, "script": "train.py", "engine": asked, **spec})
    profile = load_hardware(hardware) if hardware else None
    return Inputs(run, entry, folder, engine, profile, ModelFacts())


def setting(value: Any, kind: Any = "file", note: str = "", *overridden: Setting) -> Setting:
    return Setting(value, Origin(kind, note), overridden)


class TestSteps:
    RECIPE = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "num_train_epochs": 3}  # noqa: RUF012

    def found(
        self, consumer: str = "transformers", samples: int | None = 1025, ranks: int = 8, **recipe: Any
    ) -> Inputs:
        launch, flags = engine_selection.launch_of_ranks("torchrun", 1, ranks)
        run = run_of(consumer, recipe=self.RECIPE | recipe, launch=launch, flags=flags)
        return training_steps.with_steps(inputs_of(run, train_samples=samples))

    @pytest.mark.parametrize(
        ("recipe", "steps"),
        [
            ({}, 51),  # 65 micro batches of 16 samples: 17 steps
            ({"dataloader_drop_last": True}, 48),  # 64: 16 steps
            ({"num_train_epochs": 0.5}, 9),
            ({"num_train_epochs": math.inf}, None),
            ({"num_train_epochs": math.nan}, None),
            ({"max_steps": -1}, 51),
            ({"max_steps": 0}, None),
            ({"max_steps": 7}, None),
            ({"per_device_train_batch_size": 0}, None),
            ({"gradient_accumulation_steps": 0}, None),
            ({"gradient_accumulation_steps": 1}, 195),
            ({"gradient_accumulation_steps": 100}, 3),
        ],
    )
    def test_epochs_as_the_trainer_counts_them(self, recipe: dict[str, Any], steps: int | None) -> None:
        found = self.found(**recipe).run.arguments.get("max_steps")
        assert (found.value if found else None) == steps

    def test_why_it_is_that_many(self) -> None:
        found = self.found().run.arguments["max_steps"]
        assert found.origin == Origin("computed", "3 epochs of 17 steps (train_samples 1025 over 8 ranks)")

    @pytest.mark.parametrize(
        ("consumer", "recipe", "counted"),
        [
            ("trl", {}, True),
            ("trl", {"packing": False}, True),
            ("trl", {"packing": True}, False),
            ("trl", {"num_generations": 8}, False),
            ("transformers", {"packing": True}, True),
            ("accelerate", {}, False),
        ],
    )
    def test_whose_steps_can_be_counted(self, consumer: str, recipe: dict[str, Any], counted: bool) -> None:
        assert ("max_steps" in self.found(consumer, **recipe).run.arguments) is counted

    def test_what_is_not_known(self) -> None:
        assert self.found(samples=None).run.arguments == {}
        found = training_steps.with_steps(inputs_of(run_of(recipe=self.RECIPE), train_samples=8))
        assert found.run.arguments == {}, "nobody says how many ranks"

    def test_fewer_samples_than_a_batch(self) -> None:
        found = self.found(samples=15)
        assert found.run.arguments["max_steps"].value == 3 and found.problems == ()
        found = self.found(samples=15, dataloader_drop_last=True)
        assert found.run.arguments == {}
        (problem,) = found.problems
        assert problem.key == "train_samples" and problem.message == (
            "no step: 15 samples make no batch of 2 for each of 8 ranks, and the rest is dropped"
        )
        assert self.found(samples=16, dataloader_drop_last=True).run.arguments["max_steps"].value == 3

    def test_one_rank(self) -> None:
        """513 micro batches of 2 samples: 129 steps an epoch."""
        assert self.found(ranks=1).run.arguments["max_steps"].value == 387


class TestHardware:
    def taken(self, consumer: str = "accelerate", hardware: str | None = "8xA100-80GB", **more: Any) -> Inputs:
        spec = {name: more.pop(name) for name in ("launcher",) if name in more}
        engine = more.pop("engine", "deepspeed")
        return collect_inputs._with_hardware(inputs_of(run_of(consumer, **more), engine, hardware, **spec))

    def flags(self, *given: Any, **more: Any) -> dict[str, Any]:
        return {name: flag.value for name, flag in self.taken(*given, **more).run.flags.items()}

    def test_the_flags_of_one_node(self) -> None:
        assert self.flags() == {"num_processes": "8", "num_machines": "1"}
        assert self.flags("deepspeed") == {"nnodes": "1", "nproc_per_node": "8"}
        assert self.flags("deepspeed", launcher="deepspeed") == {"num_nodes": "1", "num_gpus": "8"}

    def test_the_flags_of_several_nodes(self) -> None:
        counts = {"num_processes": "16", "num_machines": "2"}
        each = {"machine_rank": "0", "main_process_ip": UNKNOWN, "main_process_port": UNKNOWN}
        assert self.flags(hardware="2x8xA100-80GB", engine="fsdp") == counts | each
        standard = {"deepspeed_multinode_launcher": "standard"}
        assert self.flags(hardware="2x8xA100-80GB") == counts | each | standard
        assert self.flags("deepspeed", "2x8xA100-80GB") == {"nnodes": "2", "nproc_per_node": "8"}

    @pytest.mark.parametrize(
        ("engine", "hardware", "more", "multi"),
        [
            ("ddp", "8xA100-80GB", {}, True),
            ("ddp", "1xA100-80GB", {}, False),
            ("fsdp", "8xA100-80GB", {}, False),
            ("ddp", "8xA100-80GB", {"accelerate": {}}, False),
        ],
    )
    def test_plain_data_parallelism_is_asked_for(self, engine: str, hardware: str, more: Any, multi: bool) -> None:
        assert self.flags(hardware=hardware, engine=engine, **more).get("multi_gpu", False) is multi

    @pytest.mark.parametrize(
        ("hardware", "words"),
        [
            ("1xA100-80GB", "1 node of 1 rank"),
            ("8xA100-80GB", "1 node of 8 ranks"),
            ("2x8xA100-80GB", "2 nodes of 8 ranks"),
        ],
    )
    def test_why_there_are_that_many(self, hardware: str, words: str) -> None:
        assert self.taken(hardware=hardware).run.flags["num_processes"].origin.note == f"{hardware}: {words}"

    def test_a_config_that_says_something_else_is_overruled(self) -> None:
        assert self.taken(accelerate={"num_processes": 8, "num_machines": None}).notes == ()
        assert self.taken(accelerate={"num_processes": 4, "num_machines": 2}).notes == (
            "num_processes: the accelerate config says 4, 8xA100-80GB has 8: 8 is used",
            "num_machines: the accelerate config says 2, 8xA100-80GB has 1: 1 is used",
        )

    def test_without_hardware_the_config_must_say_it(self) -> None:
        assert [one.key for one in self.taken(hardware=None).problems] == ["hardware"]
        assert self.taken(hardware=None, accelerate={}).problems == ()

    def test_what_rules_hear_of_it(self) -> None:
        found = inputs_of(run_of("accelerate"))
        assert found.profile is not None
        host = Host(ram_gib=100.0, memlock=65536, nvme=[Mount(path="/a", free_gib=3.0)])
        found = collect_inputs._with_hardware(replace(found, profile=found.profile.model_copy(update={"host": host})))
        assert found.profile is not None
        device = found.profile.accelerator
        assert found.run.hardware == HardwareSummary(
            name="8xA100-80GB",
            nodes=1,
            accelerators_per_node=8,
            memory_gib=device.planning_gib,
            bf16=True,
            vendor=device.vendor,
            host_gib=100.0,
            memlock=65536,
            nvme_free_gib={"/a": 3.0},
        )
        found = collect_inputs._with_hardware(replace(found, profile=found.profile.model_copy(update={"host": None})))
        summary = found.run.hardware
        assert summary is not None and (summary.host_gib, summary.memlock, summary.nvme_free_gib) == (None, None, {})
        alone = self.taken(hardware="1xA100-80GB").run.hardware
        assert alone is not None and alone.accelerators_per_node == 1

    def test_a_part_of_the_hardware(self) -> None:
        found = collect_inputs.on_part(self.taken(hardware="2x8xA100-80GB"), 1, 4, "cheaper")
        assert found.notes == ("4 of 16 devices are used: cheaper",)
        assert found.profile is not None and found.profile.name == "1 x 4 devices of 2x8xA100-80GB"
        flags = {name: flag.value for name, flag in found.run.flags.items()}
        assert flags == {"num_processes": "4", "num_machines": "1"}, "nothing of the two nodes is left"

    @pytest.mark.parametrize(
        ("recipe", "keys"),
        [
            ({}, []),
            ({"deepspeed": None, "fsdp": ""}, []),
            ({"deepspeed": "ds.json"}, ["deepspeed"]),
            ({"fsdp": "full_shard", "deepspeed": "a"}, ["deepspeed", "fsdp"]),
            ([], []),
        ],
    )
    def test_a_recipe_that_brings_its_own_engine(self, recipe: Any, keys: list[str]) -> None:
        assert [problem.key for problem in collect_inputs._engines_of_recipe(run_of(recipe=recipe))] == keys

    def test_the_script_must_be_there(self, tmp_path: Path) -> None:
        found = inputs_of(run_of(), folder=tmp_path)
        assert [problem.key for problem in collect_inputs._without_script(found)] == ["script"]
        (tmp_path / "train.py").touch()
        assert list(collect_inputs._without_script(found)) == []


class TestScriptWords:
    @pytest.mark.parametrize(
        ("spec", "consumer", "arguments"),
        [
            ({}, "transformers", ()),
            ({"recipe": "r.yaml"}, "transformers", ("r.yaml",)),
            ({"recipe": "r.yaml"}, "trl", ("--config", "r.yaml")),
            ({"recipe": "r.yaml"}, "accelerate", ()),
            ({"recipe": "r.yaml", "arguments": ["--x", 1]}, "trl", ("--x", "1")),
            ({"recipe": "r.yaml", "arguments": []}, "trl", ()),
            ({"launch": "job.sh:1", "arguments": ["--x", 1]}, "transformers", ("--x", "1")),
            ({"launch": "job.sh:1", "arguments": []}, "transformers", ()),
        ],
    )
    def test_words_of_the_spec(self, spec: dict[str, Any], consumer: str, arguments: tuple[str, ...]) -> None:
        found = collect_inputs._with_arguments(inputs_of(run_of(consumer), **spec))
        assert found.arguments == arguments and found.problems == ()


class TestGathered:
    def gathered(self, folder: Path, *missing: Origin) -> Inputs:
        run = run_of(missing=missing)
        return collect_inputs.collect_inputs(run, inputs_of(run).spec, folder, None, None)

    def test_files_that_are_nowhere(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        named = Origin("file", "gone.json", source("accelerate", {}), ("a",))
        found = self.gathered(tmp_path, named, Origin("flag", "gone.yaml"))
        assert [(problem.key, problem.message) for problem in found.problems] == [
            ("gone.json", "there is no file 'gone.json' (from accelerate.yaml)"),
            ("gone.yaml", "there is no file 'gone.yaml' (from the launch line)"),
        ]

    def test_without_its_script_a_run_is_not_looked_at_further(self, tmp_path: Path) -> None:
        found = self.gathered(tmp_path)
        assert [problem.key for problem in found.problems] == ["script"], "nothing of the hardware that nobody names"
        assert found.run.launch is None and found.run.flags == {}

    @pytest.mark.parametrize(
        ("data", "config", "trainable", "all_trained"),
        [({"a": 1}, {"a": 1}, None, True), ([1], None, 100, True), ({}, {}, 10, False)],
    )
    def test_what_memory_follows_from(
        self, data: Any, config: Any, trainable: int | None, all_trained: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        facts = ModelFacts(parameters=100, trainable_parameters=trainable)
        found = replace(inputs_of(run_of(model=ModelSummary("m"))), model_file=source("recipe", data), facts=facts)
        given = []
        monkeypatch.setattr(
            collect_inputs, "memory_summary", lambda run, facts, spec, config, profile: given.append(config)
        )
        found = collect_inputs.with_memory(found)
        assert given == [config]
        assert found.run.model == ModelSummary("m", parameters=100, all_trained=all_trained)


class TestEngine:
    @pytest.mark.parametrize(
        ("run", "spec", "engine"),
        [
            ({}, {}, "ddp"),
            ({}, {"asked": "fsdp"}, "fsdp"),
            ({"deepspeed": {}}, {}, "deepspeed"),
            ({"deepspeed": {}}, {"asked": "ddp"}, "ddp"),
            ({"accelerate": {"distributed_type": "DEEPSPEED"}}, {}, "deepspeed"),
            ({"accelerate": {"distributed_type": "FSDP"}}, {}, "fsdp"),
            ({"accelerate": {"distributed_type": "MULTI_GPU"}}, {}, "ddp"),
            ({"accelerate": {"distributed_type": "FSDP"}, "deepspeed": {}}, {}, "deepspeed"),
            ({"accelerate": []}, {}, "ddp"),
            ({"consumer": "deepspeed"}, {}, "deepspeed"),
        ],
    )
    def test_who_says_which(self, run: dict[str, Any], spec: dict[str, Any], engine: str) -> None:
        one = run_of(**run)
        assert engine_selection.engine_of(one, inputs_of(one, **spec).spec) == engine

    @pytest.mark.parametrize(
        ("launcher", "consumer", "keys"),
        [
            (None, "deepspeed", []),
            ("accelerate", "deepspeed", ["launcher"]),
            ("torchrun", "deepspeed", []),
            ("torchrun", "accelerate", ["launcher"]),
            ("deepspeed", "accelerate", ["launcher"]),
            ("accelerate", "accelerate", []),
            ("torchrun", "transformers", []),
        ],
    )
    def test_launchers(self, launcher: str | None, consumer: str, keys: list[str]) -> None:
        found = inputs_of(run_of(consumer), launcher=launcher)
        assert [problem.key for problem in engine_selection._wrong_launcher(found)] == keys

    @pytest.mark.parametrize(
        ("accelerate", "recipe", "keys"),
        [
            ({"gpu_ids": "0,1"}, {}, ["gpu_ids"]),
            ({"gpu_ids": "all", "dynamo_config": {}, "parallelism_config": None}, {}, []),
            ({"dynamo_config": {"dynamo_backend": "inductor"}}, {}, ["dynamo_config"]),
            (
                {"deepspeed_config": {"deepspeed_moe_layer_cls_names": "Block"}},
                {},
                ["deepspeed_config.deepspeed_moe_layer_cls_names"],
            ),
            ({"deepspeed_config": {"deepspeed_moe_layer_cls_names": ""}}, {}, []),
            ({"mixed_precision": "bf16"}, {"max_steps": 1}, ["mixed_precision"]),
            ({"mixed_precision": "bf16"}, {"bf16": True}, []),
            ({"mixed_precision": "fp16"}, {"bf16": True}, []),
            ({"mixed_precision": "fp8"}, {"max_steps": 1}, ["mixed_precision"]),
            ({"mixed_precision": "bf16"}, {}, []),
            ({"mixed_precision": "no"}, {"max_steps": 1}, []),
        ],
    )
    def test_what_only_accelerate_hands_over(self, accelerate: Any, recipe: Any, keys: list[str]) -> None:
        """Where the script sets its arguments itself nothing is known, and nothing is said."""
        for launcher, consumer in (("torchrun", "transformers"), ("deepspeed", "trl")):
            if consumer == "trl" and recipe.get("max_steps"):
                continue  # TRL turns bf16 on by itself
            found = inputs_of(run_of(consumer, accelerate=accelerate, recipe=recipe), launcher=launcher)
            assert [problem.key for problem in engine_selection._wrong_launcher(found)] == keys
        assert list(engine_selection._wrong_launcher(inputs_of(run_of(accelerate=accelerate, recipe=recipe)))) == []

    def test_the_way_out_of_a_lost_precision(self) -> None:
        for half, help in (("bf16", "Write `bf16: true` into the recipe"), ("fp8", "Take it out")):
            run = run_of(accelerate={"mixed_precision": half}, recipe={"max_steps": 1})
            (problem,) = engine_selection._wrong_launcher(inputs_of(run, launcher="torchrun"))
            assert problem.help == f"{help}, or leave `launcher:` out."

    @pytest.mark.parametrize(
        ("kind", "engine", "kept"),
        [
            ("NO", "ddp", True),
            (False, "ddp", True),
            (None, "ddp", True),
            ("MULTI_GPU", "fsdp", True),
            ("FSDP", "fsdp", True),
            ("FSDP", "ddp", False),
            ("DEEPSPEED", "ddp", False),
        ],
    )
    def test_a_config_for_another_engine_is_left_out(self, kind: Any, engine: str, kept: bool) -> None:
        config = {"distributed_type": kind, "mixed_precision": "bf16"}
        found = inputs_of(run_of("accelerate", accelerate=config, deepspeed={}), engine)
        found = engine_selection._without_deepspeed(found, kind)
        assert (found.run.accelerate is not None) is kept and found.run.deepspeed is None
        assert len(found.notes) == (1 if kept else 2)
        assert {name: flag.value for name, flag in found.run.flags.items()} == (
            {} if kept else {"mixed_precision": "bf16"}
        )
        bare = inputs_of(run_of("accelerate", accelerate={"distributed_type": kind}), engine)
        bare = engine_selection._without_deepspeed(bare, kind)
        assert bare.run.flags == {} and len(bare.notes) == (0 if kept else 1)

    @pytest.mark.parametrize(
        ("consumer", "more", "launcher", "route", "flags"),
        [
            ("deepspeed", {"deepspeed": {}}, "torchrun", "engine", set()),
            ("deepspeed", {}, "torchrun", None, set()),
            ("accelerate", {"deepspeed": {}}, "accelerate", "accelerate", {"use_deepspeed"}),
            ("accelerate", {"accelerate": {"distributed_type": "DEEPSPEED"}}, "accelerate", None, set()),
            ("transformers", {}, "accelerate", None, {"use_deepspeed"}),
        ],
    )
    def test_the_road_to_deepspeed(self, consumer: str, more: Any, launcher: str, route: Any, flags: set[str]) -> None:
        found = engine_selection.select_engine(inputs_of(run_of(consumer, **more)))
        assert found.run.launch is not None and found.run.launch.launcher == launcher
        assert found.run.deepspeed_route == route and set(found.run.flags) == flags and found.problems == ()

    def test_the_launcher_of_deepspeed_when_it_is_asked_for(self) -> None:
        found = engine_selection.select_engine(inputs_of(run_of("deepspeed"), launcher="deepspeed"))
        assert found.run.launch is not None and found.run.launch.launcher == "deepspeed"

    @pytest.mark.parametrize(
        ("kind", "spec", "more", "refused"),
        [
            ("MEGATRON_LM", {}, {}, True),
            ("XLA", {}, {}, True),
            ("MEGATRON_LM", {"asked": "ddp"}, {}, False),
            ("XLA", {}, {"deepspeed": {}}, False),
            ("MULTI_GPU", {}, {}, False),
        ],
    )
    def test_engines_that_cannot_be_emitted(self, kind: str, spec: Any, more: Any, refused: bool) -> None:
        found = engine_selection.select_engine(
            inputs_of(run_of("accelerate", accelerate={"distributed_type": kind}, **more), "ddp", **spec)
        )
        assert [problem.key for problem in found.problems] == (["distributed_type"] if refused else [])

    @pytest.mark.parametrize(
        ("nodes", "each", "words"),
        [(1, 1, "1 node of 1 rank"), (1, 2, "1 node of 2 ranks"), (2, 1, "2 nodes of 1 rank")],
    )
    def test_the_launch_of_some_ranks(self, nodes: int, each: int, words: str) -> None:
        line, flags = engine_selection.launch_of_ranks("deepspeed", nodes, each)
        assert line.launcher == "deepspeed" and {flag.origin.note for flag in flags.values()} == {words}
        assert {name: flag.value for name, flag in flags.items()} == {"num_nodes": str(nodes), "num_gpus": str(each)}


class TestOpened:
    GOALS = {"global_batch_size": 64}  # noqa: RUF012

    def what(self, engine: str = "deepspeed", consumer: str = "transformers", before: Any = None, **more: Any) -> Any:
        goals = more.pop("goals", self.GOALS)
        spec = {name: more.pop(name) for name in ("gradient_checkpointing",) if name in more}
        found = inputs_of(run_of(consumer, **more), engine, goals=goals, **spec)
        effective = Effective(settings={name: setting(value) for name, value in (before or {}).items()})
        return search_space.search_space(found, effective)

    def test_without_goals_only_the_stage(self) -> None:
        one = self.what(goals=None)
        assert one.stages == (1, 2, 3) and one.checkpointing == (None,) and one.offloads is None
        assert not one.micro_open and not one.steps_open and one.global_batch is None and one.layouts == ((1, 8),)
        assert self.what(goals=None, before={STAGE: 2}) is None and self.what("ddp", goals=None) is None
        assert self.what(goals=None, before={STAGE: "auto"}) is not None

    def test_with_goals_all_that_no_source_names(self) -> None:
        one = self.what(recipe={"max_steps": 1})
        assert one.checkpointing == (False, True) and one.offloads == (
            ("none", "none"),
            ("cpu", "none"),
            ("cpu", "cpu"),
        )
        assert one.micro_open and one.steps_open and one.global_batch == 64 and one.micro is one.steps is None
        one = self.what(recipe={"max_steps": 1}, before={MICRO: 2, STEPS: 4, STAGE: 3})
        assert (one.micro, one.steps, one.micro_open, one.steps_open, one.stages) == (2, 4, False, False, (3,))
        one = self.what(recipe={"max_steps": 1}, goals={"prefer": "cost"})
        assert one.micro_open and not one.steps_open and one.layouts == ((1, 8), (1, 4), (1, 2), (1, 1))
        assert self.what("ddp", recipe={}).stages == (None,) and self.what("ddp", recipe={}).offloads is None

    @pytest.mark.parametrize("name", [OPTIMIZER_DEVICE, PARAM_DEVICE])
    def test_offload_that_a_source_names(self, name: str) -> None:
        assert self.what(before={name: "none"}).offloads is None

    @pytest.mark.parametrize(
        ("engine", "consumer", "recipe", "written"),
        [
            ("ddp", "transformers", {"max_steps": 1}, True),
            ("ddp", "transformers", None, False),
            ("ddp", "trl", {"max_steps": 1}, True),
            ("ddp", "trl", {"num_generations": 8}, False),
            ("ddp", "transformers", {"num_generations": 8}, True),
            ("ddp", "trl", [], True),
            ("deepspeed", "deepspeed", None, True),
            ("deepspeed", "accelerate", {"max_steps": 1}, False),
        ],
    )
    def test_who_writes_the_batch(self, engine: str, consumer: str, recipe: Any, written: bool) -> None:
        more = {} if recipe is None else {"recipe": recipe}
        assert self.what(engine, consumer, **more).micro_open is written

    @pytest.mark.parametrize(
        ("consumer", "more", "is_open"),
        [
            ("transformers", {"recipe": {"max_steps": 1}}, True),
            ("transformers", {"recipe": {"gradient_checkpointing": False}}, False),
            ("transformers", {"recipe": {}, "arguments": {"gradient_checkpointing": setting(True)}}, False),
            ("transformers", {"recipe": {}, "gradient_checkpointing": False}, False),
            ("transformers", {}, False),
            ("transformers", {"recipe": []}, True),
            ("accelerate", {"recipe": {}}, False),
        ],
    )
    def test_who_decides_on_recomputation(self, consumer: str, more: dict[str, Any], is_open: bool) -> None:
        assert self.what(consumer=consumer, **more).checkpointing == ((False, True) if is_open else (None,))


class TestChosen:
    ONE = Decision(True, "why", "chosen")

    def test_values_for_an_engine_without_a_file(self) -> None:
        run = apply_to_engine(run_of("deepspeed"), {"bf16.enabled": self.ONE})
        assert run.deepspeed is not None and run.deepspeed.data() == {"bf16": {"enabled": True}}
        assert run.deepspeed_route == "engine"
        run = apply_to_engine(run_of("accelerate"), {"bf16.enabled": self.ONE, STAGE: Decision(3, "why", "chosen")})
        assert run.deepspeed is None
        assert run.flags == {"zero_stage": Setting("3", Origin("computed", "why"))}, "accelerate has no other flag"
        run = apply_to_engine(run_of("accelerate", deepspeed={"a": 1}), {STAGE: Decision(3, "why", "chosen")})
        assert run.deepspeed is not None and run.flags == {}
        assert run.deepspeed.data() == {"a": 1, "zero_optimization": {"stage": 3}}

    @pytest.mark.parametrize(
        ("consumer", "more", "config", "changes"),
        [
            ("deepspeed", {"deepspeed": {}}, {MICRO: 2, STEPS: 4}, set()),
            ("transformers", {"deepspeed": {}, "recipe": {}}, {MICRO: 2, STEPS: 4}, {"gradient_checkpointing"}),
            ("trl", {"recipe": {}}, None, {"gradient_checkpointing"}),
        ],
    )
    def test_where_a_batch_goes(self, consumer: str, more: Any, config: Any, changes: set[str]) -> None:
        found = inputs_of(run_of(consumer, **more))
        chosen = {MICRO: Decision(2, "", "chosen"), STEPS: Decision(4, "", "chosen"), STAGE: Decision(3, "", "chosen")}
        found = take_plan._with_batch(found, {**chosen, "gradient_checkpointing": self.ONE})
        data = found.run.deepspeed.data() if found.run.deepspeed else None
        assert data == config
        if changes:
            assert set(found.changes) == {"per_device_train_batch_size", "gradient_accumulation_steps"} | changes
            assert found.chosen == chosen
        else:
            assert found.changes == {} and found.chosen == {**chosen, "gradient_checkpointing": self.ONE}

    @pytest.mark.parametrize(
        ("optimizer", "parameters", "host", "paths"),
        [
            ("nvme", "none", True, {ZERO + "offload_optimizer.nvme_path": "/b"}),
            ("cpu", "nvme", True, {ZERO + "offload_param.nvme_path": "/b"}),
            ("cpu", "cpu", True, {}),
            ("nvme", "nvme", False, {}),
        ],
    )
    def test_the_drive_with_most_room(self, optimizer: Any, parameters: Any, host: bool, paths: dict[str, str]) -> None:
        found = inputs_of(run_of("deepspeed"))
        mounts = [Mount(path="/a", free_gib=1.0), Mount(path="/b", free_gib=2.0)]
        assert found.profile is not None
        profile = found.profile.model_copy(update={"host": Host(nvme=mounts if host else [])})
        found = replace(found, profile=profile)
        chosen = take_plan._sizes(found, Effective(), Choice(1, 8, 3, optimizer, parameters))
        assert {name: one.value for name, one in chosen.items() if name.endswith("nvme_path")} == paths
        assert ("aio.block_size" in chosen) is bool(paths)
        named = Effective(settings={"aio.block_size": setting(1), ZERO + "reduce_bucket_size": setting("auto")})
        chosen = take_plan._sizes(found, named, Choice(1, 8, 3, optimizer, parameters))
        assert not {"aio.block_size", ZERO + "reduce_bucket_size"} & set(chosen), "a source names them"

    def precision(self, hardware: str, consumer: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any], Inputs]:
        """What is decided, what changes in the recipe."""
        engine = more.pop("engine", "deepspeed")
        found = precision.with_precision(inputs_of(run_of(consumer, **more), engine, hardware))
        decided = {name: one.value for name, one in found.chosen.items()}
        return decided, {name: one.value for name, one in found.changes.items()}, found

    @pytest.mark.parametrize(("hardware", "half"), [("8xA100-80GB", "bf16"), ("8xV100-32GB", "fp16")])
    def test_the_half_that_a_device_computes_in(self, hardware: str, half: str) -> None:
        decided, changes, found = self.precision(hardware, "deepspeed")
        assert decided == {f"{half}.enabled": True} and changes == {}
        assert found.run.deepspeed is not None and found.run.deepspeed.data() == {half: {"enabled": True}}
        decided, changes, found = self.precision(hardware, "accelerate")
        assert decided == {} and found.run.flags["mixed_precision"].value == half and found.run.deepspeed is None
        decided, changes, found = self.precision(hardware, "transformers", recipe={"max_steps": 1})
        assert decided == {f"{half}.enabled": True} and changes == {half: True} and found.run.deepspeed is None
        decided, changes, found = self.precision(hardware, "transformers", recipe={"max_steps": 1}, engine="ddp")
        assert decided == {} and changes == {half: True}
        decided, changes, found = self.precision(hardware, "trl", recipe={"max_steps": 1}, deepspeed={})
        assert changes == ({"fp16": True, "bf16": False} if half == "fp16" else {"bf16": True}), (
            "TRL turns bf16 on itself"
        )
        assert found.run.deepspeed is not None and found.run.deepspeed.data() == {half: {"enabled": True}}

    @pytest.mark.parametrize(
        "more",
        [
            {"recipe": {"bf16": False}},
            {"recipe": {"fp16": False}},
            {"recipe": {"max_steps": 1}, "arguments": {"bf16": setting(False)}},
            {},
        ],
    )
    def test_nothing_where_a_source_says_something_or_no_recipe_can(self, more: dict[str, Any]) -> None:
        decided, changes, found = self.precision("8xA100-80GB", "transformers", **more)
        assert decided == changes == {} and found.run.flags == {}

    def test_an_engine_that_is_told_tells_the_trainer(self) -> None:
        config = {"bf16": {"enabled": True}, "fp16": {"enabled": False}}
        for consumer, changes in (("transformers", {"bf16": True}), ("accelerate", {})):
            found = engine_selection.select_engine(
                inputs_of(run_of(consumer, deepspeed=config, recipe={"max_steps": 1}))
            )
            found = precision.with_precision(collect_inputs._with_hardware(found))
            assert found.chosen == {}
            assert {name: one.value for name, one in found.changes.items()} == changes

    def test_ranks_without_a_device_keep_their_precision(self) -> None:
        decided, changes, found = self.precision("8xcpu", "deepspeed")
        assert decided == changes == {} and found.run.deepspeed is None


class TestAccelerateKeys:
    SETTINGS = {  # noqa: RUF012
        "num_machines": Decision(1, "", "hardware"),
        "num_processes": Decision(8, "", "hardware"),
        "mixed_precision": Decision("bf16", "", "file"),
        STAGE: Decision(3, "", "file"),
    }

    def keys(self, engine: str, hardware: str = "8xA100-80GB", processes: int = 8, **more: Any) -> dict[str, Any]:
        machines = more.pop("machines", 1)
        spec = {name: more.pop(name) for name in ("launcher",) if name in more}
        settings = self.SETTINGS | more.pop("settings", {})
        found = inputs_of(run_of("accelerate", **more), engine, hardware, **spec)
        return {name: one.value for name, one in accelerate_keys(found, settings, processes, machines).items()}

    PLAIN = {"compute_environment": "LOCAL_MACHINE", "num_machines": 1, "num_processes": 8, "machine_rank": 0}  # noqa: RUF012

    def test_each_engine(self) -> None:
        assert self.keys("ddp") == self.PLAIN | {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16"}
        one = self.keys("ddp", processes=1)
        assert one["distributed_type"] == "NO" and "use_cpu" not in one
        assert self.keys("fsdp", settings={"fsdp_config.fsdp_version": Decision(2, "", "chosen")}) == self.PLAIN | {
            "distributed_type": "FSDP",
            "mixed_precision": "bf16",
            "fsdp_config.fsdp_version": 2,
        }
        assert self.keys("deepspeed") == self.PLAIN | {
            "distributed_type": "DEEPSPEED",
            "deepspeed_config.deepspeed_config_file": "ds_config.json",
            "deepspeed_config.zero3_init_flag": True,
        }

    @pytest.mark.parametrize(("launcher", "launched"), [(None, True), ("accelerate", True), ("torchrun", False)])
    def test_nothing_where_another_launches(self, launcher: str | None, launched: bool) -> None:
        assert bool(self.keys("ddp", launcher=launcher)) is launched

    @pytest.mark.parametrize(("hardware", "processes", "cpu"), [("1xcpu", 1, True), ("4xcpu", 4, False)])
    def test_ranks_on_the_host(self, hardware: str, processes: int, cpu: bool) -> None:
        found = self.keys("ddp", hardware, processes)
        assert ("use_cpu" in found) is cpu and found["distributed_type"] == ("NO" if cpu else "MULTI_GPU")

    def test_a_precision_that_the_script_decides(self) -> None:
        assert "mixed_precision" not in self.keys(
            "ddp", settings={"mixed_precision": Decision(UNKNOWN, "", "computed")}
        )
        assert "mixed_precision" not in self.keys("ddp", settings={"mixed_precision": Decision(None, "", "default")})

    def test_early_sharding_and_several_nodes(self) -> None:
        assert (
            self.keys("deepspeed", settings={STAGE: Decision(2, "", "file")})["deepspeed_config.zero3_init_flag"]
            is False
        )
        assert "deepspeed_config.deepspeed_multinode_launcher" not in self.keys("deepspeed")
        two = self.keys("deepspeed", machines=2)
        assert two["deepspeed_config.deepspeed_multinode_launcher"] == "standard"

    def test_what_is_kept_of_the_config(self) -> None:
        config = {"gpu_ids": "0,1", "main_process_port": 29501, "debug": False, "main_training_function": "main"}
        found = self.keys("ddp", accelerate=config | {"num_processes": 3, "deepspeed_config": {"zero_stage": 2}})
        assert {name for name in found if name not in self.PLAIN} == {
            "distributed_type",
            "mixed_precision",
            "gpu_ids",
            "main_process_port",
        }
        moe = {"deepspeed_config": {"deepspeed_moe_layer_cls_names": "Block", "zero_stage": 2}}
        found = self.keys("deepspeed", accelerate=moe)
        assert found["deepspeed_config.deepspeed_moe_layer_cls_names"] == "Block"
        assert "deepspeed_config.zero_stage" not in found

    @pytest.mark.parametrize(
        ("engine", "precision", "sections"),
        [
            ("deepspeed", "bf16", {"parallelism_config"}),
            ("deepspeed", "fp8", {"parallelism_config", "fp8_config"}),
            ("ddp", "bf16", {"parallelism_config", "dynamo_config"}),
            ("ddp", "fp8", {"parallelism_config", "dynamo_config", "fp8_config"}),
        ],
    )
    def test_sections_that_the_launcher_hands_over(self, engine: str, precision: str, sections: set[str]) -> None:
        config = {
            "parallelism_config": {"parallelism_config_tp_size": 2, "typo": 1, "parallelism_config_cp_size": None},
            "dynamo_config": {"dynamo_backend": "inductor"},
            "fp8_config": {"backend": "TE"},
        }
        found = self.keys(engine, accelerate=config, settings={"mixed_precision": Decision(precision, "", "file")})
        assert {name.partition(".")[0] for name in found if "." in name} - {"deepspeed_config"} == sections
        assert found["parallelism_config.parallelism_config_tp_size"] == 2
        assert not {name for name in found if "typo" in name or "cp_size" in name}


class TestWords:
    def words(self, **more: Any) -> Provenance:
        return Provenance(run_of(**more), Path(), 1000)

    @pytest.mark.parametrize(
        ("origin", "text"),
        [
            (Origin("default", "DeepSpeed 0.19.8"), "nobody sets it; default of DeepSpeed 0.19.8"),
            (Origin("default"), "nobody sets it; default"),
            (Origin("environment", "A"), "the variable A"),
            (Origin("environment"), "an environment variable"),
            (Origin("computed", "4 * 2"), "4 * 2"),
            (Origin("computed"), "computed"),
            (Origin("flag", "--zero_stage"), "--zero_stage"),
            (Origin("file", file=source("deepspeed", {}), path=("a", "b")), "ds.json: a.b"),
            (Origin("file", file=source("deepspeed", {})), "ds.json"),
            (Origin("file", "somewhere"), "somewhere"),
        ],
    )
    def test_where_a_value_comes_from(self, origin: Origin, text: str) -> None:
        assert self.words().describe_origin(origin) == text

    def test_what_was_replaced(self) -> None:
        file = Origin("file", file=source("deepspeed", {"a": 1}), path=("a",))
        words = self.words()
        new = Origin("flag", "--a")
        assert words.reason("a", Setting(2, new)) == "--a"
        assert words.reason("a", Setting(2, new, (Setting(1, file),))) == "--a; replaces 1 of ds.json: a"
        assert words.reason("a", Setting(1, new, (Setting(1, file),))) == "--a"
        assert words.reason("a", Setting(2, new, (Setting(1, Origin("default")),))) == "--a"
        assert words.reason("a", Setting(2, new, (Setting("auto", file),))) == "auto in ds.json; --a"

    def test_the_line_and_column_of_a_key(self) -> None:
        words, file = self.words(), source("deepspeed", {"a": 1, "b": [7]})
        assert words.place(Origin("file", file=file, path=("b",))) == Where("ds.json", 1, 10)
        assert words.place(Origin("file", file=file, path=("b", 0))) == Where("ds.json", 1, 16)
        assert words.place(Origin("file", file=file, path=("c",))) is None
        assert words.place(Origin("file", file=file)) is words.place(Origin("computed")) is None
        assert words.place(Origin("file", file=file, span=Span(1, 2))) == Where("ds.json", 1, 2)

    def test_sizes_by_the_width_of_the_model(self) -> None:
        sizes = {
            "reduce_bucket_size": "hidden_size² = 64²",
            "stage3_prefetch_bucket_size": "0.9 * hidden_size² = 0.9 * 64²",
        }
        sizes["stage3_param_persistence_threshold"] = "10 * hidden_size = 10 * 64"
        for consumer, who in (("transformers", "transformers"), ("trl", "transformers"), ("accelerate", "accelerate")):
            words = self.words(consumer=consumer, model=ModelSummary("m", hidden_size=64))
            for name, formula in sizes.items():
                found = words.decision(ZERO + name, setting(4096, "computed", "by somebody"))
                assert found.reason == f"{formula} elements ({who} fills it so)" and found.inputs == {"hidden_size": 64}
                assert words.decision(ZERO + name, setting(4096, "default")).inputs == {}
            assert words.decision("a", setting(1, "computed", "why")).reason == "why"
        assert self.words().inputs(ZERO + "reduce_bucket_size", setting(1, "computed")) == {}, "no model, no width"
        unknown = self.words(consumer="trl").decision(ZERO + "reduce_bucket_size", setting(1, "computed"))
        assert unknown.reason == "hidden_size² elements (transformers fills it so)"

    @pytest.mark.parametrize(
        ("consumer", "known"), [("transformers", True), ("trl", True), ("accelerate", False), ("deepspeed", False)]
    )
    def test_only_the_trainer_looks_into_the_text_config(self, consumer: str, known: bool) -> None:
        words = self.words(consumer=consumer, model=ModelSummary("m", text_hidden_size=64))
        assert words.inputs(BUCKETS[0], setting(1, "computed")) == ({"hidden_size": 64} if known else {})

    @pytest.mark.parametrize(
        ("written", "whole"),
        [
            (5e8, True),
            (1000.0, True),
            (-1000.0, True),
            (999.0, False),
            (1000.5, False),
            (math.inf, False),
        ],
    )
    def test_large_whole_numbers_are_integers(self, written: float, whole: bool) -> None:
        found = _plain(written)
        assert found == written and type(found) is (int if whole else float)

    def test_a_number_that_stands_for_several_integers_stays_as_it_is(self) -> None:
        """2**53 + 1 is read as the float of 2**53."""
        assert [type(_plain(written)) for written in (2.0**53 - 1, 2.0**53)] == [int, float]

    def test_the_facts_that_a_value_follows_from(self) -> None:
        effective = Effective(
            settings={
                "num_processes": setting(8),
                MICRO: setting(2),
                STEPS: setting(UNKNOWN),
                STAGE: setting(3),
                "scheduler.params.total_num_steps": setting(50),
            }
        )
        run = run_of(recipe={"num_train_epochs": 3, "warmup_steps": 0.1}, effective=effective)
        words = Provenance(run, Path(), 1000)
        computed = setting(1, "computed")
        assert words.inputs("train_batch_size", computed) == {MICRO: 2, "num_processes": 8}
        assert words.inputs(MICRO, computed) == {"num_processes": 8} and words.inputs(MICRO, setting(1)) == {}
        overlap = ZERO + "overlap_comm"
        assert words.inputs(overlap, setting(True, "default")) == {STAGE: 3} and words.inputs(overlap, computed) == {}
        total, warmup = "scheduler.params.total_num_steps", "scheduler.params.warmup_num_steps"
        assert words.inputs(total, computed) == {
            "train_samples": 1000,
            "num_train_epochs": 3,
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 1,
            "num_processes": 8,
        }
        assert words.inputs(total, setting(1)) == {} and words.inputs(warmup, computed) == {}
        assert words.inputs(warmup, setting(5)) == {"warmup_steps": 0.1, total: 50}
        for share in (0, 1, 7, "0.5"):
            words = Provenance(replace(run, recipe=source("recipe", {"warmup_steps": share})), Path(), 1000)
            assert words.inputs(warmup, setting(5)) == {}
        assert words.inputs("num_processes", computed) == {}
        words = Provenance(replace(run, hardware=HardwareSummary("h", 2, 8, 80.0, True, "nvidia")), Path(), 1000)
        assert words.inputs("num_processes", computed) == {"nodes": 2, "accelerators_per_node": 8}
        assert words.inputs("num_machines", computed) == {"nodes": 2} and words.inputs("num_machines", setting(1)) == {}


def resolver(
    settings: dict[str, Any], consumer: str = "deepspeed", choices: dict[str, Decision] | None = None, **more: Any
) -> _Resolver:
    effective = Effective(
        settings={name: one if isinstance(one, Setting) else setting(one) for name, one in settings.items()}
    )
    return _Resolver(replace(inputs_of(run_of(consumer, effective=effective, **more)), chosen=choices or {}))


STAGE_1_2 = [ZERO + "allgather_bucket_size"]
STAGE_3 = [
    ZERO + "sub_group_size",
    ZERO + "stage3_prefetch_bucket_size",
    ZERO + "stage3_param_persistence_threshold",
    ZERO + "stage3_max_live_parameters",
    ZERO + "stage3_max_reuse_distance",
    GATHER,
]
COMPLETE = dict.fromkeys((*ALWAYS, *STAGE_1_2, *STAGE_3), 1) | {"bf16.enabled": True}


class TestResolver:
    @pytest.mark.parametrize(
        ("name", "settings", "dropped"),
        [
            ("train_batch_size", {"train_batch_size": 8}, True),
            ("steps_per_print", {"steps_per_print": math.inf}, True),
            ("steps_per_print", {"steps_per_print": 10}, False),
            ("a", {"a": None}, True),
            ("a", {"a": UNKNOWN}, False),
            ("a", {}, False),
            (ZERO + "offload_param.pin_memory", {ZERO + "offload_param.pin_memory": True}, True),
            (
                ZERO + "offload_param.pin_memory",
                {ZERO + "offload_param.pin_memory": True, PARAM_DEVICE: "none"},
                True,
            ),
            (
                ZERO + "offload_param.pin_memory",
                {ZERO + "offload_param.pin_memory": True, PARAM_DEVICE: "cpu"},
                False,
            ),
            ("fp16.loss_scale", {"fp16.loss_scale": 0}, True),
            ("fp16.loss_scale", {"fp16.loss_scale": 0, "fp16.enabled": True}, False),
            ("bf16.enabled", {"bf16.enabled": False}, False),
            ("bf16.immediate_grad_update", {"bf16.immediate_grad_update": True, "bf16.enabled": False}, True),
            ("bf16.immediate_grad_update", {"bf16.immediate_grad_update": True, "bf16.enabled": True}, False),
            ("bf16.other", {"bf16.other": 1, "bf16.enabled": True}, True),
        ],
    )
    def test_values_that_say_nothing(self, name: str, settings: dict[str, Any], dropped: bool) -> None:
        assert resolver(settings)._drop(name) is dropped

    @pytest.mark.parametrize(
        ("engine", "chosen", "problems"),
        [
            ("deepspeed", "deepspeed", 0),
            ("ddp", "deepspeed", 1),
            ("single", "ddp", 0),
            ("single", "deepspeed", 1),
            (UNKNOWN, "deepspeed", 0),
        ],
    )
    def test_another_engine_than_the_emitted_one(self, engine: Any, chosen: Any, problems: int) -> None:
        one = resolver({"engine": engine})
        one.inputs = replace(one.inputs, engine=chosen)
        one._check_engine()
        assert [problem.key for problem in one.problems] == ["engine"] * problems

    def test_why_it_is_another_engine(self) -> None:
        one = resolver({"engine": setting("ddp", "computed", "its config")})
        one._check_engine()
        assert [problem.message for problem in one.problems] == ["the run would use ddp (its config), not deepspeed"]

    @pytest.mark.parametrize(("stage", "more"), [(0, []), (1, STAGE_1_2), (2, STAGE_1_2), (3, STAGE_3)])
    def test_what_is_not_left_to_a_default(self, stage: int, more: list[str]) -> None:
        one = resolver(COMPLETE | {STAGE: stage})
        assert one._deepspeed([]) == [*ALWAYS, *more, "bf16.enabled"] and one.problems == []

    @pytest.mark.parametrize(
        ("bf16", "fp16", "name"),
        [(True, False, "bf16.enabled"), (False, True, "fp16.enabled"), (False, False, "bf16.enabled")],
    )
    def test_one_precision_is_written_out(self, bf16: bool, fp16: bool, name: str) -> None:
        one = resolver(COMPLETE | {STAGE: 0, "bf16.enabled": bf16, "fp16.enabled": fp16})
        assert one._deepspeed([]) == [*ALWAYS, name]

    def test_a_value_that_nobody_knows(self) -> None:
        one = resolver({name: value for name, value in COMPLETE.items() if name != ALWAYS[0]} | {STAGE: 0})
        assert one._deepspeed([]) == [*ALWAYS[1:], "bf16.enabled"]
        assert [(problem.key, problem.message) for problem in one.problems] == [
            (ALWAYS[0], "nothing decides its value")
        ]

    def test_what_the_author_wrote_is_written_too(self) -> None:
        one = resolver(COMPLETE | {STAGE: 0, "wall_clock_breakdown": True, "fp16.loss_scale": 0})
        names = [STAGE, "fp16.loss_scale", "wall_clock_breakdown"]
        assert one._deepspeed(names) == [*ALWAYS, "wall_clock_breakdown", "bf16.enabled"]
        assert one.dropped == ["fp16.loss_scale"] and one.problems == []

    def test_only_choices_for_deepspeed_go_into_its_file(self) -> None:
        names = [ZERO + "round_robin_gradients", "aio.block_size"]
        choices = {name: Decision(1, "why", "chosen") for name in (*names, "mixed_precision")}
        one = resolver(COMPLETE | {STAGE: 0}, choices=choices)
        assert one._deepspeed([]) == [*ALWAYS, *names, "bf16.enabled"]
        assert {name: one.taken.get(name) for name in choices} == {
            **{name: setting(1, "computed", "why") for name in names},
            "mixed_precision": None,
        }

    def test_what_a_plan_holds(self) -> None:
        known = COMPLETE | {STAGE: 0, "num_processes": 8, "num_machines": 1}
        sections = {"scheduler": {"params": {}}, "fp16": {}}
        one = resolver(known | {"open": UNKNOWN}, deepspeed=sections, recipe={})
        assert one.run.deepspeed is not None
        one.run.deepspeed.path = Path("ds.json")
        one.inputs = replace(one.inputs, facts=ModelFacts(parameters=7), arguments=("--x", "1"))
        plan = one.plan()
        assert plan.model_facts == {"parameters": 7}, "what nobody stated is left out"
        assert plan.inputs == {"deepspeed": Path("ds.json")}, "the recipe was read from no file"
        assert plan.settings.keys() == known.keys()
        assert plan.arguments == ["--x", "1"]
        assert plan.empty == ["scheduler.params"], "an empty section that is switched off is left out"

    @pytest.mark.parametrize(
        ("consumer", "recipe", "read"),
        [
            ("trl", {"max_steps": "10", "own": "10"}, {"max_steps": 10, "own": "10"}),
            ("trl", {"max_steps": None}, {"max_steps": None}),
            ("transformers", {"max_steps": 10}, {"max_steps": 10}),
            ("accelerate", {"max_steps": "10"}, {"max_steps": "10"}),
            ("trl", [], {}),
        ],
    )
    def test_a_recipe_as_its_reader_converts_it(self, consumer: str, recipe: Any, read: dict[str, Any]) -> None:
        assert resolver({}, consumer, recipe=recipe)._recipe() == read

    @pytest.mark.parametrize(
        ("named", "used"),
        [("box.json", True), ("other.json", False), ("gone.json", False), ("box.txt", False), (None, False)],
    )
    def test_the_profile_that_the_spec_names(self, named: str | None, used: bool, tmp_path: Path) -> None:
        for name, hardware in (("box.json", "8xA100-80GB"), ("box.txt", "8xA100-80GB"), ("other.json", "8xH100-80GB")):
            (tmp_path / name).write_text(write_text(load_hardware(hardware)))
        one = inputs_of(run_of(), folder=tmp_path)
        one = replace(one, spec=one.spec.model_copy(update={"hardware": named}))
        assert _profile_file(one) == ({"hardware": tmp_path / "box.json"} if used else {})

    @pytest.mark.parametrize(
        ("settings", "hardware", "keys"),
        [
            ({"bf16.enabled": True}, "8xV100-32GB", ["bf16.enabled"]),
            ({"mixed_precision": "bf16"}, "8xV100-32GB", ["mixed_precision"]),
            ({"mixed_precision": "bf16", "bf16.enabled": False}, "8xV100-32GB", ["bf16.enabled"]),
            ({"mixed_precision": "fp16"}, "8xV100-32GB", []),
            ({"bf16.enabled": True}, "8xA100-80GB", []),
            ({"bf16.enabled": True}, None, []),
        ],
    )
    def test_bf16_on_a_device_without(self, settings: dict[str, Any], hardware: str | None, keys: list[str]) -> None:
        one = resolver(settings)
        one.inputs = replace(one.inputs, profile=load_hardware(hardware) if hardware else None)
        one._check_precision()
        assert [problem.key for problem in one.problems] == keys

    @pytest.mark.parametrize(
        ("value", "count"), [(1, 1), (8, 8), (0, None), (-1, None), (True, None), ("8", None), (UNKNOWN, None)]
    )
    def test_counts(self, value: Any, count: int | None) -> None:
        one = resolver({"num_processes": value})
        assert one._count("num_processes") == (count or 1)
        assert [problem.message for problem in one.problems] == (
            [] if count else ["nothing says how many processes there are"]
        )

    def test_the_batch_is_explained_where_all_of_it_is_known(self) -> None:
        known = {"num_processes": 8, MICRO: 2, STEPS: 4, "train_batch_size": setting(64, "computed", "somehow")}
        found = resolver(known).settings["train_batch_size"]
        assert found.reason == "8 ranks * 2 samples * 4 accumulation steps"
        assert found.inputs == {"num_processes": 8, MICRO: 2, STEPS: 4}
        assert resolver(known | {STEPS: UNKNOWN}).settings["train_batch_size"].reason == "somehow"
        written = resolver(known | {"train_batch_size": setting(64, "flag", "--x")})
        assert written.settings["train_batch_size"].reason == "--x"

    def test_names_that_the_author_wrote(self) -> None:
        config = {"a": {"b": 1, "c": {}}, "d": [], "e": {}, "f": None, "bf16": {"enabled": True}}
        one = resolver({}, deepspeed=config)
        assert one._written() == (["a.b", "d", "f", "bf16.enabled"], ["a.c", "e"]) and one.problems == []
        one = resolver({}, deepspeed={"a": {"b.c": 1}})
        assert one._written() == (["a.b.c"], []) and [problem.key for problem in one.problems] == ["a.b.c"]
        assert resolver({}, deepspeed=[])._written() == ([], []) == resolver({})._written()

    @pytest.mark.parametrize(
        ("name", "help"),
        [
            ("scheduler.params.total_num_steps", "`train_samples:`"),
            ("scheduler.params.warmup_num_steps", "`train_samples:`"),
            ("scheduler.params.lr", "Write its value"),
            (MICRO, "Write a number for it"),
            ("train_batch_size", "Write a number for it"),
            (ZERO + "reduce_bucket_size", "Add `model:`"),
            (ZERO + "stage3_param_persistence_threshold", "Add `model:`"),
            (STAGE, "Write its value"),
        ],
    )
    def test_the_way_out_of_a_value_that_nobody_fills(self, name: str, help: str) -> None:
        found = _open(name)
        assert found.key == name and found.message == "nothing decides its value" and help in found.help
        assert _open(name, "auto").message == "nothing decides its value (auto)"

    def test_a_failure_is_told_at_its_place(self) -> None:
        file = source("deepspeed", {})
        place, nowhere = Origin("file", file=file, path=("a", "b")), Origin("computed")
        assert (_refused(Failure("kind", "init", "stops", (nowhere, place)))).key == "a.b"
        assert _refused(Failure("kind", "init", "stops", (nowhere, place))).message == "stops (ds.json)"
        found = _refused(Failure("kind", "init", "stops", (Origin("file", file=file),)))
        assert (found.key, found.message) == ("kind", "stops (ds.json)")
        found = _refused(Failure("kind", "init", "stops", (nowhere,)))
        assert (found.key, found.message) == ("kind", "stops")
