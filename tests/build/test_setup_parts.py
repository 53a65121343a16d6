"""Guards of what a run's memory is read from: buckets, kernels, images, dtypes, and what a forecast makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.build.test_forecast_limits import CONFIG, ENGINE, FACTS, built, summary
from tests.build.test_model_parts import LLAVA, QWEN, script_of
from tests.build.test_road_limits import run_of, setting
from tests.build.test_setup import DEEPSPEED, FSDP, SHARDED, ZERO, setup
from zerocfg.hardware.profile import load_hardware
from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.options import Images, Options, Rollouts, TorchOptions, Workload
from zerocfg.memory.overhead import GIB
from zerocfg.models.hardware import Host
from zerocfg.models.spec import RunSpec
from zerocfg.models.towers import tower_of
from zerocfg.models.vision import vision_of
from zerocfg.resolve.explain import forecast as forecasts
from zerocfg.resolve.explain.forecast import forecast
from zerocfg.resolve.model import memory_summary as memory_summaries
from zerocfg.resolve.model.setup import Setup, setup_of, setup_of_run
from zerocfg.resolve.plan import Problem
from zerocfg.resolve.spec import validation_errors
from zerocfg.resolve.spec.locate_problems import locate_problems
from zerocfg.resolve.spec.spec_file import check_spec, read_spec
from zerocfg.run.facts import ModelSummary
from zerocfg.run.model import Origin, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span, Where

DDP = {"engine": "ddp", "mixed_precision": "bf16", "train_micro_batch_size_per_gpu": 1}


@pytest.mark.parametrize(
    ("written", "mib"),
    [
        (100, 100.0),
        (0.5, 0.5),
        (0, 25.0),
        (-1, 25.0),
        ("100", 25.0),
        (None, 25.0),
        (10**15, 25.0),
        (10**15 - 1, 1e15 - 1),
    ],
)
def test_buckets_of_ddp(written: Any, mib: float) -> None:
    """torch's own are of 25 MiB."""
    options = setup(DDP, {"ddp_bucket_cap_mb": written}).options
    assert isinstance(options, TorchOptions) and options.ddp_bucket_mib == mib


@pytest.mark.parametrize(
    ("recipe", "consumer", "kernels"),
    [
        ({}, "transformers", "eager"),
        ({"torch_compile": True}, "transformers", "compiled"),
        ({"torch_compile": "yes"}, "trl", "compiled"),
        ({"torch_compile": False}, "transformers", "eager"),
        ({"torch_compile_mode": "default"}, "transformers", "compiled"),
        ({"torch_compile": False, "torch_compile_mode": "default"}, "transformers", "compiled"),
        ({"torch_compile": True}, "accelerate", "eager"),
    ],
)
def test_who_compiles(recipe: dict[str, Any], consumer: str, kernels: str) -> None:
    assert setup(DDP, recipe, consumer=consumer).kernels == kernels


@pytest.mark.parametrize(("written", "share"), [(1.5, 1.0), (-0.1, 1.0), (1, 1.0), (0.5, 0.5)])
def test_shares_outside_of_0_to_1_are_none(written: float, share: float) -> None:
    offloaded = {**DEEPSPEED, ZERO + "stage": 3, ZERO + "offload_optimizer.device": "cpu"}
    options = setup({**offloaded, ZERO + "offload_optimizer.ratio": written}).options
    assert isinstance(options, Options) and options.offload_ratio == share


def test_micro_batches_of_fsdp() -> None:
    options = setup({**SHARDED, "gradient_accumulation_steps": 3}, {"optim": "sgd"}).options
    assert (options.gradient_accumulation_steps, options.optimizer) == (3, "sgd")


@pytest.mark.parametrize(
    ("recipe", "said", "recomputed"),
    [
        ({"gradient_checkpointing": None}, True, False),  # written, so that the spec does not speak for it
        ({"activation_checkpointing": False, "gradient_checkpointing": True}, None, False),
        ({"activation_checkpointing": True, "gradient_checkpointing": False}, None, True),
        ({"activation_checkpointing": None, "gradient_checkpointing": True}, None, True),
    ],
)
def test_both_names_of_recomputation(recipe: dict[str, Any], said: bool | None, recomputed: bool) -> None:
    """transformers takes the newer name where both are written."""
    work = setup(DEEPSPEED, recipe, gradient_checkpointing=said).workload
    assert work is not None and work.gradient_checkpointing is recomputed


def test_recomputation_by_fsdp_beats_all() -> None:
    work = setup({**SHARDED, FSDP + "fsdp_activation_checkpointing": True}, consumer="accelerate").workload
    assert work is not None and work.gradient_checkpointing is True and work.assumed, "of the optimizer nothing is said"


