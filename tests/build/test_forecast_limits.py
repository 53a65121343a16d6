"""What is predicted of a run, and what a draft guesses: figures and both sides of each guard, without a build."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.hardware.profile import load_hardware
from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.activations.tracing import Adapters, Traced, TraceError
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.overhead import GIB, Band
from zerocfg.memory.time.rates import exactly
from zerocfg.memory.time.step_time import Part, StepTime
from zerocfg.memory.verdict import Verdict
from zerocfg.models.hardware import Host
from zerocfg.models.model_facts import ModelFacts, from_config
from zerocfg.models.spec import RunSpec
from zerocfg.page.memory import Memory, memory
from zerocfg.page.page import Missing, _predicted
from zerocfg.resolve.explain import forecast as forecasts
from zerocfg.resolve.explain.forecast import _counted, _time, forecast
from zerocfg.resolve.explain.plan_summary import chance_of, cost_of
from zerocfg.resolve.init.draft import Draft, run_name, with_unique_names, without_duplicates
from zerocfg.resolve.init.infer_runs import _requested_count, _short_name
from zerocfg.resolve.init.repository import model_configs, nearest
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.model import activations
from zerocfg.resolve.model import memory_summary as memory_summaries
from zerocfg.resolve.model.memory_summary import _least, _Predicted, memory_summary
from zerocfg.resolve.model.setup import Setup, arguments_written, setup_of
from zerocfg.resolve.provenance import Provenance
from zerocfg.resolve.search import take_plan
from zerocfg.resolve.spec.locate_problems import _where
from zerocfg.run.facts import MemorySummary, ModelSummary
from zerocfg.run.model import Effective, Origin, Run, Setting, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

from .conftest import Workplace
from .test_search import found, wanted, with_host

CONFIG = {"model_type": "llama", "vocab_size": 32768, "hidden_size": 512, "intermediate_size": 1024}
CONFIG |= {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8}
FACTS = from_config(CONFIG)
ENGINE = {
    "engine": "deepspeed",
    "zero_optimization.stage": 2,
    "train_micro_batch_size_per_gpu": 2,
    "bf16.enabled": True,
}


def summary(
    settings: dict[str, Any] | None = None, facts: ModelFacts = FACTS, hardware: str | None = "8xA100-80GB", **spec: Any
) -> MemorySummary:
    found = {name: Setting(one, Origin("file")) for name, one in (settings or ENGINE).items()}
    run = Run("a", "transformers", effective=Effective(settings=found))
    entry = {"consumer": "transformers", "script": "train.py", "sequence_length": 1024, **spec}
    profile = load_hardware(hardware) if hardware else None
    return memory_summary(run, facts, RunSpec.model_validate(entry), CONFIG, profile)


class TestPredicted:
    BARE = MemorySummary(logits_gib=0.75, micro_batch=2, sequence_length=1024)
    """2 samples x 1024 tokens x 32768 words x 12 bytes."""

    def test_without_hardware_or_parameters_the_logits_alone(self) -> None:
        assert summary(hardware=None) == self.BARE
        assert summary(facts=FACTS.model_copy(update={"parameters": None})) == self.BARE

    def test_logits(self) -> None:
        assert summary(hardware=None, fused_loss=True).logits_gib == 0.0
        assert summary(hardware=None, facts=FACTS.model_copy(update={"vocab_size": None})).logits_gib is None
        assert summary(hardware=None, sequence_length=None) == MemorySummary()

    def test_without_hardware_the_processes_that_are_started_count(self) -> None:
        """Two replicas of four shards are no plan for one rank."""
        fsdp = {"engine": "fsdp", "train_micro_batch_size_per_gpu": 2, "mixed_precision": "bf16", "num_processes": 8}
        sizes = {f"parallelism_config.dp_{name}_size": size for name, size in (("replicate", 2), ("shard", 4))}
        assert summary(fsdp | sizes, hardware=None).logits_gib == 0.75

    def test_states_of_every_stage(self) -> None:
        """Adam in bf16 needs 16 bytes a parameter at least; from stage 1 to 3 each of 8 ranks keeps less of them."""
        large = ModelFacts(parameters=7 * 10**9)
        states = summary(facts=large).states_gib
        assert sorted(states) == [0, 1, 2, 3]
        share = 7e9 / GIB
        assert 16 * share <= states[0] and 16 / 8 * share <= states[3] < states[2] <= states[1] < states[0]
        assert states[0] < 28 * share and states[3] < 6 * share
        assert summary(ENGINE | {"zero_optimization.offload_optimizer.device": "cpu"}, large).states_gib == states

    @pytest.mark.parametrize(
        "settings",
        [
            {"zero_optimization.offload_optimizer.device": "tape"},
            {"zero_optimization.stage": "auto"},
            {"zero_optimization.stage": 1, "zero_optimization.offload_param.device": "cpu"},
        ],
    )
    def test_what_cannot_be_built_is_not_predicted(self, settings: dict[str, Any]) -> None:
        assert summary(ENGINE | settings).peak_gib is None and summary(ENGINE | settings).states_gib

    def test_the_run_as_it_is(self) -> None:
        one = summary()
        assert one.peak_gib is not None and one.doubled_peak_gib is not None and one.step_gib is not None
        assert one.resting_gib is not None and one.states_gib[2] >= one.step_gib >= one.resting_gib > 0
        assert one.peak_gib[0] < one.peak_gib[1] < 80 and one.doubled_peak_gib[1] > one.peak_gib[1]
        assert one.stage_peaks_gib[2] == one.peak_gib and sorted(one.stage_peaks_gib) == [0, 1, 2, 3]
        assert len(set(one.stage_peaks_gib.values())) == 4, "each stage has its own"
        assert (one.host_states_gib, one.pinned_rounding_gib, one.nvme_gib) == (0.0, 0.0, 0.0)

    def test_what_is_offloaded_lies_on_the_node(self) -> None:
        one = summary(ENGINE | {"zero_optimization.offload_optimizer.device": "cpu"})
        assert FACTS.parameters is not None and one.host_states_gib is not None
        assert 12 * FACTS.parameters / GIB <= one.host_states_gib < 48 * FACTS.parameters / GIB, "of all ranks together"
        assert one.nvme_gib == 0.0
        drives = {"zero_optimization.stage": 3, "zero_optimization.offload_optimizer.device": "nvme"}
        one = summary(ENGINE | drives)
        assert one.nvme_gib is not None and 12 * FACTS.parameters / GIB <= one.nvme_gib < 24 * FACTS.parameters / GIB

    def test_without_the_model_s_layers_there_is_no_peak(self) -> None:
        one = summary(facts=ModelFacts(parameters=7 * 10**9, vocab_size=32768))
        assert one.peak_gib is one.step_gib is one.doubled_peak_gib is None and one.resting_gib is not None
        assert one.logits_gib == 0.75 and one.stage_peaks_gib == {}

    def test_of_a_doubled_micro_batch(self) -> None:
        assert summary().doubled_peak_gib == summary(ENGINE | {"train_micro_batch_size_per_gpu": 4}).peak_gib

    def test_rounding_of_what_is_page_locked_comes_on_top(self) -> None:
        offload = ENGINE | {"zero_optimization.offload_optimizer.device": "cpu"}
        locked, plain = (
            summary(offload | {"zero_optimization.offload_optimizer.pin_memory": one}) for one in (True, False)
        )
        assert locked.pinned_rounding_gib > 0 == plain.pinned_rounding_gib and plain.host_states_gib is not None
        assert locked.host_states_gib == pytest.approx(plain.host_states_gib + locked.pinned_rounding_gib)

    @pytest.mark.parametrize("recomputed", [True, False])
    def test_with_one_end_alone_there_is_no_peak(self, recomputed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """The low end recomputes here, the high end does not."""

        def formula(facts: ModelFacts, work: Workload, *more: Any) -> Any:
            if work.gradient_checkpointing is recomputed:
                raise ValueError("not known")
            return by_formula(facts, work, *more)

        monkeypatch.setattr(memory_summaries, "by_formula", formula)
        one = summary()
        assert one.peak_gib is one.doubled_peak_gib is None and one.stage_peaks_gib == {}
        assert one.resting_gib is not None

    def test_an_optimizer_that_nobody_names_costs_least(self) -> None:
        assert _least(Options(2, 8)) == Options(2, 8, optimizer="adamw_fused")
        assert _least(Options(2, 8, optimizer="sgd")) == Options(2, 8, optimizer="sgd")

    def test_stages_of_a_run_without_deepspeed_count_all_ranks(self) -> None:
        spec = RunSpec.model_validate({"consumer": "deepspeed", "script": "a.py"})
        own = Setup(TorchOptions("ddp", 8), None, "bf16")
        for hardware, ranks in (("8xA100-80GB", 8), (None, 1)):
            profile = load_hardware(hardware) if hardware else None
            assert _Predicted(Run("a"), FACTS, spec, CONFIG, profile, own, None).at(2) == Options(2, ranks)

    def test_a_run_without_deepspeed_has_a_peak_and_no_parts(self) -> None:
        one = summary({"engine": "ddp", "train_micro_batch_size_per_gpu": 2, "mixed_precision": "no"})
        assert one.peak_gib is not None and one.resting_gib is None and one.host_states_gib is None

    @pytest.mark.parametrize(
        ("consumer", "recipe", "spec", "pieces", "recomputed"),
        [
            ("deepspeed", False, {}, True, True),
            ("deepspeed", True, {}, True, True),
            ("transformers", False, {}, True, True),
            ("transformers", True, {}, False, False),
            ("deepspeed", False, {"fused_loss": False}, False, True),
            ("deepspeed", False, {"gradient_checkpointing": False}, True, False),
            ("transformers", True, {"fused_loss": False, "gradient_checkpointing": False}, False, False),
        ],
    )
    def test_a_script_may_save_memory_that_no_file_speaks_of(
        self, consumer: str, recipe: bool, spec: dict[str, Any], pieces: bool, recomputed: bool
    ) -> None:
        """But the Trainer does what its recipe says."""
        run = Run("a", recipe=SourceFile("recipe.yaml", "recipe", SourceText("recipe.yaml", "")) if recipe else None)
        entry = RunSpec.model_validate({"consumer": consumer, "script": "a.py", **spec})
        one = _Predicted(run, FACTS, entry, CONFIG, None, None, None)
        least = one.least(Workload(2, 1024))
        assert (least.fused_loss, least.gradient_checkpointing) == (pieces, recomputed)
        said = one.least(Workload(2, 1024, gradient_checkpointing=True, fused_loss=True))
        assert said.fused_loss and said.gradient_checkpointing


def traced(timeline: Any) -> Traced:
    """A model of 13 parameters, as tracing found it."""
    return Traced(timeline, 13, 13, ((8, 1), (5, 1)), 8, 13, False, 0, None, None, None, "Tiny", {})


class TestActivations:
    SETUP = Setup(Options(2, 8), Workload(2, 1024), "bf16")

    def test_only_a_config_can_be_traced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def never(*_: Any, **__: Any) -> Any:
            raise AssertionError("traced")

        monkeypatch.setattr(activations, "trace", never)
        monkeypatch.setattr(activations, "trace_all", never)
        for config, tracing in ((None, True), (CONFIG, False)):
            one = activations.Activations(FACTS, config, tracing=tracing, python=None)
            one.prepare(self.SETUP, [Workload(2, 1024)])
            found = one.of(self.SETUP, Workload(2, 1024))
            assert found is not None and found.origin.startswith("closed formula")

    def test_a_model_that_cannot_be_traced_is_tried_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[Workload] = []

        def fails(config: Any, workload: Workload, *_: Any, **__: Any) -> Any:
            tried.append(workload)
            raise TraceError("no torch")

        monkeypatch.setattr(activations, "trace", fails)
        one = activations.Activations(FACTS, CONFIG, tracing=True, python=None)
        assert one.of(self.SETUP, Workload(2, 1024)) and one.of(self.SETUP, Workload(4, 1024))
        assert tried == [Workload(2, 1024)] and one.notes == ["activations are not traced: no torch"]

    @pytest.mark.parametrize("python", [None, "/venv/bin/python"])
    def test_several_are_traced_at_once(self, python: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        """What fails there is tried again when it is asked for."""
        first, second = Workload(2, 1024), Workload(4, 1024)
        asked: list[Any] = []
        timeline = {work: by_formula(FACTS, work, "bf16", CONFIG) for work in (first, second)}

        def every(_: Any, works: list[Workload], *more: Any, **how: Any) -> list[Any]:
            asked.append((*works, how["python"]))
            return [traced(timeline[first]), TraceError("timeout")]

        def alone(_: Any, work: Workload, *more: Any, **how: Any) -> Any:
            asked.append((work, how["python"]))
            return traced(timeline[work])

        monkeypatch.setattr(activations, "trace_all", every)
        monkeypatch.setattr(activations, "trace", alone)
        one = activations.Activations(FACTS, CONFIG, tracing=True, python=python)
        one.prepare(self.SETUP, [first, second])
        assert one.of(self.SETUP, first) is timeline[first] and one.of(self.SETUP, second) is timeline[second]
        used = python or sys.executable
        assert asked == [(first, second, used), (second, used)] and one.notes == []

    def test_why_activations_are_not_known_is_said_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(*_: Any) -> Any:
            raise ValueError("no width")

        monkeypatch.setattr(activations, "timeline_of_rank", unknown)
        one = activations.Activations(FACTS, CONFIG, tracing=False, python=None)
        assert one.of(self.SETUP, Workload(2, 1024)) is one.of(self.SETUP, Workload(4, 1024)) is None
        assert one.notes == ["activations are not known: no width"]

    def test_adapters_come_on_top_of_the_model(self) -> None:
        """Two matrices of 8 x 512 for each of two square projections in each of 4 layers."""
        setup = replace(self.SETUP, lora=Adapters(rank=8, targets=("q_proj", "o_proj")))
        one, before = activations.of_rank(FACTS, CONFIG, setup), FACTS.parameters
        assert before is not None and one.trainable_parameters == 2 * 8 * 512 * 2 * 4
        assert one.parameters == before + 65536

    def test_adapters_have_the_targets_of_peft(self) -> None:
        """PEFT 0.18: TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING["llama"]."""
        one = activations.Activations(FACTS, CONFIG, tracing=True, python=None)
        assert one._adapters(self.SETUP) is None
        open_ = replace(self.SETUP, lora=Adapters(rank=8, targets=()))
        assert one._adapters(open_) == Adapters(rank=8, targets=("q_proj", "v_proj"))
        named = replace(self.SETUP, lora=Adapters(rank=8, targets=("k_proj",)))
        assert one._adapters(named) == named.lora


def built(dtype: str | None = None, facts: ModelFacts = FACTS, hardware: Any = None, **settings: Any) -> Any:
    """A run that resolved, as far as a forecast reads it."""
    values = {"engine": "deepspeed", "zero_optimization.stage": 2, "mixed_precision": "bf16"}
    values |= {"train_micro_batch_size_per_gpu": 2, **settings}
    spec = RunSpec.model_validate({"consumer": "deepspeed", "script": "a.py", "sequence_length": 1024})
    plan = SimpleNamespace(
        settings={name: SimpleNamespace(value=value) for name, value in values.items()},
        model_config=CONFIG,
        num_processes=8,
    )
    run = Run("a", "deepspeed", model=ModelSummary("m", dtype=dtype) if dtype else None)
    inputs = SimpleNamespace(profile=load_hardware("8xA100-80GB"), facts=facts, spec=spec, run=run)
    inputs.profile = inputs.profile.model_copy(update=hardware or {})
    return SimpleNamespace(plan=plan, inputs=inputs, run=run)


class TestForecast:
    @pytest.mark.parametrize(("dtype", "master"), [("bfloat16", False), ("float32", True), (None, True)])
    def test_a_model_in_16_bit_has_no_second_copy_without_deepspeed(self, dtype: str | None, master: bool) -> None:
        one = forecast(built(dtype, engine="ddp"), tracing=False)
        assert isinstance(one.setup.options, TorchOptions) and one.setup.options.master is master
        assert one.loading == 0

    def test_a_model_that_is_known_is_not_counted_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        timeline = by_formula(FACTS, Workload(2, 1024), "bf16", CONFIG)
        monkeypatch.setattr(activations, "trace", lambda *_, **__: traced(timeline))
        assert forecast(built()).facts == FACTS
        unknown = ModelFacts(unknown_because="nobody knows it")
        assert forecast(built(facts=unknown)).facts.parameters == 13

    def test_how_much_slower_a_change_is_for_a_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A step of one second for one sequence: half the tokens take twice as long each."""
        some: Any = None

        def second(_: Any, __: Any, work: Workload, ___: Any, **____: Any) -> StepTime:
            return StepTime((Part("step", exactly(1.0), ""),), work.sequence_length, 1, 1, some, 1, 1.0, some)

        monkeypatch.setattr(forecasts, "expected_step_time", second)
        device = load_hardware("8xA100-80GB").accelerator.model_copy(update={"usable_gib": 1.0})
        ladder = forecast(built(hardware={"accelerator": device}), tracing=False).ladder
        assert ladder is not None
        slower = {rung.what: rung.slower for rung in ladder.single}
        assert slower.pop("sequences of 512 tokens") == 2.0 and set(slower.values()) == {1.0}

    @pytest.mark.parametrize(
        ("standing", "chance", "said"),
        [
            ("modelled", 0.784, "78%"),
            ("at most", 0.784, "at least 78%"),
            ("at least", 0.3, "at most 30%"),
            ("not modelled", None, ""),
        ],
    )
    def test_the_chance_of_figures_that_are_bounds(self, standing: str, chance: float | None, said: str) -> None:
        one: Any = SimpleNamespace(standing=standing, verdict=Verdict("likely", chance))
        assert chance_of(one) == said

    @pytest.mark.parametrize(
        ("verdict", "said"),
        [
            (Verdict("likely", 0.784), "likely: 78%"),
            (Verdict("unlikely", 0.3, by_host=True), "unlikely: 30%, by the node's memory"),
            (Verdict("unknown"), "unknown"),
        ],
    )
    def test_the_verdict_on_the_page(self, verdict: Verdict, said: str) -> None:
        page = memory(replace(forecast(built(), tracing=False), verdict=verdict), [])
        assert (page.said, page.verdict) == (said, verdict)

    @pytest.mark.parametrize(("ram", "by_host"), [(1024.0, False), (0.1, True)])
    def test_what_is_moved_to_the_node_has_to_find_room_there(self, ram: float, by_host: bool) -> None:
        """The optimizer's states alone are 12 bytes of each parameter."""
        assert FACTS.parameters is not None and 12 * FACTS.parameters > 0.1 * GIB
        device = load_hardware("8xA100-80GB").accelerator.model_copy(update={"usable_gib": 1.0})
        one = forecast(built(hardware={"accelerator": device, "host": Host(ram_gib=ram)}), tracing=False)
        assert one.ladder is not None and one.word != "fits" and not one.verdict.by_host
        rungs = {rung.what: rung.verdict for rung in one.ladder.single}
        assert rungs["the optimizer on the host (stage 2)"].by_host is by_host
        assert not rungs["gradient checkpointing"].by_host
        (moved,) = (rung for rung in one.ladder.single if rung.what == "the optimizer on the host (stage 2)")
        limits = " (the node's memory limits it)" if by_host else ""
        assert cost_of(moved) == f"each step waits for the processors{limits}"

    def test_a_node_that_is_filled_to_the_last_byte(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The ends of the band and what is expected, each once as large as the node's memory and once a byte larger."""
        room, words = 64 * GIB, []
        for band in (
            Band(room // 2, room * 3 // 4, room),
            Band(room // 2, room * 3 // 4, room + 1),
            Band(room // 2, room, 2 * room),
            Band(room // 2, room + 1, 2 * room),
            Band(room, 2 * room, 4 * room),
            Band(room + 1, 2 * room, 4 * room),
        ):
            monkeypatch.setattr(forecasts, "host_needed", lambda *_, band=band: band)
            one = forecast(built(hardware={"host": Host(ram_gib=64.0)}), tracing=False)
            assert one.word == one.of_host.word and one.verdict.by_host is (one.word != "fits")
            words.append(one.word)
        assert words == ["fits", "likely", "likely", "unlikely", "unlikely", "does not fit"]

    def test_why_there_is_no_time(self) -> None:
        def notes(**settings: Any) -> list[str]:
            device = load_hardware("8xA100-80GB").accelerator
            unknown = device.model_copy(update={"bf16_tflops": None, "measured_tflops": {}})
            every = forecast(built(hardware={"accelerator": unknown}, **settings), tracing=False).notes
            return [note for note in every if "time" in note]

        assert notes() == ["no time is predicted: the bf16 rate of A100-SXM-80GB is not known"]
        assert notes(train_micro_batch_size_per_gpu=None) == [], "it is said that the micro batch is not known"

    @pytest.mark.parametrize(
        ("no_time", "why"),
        [
            ("the rate of this card is not known", "No time is predicted: the rate of this card is not known."),
            ("", "No time can be predicted without a model, a batch and hardware."),
        ],
    )
    def test_the_page_takes_the_reason_from_its_field(self, no_time: str, why: str) -> None:
        """A note that begins like the sentence about the time is a note like any other."""
        alike, samples = "no time is predicted for the first step", "1 sample an optimizer step"
        one = replace(forecast(built(), tracing=False), time=None, no_time=no_time, assumptions=(alike,))
        one = replace(one, samples=samples)
        shown, time = _predicted(SimpleNamespace(forecast=one, alternatives=[]))  # type: ignore[arg-type]
        assert isinstance(shown, Memory) and shown.notes == [alike, samples]
        assert time == Missing(why)
        said = [f"no time is predicted: {no_time}"] if no_time else []
        assert list(one.notes) == [alike, *said, samples]

    def test_without_hardware_one_rank_is_counted(self, workplace: Workplace) -> None:
        files = wanted(CONFIG, deepspeed=None, hardware=with_host(workplace.folder, "8xA100-80GB", 512.5))
        offload = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}}
        files["ds.json"] = {"zero_optimization": offload, "bf16": {"enabled": "auto"}}
        built = found(workplace, files)
        eight = forecast(built, tracing=False)
        built.inputs = replace(built.inputs, profile=None)
        one = forecast(built, tracing=False)
        assert 0 < one.host.expected * 8 == eight.host.expected and one.room is one.capacity is None

    def test_of_a_run_that_resolves(self, workplace: Workplace) -> None:
        files = wanted(CONFIG, deepspeed=None, hardware=with_host(workplace.folder, "8xA100-80GB", 512.5))
        files["ds.json"] = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}
        files["zerocfg.yaml"]["runs"]["a"]["price_per_hour"] = 2.5
        built = found(workplace, files)
        one, profile = forecast(built, tracing=False), built.inputs.profile
        assert profile is not None and profile.accelerator.planning_gib is not None
        assert one.capacity == int(profile.accelerator.planning_gib * GIB) and one.room == int(512.5 * GIB)
        assert one.word == "fits" and one.ladder is None and one.price == 2.5 and one.nvme == 0
        assert one.time is not None and one.time.tokens > 0 and one.host.expected >= 0 and one.loading >= 0
        setting: Any = SimpleNamespace(options=one.setup.options, workload=one.setup.workload)
        assert not isinstance(_time(one.facts, setting, profile, one.setup.kernels), str)
        assert _time(one.facts, setting, None, "eager") == ""
        setting.workload = None
        assert _time(one.facts, setting, profile, "eager") == ""
        unknown = built.inputs.profile.model_copy(update={"host": Host()})  # type: ignore[union-attr]
        built.inputs = replace(built.inputs, profile=unknown)
        assert forecast(built, tracing=False).room is None

    def test_a_model_as_it_turned_out(self) -> None:
        traced: Any = SimpleNamespace(parameters=13, tensors=[(3, 1), (5, 2)], largest_module=5, largest_block=10)
        facts = _counted(ModelFacts(unknown_because="nobody knows"), traced)
        assert (facts.parameters, facts.largest_parameter, facts.largest_module, facts.largest_block) == (13, 5, 5, 10)
        assert facts.tensor_sizes == [(5, 2), (3, 1)] and facts.unknown_because is None
        traced.largest_block = 0
        assert _counted(ModelFacts(), traced).largest_block is None, "no block is none of size 0"


def test_arguments_of_the_command_line_stand_over_those_of_the_recipe() -> None:
    source = SourceText("recipe.yaml", "bf16: true\nmax_steps: 10\n")
    recipe = SourceFile("recipe.yaml", "recipe", source, load_as(source, "yaml"))
    run = Run("a", recipe=recipe, arguments={"max_steps": Setting(20, Origin("flag"))})
    assert arguments_written(run) == {"bf16": True, "max_steps": 20}
    assert arguments_written(replace(run, recipe=None)) == {"max_steps": 20}


def test_one_micro_batch_a_step_where_nobody_says_more() -> None:
    spec = RunSpec.model_validate({"consumer": "deepspeed", "script": "a.py"})
    for engine in ("ddp", "fsdp", "deepspeed"):
        assert setup_of({"engine": engine}.get, {}, spec, 8).options.gradient_accumulation_steps == 1


def test_the_reason_of_a_stage_tells_what_it_takes() -> None:
    run = Run("a", "deepspeed")
    spec = RunSpec.model_validate({"consumer": "deepspeed", "script": "a.py"})
    inputs: Any = Inputs(run, spec, Path(), "deepspeed", load_hardware("8xA100-80GB"), FACTS)
    memory = inputs.profile.accelerator.planning_gib
    sizes = {"device": SimpleNamespace(low=GIB, high=3 * GIB), "allocated": SimpleNamespace(expected=2 * GIB)}
    for complete, words in ((True, "takes up to 3.0 GiB"), (False, "whose states (2.0 GiB a rank) leave room")):
        prediction = SimpleNamespace(complete=complete, **sizes)
        verdict = "fits" if complete else "unknown"
        best: Any = SimpleNamespace(
            choice=SimpleNamespace(stage=2), prediction=prediction, time=None, word=verdict, verdict=verdict, gaps=()
        )
        (one,) = take_plan.with_stage(inputs, best).chosen.values()
        assert one.value == 2 and words in one.reason and one.reason.endswith(f"of A100-SXM-80GB's {memory:.0f} GiB")
        assert one.inputs == {"hardware": "8xA100-80GB", "parameters": FACTS.parameters}
        text = take_plan._reason(inputs, best)
        takes = f"up to 3.0 GiB of A100-SXM-80GB's {memory:.0f} GiB" if complete else "states of 2.0 GiB a rank"
        assert text == f"zerocfg's choice, the fastest plan that {'fits' if complete else 'may fit'}: {takes}"
    sure = Verdict("likely", 0.784)
    likely: Any = SimpleNamespace(
        **vars(best) | {"word": "likely", "verdict": "likely", "certain": sure, "judged": sure}
    )
    assert ", the fastest plan that likely fits (78%): " in take_plan._reason(inputs, likely)
    likely.prediction.complete = True
    (one,) = take_plan.with_stage(inputs, likely).chosen.values()
    assert one.reason.startswith("zerocfg's choice: the stage most likely to fit (78%): 1.0 to 3.0 GiB of A100")
    best.time = SimpleNamespace(tokens_per_second=12345.0)
    assert take_plan._reason(inputs, best).endswith(", about 12,000 tokens/s")


class TestPlaces:
    FILE = SourceFile("ds.json", "deepspeed", SourceText("ds.json", '{"a": 1,\n "b": 2}'))

    def test_a_place_is_that_of_the_value(self) -> None:
        file = self.FILE
        file.document = load_as(file.source, "json")
        assert str(_where(Origin("file", file=file, path=("b",)))) == "ds.json:2:7"
        assert str(_where(Origin("file", file=file, path=("c",)))) == "ds.json:1:1"
        assert str(_where(Origin("file", file=file))) == "ds.json:1:1"
        assert str(_where(Origin("file", file=file, path=("b",), span=Span(1, 4)))) == "ds.json:1:2", (
            "a span says it better"
        )

    def test_a_file_is_named_from_the_folder_of_the_spec(self, tmp_path: Path) -> None:
        words = Provenance(Run("a"), tmp_path / "specs")
        file = SourceFile(
            "shown.json", "deepspeed", SourceText("shown.json", "{}"), path=tmp_path / "configs" / "ds.json"
        )
        assert words.file(Origin("file", file=file)) == "../configs/ds.json"
        file.path = None
        assert words.file(Origin("file", file=file)) == "shown.json" and words.file(Origin("computed")) == ""


class TestDrafts:
    @pytest.mark.parametrize(
        ("flag", "setting", "count"),
        [
            ("4", None, 4),
            ("0", None, 1),
            ("100000", None, 100_000),
            ("100001", 2, 2),
            (None, 100_001, None),
            ("²", 2, 2),
            ("$N", 2, 2),
            (None, 2, 2),
            (None, 1, 1),
            (None, 0, None),
            (None, "2", None),
            (None, None, None),
        ],
    )
    def test_how_many_a_launch_line_asks_for(self, flag: str | None, setting: Any, count: int | None) -> None:
        flags = {} if flag is None else {"num_processes": Setting(flag, Origin("flag"))}
        settings = {} if setting is None else {"num_processes": Setting(setting, Origin("file"))}
        run = Run("a", flags=flags, effective=Effective(settings=settings))
        assert _requested_count(run, "num_processes") == count and _requested_count(None, "num_processes") is None

    @pytest.mark.parametrize(
        ("stem", "path", "name"),
        [
            ("sft", None, "sft"),
            ("train", "/repo/llama/train.py", "llama"),
            ("train", "/repo/train.py", "repo"),
            ("Train", "/repo/sft/train.py", "sft"),
            ("my run!", None, "my-run"),
            ("x" * 70, None, "x" * 60),
            ("..", None, "repo"),
            ("", None, "repo"),
        ],
    )
    def test_a_name_that_says_something(self, stem: str, path: str | None, name: str) -> None:
        assert run_name(stem, Path(path) if path else None, Path("/repo")) == name
        assert run_name("train", Path("/train/train.py"), Path("/train")) == "train", "where nothing does"

    def test_names_are_different(self) -> None:
        drafts = with_unique_names([Draft(name) for name in ("a", "a", "b", "a", "a-2", "a")])
        assert [draft.name for draft in drafts] == ["a", "a-3", "b", "a-4", "a-2", "a-5"]

    def test_what_says_the_same_is_one(self) -> None:
        drafts = [Draft("a"), Draft("b"), Draft("c")]
        for one, script in zip(drafts, ("x.py", "x.py", "y.py"), strict=True):
            one.add("script", script, "found", one.name)
        assert without_duplicates(drafts) == [drafts[0], drafts[2]]

    def test_the_files_that_are_fewest_steps_away(self) -> None:
        paths = [Path("/r/a/x"), Path("/r/a/b/y"), Path("/r/z"), Path("/r/c/w")]
        assert nearest(Path("/r/a"), paths) == [paths[0]]
        assert nearest(Path("/r"), paths) == [paths[2]]
        assert nearest(Path("/r/d"), paths[1:]) == [paths[2]] and nearest(Path("/r"), []) == []

    def test_the_first_who_knows_a_key_is_right(self) -> None:
        draft = Draft("a")
        draft.add("script", "x.py", "given", "")
        draft.add("script", "y.py", "found", "")
        assert draft.value("script") == "x.py" and draft.value("model") is None

    def test_a_file_by_its_place_in_the_repository(self, tmp_path: Path) -> None:
        file = SourceFile("shown.sh", "launch", SourceText("shown.sh", ""), path=tmp_path / "jobs" / "a.sh")
        assert _short_name(file, tmp_path.resolve()) == "jobs/a.sh"
        assert _short_name(file, tmp_path.resolve() / "jobs" / "deep") == "shown.sh", "outside"
        file.path = None
        assert _short_name(file, tmp_path.resolve()) == "shown.sh"

    def test_large_files_are_no_models(self, tmp_path: Path) -> None:
        for name, size in (("a", (1 << 20) - 1), ("b", 1 << 20)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "config.json").write_text(" " * size)
        (tmp_path / "my_config.json").write_text("{}")
        assert model_configs(tmp_path) == [tmp_path / "a" / "config.json"]
