"""What the judge makes of figures: sizes and times put together, and each threshold just across."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.smoke.test_training import STEPS, part, report, verdicts
from zerocfg.smoke.judge import figures, settings, training
from zerocfg.smoke.judge.figures import Figures
from zerocfg.smoke.judge.prediction import Expected
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.reduction import Reduced
from zerocfg.smoke.prepare.device import Device

# -- figures -----------------------------------------------------------------------------------------------------------

CARD, HOST = Device("cuda", "card", 1), Device("cpu", "processor")


def reduced(**facts: Any) -> Reduced:
    empty: dict[str, Any] = {"model": {}, "accelerate": None, "deepspeed": None, "arguments": {}, "plan": {}}
    return Reduced(**({"ranks": 2} | empty | {"sequence": 8} | facts))


def phase(**sizes: Any) -> dict[str, Any]:
    return {"seconds": 0.5} | sizes


def rank(**facts: Any) -> Any:
    return {
        "seen": {"micro_batch": 2, "gradient_accumulation_steps": 3},
        "step_seconds": [9.0, 1.0, 2.0, 3.0, 8.0],
    } | facts


def test_peaks_of_ranks() -> None:
    memory: Any = [
        {"init": phase(rss=5, allocated=1), "forward": phase(rss=9, allocated=7), "step": phase(rss=8)},
        {"init": phase(rss=6), "other": phase(rss=99)},
        {},
    ]
    start: Any = [{"rss": 4}, {}, {"rss": 1}]
    host, card = (Figures(3, memory=memory, start=start, on_card=on) for on in (False, True))
    assert (host.counter, card.counter) == ("rss", "allocated")
    assert host.peaks("rss") == [9, 6, None] and host.peak() == 9 and card.peak() == 7
    assert host.peaks("rss", ("init", "step")) == [8, 6, None] and host.peaks("reserved") == [None, None, None]
    assert host.peak("reserved") is None and host.grown() == [5, None, None]
    measured = host.measured()
    assert measured.peaks == (9, 6, None) and measured.of == "rss"
    assert list(measured.memory[1]) == ["init"] and measured.memory[0]["init"]["seconds"] == 0.5
    assert measured.memory[0]["forward"]["rss"] == 9 and measured.memory[0]["forward"]["device"] is None
    assert measured.start[0]["rss"] == 4 and measured.start[1]["rss"] is None


def test_speed() -> None:
    fast = Figures(1, seconds=0.5, tokens=100, flops=2e12)
    assert (fast.tokens_per_second, fast.tflops) == (200.0, 4.0)
    assert (fast.measured().tokens_per_second, fast.measured().tflops) == (200.0, 4.0)
    for nothing in (
        Figures(1, tokens=100, flops=1.0),
        Figures(1, seconds=0.0, tokens=1, flops=1.0),
        Figures(1, seconds=1.0),
    ):
        assert nothing.tokens_per_second is None and nothing.tflops is None
        assert nothing.measured().tokens_per_second is None and nothing.measured().tflops is None
    rounded = Figures(1, seconds=3.0, tokens=10, flops=1e9).measured()
    assert (rounded.tokens_per_second, rounded.tflops) == (3.33, 0.000333)


def test_figures_of_reports() -> None:
    """A step is over when the last rank is through; the first warms up, and collectives are counted in the last."""
    counted: Any = {"all_reduce": {"calls": 1, "payload": 2, "sent": 3, "seconds": 4.0, "other": 5}}
    both = [
        rank(collectives=counted, losses=[4.0, 3.5], memory={"init": phase(rss=1)}, memory_start={"rss": 7}),
        rank(step_seconds=[1.0, 4.0, 1.0, 1.0, 1.0, 1.0], device_memory=11),
    ]
    found = figures.figures(reduced(), HOST, both)
    assert (found.first, found.last, found.seconds) == (9.0, 8.0, 3.0)
    assert found.tokens == 2 * 3 * 8 * 2 and found.loss == 3.5 and found.device_memory == 11 and found.ranks == 2
    assert found.collectives == [counted, {}] and found.start == [{"rss": 7}, {}]
    assert found.measured().collectives == ({"all_reduce": {"calls": 1, "payload": 2, "sent": 3, "seconds": 4.0}}, {})
    plain = figures.figures(reduced(), CARD, [rank()])
    assert plain.seconds == 2.5 and plain.collectives == [] and plain.on_card and not found.on_card
    assert figures.figures(reduced(trainer="SFTTrainer"), HOST, [rank()]).tokens is None
    assert figures.figures(reduced(), HOST, [rank(seen={"micro_batch": 2})]).tokens == 16
    assert figures.figures(reduced(), HOST, [rank(seen={"micro_batch": "auto"})]).tokens is None
    short = figures.figures(reduced(), HOST, [rank(step_seconds=[5.0, 1.0], collectives=counted)])
    assert (short.first, short.last, short.seconds) == (5.0, 1.0, 1.0)
    once = figures.figures(reduced(), HOST, [rank(step_seconds=[5.0])])
    assert (once.first, once.last, once.seconds) == (5.0, 5.0, None)
    nobody = figures.figures(reduced(), HOST, [])
    assert (nobody.first, nobody.seconds, nobody.loss, nobody.timeline) == (None, None, None, [])


def test_what_an_instrument_lost_is_no_figure() -> None:
    line = [(0.5, 10, "init"), (1, 20, "forward"), ("x", 1, "init"), (1.0, 1.5, "init"), (1.0, 1, None)]
    counted: Any = {"all_reduce": {"calls": 1, "payload": 2, "sent": 3, "seconds": 4.0}}
    whole = rank(memory={"init": phase(rss=1)}, timeline=line, collectives=counted)
    found = figures.figures(reduced(), HOST, [whole])
    assert found.timeline == [(0.5, 10, "init"), (1, 20, "forward")] and found.memory[0]
    broken = figures.figures(reduced(), HOST, [whole | {"instruments": {"memory recorder": "it broke"}}])
    assert broken.timeline == [] and broken.memory == [{}] and broken.collectives == [counted]
    uncounted = figures.figures(reduced(), HOST, [whole | {"instruments": {"collective counter": "it broke"}}])
    assert uncounted.collectives == [] and uncounted.memory == found.memory
    fine = figures.figures(reduced(), HOST, [whole | {"instruments": {"memory recorder": ""}}])
    assert fine.memory == found.memory
    assert figures.figures(reduced(), HOST, [whole], "not known").flops is None
    expected = object.__new__(Expected)
    object.__setattr__(expected, "flops", 5.0)
    assert figures.figures(reduced(), HOST, [whole], expected).flops == 5.0


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (5e8, "500000000"),
        (0.1, "0.1"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (True, "True"),
        ("x", "x"),
    ],
)
def test_a_value_in_a_row(value: object, shown: str) -> None:
    assert settings.show(value) == shown


def test_values_of_ranks_together() -> None:
    assert settings.together([5e8, 500000000]) == "500000000" and settings.together([None]) == "-"
    assert settings.together([1, 2, 1]) == "rank 0: 1, rank 1: 2, rank 2: 1"


def test_numbers_that_are_the_same() -> None:
    assert settings.same(1.0, 1.0 + 1e-10) and not settings.same(1.0, 1.0 + 1e-8)
    assert settings.same([1, [2.0]], (1.0, [2])) and not settings.same([1], [1, 2]) and not settings.same([1], 1)
    assert not settings.same([True], [1]) and settings.same("a", "a") and not settings.same("a", None)


@pytest.mark.parametrize(
    ("held", "whole", "room", "ranks", "ok"),
    [
        ([50, 50], [100, 100], [0, 0], 2, True),
        ([51, 50], [100, 100], [0, 0], 2, False),
        ([51, 50], [100, 100], [1, 0], 2, True),
        ([50, 52], [100, 100], [1, 1], 2, False),
        ([34, 33, 33], [100, 100, 100], [1, 0, 0], 3, True),
    ],
)
def test_a_share_of_a_rank(held: list[int], whole: list[int], room: list[int], ranks: int, ok: bool) -> None:
    (row,) = settings._shards("parameters", held, whole, room, reduced(ranks=ranks))
    assert (row.planned, row.ok) == (f"1/{ranks}", ok) and row.seen.endswith(f"{held[-1]} of {whole[-1]}")


def test_one_rank_has_no_share() -> None:
    assert settings._shards("parameters", [100], [100], [0], reduced(ranks=1)) == []


@pytest.mark.parametrize(
    ("device", "stage", "ratio", "groups", "expected"),
    [
        ("cpu", 3, None, 4, "cpu"),
        ("cpu", 3, 1.0, 4, "cpu"),
        ("cpu", 3, 0.8, 4, "cpu"),  # not one whole group
        ("cpu", 3, 0.75, 4, "cpu, cuda"),
        ("cpu", 3, 0.0, 4, "cuda"),
        ("cpu", 2, 0.0, 4, "cpu"),
        ("cuda", 3, 0.0, 4, "cuda"),
    ],
)
def test_where_states_are_expected(device: str, stage: int, ratio: float | None, groups: int, expected: str) -> None:
    planned: dict[str, object] = {"zero_optimization.stage": stage, "zero_optimization.offload_optimizer.ratio": ratio}
    assert settings._states_on(device, planned, {"groups": groups}) == expected  # type: ignore[typeddict-item]


def test_the_engine_that_is_planned() -> None:
    def engine(seen: str = "", **facts: Any) -> str:
        return settings._engine(reduced(**facts), [{"seen": {"engine": seen}}])  # type: ignore[typeddict-item, list-item]

    assert engine(deepspeed={}) == "deepspeed" and engine() == "ddp" and engine(plan={"engine": "fsdp"}) == "fsdp"
    assert engine(ranks=1) == "single" and engine("ddp", ranks=1) == "ddp"
    assert engine(accelerate={"distributed_type": "NO"}) == "single"
    assert engine(accelerate={"distributed_type": "MULTI_GPU"}) == "ddp"
    assert engine(plan={"engine": "fsdp"}, ranks=1) == "fsdp"


def test_the_precision_that_is_asked_for() -> None:
    asked = settings._asked
    assert asked(reduced(plan={"bf16.enabled": True}), "bf16") and not asked(
        reduced(plan={"bf16.enabled": False}), "bf16"
    )
    off = reduced(plan={"bf16.enabled": False}, arguments={"bf16": True}, accelerate={"mixed_precision": "bf16"})
    assert not asked(off, "bf16"), "DeepSpeed's config has the last word"
    assert asked(reduced(arguments={"fp16": True}), "fp16") and not asked(reduced(arguments={"fp16": True}), "bf16")
    assert asked(reduced(accelerate={"mixed_precision": "bf16"}), "bf16") and not asked(reduced(), "bf16")


def test_zenflow_divides_states() -> None:
    name = "zero_optimization.zenflow.topk_ratio"
    assert settings._zenflow({name: 0.1}) and not settings._zenflow({name: None}) and not settings._zenflow({"x": 1})


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "others", "distance"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([4.0], [2.0], 0.5),
        ([0.0], [0.0], 0.0),
        ([0.0], [1.0], 1.0),
        ([-1.0], [1.0], 2.0),
        ([1.0], [1.0, 1.0], math.inf),
        ([math.nan], [1.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_how_far_numbers_are_apart(ours: list[float], others: list[float], distance: float) -> None:
    assert training._distance(ours, others) == distance


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0, "0 %"),
        (0.01, "1 %"),
        (1e-4, "0.01 %"),
        (0.99e-4, "under 0.01 %"),
        (0.0123, "1.2 %"),
        (math.inf, "infinitely far"),
    ],
)
def test_a_share_in_words(share: float, shown: str) -> None:
    assert training._percent(share) == shown


def test_losses_in_words() -> None:
    """Each once, four of them at most."""
    assert training._losses([4.0, 4.0, 3.5, 4.0]) == "4 3.5 4" and training._losses([None, 1.0]) == "- 1"
    assert training._losses([1.0, 2.0, 3.0, 4.0, 5.0]) == "1 2 3 4" and training._losses([]) == ""
    assert training._losses([1.234567]) == "1.235" and training._mean([1.0, 2.0]) == 1.5


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_loss_of_zero_0_just_within_and_across(dtype: str) -> None:
    """0.05 % in fp32, 1 % in bf16."""
    limit = {"fp32": 0.0005, "bf16": 0.01}[dtype]
    for share, ok in ((0.99 * limit, True), (1.01 * limit, False)):
        losses = [4.0, 4.0, 3.8, 3.8, 3.7, 3.7 * (1 - share)]
        one = report(seen={"dtype": dtype}, parts=part("reference", losses=losses))
        seen, found = verdicts(one)["loss as under ZeRO-0"]
        assert found is ok and (": 4 3.8 3.7, ZeRO-0 4 3.8 " in seen) is not ok
    for share, ok in ((0.99 * 2 * limit, True), (1.01 * 4 * limit, False)):
        one = report(seen={"dtype": dtype}, parts=part("reference", momentum=0.25 * (1 - share)))
        assert verdicts(one)["gradients as under ZeRO-0"][1] is ok


def test_the_loss_of_zero_0_in_fp16() -> None:
    """Only the first step is compared: the engines then skip different ones."""
    later = part("reference", losses=[4.0, 4.0, 9.0, 9.0, 9.0, 9.0], momentum=9.0)
    seen = verdicts(report(seen={"dtype": "fp16"}, parts=later))
    assert seen["loss as under ZeRO-0"] == ("0 % apart at most in step 1", True)
    assert "gradients as under ZeRO-0" not in seen
    first = part("reference", losses=[4.0, 4.1, 3.8, 3.8, 3.7, 3.7])
    assert verdicts(report(seen={"dtype": "fp16"}, parts=first))["loss as under ZeRO-0"][1] is False


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_resumed_training_just_within_and_across(dtype: str) -> None:
    limit = {"fp32": 0.0001, "bf16": 0.005}[dtype]
    for share, ok in ((0.99 * limit, True), (1.01 * limit, False)):
        for changes in ({"losses": [3.8, 3.8, 3.7, 3.7 * (1 + share)]}, {"momentum": 0.25 * (1 - share)}):
            one = report(seen={"dtype": dtype}, parts=part("resume", **changes))
            assert verdicts(one)["resumes from a checkpoint"][1] is ok
    for rates, ok in (([6e-4, 3e-4 * (1 + 0.9e-6)], True), ([6e-4, 3e-4 * (1 + 1.2e-6)], False)):
        one = report(seen={"dtype": dtype}, parts=part("resume", rates=rates))
        assert verdicts(one)["resumes from a checkpoint"][1] is ok


def test_what_is_said_of_a_resumed_training() -> None:
    def said(**changes: Any) -> tuple[str, bool | None]:
        return verdicts(report(parts=part("resume", **changes)))["resumes from a checkpoint"]

    assert said(losses=[]) == ("no step was done after the checkpoint", False)
    assert said(losses=[3.8, 3.8, 3.7, 9.0]) == ("loss 3.8 3.7 9, without the break 3.8 3.7", False)
    assert said(rates=[6e-4, 1e-4]) == ("learning rate 0.0006 0.0001, without the break 0.0006 0.0003", False)
    assert said(momentum=0.5) == ("the optimizer's states are others: norm 0.5, without the break 0.25", False)
    assert said(differing=1) == ("from step 1: loss 3.7, 1 of 2 parameters by rounding apart", True)
    assert said(differing=None) == ("from step 1: loss 3.7, parameters not compared", True)
    again = {"losses": [3.8, 3.8, 3.7, 9.0], "before": [5.0, 5.0]}
    assert said(**again) == (
        "not comparable: the steps up to the checkpoint, done again, gave loss 5 and not 4",
        None,
    )
    assert said(**again | {"before": [4.0, 4.0]})[1] is False, "the steps before were the same"
    assert said(state="failed", why="it broke") == ("it broke", False)
    assert said(state="failed", why="too large", memory=True) == ("too large", None)
    assert said(state="skipped", why="no room") == ("no room", None)
    assert said(state="running") == ("it did not come to its end", None)


def test_the_part_that_says_why_there_is_no_result() -> None:
    late: Any = {"state": "failed", "time": 2.0, "why": "late"}
    early: Any = {"state": "failed", "time": 1.0, "why": "early"}
    absent: Any = {"state": "running", "why": "another rank did not take part"}
    own: Any = {"state": "running", "why": "mine"}
    skipped: Any = {"state": "skipped"}
    assert training._missing([absent, late, early, skipped]) is early and training._missing([own, skipped]) is skipped
    assert training._missing([absent, own]) is own and training._missing([absent]) is absent
    assert training._missing([{"state": "done"}]) is None
    assert training._missing([{"state": "failed", "why": "x"}, late]) is late  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("dtype", "share", "ok"),
    [("bf16", 2**-7, None), ("bf16", 1.01 * 2**-7, False), ("fp32", 2**-23, None), ("fp32", 2**-20, False)],
)
def test_a_loss_that_rises_within_what_the_dtype_resolves(dtype: str, share: float, ok: bool | None) -> None:
    losses = [1.0, 1.0, 1.0, 1.0, 1.0 + share, 1.0 + share]
    assert verdicts(report(losses=losses, seen={"dtype": dtype}, parts={}))["loss falls"][1] is ok


def test_a_higher_rate_than_the_plans() -> None:
    """The smoke-run raises it where that of the schedule could not be seen."""
    seen, ok = verdicts(report(rates=[1e-7, 1e-7, 1e-7], trial_rate=1e-3, parts={}))["loss falls"]
    assert ok is True and seen.endswith(
        "with a learning rate of 0.001: that of the plan is 1e-07 at most in these steps"
    )
    assert "learning rate" not in verdicts(report(trial_rate=1e-3, parts={}))["loss falls"][0]
    still = report(losses=[4.0] * 6, rates=[0.0] * 3, trial_rate=1e-3, changed=0, parts={})
    assert verdicts(still)["parameters change"] == ("0 of 2 tensors", False), "a rate of 0.001 is no warmup"


@pytest.mark.parametrize(("rate", "ok"), [(1e-5, None), (1.01e-5, False)])
def test_a_rate_that_may_change_nothing(rate: float, ok: bool | None) -> None:
    one = report(changed=0, rates=[rate] * 3)
    assert verdicts(one)["parameters change"][1] is ok
    assert verdicts(report(changed=0, rates=[rate] * 3, seen={"dtype": "fp32"}))["parameters change"][1] is False


def test_a_rank_with_a_learning_rate_of_its_own_decides_nothing() -> None:
    """What differs may be for that; that its loss is finite still counts."""
    odd = report(instruments={"learning rate": "it could not be set"}, sums={"embed.weight": 12, "norm.weight": 7})
    rows = {one.name: one for one in training.check([report(), odd], STEPS)}
    alike = rows["parameters alike on all ranks"]
    assert (alike.ok, alike.measured) == (None, False) and "it could not be set" in alike.seen
    assert rows["loss falls"].ok is True
    short = training.check([report(step_seconds=[0.1]), odd], STEPS)
    assert [one.ok for one in short if one.name == "optimizer steps, loss finite"] == [False]


def test_steps_in_words() -> None:
    (first, *_) = training.check([report(), report(step_seconds=[0.1, 0.1])], STEPS)
    assert first == Check("optimizer steps, loss finite", "3", "2; loss 4 to 3.7", False)
    (none, *_) = training.check([report(losses=[])], STEPS)
    assert none == Check("optimizer steps, loss finite", "3", "3", False)