class TestImages:
    VISION, TOWER = vision_of(QWEN), tower_of({**QWEN, "model_type": "qwen3_vl"})

    def found(self, vision: Any, images: Any) -> Setup:
        spec = {"consumer": "transformers", "script": "a.py", "sequence_length": 512, "images": images}
        return setup_of(DEEPSPEED.get, {}, RunSpec.model_validate(spec), 4, vision=vision)

    def test_those_of_a_sample_are_in_the_workload(self) -> None:
        assert self.VISION is not None and self.TOWER is not None
        work = self.found(self.VISION, {"per_sample": 2, "pixels": 784}).workload
        assert work is not None and work.images == Images(self.VISION, 2, 784)
        none = self.found(self.VISION, {"per_sample": 0}).workload
        assert none is not None and none.images == Images(self.VISION, 0)
        text = self.found(None, {"per_sample": 2, "pixels": 784}).workload
        assert text is not None and text.images is None
        counted = self.found(self.TOWER, {"per_sample": 0}).workload
        assert counted is not None and counted.images is None

    @pytest.mark.parametrize(
        ("tower", "images", "said"),
        [
            (False, None, "nothing says how many images a sample has, and how large; add `images:"),
            (True, None, "nothing says how many images a sample has, and how large; add `images:"),
            (True, {"per_sample": 1}, "what images take in the tower of "),
        ],
    )
    def test_what_nobody_can_count(self, tower: bool, images: Any, said: str) -> None:
        found = self.found(self.TOWER if tower else self.VISION, images)
        assert found.workload is None and found.unknown.startswith(said)


class TestRun:
    @pytest.mark.parametrize(
        ("recipe", "parsed", "dtype", "master"),
        [
            ({}, "trl.ModelConfig", "bfloat16", True),
            ({"torch_dtype": "bfloat16"}, "trl.ModelConfig", "bfloat16", False),
            ({}, "", "bfloat16", False),
            ({}, "", None, True),
            ({"dtype": "bfloat16"}, "", None, False),
            ({"torch_dtype": "bfloat16"}, "", "float32", False),
        ],
    )
    def test_the_dtype_that_is_loaded(self, recipe: Any, parsed: str, dtype: str | None, master: bool) -> None:
        run = run_of("trl", script=script_of(parsed=parsed), model=ModelSummary("m", dtype=dtype), recipe=recipe)
        spec = RunSpec.model_validate({"consumer": "trl", "script": "a.py", "sequence_length": 512})
        found = setup_of_run(run, DDP.get, spec, 4)
        assert isinstance(found.options, TorchOptions) and found.options.master is master
        assert setup_of_run(replace(run, model=None), DDP.get, spec, 4, {"dtype": "bfloat16"}).options.master is False  # type: ignore[union-attr]

    def test_the_recipe_of_a_choice_stands_for_that_of_the_run(self) -> None:
        run = run_of("transformers", recipe={"gradient_checkpointing": True})
        spec = RunSpec.model_validate({"consumer": "transformers", "script": "a.py", "sequence_length": 512})
        for given, recomputed in ((None, True), ({}, False)):
            work = setup_of_run(run, DEEPSPEED.get, spec, 4, given).workload
            assert work is not None and work.gradient_checkpointing is recomputed

    def test_a_vision_part_of_another_kind_is_none(self) -> None:
        spec = RunSpec.model_validate({"consumer": "transformers", "script": "a.py", "sequence_length": 512})
        for vision, known in ((object(), True), (vision_of(LLAVA), False)):
            run = run_of("transformers", model=ModelSummary("m", vision=vision))
            assert (setup_of_run(run, DEEPSPEED.get, spec, 4).workload is not None) is known

    def test_releases_and_trainer_of_the_run_count(self) -> None:
        spec = RunSpec.model_validate({"consumer": "trl", "script": "a.py", "sequence_length": 512})
        run = run_of("trl", versions={"trl": "==0.21.0"}, script=script_of("trl.SFTTrainer"))
        work = setup_of_run(run, DEEPSPEED.get, spec, 4).workload
        assert work is not None and not work.gradient_checkpointing, "TRL recomputes by default since 0.22"
        other = replace(run, script=script_of("trl.KTOTrainer"))
        assert "KTOTrainer of TRL trains" in setup_of_run(other, DEEPSPEED.get, spec, 4).unknown

    def test_completions_are_the_end_of_a_sequence(self) -> None:
        spec = RunSpec.model_validate({"consumer": "trl", "script": "a.py", "sequence_length": 1024})
        settings = {**DEEPSPEED, "num_processes": 4}
        run = run_of("trl", script=script_of("trl.GRPOTrainer"), recipe={"max_completion_length": 256})
        found = setup_of_run(run, settings.get, spec, 4)
        assert found.workload is not None and found.rollouts is not None
        assert (found.workload.completion, found.workload.fused_loss) == (256, True)
        assert found.rollouts.by == "transformers" and not found.rollouts.reference
        plain = setup_of_run(replace(run, script=script_of("trl.SFTTrainer")), settings.get, spec, 4)
        assert plain.rollouts is None and plain.workload is not None and plain.workload.completion is None


