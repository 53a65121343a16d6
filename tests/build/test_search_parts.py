"""The parts of the search for a plan, each by itself: engines, levers, nearest changes, and the words of a choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.build.test_choice_limits import PLAIN, candidate, other, planner, profile, setting
from tests.build.test_forecast_limits import CONFIG, FACTS
from tests.build.test_road_limits import inputs_of, run_of, source
from zerocfg.hardware.profile import load_hardware
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.overhead import GIB, Band
from zerocfg.memory.verdict import Verdict
from zerocfg.models.spec import RunSpec
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.model.activations import Activations
from zerocfg.resolve.model.gaps import Gap
from zerocfg.resolve.plan import Decision, Problem
from zerocfg.resolve.search import (
    candidates,
    choose,
    engine_search,
    levers,
    nearest,
    precision,
    search_space,
    take_plan,
)
from zerocfg.resolve.search.apply_choice import apply_to_recipe, argument_of
from zerocfg.resolve.search.candidates import Candidate, Candidates, per_token
from zerocfg.resolve.search.choice import (
    ALLGATHERED,
    ENGINE,
    LIGER,
    LIVE,
    MICRO,
    OPTIMIZER_DEVICE,
    PERSISTENCE,
    PREFETCHED,
    REDUCED,
    REUSE,
    STAGE,
    STEPS,
    Choice,
    describe_plan,
)
from zerocfg.resolve.search.ranking import considered, ranked
from zerocfg.resolve.search.search_space import ContradictionError, SearchSpace, batches, choices
from zerocfg.run.model import Effective, Origin, Setting

LIVE_USUAL = 1_000_000_000
"""DeepSpeed's default of `stage3_max_live_parameters` and of `stage3_max_reuse_distance`, in elements."""


class TestChoice:
    FULL = Choice(2, 4, 3, "cpu", "none", 2, 8, True, "deepspeed", True, 7, 8, 9)

    def test_what_is_left_without_levers_and_batch(self) -> None:
        plain = Choice(2, 4, 3, "cpu", "none", 2, 8, True, "deepspeed")
        assert self.FULL.plain == plain and plain.plain is plain
        assert self.FULL.way == Choice(2, 4, 3, "cpu", "none", None, None, True, "deepspeed")
        assert self.FULL.levers == ("fused_loss", "live", "persistence", "bucket") and plain.levers == ()
        assert self.FULL.without("live") == replace(self.FULL, live=None)
        assert (self.FULL.processes, Choice(1, 1).processes) == (8, 1)

    @pytest.mark.parametrize(
        ("choice", "sharding"),
        [(Choice(1, 8, 2), 2), (Choice(1, 8), 0), (Choice(1, 8, engine="fsdp"), 3), (Choice(1, 8, engine="ddp"), 0)],
    )
    def test_how_much_is_shared(self, choice: Choice, sharding: int) -> None:
        assert choice.sharding == sharding

    @pytest.mark.parametrize(
        ("stage", "lever", "value", "settings"),
        [
            (3, "bucket", 9, {REDUCED: 9, PREFETCHED: 9}),
            (2, "bucket", 9, {REDUCED: 9, ALLGATHERED: 9}),
            (3, "live", LIVE_USUAL - 1, {LIVE: LIVE_USUAL - 1, REUSE: LIVE_USUAL - 1}),
            (3, "live", LIVE_USUAL, {LIVE: LIVE_USUAL}),
            (3, "persistence", 9, {PERSISTENCE: 9}),
            (2, "fused_loss", True, {LIGER: True}),
        ],
    )
    def test_settings_of_a_lever(self, stage: int, lever: Any, value: Any, settings: dict[str, Any]) -> None:
        """Fewer live parameters need both limits; more of them only the one that forbids them."""
        one = replace(Choice(1, 8, stage), **{lever: value})
        assert one.settings_of(lever) == settings
        assert one.settings() == {"num_processes": 8, STAGE: stage, **settings}

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({ENGINE: "ddp", "num_processes": 8, MICRO: 1, STEPS: 2}, "DDP, 1 x 2"),
            ({ENGINE: "ddp", "num_processes": 1, MICRO: 1, STEPS: 2}, "one process, 1 x 2"),
            ({ENGINE: "fsdp", "num_processes": 1}, "FSDP 2"),
            ({ENGINE: "deepspeed", STAGE: 1}, "ZeRO-1"),
            ({STAGE: 3, LIGER: True}, "ZeRO-3, fused loss"),
            ({STAGE: 3, LIGER: False}, "ZeRO-3"),
            (
                {STAGE: 3, LIVE: 30_000_000, PERSISTENCE: 16_777_216, REDUCED: 10_000_000},
                "ZeRO-3, live parameters up to 3e7, whole tensors up to 1.68e7, buckets of 1e7",
            ),
        ],
    )
    def test_words(self, settings: dict[str, Any], words: str) -> None:
        assert describe_plan(settings) == words

    @pytest.mark.parametrize(
        ("name", "argument"),
        [
            ("gradient_checkpointing", "gradient_checkpointing"),
            (LIGER, "use_liger_kernel"),
            (MICRO, "per_device_train_batch_size"),
            (STEPS, "gradient_accumulation_steps"),
        ],
    )
    def test_the_trainer_s_name_of_a_setting(self, name: str, argument: str) -> None:
        assert argument_of(name) == argument

    def test_an_argument_of_the_recipe(self) -> None:
        found = replace(inputs_of(run_of(arguments={"a": setting(1)})), changes={"b": Decision(2)})
        found = apply_to_recipe(found, "c", Decision(3, "why"))
        assert found.changes == {"b": Decision(2), "c": Decision(3, "why")}
        assert found.run.arguments == {"a": setting(1), "c": Setting(3, Origin("computed", "why"))}


