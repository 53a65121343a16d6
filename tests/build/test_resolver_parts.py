"""What a plan holds and leaves out, who says which engine, what accelerate's file keeps: guards that builds pass."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.build.test_road_limits import COMPLETE, inputs_of, resolver, run_of, setting, source
from zerocfg.catalog.versions import OLDEST
from zerocfg.hardware.profile import load_hardware
from zerocfg.models.model_facts import ModelFacts
from zerocfg.models.spec import RunSpec, Targets
from zerocfg.resolve.engine import accelerate, engine_selection, open_engines
from zerocfg.resolve.engine.fsdp import choose_fsdp
from zerocfg.resolve.engine.ignored_keys import with_ignored_keys
from zerocfg.resolve.plan import Considered, Decision, Problem
from zerocfg.resolve.provenance import Provenance
from zerocfg.resolve.resolve import ALWAYS, ZERO, _is_unknown_today, _unknown_releases, resolve
from zerocfg.resolve.search.choice import MICRO, STAGE, STEPS
from zerocfg.run.config import VERSIONS
from zerocfg.run.facts import ModelSummary
from zerocfg.run.model import UNKNOWN, Effective, Failure, Ignored, Origin, Run, Setting, SourceFile
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.text import Span, Where

POLICY = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
LAYERS = {"transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}
PINNED = ZERO + "offload_optimizer.pin_memory"
DEVICE = ZERO + "offload_optimizer.device"


class TestKept:
    @pytest.mark.parametrize(
        ("clipping", "dropped"),
        [
            (setting(0.0, "default"), True),
            (setting(0, "file"), False),
            (setting(1.0, "default"), False),
            (setting(0.0, "computed"), False),
        ],
    )
    def test_no_clipping_is_written_only_where_the_author_did(self, clipping: Setting, dropped: bool) -> None:
        assert resolver({"gradient_clipping": clipping})._drop("gradient_clipping") is dropped

    @pytest.mark.parametrize(
        ("consumer", "arguments", "kind", "dropped"),
        [
            ("deepspeed", {"tensor_model_parallel_size": setting(2)}, "file", False),
            ("deepspeed", {"tensor_model_parallel_size": setting(2)}, "computed", True),
            ("deepspeed", {"seed": setting(2)}, "file", True),
            ("transformers", {"tensor_model_parallel_size": setting(2)}, "file", True),
        ],
    )
    def test_a_product_that_only_the_script_knows(
        self, consumer: str, arguments: Any, kind: Any, dropped: bool
    ) -> None:
        item = resolver({"train_batch_size": setting(8, kind)}, consumer, arguments=arguments)
        assert item._drop("train_batch_size") is dropped
        assert resolver({}, consumer, arguments=arguments)._drop("train_batch_size") is True

    @pytest.mark.parametrize(
        ("name", "unknown"),
        [
            ("bf16.hysteresis", True),
            ("fp16.hysteresis", False),
            ("zero_optimization.nothing", True),
            ("zero_optimization.stage", False),
            ("optimizer.params.anything", False),
            ("aio.anything", False),
            ("anything", False),
        ],
    )
    def test_keys_that_the_newest_release_stops_at(self, name: str, unknown: bool) -> None:
        """DeepSpeed's sections made with pydantic forbid further keys; a dict of parameters takes any."""
        assert _is_unknown_today(name) is unknown
        on = {"bf16.enabled": True, "fp16.enabled": True}
        assert resolver({name: 1, **on})._drop(name) is unknown

    def test_a_default_that_changed_is_that_of_the_newest_release(self) -> None:
        """Page-locked since DeepSpeed 0.19.5."""
        values = {PINNED: setting(UNKNOWN, "default"), "scheduler.params.lr": setting(UNKNOWN, "default")}
        item = resolver(values, versions={"deepspeed": ">=0.18"})
        assert item.taken[PINNED].value is True and item.taken["scheduler.params.lr"].value is UNKNOWN
        assert item.settings[PINNED].value is True
        item = resolver(values, versions={"deepspeed": ">=0.18,<0.19"})
        assert item.taken[PINNED].value is UNKNOWN, "in all of them it is as it was, and it was not known here"
        written = resolver({PINNED: setting(False)}, versions={"deepspeed": ">=0.18"})
        assert written.taken[PINNED].value is False

    def test_releases_that_nobody_knows_are_told(self) -> None:
        run = run_of("trl", versions={"trl": "==0.1.0", "transformers": ">=4.57"})
        assert _unknown_releases(run) == [
            f"zerocfg knows no release of trl that ==0.1.0 admits; it plans for {OLDEST['trl']}"
        ]
        assert _unknown_releases(run_of("deepspeed", versions={"trl": "==0.1.0"})) == []

    def test_offload_is_written_out(self) -> None:
        base = COMPLETE | {STAGE: 0}
        item = resolver(base | {DEVICE: "cpu", PINNED: True})
        assert item._deepspeed([]) == [*ALWAYS, "bf16.enabled", DEVICE, PINNED] and item.problems == []
        for device in ("none", None):
            assert resolver(base | {DEVICE: device, PINNED: True})._deepspeed([]) == [*ALWAYS, "bf16.enabled"]

    @pytest.mark.parametrize(
        ("half", "cast", "written"), [(True, True, True), (True, False, False), (False, True, False)]
    )
    def test_inputs_that_accelerate_casts(self, half: bool, cast: bool, written: bool) -> None:
        """accelerate sets `fp16.auto_cast` where the file has no section of that name, and the emitted one has."""
        values = {"fp16.enabled": half, "fp16.auto_cast": cast, "bf16.enabled": not half}
        assert ("fp16.auto_cast" in resolver(COMPLETE | {STAGE: 0} | values)._deepspeed([])) is written

    @pytest.mark.parametrize(
        ("value", "said"),
        [
            (math.inf, "inf cannot be written into a JSON file"),
            (math.nan, "nan cannot be written into a JSON file"),
            ("auto", "nothing decides its value (ds.json)"),
            (UNKNOWN, "nothing decides its value (ds.json)"),
            (1e30, None),
        ],
    )
    def test_values_that_no_file_can_hold(self, value: Any, said: str | None) -> None:
        file = Origin("file", file=source("deepspeed", {}))
        item = resolver(COMPLETE | {STAGE: 0, "gradient_predivide_factor": Setting(value, file)})
        found = item._deepspeed(["gradient_predivide_factor"])
        assert [problem.message for problem in item.problems] == ([said] if said else [])
        assert ("gradient_predivide_factor" in found) is (said is None)

    def test_what_is_refused_already_is_not_told_twice(self) -> None:
        item = resolver({name: value for name, value in COMPLETE.items() if name != MICRO} | {STAGE: 0})
        item.problems.append(Problem(MICRO, "refused"))
        assert MICRO not in item._deepspeed([]) and len(item.problems) == 1

    def test_experts_and_keys_that_accelerate_ignores_are_written(self) -> None:
        leaves = "zero_optimization.leaf_module.classes"
        item = resolver(COMPLETE | {STAGE: 3})
        item.inputs = replace(item.inputs, facts=ModelFacts(model_type="m", leaf_modules=["Block"]))
        moved = {ZERO + "round_robin_gradients": Decision(True, "moved", "file")}
        item.inputs = replace(item.inputs, moved=moved)
        item.settings.update(moved)
        found = item._deepspeed([])
        assert found[-3:] == [ZERO + "round_robin_gradients", leaves, "bf16.enabled"]
        assert item.taken[leaves] == setting(["Block"], "computed", item.settings[leaves].reason)
        assert ZERO + "round_robin_gradients" not in item.taken

    def test_what_is_stated_beside_an_offload_and_a_stage(self) -> None:
        """Page-locked memory, whose default changed, and whole weights, which nobody refused."""
        gather = ZERO + "stage3_gather_16bit_weights_on_model_save"
        item = resolver(COMPLETE | {STAGE: 2, DEVICE: "cpu"})
        assert item._deepspeed([])[-2:] == [DEVICE, PINNED] and item.problems == []
        assert (item.settings[PINNED].value, item.settings[PINNED].kind, item.taken[PINNED].value) == (
            True,
            "default",
            True,
        )
        item = resolver(COMPLETE | {STAGE: 3, gather: setting(False, "default")})
        assert gather in item._deepspeed([])
        assert item.settings[gather].value is item.taken[gather].value is True

    def test_a_choice_that_was_moved_is_not_taken_twice(self) -> None:
        name = ZERO + "round_robin_gradients"
        item = resolver(COMPLETE | {STAGE: 0, name: False}, choices={name: Decision(True, "why", "chosen")})
        item.inputs = replace(item.inputs, moved={name: Decision(True, "moved", "file")})
        assert name in item._deepspeed([]) and item.taken[name] == setting(False)

    def test_a_batch_that_ranks_share_is_not_explained_as_their_product(self) -> None:
        known = {"num_processes": 8, MICRO: 2, STEPS: 4, "train_batch_size": setting(32, "computed", "shared")}
        found = resolver(known).settings["train_batch_size"]
        assert (found.value, found.reason, found.inputs) == (32, "shared", {MICRO: 2, STEPS: 4, "num_processes": 8})


