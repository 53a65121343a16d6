"""What zerocfg chooses, on both sides of each limit, without a build: sizes, places, words, and who wins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.hardware.profile import load_hardware
from zerocfg.memory.host import node_band
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.overhead import GIB, Band
from zerocfg.memory.verdict import Verdict
from zerocfg.models.hardware import HardwareProfile, Host, Link, Mount
from zerocfg.models.spec import Goals, RunSpec
from zerocfg.resolve.explain import alternatives, plan_summary
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.model.activations import Activations
from zerocfg.resolve.model.room import host_room
from zerocfg.resolve.search import (
    buffer_sizes,
    candidates,
    engine_search,
    follow_ups,
    precision,
    search_space,
    take_plan,
)
from zerocfg.resolve.search.apply_choice import with_value
from zerocfg.resolve.search.candidates import (
    Candidate,
    Candidates,
    free_on_drives,
    is_named,
    is_set,
)
from zerocfg.resolve.search.choice import (
    GATHER,
    MICRO,
    OPTIMIZER_DEVICE,
    PARAM_DEVICE,
    STAGE,
    STEPS,
    Choice,
    describe_plan,
)
from zerocfg.resolve.search.ranking import _machinery, considered, evaluate, ranked
from zerocfg.resolve.search.search_space import ContradictionError, SearchSpace, batches, choices
from zerocfg.run.model import UNKNOWN, Effective, Origin, Run, Setting, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.node import Mapping
from zerocfg.source.text import SourceText

from .test_forecast_limits import CONFIG, FACTS

ZERO = "zero_optimization."


def profile(**changes: Any) -> HardwareProfile:
    return load_hardware("8xA100-80GB").model_copy(update=changes)


def link(**values: Any) -> dict[str, Any]:
    return {"link_within_node": Link(kind="nvlink", **values)}


def facts(trainable: int | None = 10**9, **more: Any) -> Any:
    return SimpleNamespace(trainable=trainable, leaf_modules=[], model_type="moe", **more)


def chosen(choice: Choice, one: HardwareProfile, trainable: int | None = 10**9) -> dict[str, Any]:
    return {name: found.value for name, found in buffer_sizes.buffer_sizes(choice, facts(trainable), one).items()}


class TestSizes:
    @pytest.mark.parametrize("stage", [None, 0])
    def test_nothing_is_sent_in_buckets(self, stage: int | None) -> None:
        assert chosen(Choice(1, 8, stage), profile()) == {}

    def test_the_keys_of_each_stage(self) -> None:
        fast = profile(**link(busbw_gb_s=100.0, latency_us=20.0))
        both = {
            ZERO + "reduce_bucket_size": 20_000_000,
            ZERO + "overlap_comm": True,
            ZERO + "contiguous_gradients": True,
        }
        for stage in (1, 2):
            assert chosen(Choice(1, 8, stage), fast) == both | {ZERO + "allgather_bucket_size": 20_000_000}
        third = chosen(Choice(1, 8, 3, "cpu"), fast)
        assert third == both | {ZERO + "stage3_prefetch_bucket_size": 20_000_000}

    @pytest.mark.parametrize(
        ("values", "elements"),
        [
            ({"busbw_gb_s": 100.0, "latency_us": 20.0}, 20_000_000),  # 100e9 * 20e-6 * 20 transfers / 2 bytes
            ({"busbw_gb_s": 100.0, "latency_us": 20.4}, 20_000_000),  # whole millions
            ({"busbw_gb_s": 100.0, "latency_us": 10.0}, 10_000_000),
            ({"busbw_gb_s": 100.0, "latency_us": 9.0}, 10_000_000),
            ({"busbw_gb_s": 100.0, "latency_us": 200.0}, 200_000_000),
            ({"busbw_gb_s": 100.0, "latency_us": 201.0}, 200_000_000),
            ({"gb_s": 600.0, "latency_us": 20.0}, 45_000_000),  # 0.75 of 300 GB/s in one direction
            ({"gb_s": 600.0, "busbw_gb_s": 100.0, "latency_us": 20.0}, 20_000_000),  # what was measured counts
            ({"gb_s": 600.0, "latency_us": 0.0}, 10_000_000),
            ({"gb_s": 600.0}, 45_000_000),  # 20 us are assumed within a node
            ({}, 50_000_000),
            ({"busbw_gb_s": 107.49999995, "latency_us": 20.0}, 21_000_000),  # 21,499,999.99
        ],
    )
    def test_a_bucket_for_a_link(self, values: dict[str, float], elements: int) -> None:
        found = chosen(Choice(1, 8, 2), profile(**link(**values)))
        assert found[ZERO + "reduce_bucket_size"] == elements

    def test_the_reason_tells_where_a_limit_counts(self) -> None:
        def why(latency: float) -> str:
            one = profile(**link(busbw_gb_s=100.0, latency_us=latency))
            return buffer_sizes.buffer_sizes(Choice(1, 8, 2), facts(), one)[ZERO + "reduce_bucket_size"].reason

        assert why(20.0) == (
            "zerocfg's choice: 20 x the latency of nvlink within the node (20 us) at 100 GB/s, 2 bytes each"
        )
        assert why(9.0).endswith(", 2 bytes each, at least 10000000 and at most 200000000")
        assert why(10.0).endswith(", 2 bytes each")

    def test_between_nodes_their_link_counts(self) -> None:
        one = profile(nodes=2, link_between_nodes=Link(kind="infiniband", gb_s=50.0), **link(gb_s=600.0))
        # 0.85 of 25 GB/s in one direction for the 50 us that are assumed: 10.6 million, in whole millions
        assert chosen(Choice(2, 8, 2), one)[ZERO + "reduce_bucket_size"] == 11_000_000
        assert chosen(Choice(1, 8, 2), one)[ZERO + "reduce_bucket_size"] == 45_000_000
        unknown = one.model_copy(update={"link_between_nodes": None})
        found = buffer_sizes.buffer_sizes(Choice(2, 8, 2), facts(), unknown)[ZERO + "reduce_bucket_size"]
        assert found.value == 50_000_000 and "the link between the nodes is not known" in found.reason

    def test_a_link_of_another_kind_has_the_share_of_all(self) -> None:
        one = profile(link_within_node=Link(kind="smoke-signals", gb_s=600.0, latency_us=20.0))
        assert chosen(Choice(1, 8, 2), one)[ZERO + "reduce_bucket_size"] == 36_000_000, "0.6 of 300 GB/s"

    def test_one_rank_sends_nothing(self) -> None:
        found = chosen(Choice(1, 1, 2), profile())
        assert found[ZERO + "reduce_bucket_size"] == 10_000_000 and found[ZERO + "overlap_comm"] is False
        assert found[ZERO + "contiguous_gradients"] is True
        every = buffer_sizes.buffer_sizes(Choice(1, 1, 2), facts(), profile())
        assert every[ZERO + "reduce_bucket_size"].inputs == {"num_processes": 1}

    @pytest.mark.parametrize(
        ("device", "trainable", "grouped"),
        [
            ("none", 800_000_000, False),
            ("none", 800_000_008, True),
            ("none", None, False),
            ("cpu", 10**10, False),
            ("nvme", 8, True),
        ],
    )
    def test_groups_of_the_optimizer_at_stage_3(self, device: Any, trainable: int | None, grouped: bool) -> None:
        """More than 1e8 elements a rank, of 8, and what is swapped to drives."""
        found = chosen(Choice(1, 8, 3, device), profile(), trainable)
        assert found.get(ZERO + "sub_group_size") == (100_000_000 if grouped else None)
        assert ZERO + "sub_group_size" not in chosen(Choice(1, 8, 2, device), profile(), trainable)

    def test_why_there_are_groups(self) -> None:
        one = buffer_sizes.buffer_sizes(Choice(1, 8, 3, "none"), facts(12 * 10**9), profile())[ZERO + "sub_group_size"]
        assert one.reason.endswith("are those of one group, not of the rank's 1.5e9 elements")
        assert one.inputs == {"trainable_parameters": 12 * 10**9, "num_processes": 8}
        one = buffer_sizes.buffer_sizes(Choice(1, 8, 3, "none"), facts(14 * 10**9), profile())[ZERO + "sub_group_size"]
        assert "the rank's 1.8e9 elements" in one.reason, "1.75, rounded"
        one = buffer_sizes.buffer_sizes(Choice(1, 8, 3, "nvme"), facts(None), profile())[ZERO + "sub_group_size"]
        assert one.inputs == {"trainable_parameters": 0, "num_processes": 8}

    @pytest.mark.parametrize(
        ("rates", "depth", "threads", "speed"),
        [
            ([3.0], 32, 4, "the drive reads 3.0 GB/s"),
            ([2.9], 8, 1, "the drive reads 2.9 GB/s"),
            ([1.0, 3.5], 32, 4, "the drive reads 3.5 GB/s"),
            ([None], 8, 1, "the drive was not measured (probe --measure)"),
            ([], 8, 1, "the drive was not measured (probe --measure)"),
        ],
    )
    def test_requests_to_drives(self, rates: list[float | None], depth: int, threads: int, speed: str) -> None:
        mounts = [Mount(path="/nvme", free_gib=1.0, read_gb_s=rate) for rate in rates]
        found = buffer_sizes.aio(profile(host=Host(nvme=mounts)))
        assert {name: one.value for name, one in found.items()} == {
            "aio.block_size": 1 << 20,
            "aio.queue_depth": depth,
            "aio.intra_op_parallelism": threads,
            "aio.overlap_events": True,
        }
        assert found["aio.queue_depth"].reason.endswith(f"; {speed}")
        assert buffer_sizes.aio(profile(host=None))["aio.queue_depth"].value == 8


def setting(value: Any, kind: Any = "file", *overridden: Setting) -> Setting:
    return Setting(value, Origin(kind), overridden)


class TestSources:
    @pytest.mark.parametrize(
        ("one", "named", "given"),
        [
            (None, False, False),
            (setting(3), True, True),
            (setting(3, "flag"), True, True),
            (setting(3, "environment"), True, True),
            (setting("auto"), True, False),
            (setting(3, "default"), False, False),
            (setting(3, "computed"), False, False),
            (setting(3, "computed", setting("auto")), True, False),
        ],
    )
    def test_who_says_something(self, one: Setting | None, named: bool, given: bool) -> None:
        effective = Effective(settings={"a": one} if one else {})
        assert is_named(effective, "a") is named and is_set(one) is given

    @pytest.mark.parametrize(
        ("value", "count"), [(2, 2), (1, 1), (0, None), (-1, None), (True, None), ("2", None), (UNKNOWN, None)]
    )
    def test_a_batch_that_can_be_counted(self, value: Any, count: int | None) -> None:
        assert search_space._count(setting(value)) == count and search_space._count(None) is None

    def test_what_a_node_has(self) -> None:
        assert host_room(profile(host=None)) is None and free_on_drives(profile(host=None)) is None
        assert host_room(profile(host=Host())) is None and free_on_drives(profile(host=Host())) == 0
        mounts = [Mount(path="/a", free_gib=2.0), Mount(path="/b", free_gib=1.0)]
        one = profile(host=Host(ram_gib=1.5, nvme=mounts))
        assert host_room(one) == 3 * GIB // 2 and free_on_drives(one) == 2 * GIB

    @pytest.mark.parametrize(
        ("settings", "goals", "ranks", "stages"),
        [
            ({}, False, 8, (1, 2, 3)),
            ({}, True, 8, (1, 2, 3)),
            ({}, True, 1, (0, 1, 2, 3)),
            ({}, False, 1, (1, 2, 3)),
            ({STAGE: 0}, True, 8, (0,)),
            ({STAGE: 1}, True, 8, (1,)),
            ({STAGE: 2}, True, 8, (2,)),
            ({STAGE: 3}, True, 8, (3,)),
            ({STAGE: 4}, True, 8, (None,)),
            ({STAGE: "3"}, True, 8, (None,)),
            ({STAGE: "auto"}, True, 8, (1, 2, 3)),
            ({OPTIMIZER_DEVICE: "cpu"}, True, 8, (2, 3)),
            ({OPTIMIZER_DEVICE: "nvme"}, True, 8, (3,)),
            ({OPTIMIZER_DEVICE: "none"}, True, 8, (1, 2, 3)),
            ({PARAM_DEVICE: "cpu"}, True, 8, (3,)),
            ({PARAM_DEVICE: "none"}, True, 8, (1, 2, 3)),
            ({PARAM_DEVICE: None, OPTIMIZER_DEVICE: "cpu"}, True, 8, (2, 3)),
        ],
    )
    def test_the_stages_that_are_open(self, settings: dict[str, Any], goals: bool, ranks: int, stages: Any) -> None:
        before = Effective(settings={name: setting(value) for name, value in settings.items()})
        spec = SimpleNamespace(goals=object() if goals else None)
        inputs: Any = SimpleNamespace(profile=profile(accelerators_per_node=ranks), spec=spec)
        assert search_space._stages(inputs, before) == stages

    def test_where_states_may_go(self) -> None:
        def places(**changes: Any) -> set[tuple[str, str]]:
            return set(search_space.offloads(SimpleNamespace(profile=profile(**changes))))  # type: ignore[arg-type]

        host = {("none", "none"), ("cpu", "none"), ("cpu", "cpu")}
        drive = {("nvme", "none"), ("nvme", "cpu"), ("nvme", "nvme")}
        assert places(host=None) == host and places(host=Host()) == host
        assert places(host=Host(nvme=[Mount(path="/a", free_gib=1.0)])) == host | drive
        assert search_space.offloads(SimpleNamespace(profile=None)) == (("none", "none"),)  # type: ignore[arg-type]
        processor = profile().accelerator.model_copy(update={"vendor": "cpu"})
        assert places(accelerator=processor) == {("none", "none")}


CHANCES = {"fits": 0.99, "likely": 0.75, "unlikely": 0.25, "does not fit": 0.01, "unknown": None}


def candidate(
    choice: Choice,
    seconds: float | None = 1.0,
    gib: float = 10.0,
    word: Any = "fits",
    short: str = "",
    chance: float | None = None,
) -> Candidate:
    """A plan of one token a step, so that its seconds are those of a token; a GiB less or more may be needed."""
    band = Band(int((gib - 1) * GIB), int(gib * GIB), int((gib + 1) * GIB))
    time = None if seconds is None else SimpleNamespace(seconds=SimpleNamespace(expected=seconds), tokens=1)
    work = SimpleNamespace(micro_batch=1, sequence_length=4096)
    prediction = SimpleNamespace(device=band, complete=True)
    verdict = Verdict(word, CHANCES[word] if chance is None else chance)
    return Candidate(choice, SimpleNamespace(workload=work), prediction, time, 0, 0, verdict, short)  # type: ignore[arg-type]


PLAIN = Choice(1, 8, 2, "none", "none", 1, 1, False)


def other(
    seconds: float | None = 1.0,
    gib: float = 10.0,
    word: Any = "fits",
    short: str = "",
    chance: float | None = None,
    **choice: Any,
) -> Candidate:
    return candidate(replace(PLAIN, **choice), seconds, gib, word, short, chance)


class TestRanking:
    def why(self, one: Candidate, prefer: Any = "throughput", best: Candidate | None = None) -> str:
        """What excludes a plan beside the best one."""
        best = best or candidate(PLAIN)
        rows = ranked([one, best], prefer)
        assert rows[0] == (best, "")
        return rows[1][1]

    @pytest.mark.parametrize(
        ("seconds", "said"),
        [(1.03, "about as fast, with more sharding"), (1.04, "4% slower"), (0.98, "about as fast, with more sharding")],
    )
    def test_what_counts_as_equally_fast(self, seconds: float, said: str) -> None:
        assert self.why(other(seconds, stage=3)) == said

    def test_a_plan_that_is_faster_by_more_is_the_best(self) -> None:
        faster = other(0.96, stage=3)
        assert ranked([candidate(PLAIN), faster], "throughput")[0] == (faster, "")

    @pytest.mark.parametrize("prefer", ["throughput", "cost", None])
    def test_of_likely_plans_that_are_as_fast_the_likelier_is_the_best(self, prefer: Any) -> None:
        """Up to 109.5 GiB of a card with 79 was taken before ZeRO-3 with 91.7, for having less machinery."""
        large, small = other(1.0, 108.5, "likely", chance=0.6, stage=1), other(1.0, 90.7, "likely", chance=0.7, stage=3)
        assert [one for one, _ in ranked([large, small], prefer)] == [small, large]
        fitting = [other(1.0, 60.0, chance=0.97, stage=1), other(1.0, 50.0, chance=0.99, stage=3)]
        assert ranked(fitting, prefer)[0] == (fitting[0], "")

    def test_what_may_not_fit_is_not_told_to_fit(self) -> None:
        goals = SimpleNamespace(goals=Goals())
        inputs: Any = SimpleNamespace(spec=goals, profile=profile())

        def reason(one: Candidate) -> str:
            return take_plan._reason(inputs, replace(one, time=None))

        start = "zerocfg's choice, the fastest plan that"
        likely = reason(other(1.0, 78.7, "likely", chance=0.62))
        assert likely == f"{start} likely fits (62%): 77.7 to 79.7 GiB of A100-SXM-80GB's 79 GiB"
        assert reason(other(1.0, 70.7)).startswith(f"{start} fits: up to 71.7 GiB of")

    def test_of_offload_only_the_upper_end_is_known(self) -> None:
        assert self.why(other(1.5, offload_optimizer="cpu")) == "50% slower"

    def test_of_the_price_all_devices_count(self) -> None:
        assert self.why(other(1.0, nodes=2), "cost") == "100% more expensive"
        double = other(0.5, nodes=2)
        assert self.why(candidate(PLAIN), "cost", double) == "about as cheap, with fewer devices", "sooner is better"
        assert self.why(other(0.25, nodes=4, micro_batch=2), "cost", double).startswith("about as cheap, with more dev")

    @pytest.mark.parametrize(
        ("choice", "said"),
        [
            ({"offload_optimizer": "cpu"}, "more offload"),
            ({"stage": 3}, "more sharding"),
            ({"checkpointing": True}, "recomputation"),
            ({"micro_batch": 2}, "a larger micro batch, which leaves less memory free"),
            ({"per_node": 4}, "fewer devices"),
        ],
    )
    def test_what_more_machinery_a_plan_has(self, choice: dict[str, Any], said: str) -> None:
        assert self.why(other(**choice)) == f"about as fast, with {said}"
        assert self.why(other(**choice), None) == f"fits as well, with {said}"

    def test_what_less_machinery_a_larger_plan_has(self) -> None:
        small = candidate(replace(PLAIN, stage=3, offload_optimizer="cpu", checkpointing=True), gib=5.0)
        for choice, said in (
            ({}, "less offload"),
            ({"offload_optimizer": "cpu"}, "less sharding"),
            ({"offload_optimizer": "cpu", "stage": 3}, "all activations kept"),
        ):
            large = other(0.9, gib=5.04, **choice)
            alike = candidate(small.choice, 0.5, 5.0)
            assert self.why(large, "memory", alike) == f"as small, with {said}"

    def test_how_much_larger_a_plan_is(self) -> None:
        assert self.why(other(gib=12.5), "memory") == "2.5 GiB more"
        assert self.why(other(gib=10.0625, stage=3), "memory") == "0.1 GiB more"
        assert self.why(other(gib=10.03125, stage=3), "memory") == "as small, with more sharding"

    def test_of_equally_small_plans_the_fastest(self) -> None:
        faster = other(0.9, gib=10.25, stage=3)
        assert ranked([candidate(PLAIN), faster], "memory")[0][0] is faster
        larger = other(0.9, gib=10.5, stage=3)
        assert ranked([candidate(PLAIN), larger], "memory")[0][0] is not larger

    def test_what_is_more_likely_not_to_fit_is_no_plan(self) -> None:
        unlikely = other(0.1, word="unlikely", chance=0.49)
        assert self.why(unlikely) == "needs 9.0 to 11.0 GiB (unlikely: 49%)"
        lost = other(0.1, word="does not fit", short="needs at least 9.0 GiB")
        order = ranked([lost, unlikely, candidate(PLAIN)], "throughput")
        assert [why for _, why in order] == ["", "needs 9.0 to 11.0 GiB (unlikely: 49%)", "needs at least 9.0 GiB"]
        assert all(why for _, why in ranked([lost, unlikely], "throughput")), "no plan fits"
        likely = other(9.0, word="likely", chance=0.5)
        assert ranked([lost, unlikely, likely], "throughput")[0] == (likely, "")
        short = other(0.5, word="unknown", short="states alone")
        assert ranked([lost, short], "throughput")[0][1] != "", "what is short of something never may"

    @pytest.mark.parametrize(
        ("seconds", "wins"),
        [
            (0.735, True),  # 0.735 / 0.75 is 0.980, and 1.0 / 0.99 is 1.010, which is more by over 3 percent
            (0.736, False),  # 0.981: alike, and the other one fits
            (0.79, False),
        ],
    )
    def test_the_throughput_is_weighed_with_the_chance(self, seconds: float, wins: bool) -> None:
        likely = other(seconds, word="likely", chance=0.75)
        assert (ranked([candidate(PLAIN), likely], "throughput")[0][0] is likely) is wins

    @pytest.mark.parametrize(
        ("seconds", "said"),
        [
            (0.9, "10% faster, and less likely to fit (75%)"),
            (1.0, "about as fast, and less likely to fit (75%)"),
            (1.1, "10% slower"),
        ],
    )
    def test_what_a_plan_lacks_that_only_likely_fits(self, seconds: float, said: str) -> None:
        assert self.why(other(seconds, word="likely", chance=0.75, stage=3)) == said
        simple = other(1.0, chance=0.95, stage=1)
        assert self.why(simple) == "about as fast, and less likely to fit (95%)"
        assert self.why(other(0.9, word="likely", chance=0.75), "cost") == "10% cheaper, and less likely to fit (75%)"

    def test_of_a_plan_that_fits_the_chance_is_named_only_where_it_is_simpler(self) -> None:
        assert self.why(other(chance=0.95, nodes=2, per_node=4)) == "about as fast, with more nodes", "as simple"
        likely = other(word="likely", chance=0.75, nodes=2, per_node=4)
        assert self.why(likely) == "about as fast, and less likely to fit (75%)"

    @pytest.mark.parametrize(("chance", "wins"), [(0.75, False), (0.754, False), (0.76, True)])
    def test_of_equally_fast_plans_the_likelier_one_however_much_machinery(self, chance: float, wins: bool) -> None:
        """By whole percents; below that the simpler one. Of those that fit only machinery counts."""
        simple = other(word="likely", chance=0.75)
        sharded = other(word="likely", chance=chance, stage=3)
        for prefer in ("throughput", "cost", None):
            assert (ranked([simple, sharded], prefer)[0][0] is sharded) is wins  # type: ignore[arg-type]
        fitting = other(stage=3, offload_optimizer="cpu", chance=0.95)
        assert ranked([simple, fitting], None)[0][0] is fitting
        assert ranked([other(chance=0.97), other(chance=0.99, stage=3)], "throughput")[0][0].choice.stage == 2

    def test_where_nothing_fits_the_least_comes_first(self) -> None:
        less, more = (other(gib=gib, word="does not fit", short=f"needs {gib}") for gib in (20.0, 30.0))
        assert ranked([more, less], "throughput") == [(less, "needs 20.0"), (more, "needs 30.0")]

    def test_without_times_the_simplest_plan_wins(self) -> None:
        simple, sharded = other(None, stage=1, gib=20.0), other(1.0, stage=2, gib=10.0)
        assert ranked([sharded, simple], "throughput")[0][0] is simple
        assert ranked([sharded, simple], "memory")[0][0] is sharded

    def test_one_plan_without_a_time_leaves_all_without(self) -> None:
        simple, sharded = other(1.0, stage=1), other(None, stage=2)
        assert ranked([sharded, simple], "throughput")[0][0] is simple
        order = ranked([other(None, stage=3), other(None, stage=1)], "throughput")
        assert order[1][1] == "fits as well, with more sharding"

    def test_a_simpler_plan_wins_within_three_percent(self) -> None:
        sharded = other(1.0, stage=3)
        for seconds, wins in ((1.03, True), (1.031, False)):
            simple = other(seconds)
            assert (ranked([sharded, simple], "throughput")[0][0] is simple) is wins

    def test_without_goals_the_order_is_that_of_machinery(self) -> None:
        slow, fast = other(9.0, stage=2, checkpointing=True), other(1.0, stage=3)
        assert [one for one, _ in ranked([fast, slow, candidate(PLAIN)], None)][1:] == [slow, fast]

    @pytest.mark.parametrize(
        ("simple", "complicated"),
        [
            ({"stage": 0, "micro_batch": 2}, {"stage": 1}),
            ({"stage": 1, "checkpointing": True}, {"stage": 2}),
            ({"micro_batch": 2}, {"checkpointing": True}),
            ({"micro_batch": 2}, {"micro_batch": 4}),
            ({"nodes": 2}, {"nodes": 1}),
            ({"stage": 3}, {"offload_optimizer": "cpu"}),
            ({"offload_optimizer": "cpu", "stage": 3}, {"offload_optimizer": "nvme"}),
            ({"offload_optimizer": "cpu", "stage": 3}, {"offload_optimizer": "cpu", "offload_param": "cpu"}),
            (
                {"offload_optimizer": "cpu", "offload_param": "cpu"},
                {"offload_optimizer": "nvme", "offload_param": "cpu"},
            ),
            ({"offload_optimizer": "cpu", "offload_param": "cpu", "micro_batch": 2}, {"offload_optimizer": "nvme"}),
        ],
    )
    def test_what_counts_as_simpler(self, simple: dict[str, Any], complicated: dict[str, Any]) -> None:
        """Offload, then stage, recomputation, micro batch; drives count more than both places on the host."""
        one, two = other(**simple), other(**complicated)
        assert ranked([two, one], None)[0][0] is one and ranked([one, two], None)[0][0] is one

    def test_the_others_stand_in_the_order_of_their_times(self) -> None:
        faster, simpler = other(2.0, stage=3), other(3.0, checkpointing=True)
        assert [one for one, _ in ranked([simpler, faster, candidate(PLAIN)], "throughput")][1:] == [faster, simpler]

    def test_a_smaller_micro_batch_and_other_nodes_are_called_so(self) -> None:
        assert _machinery(candidate(PLAIN), other(micro_batch=2)) == "a smaller micro batch"
        assert _machinery(other(nodes=2, per_node=4), candidate(PLAIN)) == "more nodes"
        assert _machinery(candidate(PLAIN), other(nodes=2, per_node=4)) == "fewer nodes"

    def test_what_is_kept_of_a_plan(self) -> None:
        one = considered(candidate(PLAIN), "slower")
        assert (one.verdict, one.device_gib, one.seconds_per_token, one.excluded) == ("fits", 11.0, 1.0, "slower")

    def test_other_micro_batches_stand_behind_other_ways(self) -> None:
        near, far = other(2.0, micro_batch=2), other(3.0, stage=3)
        further = other(2.5, micro_batch=4)
        order = [one for one, _ in ranked([near, further, far, candidate(PLAIN)], "throughput")]
        assert order[1:] == [near, far, further], "the first of the best one's way leads, too"


class TestCandidates:
    def test_larger_micro_batches_are_tried_after_one_that_does_not_fit(self) -> None:
        class Tried:
            def of(self, choice: Choice) -> Candidate:
                return candidate(choice, word="does not fit" if choice.micro_batch == 2 else "fits")

        wanted = [replace(PLAIN, stage=stage, micro_batch=size) for stage in (1, 2) for size in (4, 1, 2)]
        tried = evaluate(Tried(), wanted)  # type: ignore[arg-type]
        assert [(one.choice.stage, one.choice.micro_batch) for one in tried] == [
            (1, 4), (1, 1), (1, 2), (2, 4), (2, 1), (2, 2)
        ]  # fmt: skip

    def test_what_plans_are_compared_by_is_the_expected_time(self) -> None:
        time = SimpleNamespace(seconds=Band(1, 2, 8), tokens=4)
        plain = replace(candidate(PLAIN), time=time)  # type: ignore[arg-type]
        assert plain.seconds_per_token == 0.5
        assert replace(plain, time=None).seconds_per_token is None

    @pytest.mark.parametrize(
        ("optimizer", "parameters", "offloads"),
        [(None, None, False), ("none", "none", False), ("cpu", "none", True), ("none", "nvme", True)],
    )
    def test_what_counts_as_offload(self, optimizer: Any, parameters: Any, offloads: bool) -> None:
        assert Choice(1, 1, 3, optimizer, parameters).offloads is offloads

    def test_the_settings_of_a_choice(self) -> None:
        assert Choice(2, 4).settings() == {"num_processes": 8}
        assert Choice(1, 8, 0, "none", "cpu", 2, 4, False).settings() == {
            "num_processes": 8,
            STAGE: 0,
            OPTIMIZER_DEVICE: "none",
            PARAM_DEVICE: "cpu",
            MICRO: 2,
            STEPS: 4,
            "gradient_checkpointing": False,
        }

    def test_what_may_be_offloaded_at_each_stage(self) -> None:
        every = (("none", "none"), ("cpu", "none"), ("cpu", "cpu"))
        what = SearchSpace(((1, 8),), (0, 1, 2, 3), every, (None,), None, None, False, False, None)
        found = {(one.stage, one.offload_optimizer, one.offload_param) for one in choices(what)}
        assert found == {
            *((stage, "none", "none") for stage in (0, 1, 2, 3)),
            *((stage, "cpu", "none") for stage in (2, 3)),
            (3, "cpu", "cpu"),
        }
        found = {(one.stage, one.offload_optimizer) for one in choices(replace(what, offloads=None, stages=(3, None)))}
        assert found == {(3, None), (None, None)}

    def test_a_batch_that_nobody_writes(self) -> None:
        what = SearchSpace(((1, 1),), (None,), None, (None,), None, None, False, False, None)
        assert batches(what, 8) == [(None, None)]
        with pytest.raises(ContradictionError, match="nothing that zerocfg writes decides the micro batch"):
            batches(replace(what, global_batch=8), 8)

    def test_no_micro_batch_has_more_than_64_samples(self) -> None:
        what = SearchSpace(((1, 1),), (None,), None, (None,), None, None, True, True, 65)
        assert batches(what, 1) == [(1, 65), (5, 13), (13, 5)]

    @pytest.mark.parametrize(
        ("samples", "ranks", "said", "help"),
        [
            (1, 2, "1 sample cannot be shared among 2 ranks", "Ask for 2, or"),
            (5, 2, "5 samples cannot be shared among 2 ranks", "Ask for 4 or 6, or"),
        ],
    )
    def test_samples_that_cannot_be_shared(self, samples: int, ranks: int, said: str, help: str) -> None:
        what = SearchSpace(((1, 1),), (None,), None, (None,), None, None, True, True, samples)
        with pytest.raises(ContradictionError) as caught:
            batches(what, ranks)
        assert str(caught.value) == said and caught.value.help.startswith(help)


def planner(
    settings: dict[str, Setting] | None = None, one: HardwareProfile | None = None, *, resize: bool = False
) -> Candidates:
    """What predicts the plans of a loop of its own with DeepSpeed."""
    spec = RunSpec.model_validate({"consumer": "deepspeed", "script": "a.py"})
    inputs: Any = SimpleNamespace(run=Run("a", "deepspeed"), spec=spec, profile=one or profile())
    effective = Effective(settings={"engine": setting("deepspeed"), "bf16.enabled": setting(True), **(settings or {})})
    known = Activations(FACTS, CONFIG, tracing=False, python=None)
    return Candidates(inputs, effective, FACTS, known, resize=resize)


class TestPlanner:
    @pytest.mark.parametrize(
        ("stage", "resize", "settings", "option", "value"),
        [
            (2, False, {}, "reduce_bucket_size", 500_000_000),
            (2, True, {}, "reduce_bucket_size", 20_000_000),
            (2, True, {ZERO + "reduce_bucket_size": setting(1234567)}, "reduce_bucket_size", 1234567),
            (2, False, {ZERO + "reduce_bucket_size": setting(1234567)}, "reduce_bucket_size", 1234567),
            (2, False, {ZERO + "reduce_bucket_size": setting(1234567, "default")}, "reduce_bucket_size", 500_000_000),
            (2, False, {STEPS: setting(4, "default")}, "gradient_accumulation_steps", 4),
            (2, False, {}, "gather_on_save", False),
            (3, False, {}, "gather_on_save", True),
            (3, False, {GATHER: setting(False, "default")}, "gather_on_save", True),
            (3, False, {GATHER: setting("auto")}, "gather_on_save", True),
            (3, False, {GATHER: setting(False)}, "gather_on_save", False),
        ],
    )
    def test_the_engine_of_a_plan(self, stage: int, resize: bool, settings: Any, option: str, value: Any) -> None:
        """What a source says stays; buffers are sized on request, and defaults of another stage do not count."""
        fast = profile(**link(busbw_gb_s=100.0, latency_us=20.0))
        built = planner(settings, fast, resize=resize).setup(Choice(1, 8, stage))
        assert getattr(built.options, option) == value

    def test_the_part_of_the_hardware_that_a_plan_uses(self) -> None:
        one = planner()
        assert one.profile(Choice(1, 8)) == profile()
        assert one.profile(Choice(1, 4)) == profile(accelerators_per_node=4)

    def test_plans_that_differ_in_the_number_of_steps_share_their_states(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int] = []
        monkeypatch.setattr(candidates, "terms_of", lambda _, one, *__: asked.append(one.gradient_accumulation_steps))
        one = planner()
        for steps in (1, 2, 5, 9):
            one._terms_of(Options(2, 8, gradient_accumulation_steps=steps))
        assert len(asked) == 2, "one micro batch, and several"

    @pytest.mark.parametrize(
        ("sizes", "word", "short"),
        [
            ({"device": 40.0}, "fits", ""),
            ({"host": 65.0}, "unlikely", "needs 65 GiB of the node's memory, of which there are 64"),
            ({"device": 50.0}, "does not fit", "needs at least 50.0 GiB, the card has 40.0"),
            ({"allocated": 27.0, "complete": False}, "unknown", ""),  # 0.675 of 40
            (
                {"allocated": 28.0, "complete": False},
                "unlikely",
                "states alone take 28.0 GiB a rank, which leaves less than a third of A100-SXM-80GB to activations",
            ),
            ({"host": 64.0}, "likely", ""),
            ({"host": 50.0}, "fits", ""),  # 64 / e^(2.92 x 0.07) are 52
            ({"host": 100.0}, "does not fit", "needs 100 GiB of the node's memory, of which there are 64"),
            ({"nvme": 4.0}, "fits", ""),  # of each of 8 ranks
            ({"nvme": 5.0}, "does not fit", "needs 40 GiB of the drives, of which there are 32"),
        ],
    )
    def test_what_a_plan_is_short_of(
        self, sizes: dict[str, Any], word: str, short: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device, allocated, drives = (int(sizes.get(name, 0) * GIB) for name in ("device", "allocated", "nvme"))
        prediction = SimpleNamespace(
            device=Band(device, device, device),
            allocated=Band(allocated, allocated, allocated),
            complete=sizes.get("complete", True),
            estimate=SimpleNamespace(terms=(), peak=lambda _: SimpleNamespace(size=drives)),
        )
        monkeypatch.setattr(candidates, "predict", lambda *_: prediction)
        monkeypatch.setattr(candidates, "host_needed", lambda *_: node_band(int(sizes.get("host", 0) * GIB)))
        node = Host(ram_gib=64.0, nvme=[Mount(path="/nvme", free_gib=32.0)])
        small = profile().accelerator.model_copy(update={"usable_gib": 40.0})
        found = planner(one=profile(accelerator=small, host=node)).of(Choice(1, 8, 2))
        assert (found.word, found.short) == (word, short)


class TestSearch:
    @pytest.mark.parametrize(
        ("goals", "resize", "traced"), [(None, False, False), (Goals(), True, False), (Goals(trace=True), True, True)]
    )
    def test_what_goals_ask_for(
        self, goals: Goals | None, resize: bool, traced: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows, again = [(candidate(PLAIN), ""), (other(stage=3), "slower")], [(other(stage=1), "")]
        asked: list[Any] = []
        monkeypatch.setattr(engine_search, "candidates_of", lambda *_, resize: asked.append(resize))
        monkeypatch.setattr(engine_search, "choices", lambda _: ())
        monkeypatch.setattr(engine_search, "evaluate", lambda *_: [rows[0][0]])
        monkeypatch.setattr(engine_search, "ranked", lambda *_: rows)
        monkeypatch.setattr(engine_search, "_traced", lambda *_: (again, ["traced"]))
        inputs: Any = SimpleNamespace(profile=profile(), spec=SimpleNamespace(goals=goals))
        space = SimpleNamespace(engine=None, levers=frozenset())
        search: Any = SimpleNamespace(inputs=inputs, before=Effective(), space=space)
        expected = (again, ["traced"]) if traced else (rows, [])
        assert engine_search.ranked_plans([search]) == expected and asked == [resize]
        inputs.profile = None
        with pytest.raises(ValueError, match="without `hardware:` zerocfg cannot choose one"):
            engine_search.ranked_plans([search])

    def test_the_six_best_are_traced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each different micro batch once; the order among the six is that of the traced plans."""
        sizes = (1, None, 2, 1, 4, 2, 8, 8)
        rows: list[Any] = []
        for nodes, size in enumerate(sizes, 1):
            setup: Any = SimpleNamespace(workload=Workload(size, 4096) if size else None)
            rows.append((replace(other(float(nodes), nodes=nodes), setup=setup), "slower" if rows else ""))
        prepared: list[Any] = []
        asked: list[Any] = []
        found = SimpleNamespace(
            of=lambda choice: candidate(choice, 10.0 - choice.nodes),
            activations=SimpleNamespace(prepare=lambda *what: prepared.append(what), notes=["traced"]),
        )
        monkeypatch.setattr(engine_search, "candidates_of", lambda *_, **how: asked.append(how) or found)
        search: Any = SimpleNamespace(inputs=None, before=Effective(), space=SimpleNamespace(engine=None))
        again, notes = engine_search._traced([search], rows, "throughput")
        assert asked == [{"resize": True, "tracing": True}] and notes == ["traced"]
        assert prepared == [(rows[0][0].setup, [Workload(size, 4096) for size in (1, 2, 4)])]
        assert [one.choice.nodes for one, _ in again] == [6, 5, 4, 3, 2, 1, 7, 8] and again[6:] == rows[6:]

    def test_more_are_traced_where_none_of_the_six_best_fits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The formula had all twenty fit; traced only the 14th does, and nothing after its six is traced."""
        setup: Any = SimpleNamespace(workload=Workload(1, 4096), options=None)
        rows: list[Any] = [(replace(other(1.0, nodes=nodes), setup=setup), "") for nodes in range(1, 21)]
        traced: list[int] = []

        def of(choice: Choice) -> Candidate:
            traced.append(choice.nodes)
            short = "" if choice.nodes == 14 else "needs more"
            return replace(candidate(choice, word="does not fit" if short else "fits"), short=short)

        found = SimpleNamespace(of=of, activations=SimpleNamespace(prepare=lambda *_: None, notes=[]))
        monkeypatch.setattr(engine_search, "candidates_of", lambda *_, **__: found)
        search: Any = SimpleNamespace(inputs=None, before=Effective(), space=SimpleNamespace(engine=None))
        again, _ = engine_search._traced([search], rows, "throughput")
        assert again[0][0].choice.nodes == 14 and again[0][1] == ""
        assert traced == list(range(1, 19)), "three times six"
        monkeypatch.setattr(found, "of", lambda choice: replace(candidate(choice, word="does not fit"), short="more"))
        again, _ = engine_search._traced([search], rows, "throughput")
        assert again[0][1] == "more" and len(again) == 20

    def test_what_plans_are_predicted_from(self) -> None:
        spec = RunSpec.model_validate({"consumer": "deepspeed", "script": "a.py"})
        for data, config in ((CONFIG, CONFIG), ([1], None)):
            file = SimpleNamespace(data=lambda data=data: data)
            inputs: Any = SimpleNamespace(
                run=Run("a", "deepspeed"),
                spec=spec,
                profile=profile(),
                facts=FACTS,
                engine="deepspeed",
                model_file=file,
            )
            one = engine_search.candidates_of(inputs, Effective(), resize=True)
            assert one.activations.config == config and one.activations.tracing is False and one.resize
            assert engine_search._as_it_is(inputs) == Choice(1, 8, 3)
            inputs.engine = "fsdp"
            assert engine_search._as_it_is(inputs) == Choice(1, 8)


class TestTaken:
    @pytest.mark.parametrize(
        ("device", "host", "word", "notes"),
        [
            ("none", None, "fits", []),
            (
                "none",
                None,
                "likely",
                ["the plan may not fit: 9.0 to 11.0 GiB are predicted; zerocfg plan shows what helps"],
            ),
            ("cpu", Host(ram_gib=64.0), "fits", []),
            (
                "cpu",
                None,
                "fits",
                [
                    "the plan takes 3 GiB of a node's memory, and 8xA100-80GB does not state how much there is; "
                    "a profile that `zerocfg probe` wrote does"
                ],
            ),
        ],
    )
    def test_offload_is_written_and_doubts_are_told(
        self, device: Any, host: Host | None, word: str, notes: list[str]
    ) -> None:
        spec = RunSpec.model_validate({"consumer": "accelerate", "script": "a.py"})
        one = profile(host=host)
        inputs = Inputs(Run("a", "accelerate"), spec, Path(), "deepspeed", one, FACTS, before=Effective())
        best = replace(other(None, word=word, offload_optimizer=device), host=3 * GIB)
        found = take_plan.with_plan(inputs, [(best, "")])
        places = {name: one.value for name, one in found.chosen.items() if name.endswith(".device")}
        assert places == ({} if device == "none" else {OPTIMIZER_DEVICE: device})
        assert list(found.notes) == notes

    @pytest.mark.parametrize("written", [True, False])
    def test_the_precision_goes_into_a_file_that_there_is(self, written: bool) -> None:
        source = SourceText("ds.json", "{}")
        file = SourceFile("ds.json", "deepspeed", source, load_as(source, "json")) if written else None
        spec = RunSpec.model_validate({"consumer": "accelerate", "script": "a.py"})
        inputs = Inputs(Run("a", "accelerate", deepspeed=file), spec, Path(), "deepspeed", profile(), FACTS)
        found = precision.with_precision(inputs)
        run = found.run
        assert found.chosen == {} and run.flags["mixed_precision"].value == "bf16"
        assert (run.deepspeed.data() if run.deepspeed else None) == ({"bf16": {"enabled": True}} if written else None)


class TestAlternatives:
    def test_without_a_plan_or_hardware_there_are_none(self) -> None:
        for plan, one in ((None, profile()), (SimpleNamespace(settings={}), None)):
            built: Any = SimpleNamespace(plan=plan, inputs=SimpleNamespace(profile=one))
            assert alternatives.alternatives(built) == []

    @pytest.mark.parametrize(
        ("values", "batch"), [({MICRO: 2, STEPS: 4}, 64), ({MICRO: 2}, None), ({STEPS: 4}, None), ({}, None)]
    )
    def test_the_global_batch_is_that_of_the_run(
        self, values: dict[str, int], batch: int | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[SearchSpace] = []
        for name, result in (("candidates_of", None), ("evaluate", []), ("rank_engines", []), ("_own", {})):
            monkeypatch.setattr(alternatives, name, lambda *_, result=result, **__: result)
        monkeypatch.setattr(alternatives, "choices", asked.append)
        settings = {name: SimpleNamespace(value=value) for name, value in values.items()}
        inputs = SimpleNamespace(profile=profile(), spec=SimpleNamespace(goals=None), before=Effective(), engine="fsdp")
        plan = SimpleNamespace(settings=settings, engine="fsdp")
        built: Any = SimpleNamespace(plan=plan, inputs=inputs, run=Run("a", "accelerate"))
        assert alternatives.alternatives(built) == []
        (what,) = asked
        assert what.global_batch == batch and what.micro_open is what.steps_open is (batch is not None)

    def test_the_run_s_own_settings(self) -> None:
        spec = RunSpec.model_validate({"consumer": "deepspeed", "script": "a.py"})
        plan = SimpleNamespace(engine="deepspeed", num_processes=8)
        built: Any = SimpleNamespace(plan=plan, run=Run("a", "deepspeed"), inputs=SimpleNamespace(spec=spec))
        values = {"engine": "deepspeed", "num_processes": 8, MICRO: 2, STEPS: 4, STAGE: 3, OPTIMIZER_DEVICE: "cpu"}
        assert alternatives._own(built, values) == {
            "num_processes": 8,
            MICRO: 2,
            STEPS: 4,
            STAGE: 3,
            OPTIMIZER_DEVICE: "cpu",
            PARAM_DEVICE: "none",
            "gradient_checkpointing": False,
        }


class TestWords:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({}, "as it is"),
            ({STAGE: 0}, "ZeRO-0"),
            ({STAGE: 3, OPTIMIZER_DEVICE: "cpu", PARAM_DEVICE: "none"}, "ZeRO-3, optimizer on cpu"),
            ({STAGE: 3, OPTIMIZER_DEVICE: "nvme", PARAM_DEVICE: "cpu"}, "ZeRO-3, optimizer on nvme, parameters on cpu"),
            ({STAGE: 3, OPTIMIZER_DEVICE: "cpu", PARAM_DEVICE: "cpu"}, "ZeRO-3, all on cpu"),
            ({OPTIMIZER_DEVICE: "none", PARAM_DEVICE: "none"}, "as it is"),
            ({MICRO: 2}, "micro batch 2"),
            ({MICRO: 2, STEPS: 8, "gradient_checkpointing": True}, "2 x 8, recomputed"),
            ({MICRO: 2, STEPS: 8, "gradient_checkpointing": False}, "2 x 8"),
        ],
    )
    def test_a_plan(self, settings: dict[str, Any], words: str) -> None:
        assert describe_plan(settings) == words

    def test_an_engine(self) -> None:
        assert plan_summary.describe_engine(Options(2, 8)) == "ZeRO-2"
        both = Options(3, 8, offload_optimizer="cpu", offload_param="nvme")
        assert plan_summary.describe_engine(both) == "ZeRO-3, optimizer on the host, parameters on NVMe"
        assert plan_summary.describe_engine(TorchOptions("fsdp2", 8)) == "FSDP 2"

    @pytest.mark.parametrize(
        ("value", "text"), [(1.0, "1.0 s"), (0.9994, "999 ms"), (12.34, "12.3 s"), (0.01, "10 ms")]
    )
    def test_a_duration(self, value: float, text: str) -> None:
        assert plan_summary.duration(value) == text

    def test_columns_sum_kinds_of_terms(self) -> None:
        """And what no term tells (context, reserve) is under ``other``, so that they sum to the device's figure."""
        kinds = (
            "parameters",
            "gradients",
            "optimizer",
            "buffers",
            "temporaries",
            "activations",
            "logits",
            "outside",
        )
        parts = [(SimpleNamespace(kind=kind), 1 << power) for power, kind in enumerate(kinds)]
        prediction = SimpleNamespace(worst=SimpleNamespace(parts=parts, size=255), device=Band(0, 1255, 0))
        one: Any = SimpleNamespace(prediction=prediction)
        assert plan_summary.by_column(one) == {
            "param": 1,
            "grad": 2,
            "optim": 4,
            "buffer": 8 + 16,
            "activ": 32 + 64,
            "other": 128 + 1000,
        }

    def test_the_first_of_each_way_and_the_own(self) -> None:
        rows = [
            SimpleNamespace(candidate=other(micro_batch=size, stage=stage), own=own)
            for size, stage, own in ((1, 2, False), (2, 2, False), (4, 2, True), (1, 3, False))
        ]
        assert plan_summary.distinct_plans(rows) == [rows[0], rows[2], rows[3]]  # type: ignore[arg-type, comparison-overlap]


