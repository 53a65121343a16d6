"""The checks on both sides of each limit, and with each thing absent: rows to the letter, from reports made by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.memory.overhead import Band
from zerocfg.resolve.plan import Decision
from zerocfg.rules.api import Location
from zerocfg.run.model import SourceFile
from zerocfg.smoke.judge import measured, requested_settings, settings, training, weights
from zerocfg.smoke.judge.expected_settings import ZERO, expected, optimizer_class
from zerocfg.smoke.judge.figures import GIB, Figures
from zerocfg.smoke.judge.settings import together
from zerocfg.smoke.judge.verdict import run_checks
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.reduction import Kind, Reduced, Reduction
from zerocfg.smoke.prepare.requested_settings import Claim
from zerocfg.source.text import SourceText

from . import test_settings as by_settings
from . import test_training as by_training


def rows(*reports: dict[str, Any], steps: int = 3) -> dict[str, Check]:
    return {one.name: one for one in training.check(list(reports), steps)}


def report(dtype: str = "bf16", **changes: Any) -> dict[str, Any]:
    return by_training.report(seen={"dtype": dtype}, **changes)


class TestLossFalls:
    def test_both_values_are_shown(self) -> None:
        assert rows(report())["loss falls"] == Check("loss falls", "falls", "4 to 3.7", True)

    def test_two_steps_are_enough_and_one_is_not(self) -> None:
        two = report(losses=[4.0, 4.0, 3.8, 3.8], step_seconds=[0.1, 0.1], parts={})
        assert rows(two, steps=2)["loss falls"] == Check("loss falls", "falls", "4 to 3.8", True)
        one = report(losses=[4.0, 4.0], step_seconds=[0.1], parts={})
        assert rows(one, steps=1)["loss falls"] == Check("loss falls", "falls", "not tried: it takes 2 steps", None)
        risen = report(losses=[4.0, 4.0, 4.2, 4.2], step_seconds=[0.1, 0.1], parts={})
        assert rows(risen, steps=2)["loss falls"] == Check("loss falls", "falls", "4 to 4.2: it does not fall", False)
        still = report(losses=[4.0] * 4, step_seconds=[0.1, 0.1], rates=[0.0, 1e-3], parts={})
        seen = "4 to 4; the learning rate was 0 in step 1 (warmup)"
        assert rows(still, steps=2)["loss falls"] == Check("loss falls", "falls", seen, None)

    @pytest.mark.parametrize(("dtype", "step"), [("bf16", 2**-7), ("fp16", 2**-10), ("fp32", 2**-23)])
    def test_a_change_that_the_dtype_just_resolves(self, dtype: str, step: float) -> None:
        """Neighbouring numbers from 4 on are 4 * 2 ** -bits apart, exactly; everything up to that is rounding."""
        within, beyond = 4 + 4 * step, 4 + 4.001 * step
        found = rows(report(dtype, losses=[4.0] * 4 + [within] * 2, parts={}))["loss falls"]
        words = f"the change is below what {dtype} resolves, learning rate 0.001"
        assert (found.seen, found.ok) == (f"4 to {within:.4g}; {words}", None)
        found = rows(report(dtype, losses=[4.0] * 4 + [beyond] * 2, parts={}))["loss falls"]
        assert (found.seen, found.ok) == (f"4 to {beyond:.4g}: it does not fall", False)

    def test_a_rate_that_is_not_known_is_not_shown(self) -> None:
        found = rows(report(losses=[4.0] * 6, rates=[None, 1e-3, None], parts={}))["loss falls"]
        assert found.seen == "4 to 4; the change is below what bf16 resolves, learning rate 0.001"
        found = rows(report(losses=[4.0] * 6, rates=[None] * 3, parts={}))["loss falls"]
        assert found.seen == "4 to 4; the change is below what bf16 resolves"


class TestParameters:
    def test_the_rate_up_to_which_nothing_need_change(self) -> None:
        found = rows(report(changed=0, rates=[None, 1e-5, 0.0], parts={}))["parameters change"]
        assert (found.seen, found.ok) == ("no tensor; learning rate 1e-05 changes too little for bf16", None)
        found = rows(report(changed=0, rates=[None, 1.1e-5, 0.0], parts={}))["parameters change"]
        assert (found.seen, found.ok) == ("0 of 2 tensors", False)
        assert rows(report("fp32", changed=0, rates=[1e-5] * 3, parts={}))["parameters change"].ok is False

    def test_one_rank_is_compared_with_no_other(self) -> None:
        assert "parameters alike on all ranks" not in rows(report())
        assert "parameters alike on all ranks" in rows(report(), report())

    def test_a_rank_that_reports_no_sums_leaves_them_unmeasured(self) -> None:
        without = report(instruments={"checksums": "RuntimeError: flat", "loss": ""})
        del without["sums"]
        found = rows(report(), without)
        seen = "not measured: RuntimeError: flat (rank 1)"
        assert found["parameters change"] == Check("parameters change", "yes", seen, None, measured=False)
        assert "parameters alike on all ranks" not in found

    def test_the_reason_is_that_of_the_rank_where_it_broke(self) -> None:
        broken = report(instruments={"checksums": "RuntimeError: flat"})
        alone = report(instruments={"checksums": "another rank did not take part"})
        for one in (broken, alone):
            del one["changed"]
        assert rows(alone, broken)["parameters change"].seen == "not measured: RuntimeError: flat (rank 1)"
        assert rows(broken)["parameters change"].seen == "not measured: RuntimeError: flat"
        nothing = report()
        del nothing["changed"]
        assert rows(nothing)["parameters change"].seen == "not measured: no rank reports it"


def with_part(name: str, dtype: str, ours: float, others: float) -> dict[str, Any]:
    """A report whose losses are all ``ours``, and those of a part ``others``."""
    changed = by_training.part(name, losses=[others] * (6 if name == "reference" else 4))
    return report(dtype, losses=[ours] * 6, parts=changed)


class TestReference:
    @pytest.mark.parametrize(
        ("dtype", "ours", "within", "beyond", "limit"),
        [("fp32", 10_000, 9995, 9994, "0.05 %"), ("bf16", 100, 99, 98.9, "1 %"), ("fp16", 100, 99, 98.9, "1 %")],
    )
    def test_how_far_a_loss_may_be(self, dtype: str, ours: float, within: float, beyond: float, limit: str) -> None:
        in_step = " in step 1" if dtype == "fp16" else ""
        found = rows(with_part("reference", dtype, ours, within))["loss as under ZeRO-0"]
        assert found == Check(found.name, f"within {limit}", f"{limit} apart at most{in_step}", True)
        found = rows(with_part("reference", dtype, ours, beyond))["loss as under ZeRO-0"]
        apart = {"fp32": "0.06 %", "bf16": "1.1 %", "fp16": "1.1 %"}[dtype]
        seen = f"{apart} apart at most{in_step}: {ours:.4g}, ZeRO-0 {beyond:.4g}"
        assert found == Check(found.name, f"within {limit}", seen, False)

    @pytest.mark.parametrize(
        ("dtype", "ours", "within", "beyond", "limit"),
        [("fp32", 500, 499, 498, "0.2 %"), ("bf16", 50, 49, 48, "2 %")],
    )
    def test_how_far_a_norm_may_be(self, dtype: str, ours: float, within: float, beyond: float, limit: str) -> None:
        name = "gradients as under ZeRO-0"
        found = rows(report(dtype, momentum=ours, parts=by_training.part("reference", momentum=within)))[name]
        assert found == Check(name, f"within {limit}", f"{limit} apart", True)
        found = rows(report(dtype, momentum=ours, parts=by_training.part("reference", momentum=beyond)))[name]
        double = {"0.2 %": "0.4 %", "2 %": "4 %"}[limit]
        seen = f"{double} apart: norm {ours}, ZeRO-0 {beyond}; averaging, clipping or accumulation differ"
        assert found == Check(name, f"within {limit}", seen, False)

    @pytest.mark.parametrize(
        ("ours", "others", "seen"),
        [(0.0, 0.0, "0 % apart"), (10_000, 9999, "0.01 % apart"), (100_000, 99_999, "under 0.01 % apart")],
    )
    def test_small_distances(self, ours: float, others: float, seen: str) -> None:
        found = rows(report(momentum=ours, parts=by_training.part("reference", momentum=others)))
        assert found["gradients as under ZeRO-0"].seen == seen

    def test_fewer_losses_are_no_training_to_compare_with(self) -> None:
        found = rows(report(parts=by_training.part("reference", losses=[4.0, 4.0, 3.8, 3.8])))["loss as under ZeRO-0"]
        assert (found.seen, found.ok) == ("infinitely far apart at most: 4 3.8 3.7, ZeRO-0 4 3.8", False)

    def test_of_long_rows_four_values_are_shown(self) -> None:
        six = by_training.part("reference", losses=[9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
        found = rows(report(parts=six))["loss as under ZeRO-0"]
        assert found.seen == "56 % apart at most: 4 3.8 3.7, ZeRO-0 9 8 7 6"

    def test_fp16_compares_the_whole_first_step(self) -> None:
        """Two micro steps make the one step there is; the second differs."""
        other = by_training.part("reference", losses=[4.0, 4.3]) | {"resume": {"state": "skipped", "why": "short"}}
        found = rows(report("fp16", losses=[4.0, 4.0], step_seconds=[0.1], parts=other), steps=1)
        assert found["loss as under ZeRO-0"].seen == "7 % apart at most in step 1: 4, ZeRO-0 4 4.3"
        shorter = by_training.part("reference", losses=[4.0, 4.3, 3.8, 3.8])
        found = rows(report("fp16", parts=shorter))
        assert found["loss as under ZeRO-0"].seen == "7 % apart at most in step 1: 4 3.8 3.7, ZeRO-0 4 4.3 3.8"


class TestResumes:
    NAME = "resumes from a checkpoint"

    @pytest.mark.parametrize(
        ("dtype", "ours", "within", "beyond"),
        [("fp32", 10_000, 9999, 9998), ("bf16", 200, 199, 198), ("fp16", 200, 199, 198)],
    )
    def test_how_far_losses_and_norms_may_be(self, dtype: str, ours: float, within: float, beyond: float) -> None:
        assert rows(with_part("resume", dtype, ours, within))[self.NAME].ok is True
        found = rows(with_part("resume", dtype, ours, beyond))[self.NAME]
        assert (found.seen, found.ok) == (f"loss {beyond}, without the break {ours:.4g}", False)
        norm = by_training.part("resume", momentum=within)
        assert rows(report(dtype, momentum=ours, parts=norm))[self.NAME].ok is True
        norm = by_training.part("resume", momentum=beyond)
        found = rows(report(dtype, momentum=ours, parts=norm))[self.NAME]
        words = f"the optimizer's states are others: norm {beyond}, without the break {ours:.4g}"
        assert (found.seen, found.ok) == (words, False)

    def test_how_far_a_rate_may_be(self) -> None:
        def with_rate(others: float | None, ours: float | None) -> Check:
            part = by_training.part("resume", rates=[others, others])
            return rows(report(rates=[ours] * 3, parts=part))[self.NAME]

        assert with_rate(999_999, 1_000_000).ok is True
        assert with_rate(999_998, 1_000_000).seen == "learning rate 1e+06, without the break 1e+06"
        assert with_rate(None, 0.0).ok is True and with_rate(0.0, None).ok is True, "no rate is a rate of 0"


class TestWeights:
    GOOD = by_training.TestWeights.GOOD

    def found(self, **changes: Any) -> list[Check]:
        return weights.check([{"seen": {"engine": "deepspeed"}, "weights": self.GOOD | changes}])

    SAVED = Check("saved parameters", "10", "10 in model.safetensors", True)
    DTYPE = Check("saved dtype", "bf16", "bf16", True)
    VALUES = Check("saved values", "as in the live model", "2 tensors the same", True)
    LOADED = Check("loaded by from_pretrained", "yes", "yes", True)

    def test_all_is_well(self) -> None:
        assert self.found() == [self.SAVED, self.DTYPE, self.VALUES, self.LOADED]

    def test_a_run_that_saves_nothing_has_no_row(self) -> None:
        assert weights.check([{"seen": {"engine": "deepspeed"}}]) == []

    def test_no_file(self) -> None:
        assert self.found(file=None) == [Check("saved parameters", "10", "no file of weights", False)]

    def test_what_is_not_whole_is_counted(self) -> None:
        found = self.found(missing=["a", "b"], short=["c"])
        seen = "10 in model.safetensors; not whole: a and 2 more"
        assert found == [Check("saved parameters", "10", seen, False), self.DTYPE, self.VALUES, self.LOADED]

    def test_what_from_pretrained_says(self) -> None:
        assert self.found(loadable="OSError: x")[-1] == Check("loaded by from_pretrained", "yes", "OSError: x", False)

    def test_what_is_not_compared(self) -> None:
        assert self.found(dtypes={}) == [self.SAVED, self.LOADED]
        none = Check("saved values", "-", "not compared", None)
        assert self.found(compared=0) == [self.SAVED, self.DTYPE, none, self.LOADED]
        differ = Check("saved values", "as in the live model", "1 of 2 tensors differ, norm first", False)
        assert self.found(other=["norm"]) == [self.SAVED, self.DTYPE, differ, self.LOADED]


def memory(**counters: int | None) -> dict[str, dict[str, Any]]:
    return {"forward": dict.fromkeys(("allocated", "reserved", "device", "rss", "pinned")) | counters}


def prediction(complete: bool, time: Any = None, allocated: Band | None = None) -> Any:
    """As much of an expectation as the rows look at: 2 GiB, found between 1 and 2.5; 4 reserved, between 3 and 5."""
    band = allocated or Band(GIB, 2 * GIB, 5 * GIB // 2)
    reserved = Band(3 * GIB, 4 * GIB, 5 * GIB)
    one = SimpleNamespace(complete=complete, allocated=band, reserved=reserved, device=reserved)
    return SimpleNamespace(prediction=one, allocated=band, time=time)


def shown(figures: Figures, known: Any = "not known", outcome: Outcome | None = None) -> dict[str, tuple[str, str]]:
    found = measured.check(figures, known, outcome or Outcome([]))
    return {one.name: (one.planned, one.seen) for one in found}


class TestMeasured:
    CARD = Figures(
        2,
        [memory(allocated=3 * GIB, reserved=4 * GIB), memory(allocated=2 * GIB, reserved=4 * GIB)],
        on_card=True,
    )

    def test_a_card_beside_a_whole_prediction(self) -> None:
        assert shown(self.CARD, prediction(complete=True)) == {
            "peak allocated": ("predicted 2.00 GiB", "2.00 GiB to 3.00 GiB (+50.0%, outside what was expected)"),
            "peak reserved": ("predicted 3.00 GiB to 5.00 GiB", "4.00 GiB (+0.0%)"),
        }

    def test_a_card_beside_a_lower_bound_or_nothing(self) -> None:
        assert shown(self.CARD, prediction(complete=False)) == {
            "peak allocated": ("predicted at least 1.00 GiB", "2.00 GiB to 3.00 GiB"),
            "peak reserved": ("predicted at least 3.00 GiB", "4.00 GiB"),
        }
        assert shown(self.CARD)["peak allocated"] == ("-", "2.00 GiB to 3.00 GiB")

    def test_the_ends_of_a_band_are_inside(self) -> None:
        for held, seen in ((1, "(-50.0%)"), (3, "(+50.0%)")):
            card = Figures(1, [memory(allocated=held * GIB)], on_card=True)
            band = Band(GIB, 2 * GIB, 3 * GIB)
            assert shown(card, prediction(True, allocated=band))["peak allocated"][1] == f"{held}.00 GiB {seen}"

    @pytest.mark.parametrize(("at", "seen"), [(0, "0.0 MiB"), (1, "0.0 MiB (+0.0%)")])
    def test_of_nothing_there_is_no_share(self, at: int, seen: str) -> None:
        card = Figures(1, [memory(allocated=at)], on_card=True)
        assert shown(card, prediction(True, allocated=Band(at, at, at)))["peak allocated"][1] == seen

    def test_pinned_and_resident_memory_where_there_is_some(self) -> None:
        one = Figures(1, [memory(allocated=GIB, pinned=0)], on_card=True)
        assert list(shown(one)) == ["peak allocated"]
        one = Figures(2, [memory(pinned=GIB, rss=GIB), memory()], start=[{"rss": 512 << 20}, {}], on_card=True)
        assert shown(one) == {
            "pinned host memory": ("-", "1.00 GiB"),
            "host memory of a rank (RSS)": ("-", "1.00 GiB; 0.50 GiB since the model was made"),
        }
        one = Figures(1, [memory(rss=GIB)], start=[{}])
        assert shown(one) == {"host memory of a rank (RSS)": ("-", "1.00 GiB")}

    def test_time_beside_what_was_predicted(self) -> None:
        band = SimpleNamespace(low=0.1, high=1500.0)
        time = SimpleNamespace(seconds=band, tokens_per_second=1234.6, tflops=3.14159)
        figures = Figures(1, seconds=0.5, first=2.0, tokens=100, flops=1e12, on_card=True)
        assert shown(figures, prediction(True, time)) == {
            "seconds of a step": ("predicted 0.1 to 1,500", "0.5 (the first one 2)"),
            "tokens a second, all ranks": ("predicted 1,235", "200"),
            "TFLOP/s of a rank": ("predicted 3.14", "2"),
        }
        assert shown(figures, prediction(True)) == {
            "seconds of a step": ("-", "0.5 (the first one 2)"),
            "tokens a second, all ranks": ("-", "200"),
            "TFLOP/s of a rank": ("-", "2"),
        }

    def test_operations_are_told_of_a_card_that_counts_them(self) -> None:
        assert list(shown(Figures(1, seconds=0.5, flops=1e12))) == ["seconds of a step"]
        assert shown(Figures(1, seconds=1000.0, on_card=True)) == {"seconds of a step": ("-", "1,000")}

    def test_sizes_for_a_reader(self) -> None:
        assert [measured.size(one) for one in (None, 107_374_182, 107_374_183, -GIB)] == [
            "-",
            "102.4 MiB",
            "0.10 GiB",
            "-1.00 GiB",
        ], "GiB from a tenth of one on"

    def test_the_peak_while_it_trained(self) -> None:
        first = {"init": {"rss": 9}, "forward": {"rss": 5}, "step": {"rss": 6}}
        assert measured.peak_in(Figures(2, [first, memory()])) == 6
        assert measured.peak_in(Figures(1, [{"init": {"rss": 9}}])) == 9, "it did not come so far"

    NO_CARD_MEMORY = {"type": "OutOfMemoryError", "text": "CUDA out of memory. Tried to allocate 2.00 GiB."}  # noqa: RUF012
    NO_HOST_MEMORY = {"type": "RuntimeError", "text": "DefaultCPUAllocator: can't allocate memory: you tried"}  # noqa: RUF012

    def test_the_first_that_ran_out_is_named(self) -> None:
        reports = [{}, {"error": self.NO_HOST_MEMORY | {"time": 0.5}}, {"error": dict(self.NO_CARD_MEMORY)}]
        assert measured.ran_out(Outcome(reports)) == (2, "card"), "who tells no time was first"
        assert measured.ran_out(Outcome(reports[:1])) is None

    def test_running_out_is_held_against_the_prediction_of_that_memory(self) -> None:
        figures = Figures(2, [memory(allocated=GIB, rss=3 * GIB)], on_card=True)
        card, host = (Outcome([{"error": one}]) for one in (self.NO_CARD_MEMORY, self.NO_HOST_MEMORY))
        words = "rank 0 ran out of the {}'s memory in forward, when it held {} GiB"
        expected = ("2.00 GiB predicted", words.format("card", "1.00"))
        assert shown(figures, prediction(True), card)["memory is enough"] == expected
        expected = ("at least 2.00 GiB predicted", words.format("card", "1.00"))
        assert shown(figures, prediction(False), card)["memory is enough"] == expected
        assert shown(figures, prediction(True), host)["memory is enough"] == ("-", words.format("host", "3.00"))
        assert shown(figures, "why", card)["memory is enough"] == ("-", words.format("card", "1.00"))

    def test_a_rank_that_ran_out_before_it_counted(self) -> None:
        figures = Figures(2, [memory(rss=GIB)])
        outcome = Outcome([{}, {"error": self.NO_HOST_MEMORY}])
        assert shown(figures, outcome=outcome)["memory is enough"] == ("-", "rank 1 ran out of the host's memory")


def reduced(plan: dict[str, Any] | None = None, **more: Any) -> Reduced:
    fields: dict[str, Any] = {"ranks": 2, "model": {}, "accelerate": None, "deepspeed": None, "arguments": {}}
    return Reduced(**fields | {"plan": plan or {}} | more)


def settled(run: Any, less: Reduced, *reports: dict[str, Any]) -> dict[str, Check]:
    return {one.name: one for one in settings.check(run, less, list(reports))}


class TestSettings:
    def test_the_rows_of_a_deepspeed_run(self) -> None:
        run, less = by_settings.make({f"{ZERO}stage": 3}, {"zero_optimization": {"stage": 3}})
        seen = {"offload_optimizer": "none", "offload_param": "cpu", "optimizer": "AdamW"}
        found = settings.check(run, less, [by_settings.report(**seen)] * 2)
        assert [one for one in found if not one.further] == [
            Check("engine", "deepspeed", "deepspeed", True),
            Check("ZeRO stage", "3", "3", True),
            Check("world size", "2", "2", True),
            Check("micro batch per rank", "4", "4", True),
            Check("gradient accumulation", "2", "2", True),
            Check("gradient clipping", "-", "-", None),
            Check("precision", "fp32", "fp32", True),
            Check("offload optimizer", "none", "none", True),
            Check("offload parameters", "none", "cpu", False),
            Check("optimizer", "AdamW", "AdamW", True),
            Check("device", "-", "cpu", None),
        ]

    @pytest.mark.parametrize(
        ("plan", "accelerate", "engine"),
        [
            ({}, None, "ddp"),
            ({"engine": "fsdp"}, {"distributed_type": "NO"}, "fsdp"),
            ({"engine": "ddp"}, {"distributed_type": "NO"}, "single"),
            ({"engine": "ddp"}, {"distributed_type": "MULTI_GPU"}, "ddp"),
        ],
    )
    def test_the_engine_of_a_run_without_deepspeed(self, plan: Any, accelerate: Any, engine: str) -> None:
        run, _ = by_settings.make()
        found = settled(run, reduced(plan, accelerate=accelerate), by_settings.report())
        assert found["engine"].planned == engine
        assert not {"ZeRO stage", "offload optimizer", "offload parameters"} & set(found)

    @pytest.mark.parametrize(
        ("engine", "ranks", "seen", "planned", "passed"),
        [
            ("ddp", 1, "single", "single", True),  # accelerate and the Trainer wrap nothing where there is one rank
            ("ddp", 1, "ddp", "ddp", True),  # a loop that wraps the model itself
            ("ddp", 1, "fsdp", "single", False),
            ("ddp", 2, "single", "ddp", False),
            ("fsdp", 1, "single", "fsdp", False),
        ],
    )
    def test_the_engine_of_one_rank(self, engine: str, ranks: int, seen: str, planned: str, passed: bool) -> None:
        run, _ = by_settings.make()
        less = reduced({"engine": engine}, accelerate={"distributed_type": "MULTI_GPU"}, ranks=ranks)
        found = settled(run, less, *[by_settings.report(engine=seen)] * ranks)
        assert (found["engine"].planned, found["engine"].ok) == (planned, passed)

    @pytest.mark.parametrize(
        ("plan", "accelerate", "arguments", "dtype"),
        [
            ({}, None, {}, "fp32"),
            ({"bf16.enabled": True}, None, {}, "bf16"),
            ({"bf16.enabled": False}, {"mixed_precision": "bf16"}, {"bf16": True}, "fp32"),
            ({}, {"mixed_precision": "fp16"}, {}, "fp16"),
            ({}, {"mixed_precision": "no"}, {"fp16": True}, "fp16"),
        ],
    )
    def test_the_precision_that_is_planned(self, plan: Any, accelerate: Any, arguments: Any, dtype: str) -> None:
        run, _ = by_settings.make()
        less = reduced(plan, accelerate=accelerate, arguments=arguments)
        assert settled(run, less, by_settings.report())["precision"].planned == dtype

    def test_a_device_that_is_planned_is_told(self) -> None:
        settings = {f"{ZERO}stage": 2, f"{ZERO}offload_optimizer.device": "cpu"}
        run, less = by_settings.make(settings, {"zero_optimization": {"stage": 2}})
        assert settled(run, less, by_settings.report())["offload optimizer"].planned == "cpu"

    def test_equal_in_meaning(self) -> None:
        same = settings.same
        assert same(0.1 + 0.2, 0.3) and not same(1.0, 1.00001)
        assert not same([1], 1) and not same(1, [1]) and not same([1], [1, 2]) and same([1, 2.0], (1.0, 2))

    def test_one_value_or_each_rank_own(self) -> None:
        assert together([None, None]) == "-" and together([None, 1]) == "rank 0: -, rank 1: 1"


def held(stage: int = 3, ranks: int = 2, states: int = 0, **changes: Any) -> dict[str, Check]:
    """Rows about what ranks hold of 1,000 parameters in 2 tensors and 1 group."""
    run, less = by_settings.make({f"{ZERO}stage": stage}, {"zero_optimization": {"stage": stage}})
    less.ranks = ranks
    counted = {"parameters": 1000, "trainable": 1000, "tensors": 2, "groups": 1, "experts": False} | changes
    one = {name: value for name, value in counted.items() if value is not None}
    return settled(run, less, *[by_settings.report(held=one, states={"elements": states})] * ranks)


class TestHeld:
    def test_the_room_that_is_left_for_filling_up(self) -> None:
        """64 elements a tensor of the parameters, 64 a group of the states; under stage 3 one a tensor beyond them."""
        name = "parameters of a rank"
        assert held(shard=628)[name] == Check(name, "1/2", "628 of 1,000", True)
        assert held(shard=629)[name] == Check(name, "1/2", "629 of 1,000", False)
        name = "optimizer states of a rank"
        assert held(2, states=564)[name] == Check(name, "1/2", "564 of 1,000", True)
        assert held(2, states=565)[name] == Check(name, "1/2", "565 of 1,000", False)
        assert held(2, states=628, groups=2)[name].ok is True
        assert held(2, states=565, groups=None)[name].ok is False, "one group where none are counted"
        assert held(3, states=566)[name] == Check(name, "1/2", "566 of 1,000", True)
        assert held(3, states=567)[name] == Check(name, "1/2", "567 of 1,000", False)

    @pytest.mark.parametrize(("stage", "parts"), [(0, set()), (1, {"states"}), (2, {"states"}), (3, {"states", "all"})])
    def test_what_a_stage_splits(self, stage: int, parts: set[str]) -> None:
        names = {"states": "optimizer states of a rank", "all": "parameters of a rank"}
        found = held(stage, states=500, shard=500)
        assert {key for key, name in names.items() if name in found} == parts

    def test_states_that_a_rank_does_not_tell(self) -> None:
        assert "optimizer states of a rank" not in held(2)

    def test_one_rank_holds_everything(self) -> None:
        assert not {"optimizer states of a rank", "parameters of a rank"} & set(held(3, 1, 1000))

    def test_experts_are_split_among_others(self) -> None:
        assert not {"optimizer states of a rank", "parameters of a rank"} & set(held(states=900, experts=True))

    @pytest.mark.parametrize(
        ("stage", "config", "dtypes", "planned", "ok"),
        [
            (1, {}, ["fp32"], "fp32", True),
            (1, {"bf16.enabled": True}, ["fp32"], "fp32", True),
            (1, {"bf16.enabled": True, "bf16.bf16_master_weights_and_grads": True}, ["bf16"], "bf16", True),
            (2, {"bf16.enabled": True, "bf16.bf16_master_weights_and_grads": True}, ["fp32"], "bf16", False),
        ],
    )
    def test_the_dtype_of_the_weights_that_are_stepped(
        self, stage: int, config: dict[str, Any], dtypes: list[str], planned: str, ok: bool
    ) -> None:
        run, less = by_settings.make({f"{ZERO}stage": stage} | config, {"zero_optimization": {"stage": stage}})
        less.plan |= config
        one = {"parameters": 10, "trainable": 10, "tensors": 1, "experts": False, "master": {"dtypes": dtypes}}
        both = [by_settings.report(held=one)] * 2
        found = settled(run, less, *both)["master weights"]
        assert found == Check("master weights", planned, dtypes[0], ok, "acting")
        less.plan[f"{ZERO}stage"] = 0
        assert "master weights" not in settled(run, less, *both), "stage 0 keeps none of its own"
        less.plan[f"{ZERO}stage"] = stage
        silent = by_settings.report(held={name: value for name, value in one.items() if name != "master"})
        assert "master weights" not in settled(run, less, both[0], silent)

    @pytest.mark.parametrize(
        ("device", "pin", "optimizer", "parameters"),
        [("cpu", True, "cpu", "cpu"), ("none", None, "cuda", "cuda"), ("nvme", True, None, None)],
    )
    def test_places_on_a_card(self, device: str, pin: Any, optimizer: str | None, parameters: str | None) -> None:
        parts = {f"{ZERO}offload_optimizer.device": device, f"{ZERO}offload_param.device": device}
        parts |= {} if pin is None else {f"{ZERO}offload_optimizer.pin_memory": pin}
        run, less = by_settings.make({f"{ZERO}stage": 3} | parts, {"zero_optimization": {"stage": 3}})
        one = {"parameters": 10, "trainable": 10, "tensors": 1, "experts": True, "shard_devices": ["cpu"]}
        one |= {"master": {"dtypes": ["fp32"], "pinned": True}}
        states = {"elements": 5, "devices": ["cpu"], "dtypes": ["fp32"]}
        report = by_settings.report(held=one, states=states, device="cuda:0")
        found = settled(run, less, report, report)
        assert {name: (row.planned, row.ok) for name, row in found.items() if name.endswith(" on")} == {
            name: (place, place == "cpu")
            for name, place in (("optimizer states on", optimizer), ("parameters on", parameters))
            if place
        }
        assert ("master weights pinned" in found) is (device == "cpu")
        without = by_settings.report(held=one | {"shard_devices": []}, states=None, device="cuda:0")
        assert not {name for name in settled(run, less, report, without) if name.endswith(" on")}


class TestExpected:
    def test_a_setting_of_the_lock_with_and_without_a_reason(self) -> None:
        run, less = by_settings.make({"a": 1}, {})
        run.lock.settings["b"] = Decision({"value": "a mapping of its own"}, "said so", "file")
        found = expected(run, less)
        assert (found["a"], found["b"]) == (1, {"value": "a mapping of its own"})

    def test_a_batch_without_accumulation(self) -> None:
        run, less = by_settings.make(deepspeed={})
        del less.plan["gradient_accumulation_steps"], run.plan["gradient_accumulation_steps"]
        assert expected(run, less)["train_batch_size"] == 8, "4 samples * 2 ranks"

    def test_a_path_of_nvme_is_kept_for_nvme(self) -> None:
        path = {f"{ZERO}offload_param.nvme_path": "/a", f"{ZERO}offload_param.pin_memory": True}
        found = {
            device: set(expected(*by_settings.make({f"{ZERO}offload_param.device": device} | path, {}))) & set(path)
            for device in ("nvme", "cpu", "none")
        }
        assert found == {"nvme": set(path), "cpu": {f"{ZERO}offload_param.pin_memory"}, "none": set()}

    @pytest.mark.parametrize(("stage", "forced"), [(0, False), (1, True), (2, True), (3, False)])
    def test_the_stages_that_offload_into_one_buffer(self, stage: int, forced: bool) -> None:
        plan = {f"{ZERO}stage": stage, f"{ZERO}contiguous_gradients": False, f"{ZERO}offload_optimizer.device": "cpu"}
        assert expected(*by_settings.make(plan, {}))[f"{ZERO}contiguous_gradients"] is forced

    def test_the_beta_that_is_not_written_is_torchs(self) -> None:
        found = expected(*by_settings.make(arguments={"adam_beta1": 0.8}))
        assert found["optimizer.params.betas"] == [0.8, 0.999]

    @pytest.mark.parametrize(
        ("arguments", "planned"),
        [
            ({"max_steps": 0}, {}),
            ({"max_steps": 1}, {"max_steps": 1}),
            ({"max_steps": 9, "lr_scheduler_type": "constant_with_warmup"}, {}),
            ({"max_steps": 9, "warmup_steps": 1}, {"max_steps": 9, "warmup_steps": 1}),
            ({"max_steps": 9, "warmup_steps": 1.0}, {"max_steps": 9, "warmup_steps": 1}),
            ({"max_steps": 9, "warmup_steps": 0.5}, {"max_steps": 9, "warmup_steps": 5}),
            ({"max_steps": 0, "warmup_steps": 0.5}, {}),
            ({"max_steps": 9, "warmup_steps": True}, {"max_steps": 9}),
        ],
    )
    def test_steps_of_a_schedule(self, arguments: dict[str, Any], planned: dict[str, int]) -> None:
        found = expected(*by_settings.make(arguments=arguments))
        assert {name: found[name] for name in ("max_steps", "warmup_steps") if name in found} == planned

    @pytest.mark.parametrize(
        ("section", "kind"),
        [
            ({"type": "Adam", "params": {"torch_adam": True}}, "AdamW"),
            ({"type": "AdamW", "params": {"torch_adam": True, "adam_w_mode": False}}, "AdamW"),
            ({"type": "Adam", "params": {"torch_adam": True, "adam_w_mode": False}}, "Adam"),
            ({"type": "Adam", "params": {}}, "FusedAdam"),
        ],
    )
    def test_adam_with_and_without_decoupled_decay(self, section: dict[str, Any], kind: str) -> None:
        """adam_w_mode is true unless it is written."""
        run, less = by_settings.make({}, {"optimizer": section})
        assert optimizer_class(expected(run, less), run, less) == kind

    def test_the_optimizer_of_a_loop_of_ones_own_is_not_known(self) -> None:
        run, less = by_settings.make({}, {}, consumer="accelerate")
        assert optimizer_class({}, run, less) is None


class TestAsked:
    """What the files of a hand-written run ask for."""

    PLACE = Location(SourceFile("ds.json", "deepspeed", SourceText("ds.json", "{}")))

    def claims(self, *values: Any) -> list[Claim]:
        return [Claim(value, f"key: {value}", self.PLACE) for value in values]

    def test_a_setting_that_nobody_asks_for_is_noted_where_it_is_seen(self) -> None:
        found = requested_settings.check({}, reduced(), [{"seen": {"stage": 2}}, {"seen": {}}])
        assert found == [Check("ZeRO stage", "-", "rank 0: 2, rank 1: -", None)]
        found = requested_settings.check({"dtype": self.claims("fp8")}, reduced(), [{"seen": {"dtype": "bf16"}}])
        assert found == [Check("precision", "-", "bf16", None)], "fp8 cannot be compared"

    def test_a_claim_is_shown_with_its_place_where_something_else_runs(self) -> None:
        claims = {"stage": self.claims(2, 3)}
        found = requested_settings.check(claims, reduced(), [{"seen": {"stage": 2}}])
        assert found == [Check("ZeRO stage", "key: 2 (ds.json:1); key: 3 (ds.json:1)", "2", False)]
        found = requested_settings.check({"stage": self.claims(2)}, reduced(), [{"seen": {"stage": 2}}])
        assert found == [Check("ZeRO stage", "2", "2", True)]

    @pytest.mark.parametrize(
        ("settings", "seen"),
        [({"scheduler.type": "WarmupLR"}, "WarmupLR"), ({"lr_scheduler_type": "linear"}, "linear"), (None, None)],
    )
    def test_a_schedule_is_read_where_it_acts(self, settings: Any, seen: str | None) -> None:
        report = {"seen": {"settings": settings, "scheduler": "not here"}}
        found = requested_settings.check({}, reduced(), [report])
        assert found == ([Check("scheduler", "-", seen, None)] if seen else [])

    def test_what_is_asked_for_takes_the_place_of_the_plan(self) -> None:
        found = [Check("ZeRO stage", "3", "2", False), Check("world size", "2", "2", True)]
        claims = {"stage": self.claims(2)}
        assert requested_settings.replace_planned(found, claims, reduced(), [{"seen": {"stage": 2}}]) == [
            Check("ZeRO stage", "2", "2", True),
            Check("world size", "2", "2", True),
        ]

    @pytest.mark.parametrize(
        ("key", "wanted", "seen", "kinds", "fits"),
        [
            ("dtype", "fp16", "bf16", [Kind.PRECISION], True),
            ("dtype", "fp16", "bf16", [], False),
            ("dtype", "fp32", "bf16", [Kind.PRECISION], False),
            ("engine", "fp16", "bf16", [Kind.PRECISION], False),
            ("offload_param", "nvme", "cpu", [Kind.OFFLOAD_PARAM], True),
            ("offload_param", "nvme", "cpu", [Kind.OFFLOAD_OPTIMIZER], False),
            ("offload_param", "none", "cpu", [Kind.OFFLOAD_PARAM], False),
            ("stage", "nvme", "cpu", [Kind.OFFLOAD_PARAM], False),
            ("gradient_clipping", 0.1 + 0.2, 0.3, [], True),
            ("gradient_clipping", 1.0, 1.00001, [], False),
            ("stage", None, None, [], True),
            ("stage", None, "None", [], False),
            ("optimizer", "paged_adamw_8bit", None, [], True),
            ("optimizer", "adamw_torch", "FusedAdam", [], True),
            ("optimizer", "adamw_torch", "Lion", [], False),
            ("dtype", "fp8", None, [], True),
        ],
    )
    def test_what_fits_after_a_reduction(self, key: str, wanted: Any, seen: Any, kinds: list[Kind], fits: bool) -> None:
        changes = [Reduction(kind) for kind in kinds]
        assert requested_settings.fits(key, wanted, seen, reduced(changes=changes)) is fits

    @pytest.mark.parametrize(
        ("key", "value", "meaning"),
        [
            ("stage", None, None),
            ("optimizer", None, None),
            ("optimizer", "adamw_bnb_8bit", None),
            ("optimizer", "DeepSpeedCPUAdam", "adam"),
            ("optimizer", "Adafactor", "adafactor"),
            ("optimizer", "shampoo", None),
            ("scheduler", "WarmupLR", "constant_with_warmup"),
            ("scheduler", "polynomial", "polynomial"),
            ("scheduler", None, None),
            ("dtype", "bf16", "bf16"),
            ("dtype", "fp8", None),
            ("engine", "fp8", "fp8"),
        ],
    )
    def test_words_that_both_sides_share(self, key: str, value: Any, meaning: Any) -> None:
        assert requested_settings.meaning(key, value) == meaning


def test_rows_as_data() -> None:
    one = Check("a", "1", "2", False, "acting")
    assert one.data() == {"name": "a", "planned": "1", "seen": "2", "ok": False, "further": "acting", "measured": True}
    assert replace(one, ok=None).data()["ok"] is None


def test_all_rows_in_the_order_of_the_table() -> None:
    run, less = by_settings.make({f"{ZERO}stage": 3}, {"zero_optimization": {"stage": 3}})
    one = by_training.report(seen=by_settings.report()["seen"], weights=TestWeights.GOOD, parts={})
    names = [row.name for row in run_checks(run, less, Outcome([one, one]), 3) if not row.further]
    assert names[:2] == ["engine", "ZeRO stage"] and names[-1] == "loaded by from_pretrained"
    assert names.index("device") + 1 == names.index("optimizer steps, loss finite")
    run.handwritten = SimpleNamespace(requested={"stage": TestAsked().claims(2)})  # type: ignore[assignment]
    found = {row.name: row for row in run_checks(run, less, Outcome([one, one]), 3)}
    assert found["ZeRO stage"] == Check("ZeRO stage", "key: 2 (ds.json:1)", "3", False), "not what the lock says"


def test_a_run_without_reports_tells_what_changed(tmp_path: Any) -> None:
    run, less = by_settings.make({f"{ZERO}stage": 3}, {"zero_optimization": {"stage": 3}})
    run.changed |= {"b.yaml": "", "a.json": ""}
    changed = [Check(f"{name} as built", "unchanged", "changed since", False) for name in ("a.json", "b.yaml")]
    assert run_checks(run, less, Outcome([by_training.report(), {}]), 3) == changed