class TestPlan:
    KNOWN = COMPLETE | {STAGE: 0, "num_processes": 8, "num_machines": 1}

    def test_what_it_takes_from_its_inputs(self) -> None:
        targets = {"slurm": {"time": "1:00"}}
        item = resolver(self.KNOWN, versions={"trl": "==1.14.0"})
        spec = {
            "consumer": "deepspeed",
            "script": "go.py",
            "hosts": ["n0"],
            "targets": targets,
            "launcher": "deepspeed",
        }
        seen = (Considered({STAGE: 0}, "fits", 1.0, 2.0),)
        changes = {"max_steps": Decision(3, "why", "chosen")}
        item.inputs = replace(
            item.inputs,
            spec=RunSpec.model_validate(spec),
            module="pkg.go",
            considered=seen,
            changes=changes,
            notes=("told",),
            model_file=source("recipe", {"hidden_size": 8}),
        )
        plan = item.plan()
        assert (plan.name, plan.consumer, plan.engine, plan.folder) == ("a", "deepspeed", "deepspeed", Path())
        assert (plan.script, plan.module, plan.launcher, plan.hosts) == ("go.py", "pkg.go", "deepspeed", ["n0"])
        assert (plan.hardware, plan.num_processes, plan.num_machines) == ("8xA100-80GB", 8, 1)
        assert plan.targets == Targets.model_validate(targets) and plan.considered == list(seen)
        assert plan.changes == changes and plan.recipe == {}
        assert plan.profile == load_hardware("8xA100-80GB") and plan.model_config == {"hidden_size": 8}
        assert plan.versions == {**VERSIONS, "trl": "==1.14.0"}
        assert plan.accelerate == {}, "torchrun or deepspeed launches a loop of its own"
        assert plan.deepspeed == [*ALWAYS, "bf16.enabled"] and plan.dropped == []

    @pytest.mark.parametrize(("consumer", "launcher"), [("deepspeed", "torchrun"), ("transformers", "accelerate")])
    def test_who_launches_where_nobody_says(self, consumer: str, launcher: str) -> None:
        plan = resolver(self.KNOWN, consumer).plan()
        assert plan.launcher == launcher and bool(plan.accelerate) is (launcher == "accelerate")

    def test_without_a_profile_the_sources_tell_the_ranks(self) -> None:
        item = resolver(self.KNOWN)
        item.inputs = replace(item.inputs, profile=None)
        plan = item.plan()
        assert plan.hardware == "the hardware that the accelerate config names" and plan.profile is None

    def test_where_the_ranks_are_not_known_it_is_of_one(self) -> None:
        item = resolver(self.KNOWN | {"num_machines": UNKNOWN})
        plan = item.plan()
        assert (plan.num_processes, plan.num_machines) == (1, 1)
        assert [problem.message for problem in item.problems] == ["nothing says how many machines there are"]

    def test_facts_of_a_model_are_plain_data(self) -> None:
        item = resolver(self.KNOWN)
        item.inputs = replace(item.inputs, facts=ModelFacts(parameters=8, tensor_sizes=[(5, 1), (3, 1)]))
        assert item.plan().model_facts == {"parameters": 8, "tensor_sizes": [[5, 1], [3, 1]]}

    def test_another_engine_has_no_file_of_deepspeed(self) -> None:
        item = resolver(self.KNOWN | {"engine": "ddp"}, "accelerate", deepspeed={"zero_optimization": {"stage": 3}})
        item.inputs = replace(item.inputs, engine="ddp")
        plan = item.plan()
        assert (plan.deepspeed, plan.empty) == ([], []) and plan.accelerate["distributed_type"].value == "MULTI_GPU"

    def test_what_a_library_refuses_is_a_problem(self) -> None:
        failure = Failure("kind", "init", "stops")
        effective = Effective(settings={}, failures=(failure,))
        found = inputs_of(run_of("deepspeed", effective=effective))
        refused = replace(found, problems=(Problem("x", "wrong"),))
        assert resolve(refused) == (refused, None)

    def test_changes_of_zerocfg_stand_over_the_recipe(self) -> None:
        item = resolver({}, "trl", recipe={"max_steps": 10, "own": 1})
        item.inputs = replace(item.inputs, changes={"max_steps": Decision(3), "new": Decision(2)})
        assert item._recipe() == {"max_steps": 3, "own": 1, "new": 2}

    def test_arguments_of_a_line_stand_over_a_recipe_that_has_them(self) -> None:
        given = {"max_steps": setting(7, "flag"), "learning_rate": setting(0.1, "flag")}
        item = resolver({}, "trl", recipe={"max_steps": 10}, arguments=given)
        assert item._recipe() == {"max_steps": 7}