class TestStated:
    @pytest.mark.parametrize(
        ("release", "device", "part", "pinned"),
        [
            ("0.19.5", "cpu", "offload_optimizer", True),
            ("0.19.4", "cpu", "offload_optimizer", False),
            ("0.20", "nvme", "offload_optimizer", True),
            ("0.19.5rc1+local", "cpu", "offload_optimizer", True),
            ("0.9.5", "cpu", "offload_optimizer", False),
            ("0.19.4", "cpu", "offload_param", False),
            ("0.19.5", "cpu", "offload_param", True),
            (">=0.18", "cpu", "offload_param", True),
            (">=0.18,<0.19", "cpu", "offload_param", False),
            ("0.19.5", "none", "offload_optimizer", None),
        ],
    )
    def test_page_locked_by_default(self, release: str, device: str, part: str, pinned: bool | None) -> None:
        """Since DeepSpeed 0.19.5; a range is planned for its newest release."""
        effective = Effective(settings={f"{ZERO}{part}.device": setting(device)})
        run: Any = Run("a", "accelerate", versions={"deepspeed": release}, memory=None)
        found = follow_ups.pinned_memory(effective, run, None, [])
        name = f"{ZERO}{part}.pin_memory"
        assert {key: one.value for key, one in found.items()} == ({} if pinned is None else {name: pinned})

    @pytest.mark.parametrize(
        ("needed", "lost", "pinned"),
        [(100.0, 20.0, True), (101.0, 1.0, False), (101.0, 0.5, True), (130.0, 20.0, True)],
    )
    def test_rounding_that_a_node_has_no_room_for(self, needed: float, lost: float, pinned: bool) -> None:
        """Not page-locked where that alone makes it fit into the 100 GiB of the node."""
        effective = Effective(settings={OPTIMIZER_DEVICE: setting("cpu")})
        memory = SimpleNamespace(host_states_gib=needed, pinned_rounding_gib=lost)
        run: Any = Run("a", "accelerate", versions={"deepspeed": "0.19.8"}, memory=memory)
        found = follow_ups.pinned_memory(effective, run, profile(host=Host(ram_gib=100.0)), [])
        assert found[f"{ZERO}offload_optimizer.pin_memory"].value is pinned
        notes: list[str] = []
        follow_ups.pinned_memory(effective, run, profile(host=Host(ram_gib=100.0, memlock=1 << 30)), notes)
        assert len(notes) == pinned, "a limit of locked memory counts for what is locked"

    def test_what_a_node_would_need_is_told(self) -> None:
        effective = Effective(settings={OPTIMIZER_DEVICE: setting("cpu")})
        memory = SimpleNamespace(host_states_gib=110.0, pinned_rounding_gib=20.0)
        run: Any = Run("a", "accelerate", versions={}, memory=memory)
        (found,) = follow_ups.pinned_memory(effective, run, profile(host=Host(ram_gib=100.0)), []).values()
        assert found.reason == (
            "zerocfg's choice: page-locked blocks are rounded up to powers of two, 110 GiB of a node's 100 GiB; "
            "without it 90 GiB"
        )

    @pytest.mark.parametrize(("written", "notes"), [(True, 1), (False, 0)])
    def test_what_a_source_says_stays_and_a_limit_is_told(self, written: bool, notes: int) -> None:
        name = f"{ZERO}offload_optimizer.pin_memory"
        effective = Effective(settings={OPTIMIZER_DEVICE: setting("cpu"), name: setting(written)})
        run: Any = Run("a", "accelerate", versions={}, memory=None)
        told: list[str] = []
        assert follow_ups.pinned_memory(effective, run, profile(host=Host(memlock=1 << 30)), told) == {}
        assert len(told) == notes and all(" 1.00 GiB (ulimit -l)" in text for text in told)
        assert follow_ups.pinned_memory(effective, run, profile(host=Host()), told) == {} and len(told) == notes

    @pytest.mark.parametrize(
        ("one", "stage", "gathered"),
        [
            (setting(False, "default"), 3, True),
            (setting(False, "default"), 2, False),
            (setting(True, "default"), 3, False),
            (setting(False), 3, False),
            (setting(False, "computed", setting("auto")), 3, True),
            (None, 3, False),
        ],
    )
    def test_whole_weights_unless_they_are_refused(self, one: Setting | None, stage: int, gathered: bool) -> None:
        effective = Effective(settings={GATHER: one} if one else {})
        found = follow_ups.gather_weights(effective, stage, "transformers")
        assert {name: decision.value for name, decision in found.items()} == ({GATHER: True} if gathered else {})
        if one is not None and gathered:
            word = 'the Trainer would read "auto" as false' if one.overridden else "nobody sets it"
            assert word in found[GATHER].reason

    @pytest.mark.parametrize(
        ("stage", "settings", "exported", "leaves"),
        [
            (3, {}, None, True),
            (2, {}, None, False),
            (3, {follow_ups.LEAVES: ["Other"]}, None, False),
            (3, {}, "Block", False),
            (3, {}, "", True),
        ],
    )
    def test_blocks_of_experts(self, stage: int, settings: dict[str, Any], exported: str | None, leaves: bool) -> None:
        environment = {} if exported is None else {follow_ups.MOE_NAMES: setting(exported)}
        named = {name: setting(value) for name, value in settings.items()}
        one: Any = SimpleNamespace(leaf_modules=["Block"], model_type="moe")
        found = follow_ups.leaf_modules(Effective(environment, named), Run("a", "trl"), stage, one)
        assert {name: decision.value for name, decision in found.items()} == (
            {follow_ups.LEAVES: ["Block"]} if leaves else {}
        )

    def test_blocks_that_deepspeed_knows(self) -> None:
        one: Any = SimpleNamespace(leaf_modules=["MixtralSparseMoeBlock"], model_type="moe")
        assert follow_ups.leaf_modules(Effective(), Run("a", "trl"), 3, one) == {}

    @pytest.mark.parametrize(("release", "named"), [("0.17.6", False), ("0.18.0", True), ("0.19.8", True)])
    def test_a_release_that_stops_at_the_key(self, release: str, named: bool) -> None:
        one: Any = SimpleNamespace(leaf_modules=["Block"], model_type="moe")
        run = Run("a", "trl", versions={"deepspeed": release})
        assert bool(follow_ups.leaf_modules(Effective(), run, 3, one)) is named


@pytest.mark.parametrize(
    ("text", "path", "data"),
    [
        ("{}", ("a",), {"a": 7}),
        ('{"a": 1, "b": 2}', ("a",), {"b": 2, "a": 7}),
        ('{"a": {"c": 1}}', ("a", "b"), {"a": {"c": 1, "b": 7}}),
        ('{"a": 3, "c": 1}', ("a", "b"), {"c": 1, "a": {"b": 7}}),
        ("{}", ("a", "b", "c"), {"a": {"b": {"c": 7}}}),
    ],
)
def test_a_value_is_put_into_a_copy(text: str, path: tuple[str, ...], data: dict[str, Any]) -> None:
    source = SourceText("ds.json", text)
    file = SourceFile("ds.json", "deepspeed", source, load_as(source, "json"))
    before = file.data()
    found = with_value(file, path, 7)
    assert found.data() == data and file.data() == before
    assert found.document is not None and isinstance(found.document.root, Mapping)
    assert [entry.key for entry in found.document.root.entries] == list(data), "each key once"