class TestSpace:
    WHAT = SearchSpace(((1, 8),), (2,), None, (None,), None, None, True, True, 16)

    def test_one_rank_shards_over_nothing(self) -> None:
        what = replace(self.WHAT, layouts=((1, 2), (1, 1)), stages=(None,), engine="fsdp")
        assert {one.processes for one in choices(what)} == {2}
        assert {one.processes for one in choices(replace(what, engine="ddp"))} == {2, 1}
        assert {one.engine for one in choices(what)} == {"fsdp"}

    def test_ranks_that_share_their_samples(self) -> None:
        """16 samples over 8 ranks in pairs are 4 of each pair."""
        found = list(choices(replace(self.WHAT, sharing=2)))
        assert {(one.micro_batch, one.accumulation) for one in found} == {(1, 4), (2, 2), (4, 1)}
        with pytest.raises(ContradictionError, match="8 ranks cannot be divided into groups of 3") as told:
            list(choices(replace(self.WHAT, sharing=3)))
        assert told.value.help == "Correct `parallelism_config`, or use another number of devices."

    def test_the_first_contradiction_is_told_where_no_part_of_the_hardware_is_possible(self) -> None:
        what = replace(self.WHAT, layouts=((1, 8), (1, 4)), global_batch=6)
        with pytest.raises(ContradictionError, match="6 samples cannot be shared among 8 ranks"):
            list(choices(what))
        assert {one.processes for one in choices(replace(what, layouts=((1, 8), (1, 2))))} == {2}

    @pytest.mark.parametrize(
        ("wanted", "ranks", "said", "help"),
        [
            (20, 2, "20 completions of a step are no whole groups of 8, which each prompt has", "a multiple of 8,"),
            (20, 12, "20 completions of a step are no whole groups of 8, which each prompt has", "a multiple of 24,"),
            (24, 2, None, None),
        ],
    )
    def test_whole_groups_of_completions(self, wanted: int, ranks: int, said: str | None, help: str | None) -> None:
        what = replace(self.WHAT, group=8, global_batch=wanted)
        if said is None:
            assert all(micro * steps * ranks == wanted for micro, steps in batches(what, ranks))  # type: ignore[operator]
            return
        with pytest.raises(ContradictionError) as told:
            batches(what, ranks)
        assert str(told.value) == said and help is not None and help in told.value.help

    def test_without_a_goal_sizes_hold_whole_groups(self) -> None:
        """A step of 3 ranks with 2 micro batches: of 1, 2, 4, ... samples those whose step is a multiple of 8."""
        what = replace(self.WHAT, group=8, global_batch=None, steps=2, steps_open=False)
        assert batches(what, 3) == [(size, None) for size in (4, 8, 16, 32, 64)]
        assert batches(replace(what, steps=None), 8) == [(size, None) for size in (1, 2, 4, 8, 16, 32, 64)]

    @pytest.mark.parametrize(
        ("micro", "steps", "said", "help"),
        [
            (3, None, "16 samples over 4 ranks are 4 each, which micro batch 3 does not divide", "a multiple of 12 "),
            (None, 3, "16 samples over 4 ranks are 4 each, which accumulation 3 does not divide", "a multiple of 12 "),
            (None, 0, "16 samples over 4 ranks are 4 each, which accumulation 0 does not divide", "a multiple of 4 "),
        ],
    )
    def test_what_a_source_fixes_has_to_divide(
        self, micro: int | None, steps: int | None, said: str, help: str
    ) -> None:
        what = replace(self.WHAT, micro=micro, micro_open=micro is None, steps=steps, steps_open=steps is None)
        with pytest.raises(ContradictionError) as told:
            batches(what, 4)
        assert str(told.value) == said and help in told.value.help

    def space(
        self, before: dict[str, Any] | None = None, engine: str = "deepspeed", consumer: str = "trl", **more: Any
    ) -> Any:
        spec = {name: more.pop(name) for name in ("goals", "hardware", "fused_loss") if name in more}
        spec.setdefault("goals", {"global_batch_size": 64})
        facts, opened = more.pop("facts", None), more.pop("opened", False)
        found = inputs_of(run_of(consumer, **more), engine, **spec)
        found = replace(found, facts=facts or found.facts, before_engine=found if opened else None)
        effective = Effective(settings={name: setting(value) for name, value in (before or {}).items()})
        return search_space.search_space(found, effective)

    @pytest.mark.parametrize(
        ("engine", "sizes", "sharing"),
        [
            ("deepspeed", {"sp": 2, "tp": 4}, 2),
            ("fsdp", {"cp": 2, "tp": 2}, 4),
            ("ddp", {"sp": 2, "cp": 2, "tp": 2}, 8),
            ("ddp", {"dp_shard": 2}, 1),
            ("ddp", {"cp": 0}, 1),
        ],
    )
    def test_ranks_that_get_the_same_samples(self, engine: str, sizes: dict[str, int], sharing: int) -> None:
        prefix = "parallelism_config.parallelism_config_"
        before = {f"{prefix}{name}_size": size for name, size in sizes.items()}
        assert self.space(before, engine, recipe={"max_steps": 1}).sharing == sharing

    @pytest.mark.parametrize(
        ("consumer", "recipe", "group"),
        [
            ("trl", {"num_generations": 6, "num_iterations": 1}, 6),
            ("trl", {"max_steps": 1}, 1),
            ("transformers", {"num_generations": 6}, 1),
        ],
    )
    def test_completions_of_a_prompt(self, consumer: str, recipe: dict[str, Any], group: int, monkeypatch: Any) -> None:
        grpo = "GRPOTrainer" if consumer == "trl" and "num_generations" in recipe else None
        monkeypatch.setattr(search_space, "trainer_of", lambda *_: grpo)
        assert self.space(consumer=consumer, recipe=recipe).group == group

    @pytest.mark.parametrize(
        ("trainer", "recipe", "writes"),
        [
            ("SFTTrainer", {}, True),
            (None, {}, True),
            ("DPOTrainer", {}, False),
            ("GRPOTrainer", {}, True),
            ("GRPOTrainer", {"steps_per_generation": 2}, False),
            ("GRPOTrainer", {"generation_batch_size": 2}, False),
        ],
    )
    def test_trainers_whose_batch_is_written(
        self, trainer: str | None, recipe: dict[str, Any], writes: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(search_space, "trainer_of", lambda *_: trainer)
        one = self.space(recipe=recipe)
        assert (one.micro_open, one.steps_open) == (writes, writes)

    def test_the_engine_is_named_where_several_are_compared(self) -> None:
        assert self.space(opened=True).engine == "deepspeed" and self.space().engine is None

    @pytest.mark.parametrize(
        ("before", "engine", "open_"),
        [
            ({}, "deepspeed", {"live", "persistence", "bucket"}),
            ({LIVE: 1}, "deepspeed", {"persistence", "bucket"}),
            ({REUSE: "auto"}, "deepspeed", {"persistence", "bucket"}),
            ({PERSISTENCE: "auto"}, "deepspeed", {"live", "bucket"}),
            ({ALLGATHERED: 1}, "deepspeed", {"live", "persistence"}),
            ({PREFETCHED: 1, LIVE: 1}, "deepspeed", {"persistence"}),
            ({}, "ddp", set()),
        ],
    )
    def test_levers_that_no_source_names(self, before: dict[str, Any], engine: str, open_: set[str]) -> None:
        assert self.space(before, engine).levers == open_
        assert self.space(before, "deepspeed", goals=None).levers == frozenset()

    @pytest.mark.parametrize(
        ("more", "is_open"),
        [
            ({}, True),
            ({"versions": {}}, False),
            ({"recipe": None}, False),
            ({"recipe": {"use_liger_kernel": False}}, False),
            ({"fused_loss": True}, False),
            ({"fused_loss": False}, False),
            ({"before": {"parallelism_config.parallelism_config_cp_size": 2}}, False),
            ({"model_type": "of-tomorrow"}, False),
            ({"hardware": "8xcpu"}, False),
            ({"before": {STAGE: 3}, "versions": {"liger-kernel": "==0.7.0"}}, False),
            ({"versions": {"liger-kernel": "==0.7.0"}}, True),  # stages 1 and 2 are open
        ],
    )
    def test_who_lets_the_loss_be_computed_in_pieces(self, more: dict[str, Any], is_open: bool) -> None:
        given: dict[str, Any] = {"versions": {"liger-kernel": ">=0.8.5"}, "recipe": {"max_steps": 1}, **more}
        if given["recipe"] is None:
            given.pop("recipe")
        facts = FACTS.model_copy(update={"model_type": given.pop("model_type", "llama")})
        one = self.space(given.pop("before", {}), "deepspeed", "transformers", facts=facts, **given)
        assert ("fused_loss" in one.levers) is is_open


def trained(choice: Choice = PLAIN, master: bool = True, lora: Any = None, **more: Any) -> Candidate:
    """A plan of a torch engine."""
    one = candidate(choice, **more)
    options = TorchOptions("ddp", 8, master=master)
    return replace(one, setup=SimpleNamespace(workload=one.setup.workload, options=options, lora=lora))  # type: ignore[arg-type]


DDP = Choice(1, 8, micro_batch=1, accumulation=1, engine="ddp")
ZERO_2 = replace(PLAIN, engine="deepspeed")


def sharded(choice: Choice = ZERO_2, **more: Any) -> Candidate:
    one = candidate(choice, **more)
    options = Options(choice.stage or 0, 8)
    return replace(one, setup=SimpleNamespace(workload=one.setup.workload, options=options, lora=None))  # type: ignore[arg-type]


class TestEngines:
    def test_a_training_without_a_copy_in_fp32_loses_to_any_that_fits(self) -> None:
        fast, slow = trained(DDP, master=False), sharded(seconds=9.0)
        assert engine_search.rank_engines([fast, slow], "throughput") == [
            (slow, ""),
            (fast, "trains 16-bit weights without a copy in fp32"),
        ]
        lost = trained(DDP, master=False, word="does not fit", short="needs 90")
        assert engine_search.rank_engines([lost, slow], "throughput")[1] == (lost, "needs 90")

    @pytest.mark.parametrize(
        ("one", "other_"),
        [
            (trained(DDP, master=False), sharded(word="does not fit", short="needs 90")),  # nothing else fits
            (trained(DDP), sharded(seconds=9.0)),  # it has its copy
            (trained(DDP, master=False, lora=object()), sharded(seconds=9.0)),  # the adapters are in fp32
            (trained(DDP, master=False), trained(DDP, master=False, seconds=9.0)),  # there is no other engine
        ],
    )
    def test_else_the_faster_one_wins(self, one: Candidate, other_: Candidate) -> None:
        rows = engine_search.rank_engines([other_, one], "throughput")
        assert rows == ranked([other_, one], "throughput") and rows[0] == (one, "")

    def test_where_every_engine_lacks_the_copy_the_rest_is_compared(self) -> None:
        one, fsdp = trained(DDP, master=False), trained(replace(DDP, engine="fsdp"), master=False, seconds=9.0)
        assert engine_search.rank_engines([fsdp, one], "throughput")[0] == (one, "")

    def search(self, engine: Any, **more: Any) -> Any:
        space = SimpleNamespace(engine=engine, levers=frozenset(more.pop("levers", ())))
        return SimpleNamespace(inputs=more.get("inputs"), before=Effective(), space=space)

    def test_the_search_of_a_plan(self) -> None:
        searches = [self.search("ddp"), self.search("deepspeed")]
        assert engine_search.search_of(searches, sharded()) is searches[1]
        assert engine_search.search_of(searches, trained(DDP)) is searches[0]
        assert engine_search.search_of(searches, candidate(replace(DDP, engine="fsdp"))) is searches[0]

    def test_levers_are_tried_where_they_could_win(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of plans that may gain: not those without an open lever, nor those that at best are as fast as the best."""
        best, slow, hopeless = (
            sharded(seconds=1.0),
            sharded(replace(ZERO_2, stage=3), seconds=2.0),
            trained(DDP, seconds=3.0),
        )
        limits = {best.choice: 1.1, slow.choice: 0.9, hopeless.choice: 0.1}
        tried: list[Choice] = []
        lower = 1.0 / 0.99

        def moved(_: Any, one: Candidate, open_: Iterable[str], prefer: str) -> Candidate:
            assert (set(open_), prefer) == ({"live"}, "throughput")
            tried.append(one.choice)
            return replace(
                one,
                choice=replace(one.choice, live=7),
                time=best.time and SimpleNamespace(seconds=SimpleNamespace(expected=0.5), tokens=1),
            )  # type: ignore[arg-type]

        monkeypatch.setattr(engine_search, "worth_trying", lambda rows, _: [one for one, _ in rows])
        monkeypatch.setattr(engine_search, "at_best", lambda _, one, *__: limits[one.choice])
        monkeypatch.setattr(engine_search, "with_levers", moved)
        searches = [self.search("deepspeed", levers=("live",)), self.search("ddp")]
        rows = [(best, ""), (slow, "slower"), (hopeless, "slower")]
        predictors: dict[Any, Any] = {"deepspeed": None, "ddp": None}
        found = engine_search._with_levers(searches, predictors, rows, "throughput")
        assert tried == [slow.choice], "0.9 and 3 percent of it are less than 1.01"
        assert found[0][0].choice == replace(slow.choice, live=7) and found[0][1] == ""
        assert len(found) == 4 and lower > 0.9 * 1.03
        monkeypatch.setattr(engine_search, "with_levers", lambda _, one, *__: one)
        assert engine_search._with_levers(searches, predictors, rows, "throughput") is rows, "none has gained"

    def test_where_nothing_fits_every_lever_is_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[Choice] = []
        monkeypatch.setattr(engine_search, "worth_trying", lambda rows, _: [one for one, _ in rows])
        monkeypatch.setattr(engine_search, "at_best", lambda *_: 1e9)

        def same(_: Any, one: Candidate, *__: Any) -> Candidate:
            tried.append(one.choice)
            return one

        monkeypatch.setattr(engine_search, "with_levers", same)
        lost = sharded(word="does not fit", short="needs 90")
        searches = [self.search("deepspeed", levers=("live",))]
        engine_search._with_levers(searches, {"deepspeed": None}, [(lost, "needs 90")], "throughput")  # type: ignore[dict-item]
        assert tried == [lost.choice]

    def test_the_best_plan_tells_what_it_would_be_without_its_levers(self) -> None:
        made = SimpleNamespace(of=lambda choice: candidate(choice))
        plain, lever = sharded(), sharded(replace(ZERO_2, bucket=9))
        rows: Any = [(lever, ""), (plain, "slower")]
        found = engine_search._explained({"deepspeed": made}, rows)  # type: ignore[dict-item]
        ((name, without),) = found[0][0].without
        assert name == "bucket" and without.choice == ZERO_2 and found[1:] == rows[1:]
        assert engine_search._explained({}, rows[1:]) == rows[1:]

    def test_traced_plans_with_levers_are_traced_without_them_as_well(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lever, plain, more = replace(ZERO_2, bucket=9), ZERO_2, replace(ZERO_2, stage=3)
        work: Any = SimpleNamespace(workload=Workload(1, 4096))
        rows: Any = [(replace(sharded(choice), setup=work), "") for choice in (lever, plain, more)]
        asked: list[Any] = []
        made = SimpleNamespace(
            of=lambda choice: candidate(choice), activations=SimpleNamespace(prepare=lambda *what: asked.append(what))
        )
        monkeypatch.setattr(engine_search, "candidates_of", lambda *_, **__: made)
        predictors: dict[Any, Any] = {}
        found = engine_search._traced_plans(self.search("deepspeed"), [rows[0][0]], rows, predictors)
        assert [one.choice for one in found] == [lever, plain] and predictors == {"deepspeed": made}
        assert asked == [(work, [Workload(1, 4096)])]
        assert engine_search._traced_plans(self.search("ddp"), [], rows, predictors) == []
        assert set(predictors) == {"deepspeed"}, "nothing is predicted for an engine without plans"

    def test_a_lever_stays_where_it_still_gains_by_traced_figures(self) -> None:
        made = SimpleNamespace(of=lambda choice: candidate(choice))
        choice = replace(ZERO_2, bucket=9)
        usual = sharded(seconds=1.0)
        for seconds, best in ((0.9, choice), (0.98, ZERO_2)):
            rows = engine_search._best_of_traced(
                {"deepspeed": made}, [usual, sharded(choice, seconds=seconds)], "throughput"
            )  # type: ignore[dict-item]
            assert rows[0][0].choice == best and rows[0][1] == ""
        alone = engine_search._best_of_traced({"deepspeed": made}, [sharded(choice)], "throughput")  # type: ignore[dict-item]
        assert alone[0][0].choice == choice and alone[0][0].without
        assert engine_search._best_of_traced({}, [usual], "throughput") == [(usual, "")]

    @pytest.mark.parametrize(
        ("known", "goals", "hardware", "said"),
        [
            (None, None, "8xA100-80GB", "the memory of 8xA100-80GB is not known, so zerocfg cannot choose one"),
            (None, {"prefer": "memory"}, "8xA100-80GB", "the memory of 8xA100-80GB is not known"),
            (None, None, "8xcpu", "the memory of 8xcpu is not known"),
            (None, {"prefer": "memory"}, "8xcpu", "the model is not known"),
            (80.0, None, "8xA100-80GB", "the model is not known"),
        ],
    )
    def test_why_nothing_is_searched(
        self, known: float | None, goals: Any, hardware: str, said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unknown(*_: Any, **__: Any) -> Any:
            raise ValueError("the model is not known")

        monkeypatch.setattr(engine_search, "candidates_of", unknown)
        found = inputs_of(run_of(), "deepspeed", hardware, goals=goals)
        assert found.profile is not None
        device = found.profile.accelerator.model_copy(update={"usable_gib": known, "memory_gib": known})
        found = replace(found, profile=found.profile.model_copy(update={"accelerator": device}))
        with pytest.raises(ValueError, match=said):
            engine_search.ranked_plans([self.search("deepspeed", inputs=found), self.search("ddp", inputs=found)])

    def test_an_engine_that_cannot_be_built_leaves_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def made(inputs: Any, *_: Any, **__: Any) -> Any:
            if inputs == "broken":
                raise ValueError("no")
            return SimpleNamespace()

        monkeypatch.setattr(engine_search, "candidates_of", made)
        monkeypatch.setattr(engine_search, "choices", lambda space: [space.engine])
        monkeypatch.setattr(engine_search, "evaluate", lambda _, choices: [sharded() for _ in choices])
        first = self.search("ddp", inputs=inputs_of(run_of()))
        rows, notes = engine_search.ranked_plans([first, self.search("deepspeed", inputs="broken")])
        assert len(rows) == 1 and notes == []

    @pytest.mark.parametrize(
        ("opened", "engine", "names"),
        [
            (False, "ddp", [None]),
            (True, "ddp", ["ddp", "other"]),
            (True, "single", ["ddp", "other"]),
            (True, "fsdp", [None]),
        ],
    )
    def test_engines_are_compared_where_the_script_names_none(
        self, opened: bool, engine: str, names: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @engine_search.dataclass(frozen=True)
        class Space:
            engine: Any = "ddp"

        found = inputs_of(run_of(), "ddp")
        own: Any = engine_search.Search(found, Effective(settings={"engine": setting(engine)}), Space())  # type: ignore[arg-type]
        monkeypatch.setattr(engine_search, "_search_with", lambda _: own)
        monkeypatch.setattr(engine_search, "other_engines", lambda _: [self.search("other")])
        searches = engine_search.searches_of(replace(found, before_engine=found if opened else None))
        assert [one.space.engine for one in searches] == names
        monkeypatch.setattr(engine_search, "_search_with", lambda _: None)
        assert engine_search.searches_of(found) == []

    def test_precision_is_chosen_with_goals_alone(self) -> None:
        for goals, config in (({}, {"bf16": {"enabled": True}}), (None, None)):
            found = engine_search._search_with(inputs_of(run_of("deepspeed"), goals=goals))
            assert found is not None and found.inputs.before is found.before
            data = found.inputs.run.deepspeed.data() if found.inputs.run.deepspeed else None
            assert data == config
        named = run_of("deepspeed", deepspeed={"zero_optimization": {"stage": 2}})
        assert engine_search._search_with(inputs_of(named)) is None

    def test_the_base_of_adapters_is_that_of_every_plan(self) -> None:
        recipe = {"use_peft": True, "dtype": "bfloat16", "load_in_4bit": True, "lora_target_modules": ["q_proj"]}
        effective = Effective(settings={"engine": setting("ddp"), "mixed_precision": setting("bf16")})
        for packed in (True, False):
            run = run_of("trl", recipe={**recipe, "load_in_4bit": packed})
            found = replace(inputs_of(run, "ddp"), facts=FACTS, model_file=source("recipe", CONFIG))
            made = engine_search.candidates_of(found, effective, resize=False, tracing=packed)
            assert (made.base is not None) is packed and made.activations.tracing is packed
            assert made.resize is False and made.facts.adapters == [16 * 512, 512 * 16]

    def test_nothing_is_traced_where_no_plan_fits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows: Any = [(candidate(PLAIN, word="does not fit", short="needs 90"), "needs 90")]
        monkeypatch.setattr(engine_search, "candidates_of", lambda *_, **__: None)
        monkeypatch.setattr(engine_search, "choices", lambda _: ())
        monkeypatch.setattr(engine_search, "evaluate", lambda *_: [rows[0][0]])
        monkeypatch.setattr(engine_search, "_traced", lambda *_: pytest.fail("traced"))
        found = inputs_of(run_of(), goals={"trace": True})
        assert engine_search.ranked_plans([self.search(None, inputs=found)]) == (rows, [])

    def traced(self, rows: Any, fits: Callable[[Choice], bool], monkeypatch: pytest.MonkeyPatch) -> Any:
        """What comes of tracing these rows, and which plans were traced."""
        asked: list[Choice] = []

        def of(choice: Choice) -> Candidate:
            asked.append(choice)
            return sharded(
                choice, word="fits" if fits(choice) else "does not fit", short="" if fits(choice) else "more"
            )

        made = SimpleNamespace(of=of, activations=SimpleNamespace(prepare=lambda *_: None, notes=["a", "b", "a"]))
        work: Any = SimpleNamespace(workload=Workload(1, 4096), options=Options(2, 8), lora=None)
        rows = [(replace(one, setup=work), why) for one, why in rows]
        monkeypatch.setattr(engine_search, "candidates_of", lambda *_, **__: made)
        found, notes = engine_search._traced([self.search("deepspeed")], rows, "throughput")
        assert notes == ["a", "b"]
        return [one.choice for one, _ in found], asked

    def test_plans_of_which_the_formula_knows_nothing_are_traced_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Six of them beside the six best, none that is short of something else."""
        ways = [replace(ZERO_2, nodes=nodes) for nodes in range(1, 20)]
        known: Any = [(sharded(way), "") for way in ways[:8]]
        short: Any = [(sharded(ways[8], word="unknown", short="states"), "states")]
        open_: Any = [(sharded(way, word="unknown"), "") for way in ways[9:17]]
        found, asked = self.traced([*known, *short, *open_], lambda _: True, monkeypatch)
        assert asked == [*ways[:6], *ways[9:15]]
        assert set(found[12:]) == {*ways[6:9], *ways[15:17]}

    def test_where_the_best_has_no_lever_no_other_shows_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ways = [replace(ZERO_2, nodes=nodes) for nodes in range(1, 9)]
        lever = replace(ways[7], bucket=9)
        rows: Any = [(sharded(way), "") for way in (*ways, lever)]
        found, asked = self.traced(rows, lambda _: True, monkeypatch)
        assert asked == ways[:6] and lever not in found and found[6:] == ways[6:]

    def test_other_engines_are_those_that_start_and_are_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = Problem("engine", "no")
        started = {
            "deepspeed": replace(inputs_of(run_of(), "deepspeed"), problems=(problem,)),
            "fsdp": inputs_of(run_of(), "fsdp"),
        }
        monkeypatch.setattr(engine_search, "engines_for", lambda _: ("ddp", "deepspeed", "fsdp"))
        monkeypatch.setattr(engine_search, "with_engine", lambda _, engine: started[engine])
        for used, count in (("fsdp", 1), ("ddp", 0)):
            before = Effective(settings={"engine": setting(used)})
            found: Callable[[Inputs], Any] = lambda one, before=before: SimpleNamespace(inputs=one, before=before)  # noqa: E731
            monkeypatch.setattr(engine_search, "_search_with", found)
            others = engine_search.other_engines(inputs_of(run_of(), "ddp"))
            assert [one.inputs.engine for one in others] == ["fsdp"] * count


class TestChosen:
    def chosen(self, monkeypatch: pytest.MonkeyPatch, rows: Any, goals: Any = None) -> Inputs:
        found = replace(inputs_of(run_of(), goals=goals), notes=("before",))
        search: Any = SimpleNamespace(inputs=found, space=SimpleNamespace(engine=None), before=Effective())
        monkeypatch.setattr(choose, "searches_of", lambda _: [search])

        def plans(_: Any) -> Any:
            if isinstance(rows, Exception):
                raise rows
            return rows, ["noted"]

        monkeypatch.setattr(choose, "ranked_plans", plans)
        monkeypatch.setattr(choose, "with_stage", lambda inputs, best: replace(inputs, chosen={"stage": best}))
        monkeypatch.setattr(choose, "with_plan", lambda inputs, rows: replace(inputs, chosen={"plan": rows}))
        monkeypatch.setattr(choose, "nearest", lambda *_: [])
        return choose.with_open_values(found)

    def test_the_stage_or_the_whole_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = [(candidate(PLAIN), ""), (other(stage=3), "slower")]
        one = self.chosen(monkeypatch, rows)
        assert one.chosen == {"stage": rows[0][0]} and one.considered == () and one.problems == ()
        assert one.notes == ("before", "noted")
        one = self.chosen(monkeypatch, rows, {"prefer": "memory"})
        assert one.chosen == {"plan": rows} and one.considered == tuple(considered(*row) for row in rows)

    @pytest.mark.parametrize(
        ("error", "goals", "problem"),
        [
            (ContradictionError("no batch", "Ask for 8."), {}, Problem("goals", "no batch", "Ask for 8.")),
            (
                ValueError("it is not known"),
                {},
                Problem("goals", "zerocfg cannot choose: it is not known", "Name the values in the sources instead."),
            ),
            (
                ValueError("it is not known"),
                None,
                Problem(STAGE, "no source sets the ZeRO stage, and it is not known", "Write `stage` into the source."),
            ),
        ],
    )
    def test_why_nothing_is_chosen(
        self, error: Exception, goals: Any, problem: Problem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = self.chosen(monkeypatch, error, goals)
        assert found.problems == (problem,) and found.chosen == {} and found.considered == ()

    @pytest.mark.parametrize(
        ("goals", "key", "start", "help"),
        [
            ({}, "goals", "no plan fits: ", "Use more devices, more memory or shorter sequences."),
            (
                None,
                STAGE,
                "no source sets the ZeRO stage, and no plan fits: ",
                "Use more devices or shorter sequences, or offload the optimizer. Or write `stage` into the source.",
            ),
        ],
    )
    def test_where_no_plan_fits(self, goals: Any, key: str, start: str, help: str, monkeypatch: Any) -> None:
        least = other(word="does not fit", stage=3, micro_batch=1, offload_optimizer="cpu")
        found = self.chosen(monkeypatch, [(least, "needs at least 90 GiB")], goals)
        assert found.chosen == {} and len(found.considered) == 1
        (problem,) = found.problems
        words = "ranks 8, ZeRO 3, offload_optimizer cpu, offload_param none, micro batch 1, accumulation 1, "
        words += "gradient_checkpointing False"
        assert problem.key == key and problem.help == help
        assert problem.message == f"{start}the one that needs least ({words}) needs at least 90 GiB"

    def test_a_change_is_told_with_its_plan_and_what_a_device_has(self) -> None:
        change = nearest.Change("offload", candidate(PLAIN, gib=10.0), 12 * GIB)
        assert choose._changed(change) == "offload, with ZeRO-2, 1 x 1: 9.0 to 11.0 GiB of 12.0"


TENSORS = [(300_000, 1), (200_000, 9), (100_000, 2), (100_001, 1)]
"""Sizes and how many there are of each; ZeRO-3 keeps whole what has up to 100,000 elements."""


class TestLevers:
    def plan(
        self, seconds: float | None = 1.0, word: Any = "fits", options: Any = None, work: Any = None, **more: Any
    ) -> Candidate:
        one = candidate(more.pop("choice", ZERO_2), seconds, word=word, **more)
        setup: Any = SimpleNamespace(options=options or Options(3, 8), workload=work)
        return replace(one, setup=setup)

    @pytest.mark.parametrize(
        ("seconds", "word", "beaten", "gains"),
        [
            (0.97, "fits", "fits", True),  # 0.97 and 3 percent of it are 0.9991
            (0.971, "fits", "fits", False),
            (0.5, "likely", "fits", False),
            (0.5, "likely", "likely", True),
            (1.0, "fits", "likely", True),
        ],
    )
    def test_what_counts_as_a_gain(self, seconds: float, word: Any, beaten: Any, gains: bool) -> None:
        one, two = self.plan(seconds, word, chance=0.9), self.plan(1.0, beaten, chance=0.9 if beaten == word else 0.8)
        assert levers.gains(one, two, "throughput") is gains

    @pytest.mark.parametrize(
        ("seconds", "chance", "prefer", "measure"),
        [
            (3.0, 0.75, "throughput", 4.0),
            (3.0, 0.75, "cost", 32.0),
            (None, 0.5, "throughput", 2.0),
            (None, 0.0005, "throughput", 1000.0),
            (3.0, 0.75, "memory", 10.0 * GIB),
        ],
    )
    def test_what_is_to_be_small(self, seconds: float | None, chance: float, prefer: Any, measure: float) -> None:
        one = candidate(PLAIN, seconds, word="likely", chance=chance)
        assert levers.measure(one, prefer) == pytest.approx(measure)
        unknown = replace(candidate(PLAIN, None), judged=Verdict("unknown"))
        assert levers.measure(unknown, "throughput") == 1000.0

    def test_plans_that_another_value_could_bring_to_the_front(self) -> None:
        """The six best that may fit; of the others those that are faster by more, the likeliest six first."""
        fit = [self.plan(1.0 + at / 10, choice=replace(ZERO_2, micro_batch=at)) for at in range(1, 9)]
        chances = (0.1, 0.4, 0.3, 0.2, 0.25, 0.35, 0.15, 0.45)
        lost = [self.plan(0.5, "unlikely", chance=chance) for chance in chances]
        slow = self.plan(1.2, "unlikely", chance=0.49)
        untimed = self.plan(None, "unlikely", chance=0.49)
        rows: Any = [(one, "" if one is fit[0] else "x") for one in (*fit, slow, untimed, *lost)]
        likeliest = sorted(lost, key=lambda one: -(one.judged.chance or 0))[:6]
        assert levers.worth_trying(rows, "throughput") == [*fit[:6], *likeliest]
        assert levers.worth_trying(rows, "memory") == fit[:6]
        incomplete = replace(fit[1], prediction=SimpleNamespace(device=fit[1].prediction.device, complete=False))  # type: ignore[arg-type]
        unknown = replace(fit[1], judged=Verdict("unknown"))
        assert levers.worth_trying([(fit[0], ""), (incomplete, "x"), (unknown, "x")], "throughput") == [fit[0]]

    @pytest.mark.parametrize(("seconds", "tried"), [(0.97, True), (0.971, False), (1.0, False), (1.02, False)])
    def test_a_plan_that_may_not_fit_is_tried_where_it_is_faster_by_more(self, seconds: float, tried: bool) -> None:
        """0.97 and 3 percent of it are 0.9991, 0.971 are 1.00013."""
        best, lost = self.plan(1.0, chance=1.0), self.plan(seconds, "unlikely", chance=0.4)
        assert levers.worth_trying([(best, ""), (lost, "x")], "throughput") == [best, *([lost] if tried else [])]

    def test_where_nothing_fits_the_first_six_are_tried(self) -> None:
        lost = [self.plan(1.0, "does not fit", choice=replace(ZERO_2, micro_batch=at)) for at in range(1, 9)]
        assert levers.worth_trying([(one, "short") for one in lost], "throughput") == lost[:6]

    @pytest.mark.parametrize(
        ("seconds", "word", "taken"),
        [(0.9, "fits", True), (0.98, "fits", False), (0.9, "does not fit", False)],
    )
    def test_levers_win_only_by_more_than_plans_may_differ(self, seconds: float, word: Any, taken: bool) -> None:
        usual = (self.plan(1.0), "")
        lever = (self.plan(seconds, word, choice=replace(ZERO_2, live=7)), "" if word == "fits" else "short")
        plain, every = [usual], [lever, usual]
        assert levers.better_with(plain, every, "throughput") is (every if taken else plain)
        assert levers.better_with(plain, [usual, lever], "throughput") is plain, "the best has none"
        if taken:
            assert levers.better_with([(usual[0], "needs more")], every, "throughput") is every

    def made(self, seconds: Callable[[Choice], float] = lambda _: 1.0, fuse: bool = False, **sizes: Any) -> Any:
        facts = SimpleNamespace(parameters=sizes.get("parameters"), tensor_sizes=sizes.get("tensors", []))
        return SimpleNamespace(
            facts=facts,
            can_fuse=lambda _: fuse,
            seconds_per_token=seconds,
            of=lambda choice: self.plan(seconds(choice), choice=choice),
        )

    @pytest.mark.parametrize(
        ("lever", "options", "fuse", "work", "found"),
        [
            ("live", Options(3, 8), False, None, {"live": 30_000_000}),
            ("live", Options(3, 8, max_live_parameters=30_000_000), False, None, None),
            ("live", Options(3, 8, max_reuse_distance=30_000_000), False, None, None),
            ("live", Options(3, 8, max_reuse_distance=30_000_001), False, None, {"live": 30_000_000}),
            ("live", Options(2, 8), False, None, None),
            ("bucket", Options(2, 8), False, None, {"bucket": 10_000_000}),
            ("bucket", Options(2, 8, reduce_bucket_size=10_000_000), False, None, None),
            ("bucket", Options(2, 8, reduce_bucket_size=10_000_001), False, None, {"bucket": 10_000_000}),
            ("bucket", Options(0, 8), False, None, None),
            ("persistence", Options(3, 8), False, None, None),
            ("fused_loss", TorchOptions("ddp", 8), True, Workload(1, 8), {"fused_loss": True}),
            ("fused_loss", TorchOptions("ddp", 8), False, Workload(1, 8), None),
            ("fused_loss", TorchOptions("ddp", 8), True, Workload(1, 8, fused_loss=True), None),
            ("fused_loss", TorchOptions("ddp", 8), True, None, None),
            ("bucket", TorchOptions("ddp", 8), True, Workload(1, 8), None),
        ],
    )
    def test_what_takes_less(self, lever: Any, options: Any, fuse: bool, work: Any, found: Any) -> None:
        one = self.plan(options=options, work=work)
        smaller = list(levers._smaller(self.made(fuse=fuse), one, lever))
        assert smaller == ([] if found is None else [replace(ZERO_2, **found)])

    @pytest.mark.parametrize(
        ("lever", "options", "sizes", "found"),
        [
            ("live", Options(3, 8), {"parameters": 7 * 10**9}, [2 * 10**9, 4 * 10**9, 8 * 10**9]),
            ("live", Options(3, 8), {"parameters": 10**9}, []),
            ("live", Options(3, 8), {"parameters": 10**9 + 1}, [2 * 10**9]),
            ("live", Options(3, 8), {}, []),
            ("live", Options(2, 8), {"parameters": 7 * 10**9}, []),
            ("persistence", Options(3, 8), {"tensors": TENSORS}, [100_001, 200_000]),
            ("persistence", Options(3, 8), {"tensors": [(300_000, 1)]}, []),
            ("persistence", TorchOptions("ddp", 8), {"tensors": [(300_000, 1), (200_000, 9)]}, []),
        ],
    )  # fmt: skip
    def test_what_sends_less(self, lever: Any, options: Any, sizes: dict[str, Any], found: list[int]) -> None:
        choice = replace(ZERO_2, stage=3)
        one = self.plan(options=options, choice=choice)
        assert list(levers._larger(self.made(**sizes), one, lever)) == [
            replace(choice, **{lever: size}) for size in found
        ]
        alone = replace(one, choice=replace(choice, per_node=1))
        assert list(levers._larger(self.made(**sizes), alone, lever)) == [], "one rank sends nothing"

    @pytest.mark.parametrize(
        ("new", "old", "faster"), [(0.97, 1.0, True), (0.971, 1.0, False), (None, 1.0, False), (0.5, None, False)]
    )
    def test_what_is_faster(self, new: Any, old: float | None, faster: bool) -> None:
        assert levers._is_faster(self.made(lambda _: new), ZERO_2, self.plan(old)) is faster

    def test_which_values_are_tried(self) -> None:
        """Smaller ones where the plan may not fit, faster ones but for the least memory; none that it has already."""
        choice = replace(ZERO_2, stage=3)
        made = self.made(lambda one: 0.5 if one.live else 1.0, parameters=2 * 10**9, tensors=[(10**6, 1), (10**7, 1)])
        smaller = [replace(choice, live=30_000_000), replace(choice, bucket=10_000_000)]
        faster = [replace(choice, live=2 * 10**9)]
        every = {"live", "persistence", "bucket"}

        def moved(word: str, prefer: Any, levers_: set[Any] = every, **have: Any) -> list[Choice]:  # type: ignore[assignment]
            one = self.plan(word=word, choice=replace(choice, **have))
            return list(levers._moved(made, one, levers_, prefer))

        assert moved("fits", "throughput") == faster
        assert moved("likely", "throughput") == [*smaller, *faster]
        assert moved("fits", "memory") == smaller
        assert moved("fits", "throughput", {"bucket"}) == []
        assert moved("likely", "throughput", {"live"}, live=5) == []

    def test_the_lever_that_gains_most_comes_first_and_a_superfluous_one_goes(self) -> None:
        """Alone the bucket gains 10 percent and live parameters 20; together no more than these alone."""

        def seconds(one: Choice) -> float:
            return 0.8 if one.live else 0.9 if one.bucket else 1.0

        made = self.made(seconds)
        made.of = lambda choice: self.plan(seconds(choice), "likely", choice=choice, chance=0.75)
        start = made.of(replace(ZERO_2, stage=3))
        best = levers.with_levers(made, start, {"live", "bucket"}, "throughput")
        assert best.choice == replace(start.choice, live=30_000_000)

        def both(one: Choice) -> float:
            return {0: 1.0, 1: 0.9 if one.bucket else 0.95, 2: 0.5}[len(one.levers)]

        made.of = lambda choice: self.plan(both(choice), "likely", choice=choice, chance=0.75)
        best = levers.with_levers(made, start, {"live", "bucket"}, "throughput")
        assert best.choice == replace(start.choice, live=30_000_000, bucket=10_000_000)
        assert levers.with_levers(made, start, (), "throughput") is start

    def test_what_no_lever_can_beat(self) -> None:
        """With the fused loss, and with the last value of each lever, on a plan that certainly fits."""
        choice = replace(ZERO_2, stage=3)
        asked: list[Choice] = []

        def seconds(one: Choice) -> float:
            asked.append(one)
            return 0.5

        made = self.made(seconds, fuse=True, parameters=2 * 10**9, tensors=[(10**6, 1), (10**7, 1), (10**8, 1)])
        one = self.plan(2.0, "likely", choice=choice, chance=0.6)
        assert levers.at_best(made, one, ("live", "persistence", "fused_loss"), "throughput") == 0.5
        assert asked == [replace(choice, fused_loss=True, live=2 * 10**9, persistence=10**7)]
        assert levers.at_best(made, one, ("fused_loss",), "cost") == 4.0, "of 8 ranks"
        assert levers.at_best(made, one, (), "memory") == 0.0
        assert levers.at_best(made, self.plan(None), ("live",), "throughput") == 0.0
        slower = self.made(lambda _: 3.0)
        assert levers.at_best(slower, one, (), "throughput") == 2.0

    @pytest.mark.parametrize(
        ("open_", "can", "fused"),
        [(("fused_loss",), True, True), (("fused_loss",), False, None), (("bucket",), True, None)],
    )
    def test_the_fused_loss_counts_where_it_is_open_and_known(self, open_: Any, can: bool, fused: bool | None) -> None:
        asked: list[Choice] = []

        def seconds(one: Choice) -> float:
            asked.append(one)
            return 0.5

        levers.at_best(self.made(seconds, fuse=can), self.plan(1.0), open_, "throughput")
        assert asked == [replace(ZERO_2, fused_loss=fused)]

    def test_a_plan_explained(self) -> None:
        one = self.plan(choice=replace(ZERO_2, live=7, bucket=9))
        found = levers.explained(self.made(), one)
        assert [(lever, without.choice) for lever, without in found.without] == [
            ("live", replace(ZERO_2, bucket=9)),
            ("bucket", replace(ZERO_2, live=7)),
        ]
        assert replace(found, without=()) == one


SPACE = SearchSpace(((1, 8),), (2,), (("none", "none"),), (False,), 1, 1, False, False, None)


class TestNearest:
    def configs(
        self, space: SearchSpace, hardware: str = "8xA100-80GB", before: Any = None, consumer: str = "trl", **more: Any
    ) -> Any:
        """What is offered to change in the configs: words, the space, and levers."""
        found = replace(inputs_of(run_of(consumer, **more), "deepspeed", hardware), before=before)
        return [(what, changed, levers_) for what, _, changed, levers_ in nearest._to_configs(found, space)]

    def test_nothing_is_offered_that_is_open_already(self) -> None:
        assert self.configs(replace(SPACE, stages=(1, 2, 3))) == []
        assert self.configs(replace(SPACE, stages=(1, 2, 3), micro=2, micro_open=True)) == []

    def test_a_smaller_micro_batch(self) -> None:
        """2 samples x 4 micro batches of 8 ranks are 64 samples, in pairs of ranks 32."""
        space = replace(SPACE, stages=(1, 2, 3), micro=2, steps=4)
        (found,) = self.configs(space)
        assert found[0] == "a smaller micro batch with more accumulation" and found[2] == {}
        wanted = replace(space, micro=None, micro_open=True, steps=None, steps_open=True, global_batch=64)
        assert found[1] == wanted
        (shared,) = self.configs(replace(space, sharing=2))
        assert shared[1].global_batch == 32
        assert self.configs(replace(space, steps=None))[0][1].global_batch == 16
        assert self.configs(replace(space, global_batch=48))[0][1].global_batch == 48

    def test_each_value_and_all_together(self) -> None:
        space = replace(SPACE, checkpointing=(None,), offloads=None)
        found = self.configs(space)
        names = ["gradient checkpointing", "another ZeRO stage", "offload"]
        assert [what for what, _, _ in found] == [*names, " and ".join(names)]
        assert found[0][1] == replace(space, checkpointing=(True,))
        assert found[1][1] == replace(space, stages=(1, 2, 3))
        assert found[2][1] == replace(space, stages=(2, 3), offloads=(("cpu", "none"), ("cpu", "cpu")))
        places = (("none", "none"), ("cpu", "none"), ("cpu", "cpu"))
        assert found[3][1] == replace(space, checkpointing=(True,), stages=(1, 2, 3), offloads=places)

    @pytest.mark.parametrize(
        ("consumer", "engine", "offered"),
        [("trl", None, True), ("accelerate", None, False), ("trl", "ddp", False)],
    )
    def test_deepspeed_for_a_trainer(self, consumer: str, engine: Any, offered: bool) -> None:
        space = replace(SPACE, stages=(None,), offloads=None, engine=engine)
        found = self.configs(space, consumer=consumer)
        assert [what for what, _, _ in found][:1] == (["DeepSpeed"] if offered else [])
        if offered:
            assert found[0][1] == replace(space, stages=(1, 2, 3), engine="deepspeed")
            assert found[1][0] == "offload" and found[1][1].engine == "deepspeed" and found[1][1].stages == (2, 3)

    def test_ranks_on_the_host_have_no_other_place(self) -> None:
        assert self.configs(replace(SPACE, stages=(1, 2, 3), offloads=None), "8xcpu") == []

    @pytest.mark.parametrize(
        ("name", "value", "lever"),
        [
            (REDUCED, 10_000_001, {"bucket": 10_000_000}),
            (REDUCED, 10_000_000, None),
            (LIVE, 30_000_001, {"live": 30_000_000}),
            (PERSISTENCE, 100_001, {"persistence": 100_000}),
            (PERSISTENCE, 100_000, None),
            (LIVE, "auto", None),
        ],
    )
    def test_values_that_a_source_fixes_too_large(self, name: str, value: Any, lever: Any) -> None:
        before = Effective(settings={name: setting(value)})
        found = self.configs(replace(SPACE, stages=(1, 2, 3)), before=before)
        assert [levers_ for _, _, levers_ in found] == ([] if lever is None else [lever])
        assert all(space == replace(SPACE, stages=(1, 2, 3)) for _, space, _ in found)
        if lever:
            opened = replace(SPACE, stages=(1, 2, 3), levers=frozenset(lever))
            assert self.configs(opened, before=before) == [], "the search has moved it already"

    @pytest.mark.parametrize(
        ("opened", "stages", "offered"),
        [((), (1, 2, 3), True), (("fused_loss",), (1, 2, 3), False), ((), (1, 2), False), ((), (None,), False)],
    )
    def test_a_loss_in_pieces_where_a_stage_knows_it(
        self, opened: Any, stages: Any, offered: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nearest, "can_fuse", lambda _, stage: stage == 3)
        space = replace(SPACE, stages=stages, engine="ddp", levers=frozenset(opened))
        found = [(what, levers_) for what, _, levers_ in self.configs(space)]
        change = ("`use_liger_kernel: true`, which needs the package liger-kernel", {"fused_loss": True})
        assert found == ([change] if offered else [])

    def test_levers_and_values_together(self) -> None:
        before = Effective(settings={REDUCED: setting(10**9), LIVE: setting(10**9)})
        found = self.configs(replace(SPACE, checkpointing=(None,), stages=(1, 2, 3)), before=before)
        assert len(found) == 4
        what, space, levers_ = found[-1]
        assert what.startswith(
            "gradient checkpointing and buckets of 10000000 elements and `stage3_max_live_parameters`"
        )
        assert space.checkpointing == (True,) and levers_ == {"bucket": 10_000_000, "live": 30_000_000}

    @pytest.mark.parametrize(
        ("stage", "lever", "known"),
        [
            (3, "live", True),
            (3, "bucket", True),
            (2, "bucket", True),
            (2, "live", False),
            (0, "bucket", False),
            (None, "bucket", False),
            (2, "fused_loss", True),
            (None, "fused_loss", True),
        ],
    )
    def test_levers_that_a_stage_knows(self, stage: Any, lever: str, known: bool, monkeypatch: Any) -> None:
        monkeypatch.setattr(nearest, "can_fuse", lambda _, stage: True)
        found = inputs_of(run_of())
        one = Choice(1, 8, stage)
        plans = list(nearest._with_levers(found, iter([one]), {lever: 7}))
        assert plans == ([replace(one, **{lever: 7})] if known else [])
        assert list(nearest._with_levers(found, iter([one]), {})) == [one]

    def hardware(self, name: str) -> list[tuple[str, Any]]:
        found = inputs_of(run_of(), "deepspeed", name)
        return [
            (what, (space.layouts, inputs.profile)) for what, inputs, space, _ in nearest._to_hardware(found, SPACE)
        ]

    def test_more_of_the_same_cards(self) -> None:
        """Twice as many until a node has eight, then twice the nodes, up to 512 devices."""
        found = self.hardware("2xA100-80GB")
        more = [(what, layouts) for what, (layouts, _) in found if " cards " in what]
        assert more[:3] == [
            ("4 cards (4xA100-SXM-80GB)", ((1, 4),)),
            ("8 cards (8xA100-SXM-80GB)", ((1, 8),)),
            ("16 cards (2x8xA100-SXM-80GB)", ((2, 8),)),
        ]
        assert more[-1][0] == "512 cards (64x8xA100-SXM-80GB)" and len(more) == 8
        assert self.hardware("8xcpu") == []

    def test_a_larger_card(self) -> None:
        """Of the same vendor, from the next larger on: an H200 has 139.8 GiB, a B300 288 as printed."""
        found = [(what, one) for what, (_, one) in self.hardware("8xH100-80GB") if " cards " not in what]
        rooms = [one.accelerator.planning_gib for _, one in found]
        assert (
            rooms == sorted(rooms) and rooms[0] == 79.15 and {one.accelerator.vendor for _, one in found} == {"nvidia"}
        )
        assert found[-1][0] == "8xB300" and found[-1][1].link_within_node.gb_s == 1800
        by_name = dict(found)
        assert by_name["8xH200-SXM-141GB"].accelerator.usable_gib == 139.8
        assert "8xA100-SXM-80GB" in by_name and "8xH100-SXM-80GB" not in by_name
        alone = [one for what, (_, one) in self.hardware("1xH100-80GB") if " cards " not in what]
        assert all(one.link_within_node is None for one in alone)
        names = [what for what, _ in self.hardware("2x8xH100-80GB") if " cards " not in what]
        assert "2x8xB300" in names

    @pytest.mark.parametrize(("length", "shorter"), [(4096, [2048, 1024, 512]), (1024, [512]), (1023, []), (None, [])])
    def test_shorter_samples(self, length: int | None, shorter: list[int]) -> None:
        found = inputs_of(run_of(), sequence_length=length)
        tried = [(what, one.spec.sequence_length) for what, one, _, _ in nearest._to_samples(found, SPACE)]
        assert tried == [(f"samples of {size} tokens, which is another training", size) for size in shorter]

    def test_the_first_that_fits_of_each_kind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = inputs_of(run_of())
        words = {"a": "likely", "b": "fits", "c": "fits", "h": "fits", "s": "fits"}

        def attempts(names: str) -> Any:
            return lambda *_: iter([(name, found, SPACE, {}) for name in names])

        def evaluate(name: str, _: Any) -> list[Candidate]:
            if name == "x":
                raise ValueError("no job")
            return [candidate(PLAIN, word=words[name]), candidate(PLAIN, 9.0, word="does not fit")]

        def fitting(own: Any, tries: Any, predictor: Any) -> Any:
            for what, inputs, space, levers_ in tries:
                monkeypatch.setattr(nearest, "evaluate", lambda *_, what=what: evaluate(what, None))
                yield from original(own, iter([(what, inputs, space, levers_)]), predictor)

        original = nearest._fitting
        monkeypatch.setattr(nearest, "_fitting", fitting)
        for names, expected in (
            (("xabc", "h", "s"), "bh"),
            (("a", "h", "s"), "h"),
            (("a", "x", "ss"), "s"),
            (("a", "", ""), ""),
        ):
            for kind, tries in zip(("_to_configs", "_to_hardware", "_to_samples"), names, strict=True):
                monkeypatch.setattr(nearest, kind, attempts(tries))
            changes = nearest.nearest(found, SPACE, lambda _: None)  # type: ignore[arg-type, return-value]
            assert "".join(one.what for one in changes) == expected
            assert all(one.plan.word == "fits" and one.room == int(79.15 * GIB) for one in changes)


class TestPredicted:
    def of_a_trainer(self, **more: Any) -> Candidates:
        spec = RunSpec.model_validate({"consumer": "transformers", "script": "a.py", "sequence_length": 512})
        run = run_of("transformers", recipe=more.pop("recipe", {"max_steps": 1}))
        one: Any = SimpleNamespace(run=run, spec=spec, profile=profile(**more), facts=FACTS)
        effective = Effective(settings={"engine": setting("ddp"), "mixed_precision": setting("bf16")})
        return Candidates(one, effective, FACTS, Activations(FACTS, CONFIG, tracing=False, python=None))

    @pytest.mark.parametrize(
        ("recipe", "choice", "recomputed", "fused"),
        [
            ({}, {}, False, False),
            ({}, {"checkpointing": True, "fused_loss": True}, True, True),
            ({"gradient_checkpointing": True}, {}, True, False),
            ({"gradient_checkpointing": True, "use_liger_kernel": True}, {"checkpointing": False}, False, True),
            ({"use_liger_kernel": True}, {"fused_loss": False}, False, False),
        ],
    )
    def test_arguments_of_a_choice(self, recipe: Any, choice: dict[str, Any], recomputed: bool, fused: bool) -> None:
        work = self.of_a_trainer(recipe=recipe).setup(Choice(1, 8, micro_batch=2, **choice)).workload
        assert work is not None
        assert (work.micro_batch, work.gradient_checkpointing, work.fused_loss) == (2, recomputed, fused)

    def test_a_part_of_several_nodes(self) -> None:
        """Within a node there is no network; between fewer of them it is that of the profile, or an assumed one."""
        whole = load_hardware("4x8xA100-80GB")
        made = planner(one=whole)
        part = made.profile(Choice(2, 4))
        assert (part.nodes, part.accelerators_per_node, part.world_size) == (2, 4, 8)
        assert part.link_between_nodes is not None and made.profile(Choice(4, 8)) is whole
        bare = whole.model_copy(update={"link_between_nodes": None})
        again = planner(one=bare).profile(Choice(2, 8))
        assert again.link_between_nodes is not None and again.link_between_nodes.assumed

    def test_the_time_of_a_choice(self) -> None:
        made = self.of_a_trainer()
        choice = Choice(1, 8, micro_batch=2, accumulation=1)
        seconds = made.seconds_per_token(choice)
        assert seconds is not None and seconds > 0
        assert made.of(choice).seconds_per_token == seconds
        assert made.seconds_per_token(Choice(1, 8)) is None, "nothing says how large the micro batch is"
        unknown = profile().accelerator.model_copy(update={"bf16_tflops": None, "measured_tflops": {}})
        assert self.of_a_trainer(accelerator=unknown).seconds_per_token(choice) is None
        compiled = self.of_a_trainer(recipe={"torch_compile_backend": "inductor"})
        assert compiled.seconds_per_token(choice) is None, "of which no time is modelled"
        assert per_token(None) is None

    def test_whether_the_loss_is_fused_is_asked_once_for_a_stage(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Any] = []

        def can(_: Any, *, stage: Any) -> bool:
            asked.append(stage)
            return stage == 2

        monkeypatch.setattr(candidates, "can_fuse", can)
        made = self.of_a_trainer()
        assert [made.can_fuse(Choice(1, 8, stage)) for stage in (2, 3, 2, None, 3)] == [True, False, True, False, False]
        assert asked == [2, 3, None]

    def test_bytes_of_a_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        prediction = SimpleNamespace(
            device=Band(1, 1, 1), allocated=Band(1, 1, 1), complete=True,
            estimate=SimpleNamespace(terms=(), peak=lambda place: SimpleNamespace(size={"nvme": 5}[place])),
        )  # fmt: skip
        monkeypatch.setattr(candidates, "predict", lambda *_: prediction)
        monkeypatch.setattr(candidates, "host_needed", lambda *_: Band(6, 7, 8))
        found = planner(one=profile(host=None)).of(Choice(1, 8, 2))
        assert (found.nvme, found.host, found.word, found.short) == (40, 7, "fits", "")

    @pytest.mark.parametrize(
        ("complete", "touches", "standing", "word", "whole"),
        [
            (True, (), "at least", "fits", True),
            (True, ("memory",), "at least", "unknown", False),
            (True, ("memory",), "at most", "fits", False),
            (True, ("time",), "at least", "fits", True),
            (False, (), "at least", "fits", False),
        ],
    )
    def test_what_is_certain_of_a_plan(
        self, complete: bool, touches: Any, standing: Any, word: str, whole: bool
    ) -> None:
        one = candidate(PLAIN)
        gaps = (Gap((("a", 1),), "why", standing, touches),) if touches else ()
        band = one.prediction.device
        one = replace(one, gaps=gaps, prediction=SimpleNamespace(device=band, complete=complete))  # type: ignore[arg-type]
        assert (one.word, one.verdict, one.complete) == ("fits", word, whole)


class TestPrecision:
    def test_a_device_of_which_it_is_not_known_keeps_its_precision(self) -> None:
        found = inputs_of(run_of("deepspeed"))
        assert found.profile is not None
        device = found.profile.accelerator.model_copy(update={"bf16": None})
        unknown = replace(found, profile=found.profile.model_copy(update={"accelerator": device}))
        assert precision.with_precision(unknown) is unknown
        nothing = replace(found, profile=None)
        assert precision.with_precision(nothing) is nothing

    @pytest.mark.parametrize(
        ("hardware", "reason"),
        [
            ("8xA100-80GB", "zerocfg's choice: A100-SXM-80GB computes in bf16"),
            ("8xV100-32GB", "zerocfg's choice: V100-SXM2-32GB cannot compute in bf16, but in fp16"),
        ],
    )
    def test_the_reason(self, hardware: str, reason: str) -> None:
        found = precision.with_precision(inputs_of(run_of("deepspeed"), "deepspeed", hardware))
        (one,) = found.chosen.values()
        assert one.reason == reason and one.inputs == {"accelerator": reason.split()[2]}


class TestTaken:
    def plan(self, best: Candidate, *rest: tuple[Candidate, str], **more: Any) -> Inputs:
        spec = {name: more.pop(name) for name in ("goals", "hardware") if name in more}
        engine, before = more.pop("engine", "deepspeed"), more.pop("before", {})
        run = run_of(more.pop("consumer", "accelerate"), **more)
        found = replace(inputs_of(run, engine, **spec), facts=FACTS)
        effective = Effective(settings={name: setting(value) for name, value in before.items()})
        return take_plan.with_plan(replace(found, before=effective), [(best, ""), *rest])

    def test_one_process_is_no_ddp(self) -> None:
        best = other(None, nodes=1, per_node=1, engine="ddp", stage=None, offload_optimizer=None, offload_param=None)
        found = self.plan(best, engine="ddp", hardware="1xA100-80GB", goals={})
        assert found.chosen[ENGINE].value == "single" and "num_processes" not in found.chosen
        several = replace(best, choice=replace(best.choice, per_node=8))
        found = self.plan(several, engine="ddp", goals={})
        assert found.chosen[ENGINE].value == "ddp" and found.run.hardware is None

    def test_a_part_of_the_devices_is_said(self) -> None:
        best = other(None, per_node=4)
        found = self.plan(best)
        assert found.chosen["num_processes"].value == 4 and found.run.hardware is not None
        assert found.run.hardware.accelerators == 4
        assert found.notes[0].startswith("4 of 8 devices are used: zerocfg's choice, the fastest plan that fits")

    def test_the_first_value_tells_the_runner_up(self) -> None:
        rows = [(other(None, stage=3), "slower")]
        found = self.plan(candidate(PLAIN, None), *rows)
        assert {name for name, one in found.chosen.items() if "; next: ZeRO-3, 1 x 1 (slower)" in one.reason} == {STAGE}
        found = self.plan(other(None, offload_optimizer="cpu"), *rows, before={STAGE: 2})
        assert STAGE not in found.chosen
        told = {name for name, one in found.chosen.items() if "; next: " in one.reason}
        assert told == {OPTIMIZER_DEVICE}, "the first value that is left"

    @pytest.mark.parametrize(
        ("plan", "devices", "name"),
        [
            ({}, 8, MICRO),
            ({"micro_batch": None}, 8, STEPS),
            ({"micro_batch": None, "accumulation": None}, 8, "gradient_checkpointing"),
            ({"micro_batch": None, "accumulation": None, "checkpointing": None}, 4, "num_processes"),
        ],
    )
    def test_a_value_that_is_written_tells_the_runner_up(self, plan: dict[str, Any], devices: int, name: str) -> None:
        """The source names the stage, and an offload to nowhere is not written."""
        best = other(None, offload_optimizer="none", offload_param="none", per_node=devices, **plan)
        found = self.plan(best, (other(None, stage=3), "slower"), before={STAGE: 2})
        telling = [key for key, one in found.chosen.items() if "; next: ZeRO-3, 1 x 1 (slower)" in one.reason]
        assert telling == [name]

    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            ([], ""),
            ([(other(micro_batch=2), "slower")], ""),
            ([(other(micro_batch=2), "slower"), (other(stage=3), "4% slower")], "; next: ZeRO-3, 1 x 1 (4% slower)"),
            ([(other(stage=3, word="does not fit"), "x"), (other(stage=1), "y")], "; next: ZeRO-1, 1 x 1 (y)"),
            ([(other(stage=3, word="does not fit"), "x")], ""),
        ],
    )
    def test_the_best_of_the_other_ways(self, rows: Any, said: str) -> None:
        assert take_plan.runner_up([(candidate(PLAIN), ""), *rows]) == said

    @pytest.mark.parametrize(
        ("lever", "value", "sized", "instead"),
        [
            ("fused_loss", True, None, "the loss in pieces instead of all logits at once"),
            ("live", 7, None, "7 elements instead of DeepSpeed's 1000000000"),
            ("persistence", 7, None, "7 elements instead of DeepSpeed's 100000"),
            ("bucket", 7, None, "7 elements instead of DeepSpeed's 500000000"),
            ("bucket", 7, Decision(9), "7 elements instead of 9"),
        ],
    )
    def test_why_a_lever(self, lever: Any, value: Any, sized: Any, instead: str) -> None:
        options: Any = SimpleNamespace(options=Options(3, 8))
        best = candidate(PLAIN, 1.0, 10.0, "likely", chance=0.8)
        without = replace(candidate(PLAIN, 1.1, 12.0, "likely", chance=0.6), setup=options)
        assert take_plan._gain(lever, value, best, without, sized) == (
            f"zerocfg's choice: {instead}: up to 11.0 GiB instead of 13.0, chance to fit 60% -> 80%, "
            "10% more tokens a second"
        )

    @pytest.mark.parametrize(
        ("best", "without", "said"),
        [
            ((1.0, "fits", 0.99), (1.2, "fits", 0.97), ", 20% more tokens a second"),
            ((1.0, "likely", 0.8), (1.0, "likely", 0.8), ""),
            ((1.0, "likely", 0.8), (1.004, "likely", 0.8), ""),
            ((1.0, "likely", 0.8), (1.006, "likely", 0.8), ", 1% more tokens a second"),
            ((1.25, "likely", 0.8), (1.0, "likely", 0.8), ", 20% fewer tokens a second"),
            ((None, "likely", 0.8), (1.0, "likely", 0.8), ""),
            ((1.0, "fits", 0.96), (1.0, "likely", 0.8), ", chance to fit 80% -> 96%"),
        ],
    )
    def test_what_a_lever_gains(self, best: Any, without: Any, said: str) -> None:
        one, two = (
            sharded(PLAIN, seconds=seconds, word=word, chance=chance) for seconds, word, chance in (best, without)
        )
        assert take_plan._gain("fused_loss", True, one, two, None) == (
            "zerocfg's choice: the loss in pieces instead of all logits at once: up to 11.0 GiB instead of 11.0" + said
        )

    def test_levers_of_the_best_plan_are_written(self) -> None:
        plain = replace(candidate(replace(PLAIN, stage=3), None), setup=SimpleNamespace(options=Options(3, 8)))  # type: ignore[arg-type]
        best = replace(candidate(replace(PLAIN, stage=3, live=7), None), without=(("live", plain),))
        found = self.plan(best, deepspeed={})
        assert (found.chosen[LIVE].value, found.chosen[REUSE].value) == (7, 7)
        assert found.chosen[LIVE].reason.startswith("zerocfg's choice: 7 elements instead of DeepSpeed's 1000000000")
        assert found.run.deepspeed is not None
        assert found.run.deepspeed.data()["zero_optimization"]["stage3_max_live_parameters"] == 7
        assert found.run.deepspeed.data()["zero_optimization"]["overlap_comm"] is True

    def test_liger_is_told_where_it_is_taken(self) -> None:
        best = replace(
            candidate(replace(PLAIN, fused_loss=True), None), without=(("fused_loss", sharded(PLAIN, seconds=None)),)
        )
        found = self.plan(best, consumer="trl", recipe={}, versions={"liger-kernel": ">=0.8"})
        assert found.changes[LIGER].value is True and found.notes == (
            "use_liger_kernel needs the package liger-kernel where the job runs (the spec states it)",
        )
        assert self.plan(candidate(PLAIN, None), consumer="trl", recipe={}).notes == ()

    def test_what_is_left_out_of_a_doubtful_plan_is_told(self) -> None:
        gap = Gap((("torch_compile", True),), "another memory", "not modelled", ("memory",))
        found = self.plan(replace(candidate(PLAIN, None), gaps=(gap,)))
        assert found.notes == (
            "the plan may not fit: 9.0 to 11.0 GiB are predicted; not modelled: `torch_compile: true` (another "
            "memory); zerocfg plan shows what helps",
        )

    def test_the_facts_of_a_choice(self) -> None:
        goals = {"prefer": "cost", "global_batch_size": 64}
        found = replace(inputs_of(run_of(), goals=goals, sequence_length=512), facts=FACTS)
        assert take_plan._given(found) == {
            "hardware": "8xA100-80GB",
            "parameters": FACTS.parameters,
            "sequence_length": 512,
            "prefer": "cost",
            "global_batch_size": 64,
        }
        assert take_plan._given(replace(inputs_of(run_of()), profile=None)) == {}

    def test_the_goal_in_words(self) -> None:
        best = replace(candidate(PLAIN, gib=10.0), time=SimpleNamespace(tokens_per_second=1234.0))  # type: ignore[arg-type]
        for prefer, word in (("throughput", "fastest"), ("memory", "smallest"), ("cost", "cheapest")):
            found = inputs_of(run_of(), goals={"prefer": prefer})
            assert take_plan._reason(found, best) == (
                f"zerocfg's choice, the {word} plan that fits: up to 11.0 GiB of A100-SXM-80GB's 79 GiB, "
                "about 1,200 tokens/s"
            )