class TestSummary:
    def test_both_ends_of_a_peak_know_what_samples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The low end with the cheapest optimizer, the high end as it is; each with the same sampling."""
        seen: list[Any] = []

        def predict(_: Any, options: Any, __: Any, ___: Any, *, sampling: Any = None) -> Any:
            seen.append((options.optimizer, sampling))
            band = SimpleNamespace(low=GIB, high=3 * GIB)
            return SimpleNamespace(device=band)

        monkeypatch.setattr(memory_summaries, "predict", predict)
        spec = RunSpec.model_validate({"consumer": "accelerate", "script": "a.py"})
        own = Setup(Options(2, 8), None, "bf16", rollouts=Rollouts())
        work = Workload(2, 1024)
        made = memory_summaries._Predicted(run_of(), FACTS, spec, CONFIG, load_hardware("8xA100-80GB"), own, work)
        assert made.peak(Options(2, 8), work) == (1.0, 3.0)
        assert [optimizer for optimizer, _ in seen] == ["adamw_fused", "adamw"]
        assert all((item.workload, item.config) == (work, CONFIG) for _, item in seen)
        assert made.timeline(work) == by_formula(FACTS, work, "bf16", CONFIG)

        def unknown(*_: Any, **__: Any) -> Any:
            raise ValueError("what it generates with is not known")

        monkeypatch.setattr(memory_summaries, "predict", unknown)
        assert made.peak(Options(2, 8), work) is None
        assert replace(made, profile=None).peak(Options(2, 8), work) is None

    def test_states_of_a_stage_leave_nothing_out(self) -> None:
        """Of a run with everything offloaded: what a stage takes without."""
        spec = RunSpec.model_validate({"consumer": "accelerate", "script": "a.py"})
        own = Setup(Options(3, 8, offload_optimizer="cpu", offload_param="cpu", reduce_bucket_size=7), None, "bf16")
        made = memory_summaries._Predicted(run_of(), FACTS, spec, CONFIG, None, own, None)
        assert made.at(2) == Options(2, 8, reduce_bucket_size=7)
        assert sorted(made.states()) == [0, 1, 2, 3]

    def test_a_run_without_a_length_has_states_and_no_logits(self) -> None:
        item = summary(ENGINE, sequence_length=None)
        assert item.states_gib and item.resting_gib is not None and item.logits_gib is item.peak_gib is None

    def test_of_a_stage_that_is_offloaded_the_others_are_not(self) -> None:
        item = summary(ENGINE | {"zero_optimization.offload_optimizer.device": "cpu"})
        plain = summary()
        assert item.peak_gib is not None and item.stage_peaks_gib[2] == plain.peak_gib != item.peak_gib


class TestForecast:
    SMALL = load_hardware("8xA100-80GB").accelerator.model_copy(update={"usable_gib": 1.0})

    def test_what_is_written_to_the_drives_of_a_node(self) -> None:
        """fp32 weights and both moments: 12 bytes of each parameter, over all eight ranks."""
        drive = {f"{ZERO}stage": 3, f"{ZERO}offload_optimizer.device": "nvme"}
        item = forecast(built(**drive), tracing=False, changes=False)
        assert FACTS.parameters is not None and item.nvme == pytest.approx(12 * FACTS.parameters, rel=0.01)
        assert forecast(built(), tracing=False, changes=False).nvme == 0

    def rungs(self, stage: int, **versions: str) -> list[str]:
        item = built(hardware={"accelerator": self.SMALL, "host": Host(ram_gib=64.0)}, **{f"{ZERO}stage": stage})
        item.run = replace(item.run, versions=versions)
        item.inputs.run = item.run
        ladder = forecast(item, tracing=False).ladder
        assert ladder is not None
        return [rung.what for rung in ladder.single]

    def test_liger_is_offered_where_it_works_at_that_stage(self) -> None:
        """Under ZeRO-3 only with the releases that were seen to gather the head."""
        assert [what for what in self.rungs(2, deepspeed="==0.18.0") if "Liger" in what]
        assert [what for what in self.rungs(3) if "Liger" in what]
        assert not [what for what in self.rungs(3, deepspeed="==0.18.0") if "Liger" in what]

    def test_changes_are_traced_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Any] = []
        monkeypatch.setattr(
            forecasts.Activations, "prepare", lambda self, setup, works: asked.append((setup.workload, list(works)))
        )
        item = forecast(built(hardware={"accelerator": self.SMALL}), tracing=False)
        ((own, works),) = asked
        assert own == item.setup.workload and Workload(2, 1024, gradient_checkpointing=True, assumed=True) in works

    @pytest.mark.parametrize(
        ("changes", "hardware", "arguments", "offered"),
        [
            (True, {"accelerator": SMALL}, {}, True),
            (False, {"accelerator": SMALL}, {}, False),
            (True, {}, {}, False),
            (True, {"accelerator": SMALL}, {"padding_free": True}, True),  # with it the figures are at most
            (True, {"accelerator": SMALL}, {"use_dora": True}, False),
        ],
    )
    def test_changes_are_offered_where_the_run_may_not_fit(
        self, changes: bool, hardware: Any, arguments: dict[str, Any], offered: bool
    ) -> None:
        item = built(hardware=hardware)
        item.run = replace(item.run, arguments={name: setting(value) for name, value in arguments.items()})
        found = forecast(item, tracing=False, changes=changes)
        assert (found.ladder is not None) is offered

    def test_notes_tell_what_is_assumed_and_what_is_not_known(self) -> None:
        item = forecast(built(train_micro_batch_size_per_gpu=None), tracing=False, changes=False)
        assert item.notes[-1] == "nothing says how large the micro batch is"
        assert "the optimizer of the script is counted as torch's AdamW" in item.notes and item.time is None


def test_a_spec_is_named_by_its_path_or_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/zerocfg.yaml").write_text("version: 1\nruns: {a: {consumer: trl, script: t.py}}\n")
    found = read_spec(Path("sub/zerocfg.yaml"))
    assert (found.document.name, found.folder) == ("sub/zerocfg.yaml", tmp_path / "sub")
    assert str(found.place_of("a")) == "sub/zerocfg.yaml:2:8" and str(found.place_of("a", "script")).endswith(":2:35")
    assert read_spec(Path("sub/zerocfg.yaml"), "mine.yaml").document.name == "mine.yaml"


class TestWordsOfProblems:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (None, "empty"),
            ({}, "a mapping without entries"),
            ({"a": 1}, "a mapping"),
            ([], "a list without entries"),
            ([0], "a list"),
            (True, "true"),
            (False, "false"),
            ("true", "'true'"),
            (1.5, "1.5"),
            ("x" * 58, "'" + "x" * 58 + "'"),  # 60 characters with its quotes
            ("x" * 59, "'" + "x" * 56 + "..."),
            (10**59, "1" + "0" * 59),
            (10**60, "1" + "0" * 56 + "..."),
        ],
    )
    def test_a_value(self, value: Any, text: str) -> None:
        assert validation_errors.shown_value(value) == text

    @pytest.mark.parametrize(
        ("text", "plain"),
        [
            ("Input should be a valid dictionary or instance of RunSpec", "a run is a mapping"),
            ("Input should be a valid dictionary or instance of Goals", "it must be a mapping"),
            ("Input should be a valid dictionary", "it must be a mapping"),
            ("Input should be a valid list", "it must be a list"),
            ("Input should be a valid string", "it must be text"),
            ("Input should be a valid integer, got a number with a fractional part", "it must be a whole number"),
            ("Input should be a valid number, unable to parse string as a number", "it must be a number"),
            ("Input should be a valid boolean, unable to interpret input", "it must be true or false"),
            ("Input should be a valid boolean", "it must be true or false"),
            (
                "Input should be a valid string or a valid integer or a valid number",
                "it must be text or a number",
            ),
            ("a sentence of its own", "a sentence of its own"),
        ],
    )
    def test_what_pydantic_says(self, text: str, plain: str) -> None:
        assert validation_errors._plain_words(text) == plain


SPEC = """\
version: 1
runs:
  a:
    consumer: transformers
    script: train.py
    model: gone/config.json
    deepspeed: gone.json
    recipe: gone.json
