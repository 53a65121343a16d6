"""Verdicts and the ladder, on predictions whose size is a plain function of the job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.llamas import LLAMA_3_8B as LLAMA_8B
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.activations.formula import by_formula
from zerocfg.memory.band_tier import BandTier, tier_of, wide
from zerocfg.memory.measured_spread import MEASURED
from zerocfg.memory.options import Images, Options, TorchOptions, Workload
from zerocfg.memory.overhead import GIB, MIB, Band, around, doubts, figures, outside, workspaces
from zerocfg.memory.predict import Prediction, predict
from zerocfg.memory.spread import COVERED, ENDS, Spread, below, chance_below, deviation_below
from zerocfg.memory.terms import ALWAYS, Estimate, Held, Term
from zerocfg.memory.verdict import UNKNOWN, Judge, Setting, Verdict, compare, judge, ladder, percent, workloads, worse
from zerocfg.models.model_facts import from_config
from zerocfg.models.vision import Vision

H200, A100, CPU = (parse_hardware(name).accelerator for name in ("H200", "A100", "cpu"))


def prediction(size: int, complete: bool = True) -> Prediction:
    band = Band(size, size, size)
    return Prediction(Estimate(()), Held("device", "backward", ()), band, band, band, complete)


def simple(setting: Setting) -> Prediction:
    """States of 16 GiB over the ranks at stage 3, and 2 GiB of activations a sample."""
    options, work = setting.options, setting.workload
    assert isinstance(options, Options) and work is not None
    states = {0: 16, 1: 4 + 12 / options.world_size, 2: 2 + 14 / options.world_size, 3: 16 / options.world_size}
    size = states[options.stage] - (8 / options.world_size if options.offload_optimizer == "cpu" else 0)
    size += 2 * work.micro_batch * work.sequence_length / 1024 * (0.25 if work.gradient_checkpointing else 1)
    return prediction(int(size * GIB))


def job(**more: object) -> Setting:
    return Setting(Options(0, 4), replace(Workload(8, 1024), **more))  # type: ignore[arg-type]


def within(capacity: int) -> Judge:
    return lambda found: judge(found, capacity)


class TestSpread:
    @pytest.mark.parametrize(
        ("deviation", "chance"),
        [  # of Student's t with two degrees of freedom, as tables print its quantiles
            (0.0, 0.5),
            (0.816497, 0.75),
            (1.885618, 0.9),
            (2.919986, 0.95),
            (6.964557, 0.99),
        ],
    )
    def test_the_distribution_is_that_of_the_tables(self, deviation: float, chance: float) -> None:
        assert below(deviation) == pytest.approx(chance, abs=1e-6)
        assert below(-deviation) == pytest.approx(1 - chance, abs=1e-6)
        assert deviation_below(chance) == pytest.approx(deviation, abs=1e-5)

    def test_nine_of_ten_runs_lie_within_a_band(self) -> None:
        assert COVERED == 0.9 and pytest.approx(2.919986, abs=1e-6) == ENDS

    @pytest.mark.parametrize(
        ("limit", "chance"),
        [  # around 60 with an upper end of 75: the scale is ln(1.25) / 2.92 = 0.07642
            (75.0, 0.95),
            (60.0, 0.5),
            (48.0, 0.05),
            (66.0, 0.8309),  # ln(1.1) / 0.07642 = 1.2472; 0.5 + 1.2472 / (2 sqrt(2 + 1.5555))
            (54.0, 0.1511),  # ln(0.9) / 0.07642 = -1.3787
            (0.0, 0.0),
        ],
    )
    def test_a_chance_worked_out_by_hand(self, limit: float, chance: float) -> None:
        assert chance_below(limit, 60.0, 75.0) == pytest.approx(chance, abs=1e-3)

    def test_without_a_spread_there_is_no_doubt(self) -> None:
        assert [chance_below(limit, 60.0, 60.0) for limit in (59.0, 60.0)] == [0.0, 1.0]
        assert chance_below(0.0, 0.0, 0.0) == 1.0

    @given(st.floats(1.0, 1e12), st.floats(1.001, 3.0), st.floats(1.0, 1e12), st.floats(1.0, 2.0))
    def test_more_room_is_never_less_likely_to_do(self, size: float, end: float, room: float, more: float) -> None:
        assert chance_below(room, size, size * end) <= chance_below(room * more, size, size * end)


class TestVerdict:
    def test_the_words_on_both_sides_of_their_limits(self) -> None:
        band = Band(10, 12, 14)
        one = Prediction(Estimate(()), Held("device", "step", ()), band, band, band, True)
        assert [judge(one, capacity).word for capacity in (9, 10, 11, 12, 13, 14, None)] == [
            "does not fit", "unlikely", "unlikely", "likely", "likely", "fits", "unknown",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("room", "verdict"),
        [
            (80.0, "fits"),
            (79.999, "likely"),
            (64.0, "likely"),
            (63.999, "unlikely"),
            (51.201, "unlikely"),
            (51.199, "does not fit"),
        ],
    )
    def test_words_and_chances_say_the_same(self, room: float, verdict: str) -> None:
        """Expected 64 GiB, 1.25 times that at the upper end."""
        found = compare(Band(int(51.2 * GIB), 64 * GIB, 80 * GIB), int(room * GIB))
        assert found.word == verdict and found.chance is not None
        least, most = {
            "fits": (0.95, 1.0),
            "likely": (0.5, 0.95),
            "unlikely": (0.05, 0.5),
            "does not fit": (0.0, 0.05),
        }[found.word]
        assert least - 1e-4 <= found.chance <= most + 1e-4

    def test_what_is_expected_above_the_card_is_unlikely(self) -> None:
        found = compare(Band(int(83.7 / 1.25 * GIB), int(83.7 * GIB), int(83.7 * 1.25 * GIB)), int(79.1 * GIB))
        assert str(found) == "unlikely: 27%"  # ln(79.1 / 83.7) / 0.07642 = -0.7397

    def test_without_activations_nothing_fits_for_sure(self) -> None:
        assert judge(prediction(10, complete=False), 100) == UNKNOWN
        assert judge(prediction(101, complete=False), 100).word == "does not fit"
        assert judge(prediction(10, complete=False), 100, Band(8, 9, 10), 7).word == "does not fit"
        assert judge(prediction(10, complete=False), 100, Band(8, 9, 10), 8) == UNKNOWN

    def test_device_and_host_both_have_to_hold_it(self) -> None:
        host = Band(8, 10, 12)
        words = {room: judge(prediction(10), 100, host, room).word for room in (7, 8, 10, 12)}
        assert words == {7: "does not fit", 8: "unlikely", 10: "likely", 12: "fits"}
        assert judge(prediction(101), 100, host, 12).word == "does not fit"
        assert judge(prediction(10), 100, host, None).word == "fits", "how much there is is not known"
        assert judge(prediction(10), None, host, 12) == UNKNOWN
        assert judge(prediction(10), None, host, 7).word == "does not fit"

    @pytest.mark.parametrize(
        ("size", "room", "word", "by_host"),
        [
            (10, 12, "fits", False),
            (10, 11, "likely", True),
            (10, 7, "does not fit", True),
            (101, 11, "does not fit", False),
            (101, 7, "does not fit", False),
        ],
    )
    def test_what_decides_is_named(self, size: int, room: int, word: str, by_host: bool) -> None:
        found = judge(prediction(size), 100, Band(8, 10, 12), room)
        assert (found.word, found.by_host) == (word, by_host)

    def test_the_smaller_chance_counts(self) -> None:
        likely, less, fits = Verdict("likely", 0.8), Verdict("likely", 0.7), Verdict("fits", 0.95)
        assert worse(likely, less) is worse(less, likely) is worse(less, fits) is less

    @pytest.mark.parametrize(
        ("chance", "said"),
        [(0.0, "<1%"), (0.0049, "<1%"), (0.006, "1%"), (0.784, "78%"), (0.9949, "99%"), (0.995, ">99%"), (1.0, ">99%")],
    )
    def test_nothing_is_said_to_be_certain(self, chance: float, said: str) -> None:
        assert percent(chance) == said
        assert str(Verdict("likely", chance)) == f"likely: {said}" and str(UNKNOWN) == "unknown"


class TestOutside:
    def test_workspaces_are_those_of_the_architecture(self) -> None:
        assert sum(term.size for term in workspaces(H200)) == 64 * MIB
        assert sum(term.size for term in workspaces(A100)) == 2 * 8_519_680
        assert workspaces(CPU) == workspaces(None) == ()

    def test_the_driver_shows_more_than_is_reserved_and_that_more_than_is_allocated(self) -> None:
        held = Held("device", "step", ((Term("weights", 10 * GIB, "device", ALWAYS, "parameters"), 10 * GIB),))
        tier = wide("")
        allocated, kept, alone = figures(held, 0.0, H200, TorchOptions("single", 1), tier)
        among_others = figures(held, 0.0, H200, TorchOptions("ddp", 8), tier)[2]
        for end in ("low", "expected", "high"):
            assert getattr(allocated, end) < getattr(kept, end)
        assert kept.expected == int(11.2 * GIB)
        assert alone.expected == kept.expected + int(0.75 * GIB)
        assert among_others.expected == alone.expected + GIB
        assert figures(held, 0.0, H200, TorchOptions("ddp", 2), tier)[2].expected == among_others.expected
        # DeepSpeed makes a communicator for one rank as well.
        assert figures(held, 0.0, H200, Options(2, 1), tier)[2].expected == alone.expected + int(0.55 * GIB)
        assert figures(held, 0.0, H200, Options(2, 8), tier)[2].expected == among_others.expected

    @pytest.mark.parametrize(("case", "engine"), [("torch-bf16", TorchOptions("single", 1)), ("z2", Options(2, 1))])
    def test_what_lies_outside_is_what_the_driver_of_a_card_showed(
        self, case: str, engine: Options | TorchOptions
    ) -> None:
        file = ROOT / "benchmarks" / "gpu" / "results" / "h200-2026-11-26" / "memory.jsonl"
        lines = map(json.loads, file.read_text().splitlines())
        seen = next(line for line in lines if line["case"] == case and line["status"] == "ok")
        reserved = max(step[phase]["reserved"] for step in seen["steps"] for phase in ("forward", "backward", "step"))
        assert outside(H200, engine) == pytest.approx(seen["device_used"] - reserved, rel=0.01)

    def test_a_processor_has_no_context(self) -> None:
        held = Held("device", "step", ((Term("weights", GIB, "device", ALWAYS, "parameters"), GIB),))
        _, kept, device = figures(held, 0.0, CPU, TorchOptions("ddp", 2), wide(""))
        assert device == kept


class TestTiers:
    """Narrow bands only where a card of the architecture was measured and every setting is known."""

    FACTS = from_config(LLAMA_8B)
    WORK = Workload(1, 2048, True)
    ENGINE = Options(2, 8, optimizer="fused_adam")

    def tier(self, **changed: Any) -> BandTier:
        work = replace(self.WORK, **changed.pop("work", {}))
        config = LLAMA_8B | changed.pop("config", {})
        facts = changed.pop("facts", from_config(config))
        timeline = by_formula(facts, work, "bf16", config)
        return tier_of(facts, changed.get("options", self.ENGINE), timeline, changed.get("card", H200))

    def test_it_is_narrow_on_the_card_that_was_measured(self) -> None:
        assert self.tier().narrow and "one H200, 25 runs" in self.tier().reason
        assert self.tier(card=parse_hardware("H100").accelerator).narrow, "the same architecture"
        assert self.tier(options=Options(3, 1, optimizer="adamw_fused", offload_optimizer="cpu")).narrow

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"card": A100}, "no card like A100-SXM-80GB was measured"),
            ({"card": None}, "the card is not known"),
            ({"work": {"assumed": True}}, "a setting is assumed"),
            ({"options": Options(2, 8)}, "a setting is assumed"),
            (
                {"config": {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}},
                "no model of this family was measured",
            ),
            ({"options": TorchOptions("fsdp2", 8, optimizer="adamw_fused")}, "this engine was not measured on a card"),
            ({"options": TorchOptions("ddp", 8, optimizer="adamw_fused")}, "this engine was not measured on a card"),
            ({"options": replace(ENGINE, stage=3, offload_param="cpu")}, "this engine was not measured on a card"),
            ({"options": replace(ENGINE, tensor_parallel=2)}, "this engine was not measured on a card"),
            (
                {"facts": FACTS.model_copy(update={"trainable_parameters": 10**8})},
                "no training of a part of the weights was measured",
            ),
        ],
        ids=str,
    )
    def test_it_is_wide_elsewhere_and_says_why(self, changed: dict[str, Any], reason: str) -> None:
        found = self.tier(**changed)
        assert not found.narrow and found.reason == reason

    def test_nothing_is_narrow_without_activations(self) -> None:
        assert tier_of(self.FACTS, self.ENGINE, None, H200).reason == "activations are not known"

    def test_how_narrow(self) -> None:
        """12 % of what is reserved, 3 % of states, 8 % (the formula's own) of activations; one rank on an H200."""
        timeline = by_formula(self.FACTS, self.WORK, "bf16", LLAMA_8B)
        found = predict(self.FACTS, replace(self.ENGINE, world_size=1), timeline, H200)
        assert 1.02 < found.allocated.high / found.allocated.expected < 1.045
        for band in (found.reserved, found.device):
            assert 1.11 < band.high / band.expected < 1.14
        several = predict(self.FACTS, self.ENGINE, timeline, H200)
        low, high = several.reserved.high / several.reserved.expected, several.device.high / several.device.expected
        assert high > low, "NCCL among several ranks was not measured"
        elsewhere = predict(self.FACTS, self.ENGINE, timeline, A100)
        assert elsewhere.device.high / elsewhere.device.expected > high


class TestBands:
    SPREAD = Spread(states=0.1, activations=0.3, reserve=0.05, outside=1.0)

    def test_what_a_band_is_made_of_adds_up_as_squares_do(self) -> None:
        """100 bytes, 40 of them activations, and 20 beside torch's allocator."""
        allocated, kept, device = doubts(100, 40, 0.0, 20, self.SPREAD)
        assert allocated == (100, pytest.approx((6**2 + 12**2) ** 0.5))
        assert kept == (112, pytest.approx((1.12**2 * (6**2 + 12**2) + 5.6**2) ** 0.5))
        assert device == (132, pytest.approx((1.12**2 * (6**2 + 12**2) + 5.6**2 + 20**2) ** 0.5))

    def test_a_formula_in_place_of_a_trace_widens_the_band_of_the_activations_alone(self) -> None:
        """An error of 0.3 * 2.92 is as much as the spread itself."""
        (_, doubt), _, _ = doubts(100, 40, 0.3 * ENDS, 0, self.SPREAD)
        assert doubt == pytest.approx((6**2 + 2 * 12**2) ** 0.5)
        assert doubts(100, 0, 0.5, 0, self.SPREAD)[0][1] == pytest.approx(10)

    def test_where_the_step_is_the_peak_the_band_has_a_width_too(self) -> None:
        (size, doubt), *_ = doubts(100 * GIB, 0, 0.0, 0)
        band = around(size, doubt)
        assert doubt == pytest.approx(MEASURED.states * 100 * GIB)
        assert band.low < 0.95 * size and band.high > 1.05 * size

    def test_a_band_reaches_as_far_down_as_up_as_a_factor(self) -> None:
        band = around(10**9, 10**8)
        assert band.high / band.expected == pytest.approx(2.718281828 ** (0.1 * 2.919986), rel=1e-6)
        assert band.low * band.high == pytest.approx(band.expected**2, rel=1e-6)
        assert around(0, 0.0) == Band(0, 0, 0) and around(5, 0.0) == Band(5, 5, 5)


class TestLadder:
    def test_a_job_that_fits_needs_no_change(self) -> None:
        assert ladder(job(), simple, within(100 * GIB)).together == ()

    def test_the_cheapest_single_change_is_taken(self) -> None:
        found = ladder(job(), simple, within(25 * GIB))  # 32 GiB as it is
        assert [rung.what for rung in found.together] == ["ZeRO stage 1"]
        assert found.together[0].word == "fits"

    def test_a_change_that_the_memory_of_the_node_rules_out_is_not_what_makes_it_fit(self) -> None:
        """Stage 1 takes 4 + 12 / 4 + 16 GiB; a verdict that asks for more than the device refuses it."""

        def otherwise(found: Prediction) -> Verdict:
            refused = Verdict("does not fit", 0.0, by_host=True)
            return refused if found.device.expected == 23 * GIB else judge(found, 25 * GIB)

        found = ladder(job(), simple, otherwise)
        assert [rung.what for rung in found.together] == ["gradient checkpointing"]
        assert {rung.what for rung in found.single if rung.verdict.by_host} == {"ZeRO stage 1"}

    def test_several_changes_where_one_is_not_enough(self) -> None:
        found = ladder(job(), simple, within(9 * GIB))
        assert len(found.together) > 1
        assert found.together[-1].word == "fits"
        assert all(rung.word != "fits" for rung in found.together[:-1])

    def test_nothing_is_promised_where_nothing_helps(self) -> None:
        assert ladder(job(), lambda _: prediction(10 * GIB), within(5 * GIB)).together == ()

    @pytest.mark.parametrize("options", [Options(3, 1), Options(0, 1), TorchOptions("ddp", 4)])
    def test_every_change_can_be_built(self, options: Options | TorchOptions) -> None:
        found = ladder(Setting(options, Workload(4, 2048)), lambda _: prediction(GIB), within(GIB // 2))
        assert found.single
        assert len({rung.what for rung in found.single}) == len(found.single)

    @pytest.mark.parametrize(
        ("given", "offered"),
        [
            ({}, {"stage3_max_live_parameters and stage3_max_reuse_distance 30000000"}),
            ({"max_live_parameters": 30_000_000}, set()),
            ({"max_reuse_distance": 30_000_000}, set()),
            (
                {"max_live_parameters": 30_000_000, "param_persistence_threshold": 100_001},
                {"stage3_param_persistence_threshold 100000"},
            ),
        ],
    )
    def test_what_zero_3_keeps_gathered_is_a_change(self, given: dict[str, int], offered: set[str]) -> None:
        for stage in (2, 3):
            found = ladder(Setting(Options(stage, 8, **given), Workload(1, 512)), simple, within(GIB))
            wanted = offered if stage == 3 else set()
            assert {rung.what for rung in found.single if rung.what.startswith("stage3_")} == wanted

    def test_of_parameters_kept_gathered_their_bytes_are_saved(self) -> None:
        """A billion elements of 16 bit at the turn to backward by default, less what is left of it."""
        facts = from_config(LLAMA_8B)
        timeline = by_formula(facts, Workload(1, 512, True, fused_loss=True), "bf16", LLAMA_8B)
        own = Setting(Options(3, 8), Workload(1, 512, True, fused_loss=True))
        found = ladder(own, lambda one: predict(facts, one.options, timeline), within(GIB))
        (fewer,) = [rung for rung in found.single if rung.what.startswith("stage3_max_live")]
        before = predict(facts, own.options, timeline).estimate.held("device", "head backward").size
        after = fewer.prediction.estimate.held("device", "head backward").size
        assert 0.2 * 2e9 < before - after <= 2e9

    @given(st.integers(1, 64), st.integers(256, 8192), st.integers(1, 60))
    def test_what_is_promised_fits_and_nothing_in_it_can_be_left_out(self, micro: int, tokens: int, room: int) -> None:
        found = ladder(job(micro_batch=micro, sequence_length=tokens), simple, within(room * GIB))
        if found.together:
            assert found.together[-1].word == "fits"
            assert simple(found.together[-1].setting).device.high <= room * GIB

    def test_the_global_batch_stays(self) -> None:
        found = ladder(job(), simple, within(8 * GIB))
        for rung in found.single:
            work, options = rung.setting.workload, rung.setting.options
            assert work is not None
            assert work.micro_batch * options.gradient_accumulation_steps == 8


Job = tuple[str, Options | TorchOptions, Workload]


class TestChanges:
    """Every change that is offered for a job, in its order, with the job after it."""

    WORK = Workload(6, 1024)

    def offered(self, options: Options | TorchOptions, work: Workload | None = WORK) -> list[Any]:
        found = ladder(Setting(options, work), lambda _: prediction(GIB), within(GIB // 2)).single
        return [(rung.what, rung.setting.options, rung.setting.workload) for rung in found]

    def shared(self, options: Options | TorchOptions) -> tuple[Job, Job, Job]:
        """Checkpointing, half of the samples in twice the steps, sequences of half the length."""
        steps = 2 * options.gradient_accumulation_steps
        less = replace(options, gradient_accumulation_steps=steps)
        return (
            ("gradient checkpointing", options, replace(self.WORK, gradient_checkpointing=True)),
            (f"micro batch 3, {steps} accumulation steps", less, replace(self.WORK, micro_batch=3)),
            ("sequences of 512 tokens", options, replace(self.WORK, sequence_length=512)),
        )

    def test_without_zero(self) -> None:
        own = Options(0, 4, gradient_accumulation_steps=2)
        kept, less, shorter = self.shared(own)
        both = replace(own, stage=3, offload_optimizer="cpu", offload_param="cpu")
        assert self.offered(own) == [
            ("ZeRO stage 1", replace(own, stage=1), self.WORK),
            kept,
            less,
            ("ZeRO stage 2", replace(own, stage=2), self.WORK),
            ("ZeRO stage 3", replace(own, stage=3), self.WORK),
            ("the optimizer on the host (stage 2)", replace(own, stage=2, offload_optimizer="cpu"), self.WORK),
            ("optimizer and parameters on the host (stage 3)", both, self.WORK),
            shorter,
        ]
        alone = [what for what, *_ in self.offered(replace(own, world_size=1))]
        assert not [what for what in alone if what.startswith("ZeRO stage")] and len(alone) == 5

    def test_with_stage_2(self) -> None:
        own = Options(2, 4, overlap_comm=True)
        kept, less, shorter = self.shared(own)
        assert self.offered(own) == [
            ("reduce_bucket_size 50000000", replace(own, reduce_bucket_size=50_000_000), self.WORK),
            ("overlap_comm false", replace(own, overlap_comm=False), self.WORK),
            kept,
            less,
            ("ZeRO stage 3", replace(own, stage=3), self.WORK),
            ("the optimizer on the host (stage 2)", replace(own, offload_optimizer="cpu"), self.WORK),
            (
                "optimizer and parameters on the host (stage 3)",
                replace(own, stage=3, offload_optimizer="cpu", offload_param="cpu"),
                self.WORK,
            ),
            shorter,
        ]
        small = Options(1, 4, reduce_bucket_size=50_000_000)
        assert self.offered(small)[0][0] == "gradient checkpointing"

    def test_with_stage_3(self) -> None:
        own = Options(3, 4, param_persistence_threshold=100_001)
        kept, less, shorter = self.shared(own)
        fewer = replace(own, max_live_parameters=30_000_000, max_reuse_distance=30_000_000)
        assert self.offered(own) == [
            ("reduce_bucket_size 50000000", replace(own, reduce_bucket_size=50_000_000), self.WORK),
            ("sub_group_size 100000000", replace(own, sub_group_size=100_000_000), self.WORK),
            ("stage3_max_live_parameters and stage3_max_reuse_distance 30000000", fewer, self.WORK),
            (
                "stage3_param_persistence_threshold 100000",
                replace(own, param_persistence_threshold=100_000),
                self.WORK,
            ),
            kept,
            less,
            ("the optimizer on the host (stage 3)", replace(own, offload_optimizer="cpu"), self.WORK),
            (
                "optimizer and parameters on the host (stage 3)",
                replace(own, offload_optimizer="cpu", offload_param="cpu"),
                self.WORK,
            ),
            shorter,
        ]
        near = Options(3, 4, sub_group_size=100_000_000, reduce_bucket_size=50_000_000, max_reuse_distance=30_000_000)
        assert self.offered(near)[0][0] == "gradient checkpointing"
        drives = self.offered(replace(near, offload_optimizer="nvme"))
        assert drives[2][1].offload_optimizer == "nvme" and drives[2][1].offload_param == "cpu"
        whole = replace(near, offload_optimizer="cpu", offload_param="cpu")
        assert [what for what, *_ in self.offered(whole)] == [what for what, *_ in self.shared(whole)]
        assert "sub_group_size 100000000" not in [
            what for what, *_ in self.offered(replace(own, offload_optimizer="cpu"))
        ]

    def test_without_deepspeed(self) -> None:
        own = TorchOptions("ddp", 4, gradient_accumulation_steps=2, optimizer="adamw_fused")
        kept, less, shorter = self.shared(own)
        engine = Options(1, 4, optimizer="adamw_fused", gradient_accumulation_steps=2)
        stages = [(f"DeepSpeed, ZeRO stage {n}", replace(engine, stage=n), self.WORK) for n in (1, 2, 3)]
        assert self.offered(own) == [kept, less, *stages, shorter]
        cast = self.offered(own, replace(self.WORK, autocast=True))
        assert [work.autocast for _, _, work in cast] == [True, True, False, False, False, True]
        for other in (TorchOptions("single", 1), TorchOptions("fsdp2", 4)):
            assert self.offered(other) == list(self.shared(other))

    @pytest.mark.parametrize(
        ("work", "offered"),
        [
            (Workload(1, 512, True), []),
            (Workload(1, 513, True), ["sequences of 256 tokens"]),
            (Workload(1, 512), ["gradient checkpointing"]),
            (Workload(2, 512, True), ["micro batch 1, 2 accumulation steps"]),
            (Workload(5, 512, True), ["micro batch 1, 5 accumulation steps"]),
            (Workload(1, 1024, True, fused_loss=True, completion=64), []),
            (None, []),
        ],
    )
    def test_what_a_workload_leaves_open(self, work: Workload | None, offered: list[str]) -> None:
        assert [what for what, *_ in self.offered(TorchOptions("single", 1), work)] == offered

    @pytest.mark.parametrize(("images", "offered"), [(4, ["sequences of 288 tokens"]), (5, [])])
    def test_images_are_not_cut(self, images: int, offered: list[str]) -> None:
        """Of 72 tokens each, in 576."""
        seen = Images(Vision("qwen2", 8, 16, 2, 1, 1, 8, 12, 14, 4), images, 28 * 28 * 72)
        found = self.offered(TorchOptions("single", 1), Workload(1, 576, True, images=seen))
        assert [what for what, *_ in found] == offered

    def test_how_much_slower_a_change_is(self) -> None:
        """Seconds of a token over those of the job as it is; not known where one of them is not."""

        def slowness(setting: Setting) -> float | None:
            assert setting.workload is not None
            return (
                {6: 2.0, 3: 3.0}[setting.workload.micro_batch] if not setting.workload.gradient_checkpointing else None
            )

        own = Setting(TorchOptions("single", 1), self.WORK)
        slower = [rung.slower for rung in ladder(own, lambda _: prediction(1), within(2), slowness).single]
        assert slower == [None, 1.5, 1.0]
        unknown = ladder(own, lambda _: prediction(1), within(2), lambda _: None).single
        assert [rung.slower for rung in unknown] == [None] * 3

    def test_of_changes_that_are_enough_the_fastest_is_taken(self) -> None:
        """Stage 1 comes first and takes longer than checkpointing here; sequences that are shorter are no way."""

        def slowness(setting: Setting) -> float:
            return 9.0 if getattr(setting.options, "stage", 0) else 2.0

        found = ladder(job(), simple, within(25 * GIB), slowness)
        assert [rung.what for rung in found.together] == ["gradient checkpointing"]
        half = Setting(TorchOptions("single", 1), Workload(1, 1024, True))
        tokens = ladder(half, lambda one: prediction(one.workload.sequence_length if one.workload else 0), within(600))
        assert [rung.what for rung in tokens.single] == ["sequences of 512 tokens"]
        assert tokens.single[0].word == "fits" and tokens.together == ()

    def test_what_helps_nothing_is_not_climbed_over(self) -> None:
        """Each half of the samples saves half of 8 GiB; checkpointing changes nothing here."""

        def size(setting: Setting) -> Prediction:
            assert setting.workload is not None
            return prediction(setting.workload.micro_batch * GIB)

        own = Setting(TorchOptions("single", 1), Workload(8, 512))
        found = ladder(own, size, within(2 * GIB)).together
        assert [rung.what for rung in found] == [
            "micro batch 4, 2 accumulation steps",
            "micro batch 2, 4 accumulation steps",
        ]

    def test_the_workloads_that_will_be_asked_for(self) -> None:
        """Of each change alone, then of all on top of each other: checkpointed, then 4, 2 and 1 samples."""
        own = Workload(8, 1024)
        found = workloads(Setting(Options(2, 4), own))
        kept = replace(own, gradient_checkpointing=True)
        single = (kept, replace(own, micro_batch=4), replace(own, sequence_length=512))
        assert found == (own, *single, *(replace(kept, micro_batch=size) for size in (4, 2, 1)))
        assert workloads(Setting(Options(2, 4), None)) == ()
        cut = replace(own, fused_loss=True)
        assert all(one.fused_loss for one in workloads(Setting(Options(2, 4), cut)))
        by = workloads(Setting(Options(2, 4), own), by_liger)
        assert by[1] == cut and by[-1] == replace(cut, gradient_checkpointing=True, micro_batch=1)


def by_liger(_: Options | TorchOptions) -> str:
    return "use_liger_kernel"


LOSS = "compute the loss without all logits (use_liger_kernel)"


class TestLossInPieces:
    @pytest.mark.parametrize("options", [Options(0, 1), Options(2, 8), Options(3, 8), TorchOptions("ddp", 4)])
    def test_it_is_offered_where_something_computes_it(self, options: Options | TorchOptions) -> None:
        own = Setting(options, Workload(4, 2048))
        found = ladder(own, lambda _: prediction(GIB), within(GIB // 2), fuses=by_liger)
        (rung,) = [rung for rung in found.single if rung.what == LOSS]
        assert rung.cost == "none; needs the package liger-kernel"
        assert rung.setting == Setting(options, Workload(4, 2048, fused_loss=True))

    def test_of_a_model_that_nothing_fuses_it_is_not(self) -> None:
        own = Setting(Options(2, 8), Workload(4, 2048))
        found = ladder(own, lambda _: prediction(GIB), within(GIB // 2))
        assert found.single and not [rung for rung in found.single if "logits" in rung.what]

    def test_what_has_it_already_is_offered_the_rest(self) -> None:
        own = Setting(Options(2, 8), Workload(4, 2048, fused_loss=True))
        without = {rung.what for rung in ladder(own, lambda _: prediction(GIB), within(GIB // 2)).single}
        whole = Setting(Options(2, 8), Workload(4, 2048))
        every = ladder(whole, lambda _: prediction(GIB), within(GIB // 2), fuses=by_liger).single
        assert without == {rung.what for rung in every} - {LOSS}

    def test_where_stage_3_would_break_it_both_are_never_offered_together(self) -> None:
        """Two changes that are enough: where the loss is in pieces up to stage 2 alone, none of them is stage 3."""

        def up_to_2(options: Options | TorchOptions) -> str:
            return "" if getattr(options, "stage", 0) == 3 else "use_liger_kernel"

        def size(setting: Setting) -> Prediction:
            assert setting.workload is not None
            return prediction(simple(setting).device.high - (6 * GIB if setting.workload.fused_loss else 0))

        for room in range(1, 32):
            found = ladder(job(), size, within(room * GIB), fuses=up_to_2)
            for rung in (*found.single, *found.together):
                options, work = rung.setting.options, rung.setting.workload
                assert isinstance(options, Options) and work is not None
                assert not (work.fused_loss and options.stage == 3), rung.what

    @pytest.mark.parametrize(("samples", "tokens"), [(1, 512), (2, 4096), (8, 1024)])
    def test_what_it_saves_are_the_bytes_of_the_logits(self, samples: int, tokens: int) -> None:
        """By hand, where backward begins. Whole: logits in fp32, their log-softmax and its gradient, 4 bytes each
        (transformers/loss/loss_utils.py). In pieces: the 16-bit gradients of the hidden states and of the head, and of
        both what they are gradients of or one piece's logits (Liger's fused_linear_cross_entropy.py)."""
        facts, vocabulary, hidden = from_config(LLAMA_8B), 128256, 4096
        own = Setting(Options(3, 8), Workload(samples, tokens, True))

        def evaluate(one: Setting) -> Prediction:
            assert one.workload is not None
            return predict(facts, one.options, by_formula(facts, one.workload, "bf16", LLAMA_8B))

        (rung,) = [one for one in ladder(own, evaluate, within(GIB), fuses=by_liger).single if one.what == LOSS]
        before = evaluate(own).estimate.held("device", "head backward").size
        after = rung.prediction.estimate.held("device", "head backward").size
        rows = samples * tokens
        logits, pieces = 12 * rows * vocabulary, 2 * (2 * rows * hidden) + 2 * vocabulary * hidden
        assert (
            before - after == max(logits, 2 * rows * vocabulary + 2 * rows * hidden + 2 * vocabulary * hidden) - pieces
        )
