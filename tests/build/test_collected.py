"""What a run is collected from: launch lines, hardware, steps, models, and the spec's own words; each on both sides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import Workplace, job
from tests.build.test_road_limits import inputs_of, run_of, setting, source
from zerocfg.hardware.profile import load_hardware
from zerocfg.models.hardware import Host
from zerocfg.models.model_facts import ModelFacts
from zerocfg.models.spec import RunSpec
from zerocfg.models.towers import Tower
from zerocfg.models.vision import Vision
from zerocfg.resolve import build, collect_inputs, training_steps
from zerocfg.resolve.engine.engine_selection import launch_of_ranks
from zerocfg.resolve.facts import with_facts
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.line_arguments import lacking_configs, without_config
from zerocfg.resolve.plan import Decision, Plan, Problem, kind_of
from zerocfg.resolve.search.choice import GATHER, STAGE
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.run.discover import Files
from zerocfg.run.facts import HardwareSummary, ModelSummary
from zerocfg.run.link import find_runs, runs_from_spec
from zerocfg.run.model import Origin, Run, Setting, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Where

TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\n"
    "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "Trainer(args=arguments).train()\n"
)
OWN_LOOP = "import deepspeed\n\nif __name__ == '__main__':\n    deepspeed.initialize({})\n"
RECIPE = "output_dir: out\nper_device_train_batch_size: 2\n"
ZERO = '{"zero_optimization": {"stage": 2}}\n'


def line_of(folder: Path, shell: str, files: Mapping[str, str] | None = None) -> Run:
    """The run of the launch line of ``job.sh`` in a folder with these files."""
    given = {"train.py": TRAINER, "recipe.yaml": RECIPE, "ds.json": ZERO, **(files or {}), "job.sh": shell}
    for name, text in given.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    runs, _ = find_runs([folder], Files(), root=folder)
    (run,) = (run for run in runs if run.launch is not None)
    return run


def taken(run: Run, folder: Path, **spec: Any) -> Inputs:
    spec = {"consumer": run.consumer, "script": "train.py", "launch": "job.sh:1", **spec}
    return replace(inputs_of(run, folder=folder), spec=RunSpec.model_validate(spec))


class TestLine:
    def arguments(self, folder: Path, shell: str, files: Mapping[str, str] | None = None, **spec: Any) -> Inputs:
        return collect_inputs._with_arguments(taken(line_of(folder, shell, files), folder, **spec))

    def test_its_words_go_to_the_script(self, tmp_path: Path) -> None:
        words = "accelerate launch train.py recipe.yaml --deepspeed ds.json --seed 1\n"
        found = self.arguments(tmp_path, words)
        assert found.arguments == ("recipe.yaml", "--seed", "1")
        assert set(found.run.arguments) & {"deepspeed", "seed"} == {"seed"}
        assert (found.notes, found.problems) == ((), ())

    def test_words_of_the_running_shell_are_refused(self, tmp_path: Path) -> None:
        found = self.arguments(tmp_path, "accelerate launch train.py --seed $SEED --tag $TAG --lr 1\n")
        assert found.arguments == () and found.problems == (
            Problem(
                "launch",
                "$SEED, $TAG of job.sh:1 is known to the running shell alone",
                "Write the words after the script as `arguments:` into the spec.",
            ),
        )

    def test_another_folder_and_variables_are_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        shell = "export B=1\nexport A=2\ncd sub\naccelerate launch train.py --config recipe.yaml\n"
        found = self.arguments(tmp_path, shell, {"sub/train.py": TRAINER, "sub/recipe.yaml": RECIPE})
        assert found.arguments == ("--config", "sub/recipe.yaml"), "as the emitted job sees it"
        assert found.notes == (
            "job.sh:1 starts in sub; launch.sh starts in the folder of the spec",
            "variables that job.sh sets for the job are not set by launch.sh: A, B",
        )

    def test_a_recipe_that_the_line_s_file_writes(self, tmp_path: Path) -> None:
        shell = f"cat > own.yaml <<'EOF'\n{RECIPE}EOF\naccelerate launch train.py own.yaml\n"
        found = self.arguments(tmp_path, shell)
        (problem,) = found.problems
        assert problem.key == "recipe" and problem.help == "Save the recipe as a file, and name it."
        assert problem.message.endswith("job.sh writes its recipe by itself, which launch.sh will not do")
        assert found.arguments == ()

    def test_what_is_no_line(self, tmp_path: Path) -> None:
        """A file that is not there is told as such, elsewhere."""
        run = replace(line_of(tmp_path, "accelerate launch train.py\n"), launch=None)
        found = collect_inputs._with_arguments(taken(run, tmp_path, launch="job.sh:7"))
        assert [(item.key, item.message) for item in found.problems] == [
            ("launch", "job.sh:7 is no launch line that starts a training")
        ]
        gone = replace(run, missing=(Origin("flag", "gone.sh"),))
        assert collect_inputs._with_arguments(taken(gone, tmp_path)).problems == ()

    @pytest.mark.parametrize(
        ("shell", "script", "module", "notes"),
        [
            ("torchrun -m pkg.train", "pkg/train.py", "pkg.train", 0),
            ("torchrun -m pkg.train", "sub/pkg/train.py", "", 1),
            ("torchrun pkg/train.py", "pkg/train.py", "", 0),
        ],
    )
    def test_a_module(self, shell: str, script: str, module: str, notes: int, tmp_path: Path) -> None:
        run = line_of(tmp_path, f"{shell}\n", {"pkg/train.py": TRAINER})
        found = collect_inputs._with_module(taken(run, tmp_path, script=script))
        assert (found.module, len(found.notes)) == (module, notes)
        assert all("starts the module pkg.train in another folder" in note for note in found.notes)

    def test_secrets_are_named_once_in_order(self) -> None:
        words = ("--wandb_token", "a1b2c3d4e5f6a7b8c9d0", "--hub_token=a1b2c3d4e5f6a7b8c9d0", "--seed", "1")
        found = collect_inputs._with_secrets_told(replace(inputs_of(run_of()), arguments=words, notes=("before",)))
        text = "launch.sh takes a secret from the variable {}: set it where the job is started"
        assert found.notes == ("before", text.format("HUB_TOKEN"), text.format("WANDB_TOKEN"))

    @pytest.mark.parametrize(
        ("words", "keys"),
        [
            ("train.py --deepspeed $CONFIG", ["deepspeed"]),
            ("train.py --deepspeed_config other/config", []),  # no name of a file: perhaps another kind of value
            ("train.py --deepspeed ds.json", []),
            ("train.py --deepspeed", []),
            ("--config_file $CONFIG train.py", ["accelerate"]),
            ("--config_file $CONFIG train.py --deepspeed $OTHER", ["deepspeed", "accelerate"]),
            ("train.py --deepspeed gone.json", []),  # told as missing
            ("--config_file gone.yaml train.py", []),
        ],
    )
    def test_configs_that_only_the_shell_knows(self, words: str, keys: list[str], tmp_path: Path) -> None:
        run = line_of(tmp_path, f"accelerate launch {words}\n")
        assert [key for key, _ in lacking_configs(run)] == keys
        problems = list(collect_inputs._lacking_configs(taken(run, tmp_path)))
        assert [problem.key for problem in problems] == keys
        assert list(collect_inputs._lacking_configs(taken(run, tmp_path, engine="ddp"))) == [], "the author decides it"
        assert lacking_configs(replace(run, launch=None)) == []

    def test_a_config_that_the_shell_knows_is_named_with_its_option(self, tmp_path: Path) -> None:
        run = line_of(tmp_path, "accelerate launch train.py --deepspeed $CONFIG\n")
        (problem,) = collect_inputs._lacking_configs(taken(run, tmp_path))
        assert problem.message == "job.sh:1 names a config that is not known here: --deepspeed $CONFIG"
        assert problem.help == (
            "Name the file in the spec (`deepspeed:`), or the engine that runs without it (`engine:`)."
        )

    def test_options_that_name_the_config_are_the_launcher_s(self) -> None:
        arguments = {name: setting(1) for name in ("deepspeed", "deepspeed_config", "seed")}
        assert list(without_config(run_of(deepspeed={}, arguments=arguments))) == ["seed"]
        assert list(without_config(run_of(arguments=arguments))) == list(arguments), "of a file that nobody can tell"

    @pytest.mark.parametrize(
        ("shell", "script", "said"),
        [
            ("deepspeed train.py --seed 1", OWN_LOOP, None),
            ("deepspeed train.py $MORE", OWN_LOOP, "job.sh:1 names no DeepSpeed config that is known here"),
            (
                "deepspeed train.py",
                OWN_LOOP.replace("{}", "config=make()"),
                "train.py gives deepspeed.initialize a config of its own",
            ),
            (
                "deepspeed train.py $MORE",
                OWN_LOOP.replace("{}", "config_params=make()"),
                "train.py gives deepspeed.initialize a config of its own",
            ),
            ("deepspeed train.py --deepspeed_config ds.json $MORE", OWN_LOOP, None),
            ("deepspeed train.py --deepspeed_config $CONFIG", OWN_LOOP, None),  # told as such
            ("deepspeed train.py --deepspeed_config gone.json $MORE", OWN_LOOP, None),
        ],
    )
    def test_a_loop_whose_config_nobody_can_tell(
        self, shell: str, script: str, said: str | None, tmp_path: Path
    ) -> None:
        run = line_of(tmp_path, f"{shell}\n", {"train.py": script})
        assert run.consumer == "deepspeed"
        problems = list(collect_inputs._config_of_its_own(taken(run, tmp_path)))
        assert len(problems) == (said is not None)
        for problem in problems:
            assert problem.key == "deepspeed" and problem.message.startswith(said or "")
            assert problem.help.startswith("Let train.py read the file that `--deepspeed_config` names")
        without = taken(run, tmp_path)
        without = replace(without, spec=without.spec.model_copy(update={"launch": None}))
        assert list(collect_inputs._config_of_its_own(without)) == []


class TestFiles:
    @pytest.mark.parametrize(("path", "keys"), [("train.py", ["deepspeed"]), ("ds.json", []), (None, [])])
    def test_a_script_that_makes_its_config(self, path: str | None, keys: list[str]) -> None:
        run = run_of(deepspeed={})
        assert run.deepspeed is not None
        run.deepspeed.path = Path(path) if path else None
        assert [problem.key for problem in collect_inputs._own_config(run)] == keys
        assert list(collect_inputs._own_config(run_of())) == []

    def test_files_without_keys(self) -> None:
        texts = {"deepspeed": '{"a": 1,\n {', "accelerate": "[1]", "recipe": '{"a": 1}'}
        files: dict[str, Any] = {}
        for role, text in texts.items():
            own = SourceText(f"{role}.json", text)
            files[role] = SourceFile(own.name, "other", own, load_as(own, "json"))
        broken, empty = collect_inputs._unread(Run("a", **files))
        assert (broken.key, broken.place, broken.help) == (
            "deepspeed",
            Where("deepspeed.json", 2, 2),
            "Correct it first.",
        )
        assert broken.message.startswith("deepspeed.json cannot be read: not valid JSON")
        assert (empty.key, empty.message, empty.place) == (
            "accelerate",
            "accelerate.json holds no keys",
            Where("accelerate.json", 1, 1),
        )

    def test_the_facts_of_a_model(self) -> None:
        llama = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
        spec = inputs_of(run_of()).spec
        assert collect_inputs._facts(spec, None).unknown_because == "the spec names no model"
        stated = ModelFacts(parameters=7)
        assert collect_inputs._facts(spec.model_copy(update={"model": stated}), None) is stated
        named = spec.model_copy(update={"model": "config.json"})
        assert collect_inputs._facts(named, source("recipe", llama)).hidden_size == 64
        for file in (source("recipe", [llama]), None):
            found = collect_inputs._facts(named, file)
            assert found.hidden_size is None and found.unknown_because not in (None, "the spec names no model")

    @pytest.mark.parametrize(
        ("model_type", "vision", "kind"),
        [
            ("qwen2_5_vl", {"depth": 2, "hidden_size": 64, "out_hidden_size": 64, "num_heads": 2}, Vision),
            ("qwen3_vl", {"depth": 2, "hidden_size": 64, "out_hidden_size": 64, "num_heads": 2}, Tower),
            ("llama", None, type(None)),
        ],
    )
    def test_the_vision_part_of_a_model(self, model_type: str, vision: Any, kind: type, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        text = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 100}
        text |= {"intermediate_size": 64, "num_key_value_heads": 2}
        config = {"model_type": model_type, **({"text_config": text, "vision_config": vision} if vision else text)}
        run = run_of(accelerate={}, model=ModelSummary("m"))
        spec = inputs_of(run).spec.model_copy(update={"model": "config.json"})
        found = collect_inputs.collect_inputs(run, spec, tmp_path, None, source("recipe", config))
        assert found.problems == () and found.run.model is not None
        assert isinstance(found.run.model.vision, kind)
        assert found.run.model.name == "m"

    def test_what_the_rules_hear_of_the_model(self) -> None:
        """Every number of the facts, and that adapters alone are trained."""
        facts = ModelFacts(
            parameters=100, trainable_parameters=7, vocab_size=11, largest_parameter=40, largest_block=30
        )
        found = replace(inputs_of(run_of(model=ModelSummary("m", dtype="bfloat16"))), facts=facts)
        found = collect_inputs.with_memory(found)
        assert found.run.model == ModelSummary(
            "m",
            dtype="bfloat16",
            parameters=100,
            vocab_size=11,
            largest_parameter=40,
            largest_block=30,
            all_trained=False,
        )
        assert found.run.memory is not None
        assert collect_inputs.with_memory(inputs_of(run_of())).run.model is None

    @pytest.mark.parametrize(
        ("more", "is_open"), [({"goals": {}}, True), ({"goals": {}, "engine": "ddp"}, False), ({}, False)]
    )
    def test_an_open_engine_is_remembered(self, more: dict[str, Any], is_open: bool, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        run = run_of(recipe={"max_steps": 1})
        spec = RunSpec.model_validate({"consumer": "transformers", "script": "train.py", **more})
        found = collect_inputs.collect_inputs(run, spec, tmp_path, load_hardware("8xA100-80GB"), None)
        assert found.problems == () and (found.before_engine is not None) is is_open
        assert found.engine == "ddp" and found.run.flags["multi_gpu"].value is True
        if found.before_engine is not None:
            assert found.before_engine.run.flags == {}
            other = collect_inputs.with_engine(found, "deepspeed")
            assert (other.engine, other.before_engine) == ("deepspeed", found.before_engine)
            assert set(other.run.flags) == {"use_deepspeed", "num_processes", "num_machines"}


class TestRanks:
    def flags(self, hardware: str, consumer: str = "accelerate", engine: str = "ddp", **more: Any) -> Inputs:
        return collect_inputs._with_hardware(inputs_of(run_of(consumer, **more), engine, hardware))

    @pytest.mark.parametrize(("hardware", "kept"), [("1xA100-80GB", False), ("2xA100-80GB", True)])
    def test_one_rank_is_not_started_as_several(self, hardware: str, kept: bool) -> None:
        given = {"multi_gpu": setting(True, "flag"), "debug": setting(True, "flag")}
        found = self.flags(hardware, accelerate={}, flags=given).run.flags
        assert ("multi_gpu" in found) is kept and found["debug"].value is True

    @pytest.mark.parametrize(
        ("said", "used", "notes"),
        [
            ("0,1", "0,1", 0),
            ("0,1,2", "all", 1),
            ("0", "all", 1),
            ("all", None, 0),
            (None, None, 0),
        ],
    )
    def test_devices_that_the_sources_choose(self, said: str | None, used: str | None, notes: int) -> None:
        given = {} if said is None else {"gpu_ids": setting(said, "flag")}
        found = self.flags("2xA100-80GB", flags=given)
        flag = found.run.flags.get("gpu_ids")
        assert (flag.value if flag else None) == (used if said != "all" else "all")
        assert found.notes == (
            (f"gpu_ids: the sources say {said}, 2xA100-80GB has 2 for a node: all of them are used",) if notes else ()
        )

    @pytest.mark.parametrize(
        ("hardware", "engine", "config", "told"),
        [
            ("1xA100-80GB", "ddp", None, False),
            ("2xA100-80GB", "ddp", None, True),
            ("2x1xA100-80GB", "ddp", None, True),
            ("2xA100-80GB", "ddp", {}, False),  # its `distributed_type` says it
            ("2xA100-80GB", "fsdp", None, False),
        ],
    )
    def test_accelerate_is_told_of_several_ranks(self, hardware: str, engine: str, config: Any, told: bool) -> None:
        more = {} if config is None else {"accelerate": config}
        flag = self.flags(hardware, engine=engine, **more).run.flags.get("multi_gpu")
        assert (None if flag is None else (flag.value, flag.origin.note)) == (
            (True, "the engine of this run is ddp") if told else None
        )

    def test_the_ranks_of_a_loop_have_the_origin_of_the_hardware(self) -> None:
        found = self.flags("2x8xA100-80GB", "deepspeed", "deepspeed").run.flags
        assert {name: flag.origin.note for name, flag in found.items()} == {
            "nnodes": "2x8xA100-80GB: 2 nodes of 8 ranks",
            "nproc_per_node": "2x8xA100-80GB: 2 nodes of 8 ranks",
        }

    @pytest.mark.parametrize(("memlock", "limit"), [(65536, 65536), ("unlimited", None), (None, None)])
    def test_what_a_process_may_lock(self, memlock: Any, limit: int | None) -> None:
        found = inputs_of(run_of("accelerate"))
        assert found.profile is not None
        host = Host(memlock=memlock)
        found = collect_inputs._with_hardware(replace(found, profile=found.profile.model_copy(update={"host": host})))
        assert found.run.hardware is not None and found.run.hardware.memlock == limit

    def test_a_device_that_computes_no_bf16(self) -> None:
        found = self.flags("1xV100-32GB").run.hardware
        assert found is not None and (found.bf16, found.vendor) == (False, "nvidia")

    @pytest.mark.parametrize(("config", "counted"), [({}, True), ({"parallelism_config": {"tp_size": 2}}, False)])
    def test_ranks_that_may_share_samples_count_no_steps(self, config: dict[str, Any], counted: bool) -> None:
        recipe = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "num_train_epochs": 3}
        launch, flags = launch_of_ranks("torchrun", 1, 8)
        run = run_of(recipe=recipe, accelerate=config, launch=launch, flags=flags)
        found = training_steps.with_steps(inputs_of(run, train_samples=1025))
        assert ("max_steps" in found.run.arguments) is counted


class TestBuilt:
    def test_files_of_bases_are_inputs_and_one_run_is_built(self, workplace: Workplace) -> None:
        files = job(deepspeed={"zero_optimization": {"stage": 2}})
        run = files["zerocfg.yaml"]["runs"]["a"]
        files["team.yaml"] = {"bases": {"x": {"hardware": run.pop("hardware")}}}
        files["zerocfg.yaml"]["runs"] = {"a": run | {"extends": "team.yaml#x"}, "b": run}
        spec = read_spec(workplace.write(files), "zerocfg.yaml")
        told: list[str] = []
        (built,) = build.build_plans(spec, "a", progress=told.append)
        assert built.plan is not None, built.problems
        assert built.plan.inputs["base 1"] == Path("team.yaml") and told == ["a: resolving"]
        assert set(built.plan.inputs) == {"spec", "deepspeed", "recipe", "base 1"}
        assert built.run is built.inputs.run and built.source.hardware is None
        with pytest.raises(ValueError, match="the spec has no run 'c'"):
            build.build_plans(spec, "c")

    def test_the_run_has_what_the_build_decided(self, workplace: Workplace) -> None:
        (built,) = build.build_plans(read_spec(workplace.write(job(deepspeed={"zero_optimization": {"stage": 3}}))))
        assert built.plan is not None and built.plan.settings[GATHER].value is True
        assert built.run.effective.value(GATHER) is True and built.problems == []
        assert built.run.memory is not None and built.run.hardware is not None

    def test_releases_of_the_settings_count_for_a_build(self, workplace: Workplace) -> None:
        spec = read_spec(workplace.write(job(deepspeed={"zero_optimization": {"stage": 2}})))
        (built,) = build.build_plans(spec, versions={"trl": "==1.14.0"})
        assert built.plan is not None and built.plan.versions["trl"] == "==1.14.0"
        (built,) = build.build_plans(spec)
        assert built.plan is not None and built.plan.versions["trl"] == "1.16.0"

    def test_values_that_are_written_elsewhere_have_a_place(self, workplace: Workplace) -> None:
        section = {"zero_stage": 2, "overlap_comm": True}
        config = {"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": section}
        files = job(accelerate="acc.yaml") | {"acc.yaml": config}
        files["zerocfg.yaml"]["runs"]["a"].pop("deepspeed")
        (built,) = build.build_plans(read_spec(workplace.write(files)))
        column = json.dumps(config).index('"overlap_comm"') + 1
        assert built.plan is not None
        assert {(place.line, place.column) for place in built.moved_from} == {(1, column)}

    @pytest.mark.parametrize(
        ("hosts", "keys"), [([], []), (["a", "b"], []), (["a"], ["hosts"]), (["a", "b", "c"], ["hosts"])]
    )
    def test_each_node_is_named_once(self, hosts: list[str], keys: list[str]) -> None:
        entry = inputs_of(run_of(), hosts=hosts).spec.model_copy(update={"hardware": "2x8xA100-80GB"})
        profile, problems = build._hardware(None, entry, Path())
        assert profile is not None and profile.world_size == 16
        assert [problem.key for problem in problems] == keys
        assert all(problem.message == f"{len(hosts)} names for the 2 nodes of 2x8xA100-80GB" for problem in problems)

    def test_a_stated_network_connects_the_nodes(self) -> None:
        entry = inputs_of(run_of()).spec.model_copy(update={"hardware": "2x8xA100-80GB"})
        stated, _ = build._hardware(None, entry, Path(), "8x200 infiniband")
        own, _ = build._hardware(None, entry, Path())
        assert stated is not None and stated.link_between_nodes is not None
        assert (stated.link_between_nodes.kind, stated.link_between_nodes.gb_s) == ("infiniband", 50.0)
        assert own is not None and own.link_between_nodes is not None and own.link_between_nodes.kind != "infiniband"
        nothing = entry.model_copy(update={"hardware": None})
        assert build._hardware(None, nothing, Path(), "8x200 infiniband") == (None, [])

    def test_what_the_command_line_names_wrongly_is_raised(self) -> None:
        entry = inputs_of(run_of()).spec.model_copy(update={"hardware": "8xA1000"})
        profile, (problem,) = build._hardware(None, entry, Path())
        assert profile is None and problem.key == "hardware" and "'A1000'" in problem.message
        with pytest.raises(ValueError, match="A1000"):
            build._hardware("8xA1000", entry, Path())

    @pytest.mark.parametrize(
        ("goals", "said"),
        [
            (None, "resolving"),
            ({}, "comparing plans"),
            ({"trace": True}, "comparing plans and tracing the best"),
        ],
    )
    def test_what_is_done(self, goals: Any, said: str) -> None:
        spec = {"consumer": "trl", "script": "train.py", "goals": goals}
        assert build._activity(RunSpec.model_validate(spec)) == said


class TestFacts:
    def linted(self, workplace: Workplace, **changes: Any) -> Run:
        zero = changes.pop("zero", {"stage": 3})
        path = workplace.write(job(deepspeed={"zero_optimization": zero}, **changes))
        files = Files()
        (run,) = with_facts(runs_from_spec(path, files), files)
        return run

    def test_whole_weights_and_memory_are_known_to_the_rules(self, workplace: Workplace) -> None:
        run = self.linted(workplace)
        gathered = run.effective.settings[GATHER]
        assert (gathered.value, gathered.origin.kind) == (True, "computed")
        assert gathered.origin.note.startswith("zerocfg's choice: nobody sets it")
        assert run.memory is not None and run.memory.states_gib[3] > 0 and run.effective.value(STAGE) == 3
        assert run.model is not None and not run.model.too_large

    @pytest.mark.parametrize(("tensors", "too_large"), [(10_000, False), (10_001, True)])
    def test_a_model_of_too_many_tensors(self, tensors: int, too_large: bool, workplace: Workplace) -> None:
        run = self.linted(workplace, model={"parameters": tensors * 4096, "largest_parameter": 4096})
        assert run.model is not None and run.model.too_large is too_large

    def test_with_goals_a_fit_is_not_looked_for(self, workplace: Workplace) -> None:
        run = self.linted(workplace, zero={}, goals={"prefer": "memory"})
        assert run.memory is None and run.effective.value(STAGE) == 0, "which is DeepSpeed's default"
        assert run.hardware == HardwareSummary(
            "8xA100-80GB",
            1,
            8,
            memory_gib=load_hardware("8xA100-80GB").accelerator.planning_gib,
            bf16=True,
            vendor="nvidia",
        )

    def test_classes_of_a_known_architecture(self, workplace: Workplace) -> None:
        model = {"model_type": "llama", "parameters": 7_000_000_000, "hidden_size": 4096}
        run = self.linted(workplace, model=model)
        assert run.model is not None and run.model.layer_class == "LlamaDecoderLayer"
        assert "MistralDecoderLayer" in run.model.foreign_classes
        assert "LlamaDecoderLayer" not in run.model.foreign_classes
        run = self.linted(workplace, model={**model, "model_type": "of-tomorrow"})
        assert run.model is not None and run.model.layer_class is None and not run.model.foreign_classes

    def test_runs_of_no_spec_stay(self) -> None:
        run = run_of(model=ModelSummary("m"))
        assert with_facts([run], Files()) == [run]


class TestPlan:
    @pytest.mark.parametrize("word", ["file", "flag", "environment", "default", "computed", "hardware", "chosen"])
    def test_kinds_of_a_lock(self, word: str) -> None:
        assert kind_of(word) == word and kind_of("guess") == kind_of(None) == kind_of("") == ""

    def test_a_problem_in_words(self) -> None:
        assert str(Problem("a", "it is wrong")) == "it is wrong"
        assert str(Problem("a", "it is wrong", "Mend it.")) == "it is wrong\n  Mend it."
        assert str(Problem("a", "it is wrong", "Mend it.", Where("f", 2, 3))) == "f:2:3: it is wrong\n  Mend it."

    @pytest.mark.parametrize(
        ("hardware", "vendor"),
        [("8xA100-80GB", "nvidia"), ("8xMI300X", "amd"), ("8xGaudi2", "habana"), ("4xcpu", "cpu"), (None, None)],
    )
    def test_the_vendor_of_its_devices(self, hardware: str | None, vendor: str | None) -> None:
        profile = load_hardware(hardware) if hardware else None
        plan = Plan("a", "trl", "ddp", Path(), "train.py", [], "h", 8, 1, profile=profile)
        assert plan.vendor == vendor and plan.cpus_per_node is None
        if profile is not None:
            plan.profile = profile.model_copy(update={"host": Host(cpus=12)})
            assert plan.cpus_per_node == 12

    def test_a_decision_has_no_inputs_of_another(self) -> None:
        assert Decision(1).inputs == {} and Setting(1, Origin("file")).overridden == ()
