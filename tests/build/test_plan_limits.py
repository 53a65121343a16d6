"""Between a spec and its plans: where problems are shown, what lint is told, which files count, what FSDP is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import Workplace, job
from tests.build.test_road_limits import inputs_of, run_of, setting, source
from zerocfg.hardware.profile import load_hardware, write_text
from zerocfg.resolve.build import _base_files, _hardware, build_plans
from zerocfg.resolve.engine.fsdp import choose_fsdp
from zerocfg.resolve.facts import with_facts
from zerocfg.resolve.plan import Problem
from zerocfg.resolve.search.choice import STAGE
from zerocfg.resolve.spec.locate_problems import locate_problems
from zerocfg.resolve.spec.spec_file import SpecFile, check_spec, read_spec
from zerocfg.run.discover import Files
from zerocfg.run.facts import ModelSummary
from zerocfg.run.link import runs_from_spec
from zerocfg.run.model import Effective, Failure, Origin, Run, Setting
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Where

SPEC = """\
version: 1
runs:
  a:
    consumer: transformers
    script: train.py
    deepspeed: gone.json
    goals: {prefer: memory}
"""


def spec() -> SpecFile:
    found = check_spec(Path("zerocfg.yaml"), load_as(SourceText("zerocfg.yaml", SPEC), "yaml"))
    assert found.problems == []
    return found


class TestPlaces:
    def run(self) -> Run:
        """Values of each kind, and failures of which two say where they are."""
        run = run_of(recipe={"max_steps": 7, "lr": 1}, deepspeed={"a": {"b": 1}, "goals": {"c": 2}})
        file = Origin("file", file=run.deepspeed, path=("a", "b"))
        settings = {
            "a.b": Setting(1, file),
            "goals.c": Setting(2, replace(file, path=("goals", "c"))),
            "lr": setting(1, "computed"),
        }
        failures = (
            Failure("k", "init", "other", (replace(file, path=("goals",)),)),
            Failure("k", "init", "stops", (Origin("computed"), file)),
            Failure("k", "init", "nowhere", (Origin("computed"),)),
        )
        return replace(run, effective=Effective(settings=settings, failures=failures))

    @pytest.mark.parametrize(
        ("key", "refused", "place"),
        [
            ("goals", None, "zerocfg.yaml:7:12"),
            ("goals.prefer", None, "zerocfg.yaml:7:21"),
            ("goals.c", None, "ds.json:1:32"),  # a key of the DeepSpeed config, although a run has `goals` too
            ("a.b", None, "ds.json:1:13"),
            ("k", 1, "ds.json:1:13"),
            ("a.b", 2, "ds.json:1:13"),
            ("k", 2, "zerocfg.yaml:3:3"),
            ("max_steps", None, "recipe.yaml:1:2"),
            ("lr", None, "zerocfg.yaml:3:3"),  # a setting that no file sets
            ("min_steps", None, "zerocfg.yaml:3:3"),
        ],
    )
    def test_where_a_key_is_written(self, key: str, refused: int | None, place: str) -> None:
        run = self.run()
        problem = Problem(key, "", failure=None if refused is None else run.effective.failures[refused])
        (found,) = locate_problems([problem], spec(), run)
        assert found == replace(problem, place=Where.parse(place))

    def test_a_run_without_a_recipe(self) -> None:
        assert [one.place for one in locate_problems([Problem("max_steps", "")], spec(), run_of())] == [
            Where("zerocfg.yaml", 3, 3)
        ]

    @pytest.mark.parametrize(
        ("helps", "told"),
        [(("", "b", "c"), "b"), (("a", "b"), "a"), (("a", ""), "a"), (("", ""), "")],
    )
    def test_the_first_problem_of_a_key_with_the_first_way_out(self, helps: tuple[str, ...], told: str) -> None:
        problems = [Problem("goals", f"message {at}", help) for at, help in enumerate(helps)]
        assert locate_problems(problems, spec(), run_of()) == [
            Problem("goals", "message 0", told, Where("zerocfg.yaml", 7, 12))
        ]

    def test_a_file_that_another_file_names(self) -> None:
        """The spec names a file of that name as well, but at another place."""
        accelerate = source("accelerate", {"deepspeed_config": {"deepspeed_config_file": "gone.json"}})
        path = ("deepspeed_config", "deepspeed_config_file")
        run = run_of(missing=(Origin("file", "gone.json", accelerate, path),))
        assert locate_problems([Problem("gone.json", "no file")], spec(), run) == [
            Problem(
                "deepspeed_config_file",
                "no file",
                "Correct the path, or leave `deepspeed_config_file` out.",
                Where("accelerate.yaml", 1, 48),
            )
        ]


class TestFacts:
    def lint_and_build(self, workplace: Workplace, **changes: Any) -> tuple[Run, Run, SpecFile]:
        """The run as it is found, as lint gets it, and its spec."""
        path = workplace.write(job(**changes))
        (workplace.folder / "box.json").write_text(write_text(load_hardware("8xA100-80GB")))
        files = Files()
        runs = runs_from_spec(path, files)
        (found,) = with_facts(runs, files)
        return runs[0], found, read_spec(path)

    def test_a_profile_beside_the_spec(self, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
        (workplace.folder / "elsewhere").mkdir()
        monkeypatch.chdir(workplace.folder / "elsewhere")
        run, found, _ = self.lint_and_build(workplace, hardware="box.json")
        assert run.hardware is None
        assert found.hardware is not None and found.hardware.name == "8xA100-80GB"

    @pytest.mark.parametrize("wrong", [{"hardware": "gone.json"}, {"script": "gone.py"}])
    def test_a_run_that_cannot_be_built_stays_as_it_is(self, workplace: Workplace, wrong: dict[str, str]) -> None:
        run, found, _ = self.lint_and_build(workplace, **wrong)
        assert found is run and found.hardware is None

    def test_an_open_stage_is_the_one_that_is_built(self, workplace: Workplace) -> None:
        """16 bytes a parameter of 7e9 are too many for 80 GB; of stage 1 they are 4 + 12/8."""
        run, found, spec = self.lint_and_build(workplace, deepspeed={"zero_optimization": {}})
        (built,) = build_plans(spec)
        assert built.plan is not None and built.plan.settings[STAGE].value == 1
        assert (run.effective.value(STAGE), found.effective.value(STAGE)) == (0, 1)


class TestBuild:
    def test_files_that_bases_come_from(self, workplace: Workplace) -> None:
        entry = {"extends": ["two.yaml#x", "one.yaml#x", "own"], "recipe": "r.yaml"}
        path = workplace.write(
            {
                "zerocfg.yaml": {
                    "version": 1,
                    "bases": {"own": {"hardware": "8xA100-80GB"}},
                    "runs": {"a": entry, "b": {"consumer": "trl", "script": "train.py"}},
                },
                "one.yaml": {"bases": {"x": {"consumer": "trl"}}},
                "two.yaml": {"bases": {"x": {"script": "train.py"}}},
            }
        )
        found = read_spec(path, "zerocfg.yaml")
        assert found.problems == []
        assert _base_files(found, "a") == {"base 1": Path("one.yaml"), "base 2": Path("two.yaml")}
        assert _base_files(found, "b") == {}

    def test_a_profile_is_looked_for_where_its_name_was_given(self, workplace: Workplace) -> None:
        """In a spec from its folder, on the command line from the current one."""
        folder = workplace.folder / "sub"
        folder.mkdir()
        (folder / "box.json").write_text(write_text(load_hardware("8xA100-80GB")))
        Path("box.json").write_text(write_text(load_hardware("4xH100-80GB")))
        entry = inputs_of(run_of()).spec.model_copy(update={"hardware": "box.json"})
        names = [
            profile.name for profile, _ in (_hardware(one, entry, folder) for one in (None, "box.json")) if profile
        ]
        assert names == ["8xA100-80GB", "4xH100-80GB"]

    def test_a_profile_that_is_not_there_is_named_as_in_the_spec(self, tmp_path: Path) -> None:
        entry = inputs_of(run_of()).spec.model_copy(update={"hardware": "gone.json"})
        profile, (problem,) = _hardware(None, entry, tmp_path)
        assert profile is None
        assert problem.message == "gone.json: cannot be read: No such file or directory"


class TestFsdp:
    def test_what_the_launcher_is_told(self) -> None:
        found = choose_fsdp(inputs_of(run_of(model=ModelSummary("m", model_type="llama")), "fsdp"), {})
        assert {name: flag.value for name, flag in found.run.flags.items()} == {
            "use_fsdp": True,
            "fsdp_version": "2",
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": "FULL_STATE_DICT",
            "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
        }

    def test_a_run_that_is_refused_gets_nothing(self) -> None:
        found = choose_fsdp(inputs_of(run_of("deepspeed"), "fsdp"), {})
        assert [problem.key for problem in found.problems] == ["engine"]
        assert found.run.flags == {} and found.chosen == {}

    @pytest.mark.parametrize(("version", "default"), [(1, ""), (2, ", version 2's default,")])
    @pytest.mark.parametrize(
        ("consumer", "words"),
        [
            (
                "accelerate",
                "save_state() writes whole weights; with SHARDED_STATE_DICT{} it writes shards for `accelerate "
                "merge-weights`",
            ),
            ("trl", "the Trainer saves whole weights; with SHARDED_STATE_DICT{} it saves no model.safetensors"),
        ],
    )
    def test_why_whole_weights_are_saved(self, consumer: str, version: int, words: str, default: str) -> None:
        found = choose_fsdp(inputs_of(run_of(consumer), "fsdp"), {"fsdp_config": {"fsdp_version": version}})
        reason = found.chosen["fsdp_config.fsdp_state_dict_type"].reason
        assert reason == f"zerocfg's choice: {words.format(default)}"