class TestEngine:
    @pytest.mark.parametrize(
        ("used", "spec", "engine"),
        [
            ("ddp", {}, "ddp"),
            ("single", {}, "ddp"),
            ("fsdp", {}, "ddp"),
            ("ddp", {"deepspeed": "ds.json"}, "deepspeed"),
        ],
    )
    def test_a_file_that_a_line_names_and_does_not_use(self, used: str, spec: dict[str, str], engine: str) -> None:
        run = run_of(deepspeed={}, effective=Effective(settings={"engine": setting(used)}))
        assert engine_selection.engine_of(run, inputs_of(run, **spec).spec) == engine

    @pytest.mark.parametrize(
        ("flags", "config", "source_"),
        [
            ({"multi_gpu": True}, {}, {"distributed_type": "MULTI_GPU"}),
            ({"use_megatron_lm": True}, {}, {"distributed_type": "MEGATRON_LM"}),
            ({"use_fsdp": False}, {"distributed_type": "NO"}, {"distributed_type": "NO"}),
            ({"main_process_port": "29501"}, {}, {"main_process_port": 29501}),
            ({"main_process_port": "auto"}, {}, {"main_process_port": "auto"}),
            ({"mixed_precision": "29501"}, {}, {"mixed_precision": "29501"}),
            ({"zero_stage": "2"}, {"deepspeed_config": {"a": 1}}, {"deepspeed_config": {"a": 1, "zero_stage": "2"}}),
            ({"zero_stage": "2"}, {"deepspeed_config": 3}, {"deepspeed_config": {"zero_stage": "2"}}),
            ({"num_cpu_threads_per_process": "2"}, {}, {}),
            ({"mixed_precision": UNKNOWN}, {"mixed_precision": "no"}, {"mixed_precision": "no"}),
        ],
    )
    def test_options_in_the_form_of_a_config(self, flags: Any, config: Any, source_: Any) -> None:
        given = {name: setting(value, "flag") for name, value in flags.items()}
        assert engine_selection.launched_source(run_of(accelerate=config, flags=given)) == source_

    def test_what_the_hardware_says_is_no_word_of_the_sources(self) -> None:
        flags = {
            "num_processes": setting("8", "computed"),
            "gpu_ids": setting("all", "computed"),
            "zero_stage": setting("2", "computed"),
        }
        assert engine_selection.launched_source(run_of(flags=flags)) == {"gpu_ids": "all"}
        chosen = {"gpu_ids": setting("0,1", "computed")}
        assert engine_selection.launched_source(run_of(flags=chosen)) == {}

    @pytest.mark.parametrize(
        ("consumer", "launcher", "asked", "kept"),
        [
            ("transformers", "accelerate", None, True),
            ("transformers", "torchrun", None, False),
            ("transformers", "torchrun", "torchrun", False),  # resolved as accelerate would launch it
            ("deepspeed", "torchrun", None, True),
            ("deepspeed", "deepspeed", None, False),
            ("deepspeed", "deepspeed", "deepspeed", True),
            ("deepspeed", "torchrun", "deepspeed", False),
        ],
    )
    def test_a_line_of_another_launcher(self, consumer: str, launcher: Any, asked: str | None, kept: bool) -> None:
        line = LaunchLine(launcher, (), None, (), (), {}, Span(3, 4))
        run = run_of(consumer, launch=line, flags={"a": setting(1, "flag")})
        found = engine_selection._with_its_launcher(run, inputs_of(run, launcher=asked).spec)
        assert (found.launch is line) is kept and bool(found.flags) is kept

    @pytest.mark.parametrize(
        ("option", "reaches"),
        [
            ("num_processes", True),
            ("zero_stage", True),
            ("multi_gpu", True),
            ("mixed_precision", True),
            ("cpu", True),
            ("num_cpu_threads_per_process", False),
            ("enable_cpu_affinity", False),
            ("tpu", False),
        ],
    )
    def test_options_that_a_build_keeps(self, option: str, reaches: bool) -> None:
        assert engine_selection.reaches_the_job(option) is reaches

    @pytest.mark.parametrize(
        ("precision", "engine", "refused"),
        [
            (setting("fp8", "flag"), "deepspeed", True),
            (
                Setting("fp8", Origin("file", file=source("accelerate", {}), path=("mixed_precision",))),
                "deepspeed",
                True,
            ),
            (Setting("fp8", Origin("file", file=source("accelerate", {}), path=("a", "b"))), "deepspeed", False),
            (setting("fp8", "computed"), "deepspeed", False),
            (setting("bf16", "flag"), "deepspeed", False),
            (setting("fp8", "flag"), "ddp", False),
        ],
    )
    def test_fp8_beside_a_file_of_deepspeed(self, precision: Setting, engine: str, refused: bool) -> None:
        found = inputs_of(run_of(effective=Effective(settings={"mixed_precision": precision})), engine)
        assert [problem.key for problem in engine_selection._not_emitted(found, None)] == ["mixed_precision"] * refused

    def test_what_another_launcher_would_lose_is_named(self) -> None:
        run = run_of(accelerate={"megatron_lm_config": {"a": 1}, "mixed_precision": "bf16"}, recipe={})
        (problem,) = engine_selection._lost(replace(run, arguments={"bf16": setting(UNKNOWN)}), "torchrun")
        assert problem == Problem(
            "megatron_lm_config",
            "accelerate.yaml sets megatron_lm_config, which only accelerate launch hands to the job, not torchrun",
            "Take it out, or leave `launcher:` out.",
        )

    @pytest.mark.parametrize(
        ("more", "is_open"),
        [
            ({}, True),
            ({"goals": None}, False),
            ({"asked": "ddp"}, False),
            ({"consumer": "accelerate"}, False),
            ({"hardware": None}, False),
            ({"hardware": "8xcpu"}, False),
            ({"deepspeed": {}}, False),
            ({"accelerate": {"distributed_type": "NO"}}, False),
            ({"accelerate": {"fsdp_config": {}, "parallelism_config": None}}, True),
            ({"accelerate": {"parallelism_config": {"a": 1}}}, False),
            ({"accelerate": {"mixed_precision": "fp8"}}, False),
            ({"accelerate": {"mixed_precision": "bf16"}}, True),
            ({"environment": {"ACCELERATE_USE_DEEPSPEED": setting("true", "environment")}}, False),
            ({"environment": {"ACCELERATE_USE_FSDP": setting("true", "environment")}}, False),
            ({"environment": {"OMP_NUM_THREADS": setting("4", "environment")}}, True),
        ],
    )
    def test_what_leaves_the_engine_open(self, more: dict[str, Any], is_open: bool) -> None:
        consumer = more.pop("consumer", "trl")
        spec = {name: more.pop(name) for name in ("hardware", "asked") if name in more}
        goals = more.pop("goals", {"prefer": "memory"})
        found = inputs_of(run_of(consumer, **more), goals=goals, **spec)
        assert open_engines.is_open(found) is is_open

    @pytest.mark.parametrize(
        ("more", "engines"),
        [
            ({}, ("ddp", "deepspeed", "fsdp")),
            ({"accelerate": {"dynamo_config": {"dynamo_backend": "inductor"}}}, ("ddp", "fsdp")),
            ({"accelerate": {"mixed_precision": "fp16"}}, ("ddp", "deepspeed")),
            ({"recipe": {"fp16": True}}, ("ddp", "deepspeed")),
            ({"recipe": {"fp16": False}}, ("ddp", "deepspeed", "fsdp")),
            ({"hardware": "1xA100-80GB"}, ("ddp", "deepspeed")),
            ({"hardware": "2xA100-80GB"}, ("ddp", "deepspeed", "fsdp")),
            ({"hardware": "8xV100-32GB"}, ("ddp", "deepspeed")),
            ({"launcher": "accelerate"}, ("ddp", "deepspeed", "fsdp")),
            ({"launcher": "torchrun"}, ("ddp", "deepspeed")),
            ({"versions": {"torch": ">=2.5"}}, ("ddp", "deepspeed")),
            ({"versions": {"torch": ">=2.6", "transformers": "==5.0.0"}}, ("ddp", "deepspeed", "fsdp")),
        ],
    )
    def test_engines_that_can_run_it(self, more: dict[str, Any], engines: tuple[str, ...]) -> None:
        spec = {name: more.pop(name) for name in ("hardware", "launcher") if name in more}
        assert open_engines.engines_for(inputs_of(run_of(**more), "ddp", **spec)) == engines