"""


class TestFilesThatAreMissing:
    def placed(self, key: str, origin: Origin, help: str = "", **more: Any) -> Problem:
        read = check_spec(Path("zerocfg.yaml"), load_as(SourceText("zerocfg.yaml", SPEC), "yaml"))
        (found,) = locate_problems([Problem(key, "no file", help)], read, run_of(missing=(origin,), **more))
        return found

    def origin(self, key: str, note: str) -> Origin:
        document = load_as(SourceText("zerocfg.yaml", SPEC), "yaml")
        return Origin("file", note, SourceFile("zerocfg.yaml", "spec", document.source, document), ("runs", "a", key))

    @pytest.mark.parametrize(("key", "line", "column"), [("deepspeed", 7, 16), ("recipe", 8, 13)])
    def test_the_key_of_the_spec_that_names_it(self, key: str, line: int, column: int) -> None:
        """Two keys name the same file: the place tells which of them is meant."""
        found = self.placed("gone.json", self.origin(key, "gone.json"))
        assert (found.key, found.message, found.place) == (key, "no file", Where("zerocfg.yaml", line, column))
        assert found.help == f"Correct the path, or leave `{key}` out."
        assert self.placed("gone.json", self.origin(key, "gone.json"), "Write it.").help == "Write it."

    def test_a_model(self) -> None:
        found = self.placed("gone/config.json", self.origin("model", "gone/config.json"))
        assert (found.key, found.place) == ("model", Where("zerocfg.yaml", 6, 12))
        assert found.message == "there is no file 'gone/config.json' beside the spec"
        assert found.help == "Name the model's config.json, or write its numbers out."

    def test_a_file_that_nothing_in_a_file_names(self) -> None:
        """Then the problem keeps its key, and stands at the run."""
        found = self.placed("gone.json", Origin("flag", "gone.json"))
        assert (found.key, found.help, found.place) == ("gone.json", "", Where("zerocfg.yaml", 3, 3))

    @pytest.mark.parametrize(("start", "name"), [(7, "--config_file"), (8, "launch")])
    def test_an_option_of_the_launch_line(self, start: int, name: str) -> None:
        text = SourceText("train.sh", "launch --config_file gone.yaml x.py\n")
        origin = Origin("flag", "gone.yaml", SourceFile("train.sh", "launch", text), span=Span(start, 20))
        line: Any = SimpleNamespace(options_at={Span(7, 20): SimpleNamespace(name="--config_file")})
        found = self.placed("gone.yaml", origin, launch=line)
        assert (found.key, found.place) == (name, Where("train.sh", 1, start + 1))
        assert found.help == f"Correct the path, or leave `{name}` out."
        assert self.placed("gone.yaml", origin).key == "launch"


class TestBasesOfSpec:
    HEAD = "version: 1\nruns: {a: {consumer: trl, script: t.py}}\n"

    def problems(self, text: str) -> list[str]:
        read = check_spec(Path("zerocfg.yaml"), load_as(SourceText("zerocfg.yaml", self.HEAD + text), "yaml"))
        assert (read.spec is None) is bool(read.problems)
        return [str(problem).partition("\n")[0].removeprefix("zerocfg.yaml:") for problem in read.problems]

    @pytest.mark.parametrize(
        ("base", "said"),
        [
            ("{}", []),
            ("{script: , consumer: }", []),  # what is empty says nothing, and what is missing a run may add
            ("{matrix: {hardware: [8xA100-80GB]}}", []),
            ("{extends: c}", []),
            ("{targets: {jobset: {}}}", ["3:23: `image` is missing in `bases.b.targets.jobset`"]),
            ("{train_samples: -1}", ["3:28: `bases.b.train_samples` is -1: it must be greater than 0"]),
            ("7", ["3:12: `bases.b` is 7, not a mapping of keys of a run"]),
        ],
    )
    def test_one_that_nothing_extends(self, base: str, said: list[str]) -> None:
        assert self.problems(f"bases: {{b: {base}, c: {{}}}}\n") == said

    @pytest.mark.parametrize(("text", "said"), [("bases:\n", []), ("bases: {}\n", []), ("bases: 7\n", None)])
    def test_a_section_that_is_none(self, text: str, said: list[str] | None) -> None:
        assert self.problems(text) == (["3:8: `bases` is 7, not a mapping of bases by name"] if said is None else said)

    def test_a_misspelt_key_is_not_reported_as_missing_as_well(self) -> None:
        text = "version: 1\nruns:\n  a: {consumr: trl, script: t.py}\n  b: {consumer: trl}\n"
        read = check_spec(Path("zerocfg.yaml"), load_as(SourceText("zerocfg.yaml", text), "yaml"))
        assert [str(item).partition("\n")[0] for item in read.problems] == [
            "zerocfg.yaml:3:7: unknown key `consumr` in `runs.a`; did you mean `consumer`?",
            "zerocfg.yaml:4:3: `script` is missing in `runs.b`",
        ]