class TestFsdp:
    LLAMA = ModelSummary("m", model_type="llama")

    def chosen(self, section: Any = None, run: Run | None = None, **source_: Any) -> dict[str, Any]:
        """The values that are chosen, without those of saving."""
        config = {**source_, **({} if section is None else {"fsdp_config": section})}
        found = choose_fsdp(inputs_of(run or run_of(model=self.LLAMA), "fsdp"), config)
        names = {name.removeprefix("fsdp_config.fsdp_"): item.value for name, item in found.chosen.items()}
        assert names.pop("state_dict_type", None) in ("FULL_STATE_DICT", None)
        assert ("use_fsdp" in found.run.flags) is (source_.get("distributed_type") != "FSDP")
        return names

    @pytest.mark.parametrize(
        ("section", "chosen"),
        [
            (None, {"version": 2, **POLICY, **LAYERS}),
            ([], {"version": 2, **POLICY, **LAYERS}),
            ({"fsdp_sharding_strategy": "FULL_SHARD"}, {"version": 1, **POLICY, **LAYERS}),
            ({"auto_wrap_policy": "SIZE_BASED_WRAP", "version": 1}, {}),
            ({"fsdp_auto_wrap_policy": "transformer_based_wrap", "fsdp_version": 2}, LAYERS),
        ],
    )
    def test_what_no_source_gives(self, section: Any, chosen: dict[str, Any]) -> None:
        assert self.chosen(section) == chosen
        assert self.chosen(section, distributed_type="FSDP") == chosen

    def test_layers_of_a_model_that_nobody_knows(self) -> None:
        for model in (None, ModelSummary("m"), ModelSummary("m", model_type="of-tomorrow")):
            assert "transformer_layer_cls_to_wrap" not in self.chosen(run=run_of(model=model))

    def test_releases_without_version_2_get_no_version(self) -> None:
        """accelerate has `fsdp_version` since 1.6.0."""
        old = self.chosen(run=run_of(versions={"accelerate": ">=1.5"}))
        assert old == {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
        assert self.chosen(run=run_of(versions={"accelerate": ">=1.6"}))["version"] == 2

    def test_a_choice_is_a_word_of_the_launcher(self) -> None:
        found = choose_fsdp(inputs_of(run_of(flags={"a": setting(1, "flag")}), "fsdp"), {})
        assert found.run.flags["fsdp_version"] == setting("2", "computed", found.run.flags["fsdp_version"].origin.note)
        assert found.chosen["fsdp_config.fsdp_version"].reason == (
            f"zerocfg's choice: {found.run.flags['fsdp_version'].origin.note}"
        )
        assert found.run.flags["a"].value == 1


class TestAccelerateFile:
    def test_a_precision_that_the_sources_hand_to_the_script(self) -> None:
        file = Origin("file", file=source("accelerate", {}), path=("mixed_precision",))
        found = inputs_of(
            run_of("accelerate", effective=Effective({"ACCELERATE_MIXED_PRECISION": Setting("fp16", file)})), "ddp"
        )
        item = accelerate._precision(found, {"mixed_precision": Decision(UNKNOWN, "", "computed")})
        assert item is not None and (item.value, item.kind) == ("fp16", "file")
        assert item.reason == "accelerate.yaml: mixed_precision; the script may set another"
        hidden = replace(found.run, effective=Effective({"ACCELERATE_MIXED_PRECISION": setting(UNKNOWN)}))
        assert accelerate._precision(replace(found, run=hidden), {}) is None

    @pytest.mark.parametrize(
        ("value", "kept"),
        [
            ("0,1", True),
            ("all", False),
            ("main", False),
            ("", False),
            (False, False),
            (None, False),
            (True, True),
            (0, False),
        ],
    )
    def test_values_that_say_something(self, value: Any, kept: bool) -> None:
        found = accelerate._kept({"a": value, "b": 1}, ("a",), "x.")
        assert found == ({"x.a": Decision(value, "as in the accelerate config", "file")} if kept else {})

    @pytest.mark.parametrize(
        ("machines", "why"), [(1, "the only machine"), (2, "launch.sh passes the rank of its node")]
    )
    def test_the_rank_of_a_machine(self, machines: int, why: str) -> None:
        settings = {name: Decision(8, "", "hardware") for name in ("num_machines", "num_processes")}
        found = accelerate.accelerate_keys(inputs_of(run_of("accelerate"), "ddp"), settings, 8, machines)
        assert found["machine_rank"] == Decision(0, why, "computed")
        assert found["num_machines"].value == found["num_processes"].value == 8

    def test_of_a_stage_that_shards_the_model_it_is_said(self) -> None:
        for stage, flag, why in (
            (3, True, "ZeRO stage 3: the model is sharded while it is made"),
            (2, False, "ZeRO stage 2"),
        ):
            item = accelerate._deepspeed_section(stage, 1)["deepspeed_config.zero3_init_flag"]
            assert (item.value, item.reason) == (flag, why)

    def test_defaults_of_fsdp_that_an_older_release_has_no_key_for(self) -> None:
        """accelerate has `fsdp_activation_checkpointing` since 0.31.0."""
        name = "fsdp_config.fsdp_activation_checkpointing"
        for kind, versions, written in (
            ("default", {"accelerate": ">=0.30"}, False),
            ("default", {"accelerate": ">=0.31"}, True),
            ("file", {"accelerate": ">=0.30"}, True),
        ):
            found = inputs_of(run_of("accelerate", versions=versions), "fsdp")
            section = accelerate._fsdp_section(found, {name: Decision(False, "", kind)})  # type: ignore[arg-type]
            assert (name in section) is written

    def test_sections_of_one_spelling(self) -> None:
        """The prefix of a key may be left out where accelerate takes it off itself; what is no mapping says nothing."""
        short = {"parallelism_config": {"tp_size": 2}, "dynamo_config": {"backend": "INDUCTOR"}, "fp8_config": 3}
        found = {name: item.value for name, item in accelerate._sections(short, "ddp", "fp8").items()}
        assert found == {"dynamo_config.dynamo_backend": "INDUCTOR"}

    def test_where_an_engine_comes_from(self) -> None:
        assert accelerate._reason({"engine": Decision("fsdp", "its config")}, "engine") == "its config"
        assert accelerate._reason({}, "engine") == "nobody sets it"
        assert accelerate._reason({"engine": Decision(UNKNOWN, "x")}, "engine") == (
            "as its sources are launched; the script decides the rest"
        )


def ignored(
    key: str, value: Any, kind: str = "dead-sub-key", section: str = "deepspeed_config"
) -> tuple[Ignored, SourceFile]:
    file = source("accelerate", {section: {key: value}})
    return Ignored(kind, "", Origin("file", file=file, path=(section, key))), file


class TestIgnored:
    def moved(self, item: Ignored, consumer: str = "transformers", engine: str = "deepspeed", **more: Any) -> Any:
        effective = Effective(settings=more.pop("settings", {}), ignored=(item,))
        return with_ignored_keys(inputs_of(run_of(consumer, effective=effective, **more), engine))

    @pytest.mark.parametrize(
        ("key", "value", "found"),
        [
            ("reduce_bucket_size", "5e8", {ZERO + "reduce_bucket_size": 500_000_000}),
            ("reduce_bucket_size", 5e8, {ZERO + "reduce_bucket_size": 500_000_000}),
            ("wall_clock_breakdown", True, {"wall_clock_breakdown": True}),
            ("gradient_predivide_factor", 0.5, {"gradient_predivide_factor": 0.5}),
            ("communication_data_type", "fp32", {"communication_data_type": "fp32"}),
            ("bf16", True, {}),  # a section
            ("reduce_bucket_size", [1], {}),
            ("reduce_bucket_size", None, {}),
            ("reduce_bucket", 1, {}),
        ],
    )
    def test_keys_of_deepspeed_and_what_is_meant(self, key: str, value: Any, found: dict[str, Any]) -> None:
        inputs = self.moved(ignored(key, value)[0])
        assert {name: item.value for name, item in inputs.moved.items()} == found
        assert {name: item.value for name, item in inputs.run.effective.settings.items()} == found
        for name, item in inputs.moved.items():
            assert type(item.value) is type(found[name])
            assert item.reason == f"accelerate.yaml: deepspeed_config.{key}, where accelerate ignores it"
        assert len(inputs.notes) == bool(found)

    @pytest.mark.parametrize(
        ("kind", "section", "more"),
        [
            ("dead-key", "deepspeed_config", {}),
            ("dead-sub-key", "fsdp_config", {}),
            ("dead-sub-key", "deepspeed_config", {"engine": "ddp"}),
            ("dead-sub-key", "deepspeed_config", {"consumer": "deepspeed"}),
            ("dead-sub-key", "deepspeed_config", {"deepspeed": {"zero_optimization": {"overlap_comm": False}}}),
        ],
    )
    def test_what_stays_where_it_is(self, kind: str, section: str, more: dict[str, Any]) -> None:
        found = self.moved(ignored("overlap_comm", True, kind, section)[0], **more)
        assert found.moved == {} and found.notes == ()

    def test_what_it_replaces_is_remembered(self) -> None:
        name = ZERO + "overlap_comm"
        item, _ = ignored("overlap_comm", True)
        found = self.moved(item, settings={name: setting(False, "default")}, deepspeed={"zero_optimization": {}})
        assert found.run.effective.settings[name] == Setting(True, item.place, (setting(False, "default"),))
        assert found.notes == (
            "accelerate ignores overlap_comm of `deepspeed_config`; ds_config.json, which DeepSpeed reads, has what is "
            "written there",
        )


class TestWords:
    def test_an_auto_is_found_behind_what_filled_it(self) -> None:
        file = Origin("file", file=source("deepspeed", {"a": "auto"}), path=("a",))
        words = Provenance(run_of(), Path())
        flag = Origin("flag", "--a")
        both = (Setting(1, Origin("default")), Setting("auto", file))
        assert words.reason("a", Setting(2, flag, both)) == "auto in ds.json; --a"
        assert words.reason("a", Setting(2, flag, (Setting("auto", flag),))) == "--a; replaces 'auto' of --a"

    def test_sizes_that_were_not_computed_are_not_explained_so(self) -> None:
        words = Provenance(run_of(model=ModelSummary("m", hidden_size=64)), Path())
        name = ZERO + "reduce_bucket_size"
        assert words.decision(name, setting(5, "flag", "--x")) == Decision(5, "--x", "flag")

    def test_a_place_is_named_from_the_folder_of_the_spec(self, tmp_path: Path) -> None:
        file = source("deepspeed", {"a": 1})
        file.path = tmp_path / "configs" / "ds.json"
        words = Provenance(run_of(), tmp_path)
        assert words.place(Origin("file", file=file, path=("a",))) == Where("configs/ds.json", 1, 2)
