"""The judge on lines that were made: who is accused of what, with which figure, and who is not."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.preflight.fleet import Fleet, node, profile
from zerocfg.models.hardware import Mount, Port
from zerocfg.preflight import expectations, text
from zerocfg.preflight.expectations import Expectations
from zerocfg.preflight.judge import judge
from zerocfg.preflight.messages import Card, Clock, Facts, Folder, Message, Missing, Problem, Stage
from zerocfg.preflight.verdict import Finding, Verdict


def seen(fleet: Fleet, expected: Expectations | None = None) -> Verdict:
    return judge(fleet.says(), fleet.ranks, expected)


def told(verdict: Verdict) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
    return [(one.kind, one.what, one.figure, one.others, one.nodes) for one in verdict.findings]


def only(verdict: Verdict) -> Finding:
    assert len(verdict.findings) == 1, told(verdict)
    return verdict.findings[0]


def silent(*ranks: int) -> Callable[[Message], bool]:
    return lambda message: message.rank in ranks


def problem(rank: int, what: str, message: str, **more: Any) -> Problem:
    facts = {"rank": rank, "what": what, "message": message, "stage": "exchanges", "step": 9}
    return Problem.model_validate(facts | more)


def ended(*ranks: int) -> Callable[[Message], bool]:
    """These ranks come to no end."""
    return lambda message: message.kind == "done" and message.rank in ranks


class TestClean:
    def test_nothing_is_found(self) -> None:
        verdict = seen(Fleet(4))
        assert verdict.findings == () and verdict.passed and verdict.exit_code == 0
        assert [(one.name, one.ranks) for one in verdict.nodes] == [
            (f"node{at}", (2 * at, 2 * at + 1)) for at in range(4)
        ]
        assert verdict.seconds == 19.0
        assert [(one.node, one.rate, one.median, one.ratio) for one in verdict.figures] == [
            (f"node{at}", 100.0, 100.0, 1.0) for at in range(4)
        ]
        assert [(one.what, one.ranks, one.busbw_gb_s) for one in verdict.together] == [("all-reduce", 8, 50.0)]

    def test_nothing_was_said(self) -> None:
        verdict = judge([("node0", "bash: python: command not found")], 2)
        assert verdict.exit_code == 2 and not verdict.passed
        assert text.render(verdict) == "preflight: no rank answered; nothing could be tried\n"

    def test_lines_of_others_and_halves_of_lines(self) -> None:
        lines = Fleet(2).says()
        noise = [("a", "NCCL INFO hello"), ("a", lines[5][1][:60]), ("a", "zerocfg-preflight {}"), ("a", "")]
        assert judge([*noise, *lines], 4).passed
        labelled = [(source, f"3: {line}") for source, line in lines]  # srun --label
        assert judge(labelled, 4).passed


class TestAnswers:
    def test_a_rank_that_never_came(self) -> None:
        fleet = Fleet(2, drop=silent(3), extra=[Missing(rank=0, ranks=[3], seconds=45)])
        one = only(seen(fleet))
        assert (one.kind, one.what, one.figure, one.nodes, one.ranks) == (
            "missing",
            "rank 3",
            "never answered",
            ("node1",),
            (3,),
        )
        assert seen(fleet).exit_code == 1 and [one.name for one in seen(fleet).passing] == ["node0"]

    def test_a_node_that_never_came_has_the_name_of_the_job(self) -> None:
        fleet = Fleet(2, drop=silent(2, 3))
        assert told(judge(fleet.says(), 4)) == [
            ("missing", "rank 2", "never answered", "", ()),
            ("missing", "rank 3", "never answered", "", ()),
        ]
        verdict = judge(fleet.says(), 4, hosts=["node0", "node7"])
        assert {one.nodes for one in verdict.findings} == {("node7",)}
        assert text.exclude(verdict) == "--exclude=node7" and text.passing_nodes(verdict) == "node0\n"

    def test_what_its_node_printed_instead(self) -> None:
        fleet = Fleet(2, drop=silent(3))
        lines = [*fleet.says(), ("node1/1", "No module named zerocfg")]
        assert only(judge(lines, 4)).message.endswith("; node1/1 printed: No module named zerocfg")

    def test_a_rank_that_died(self) -> None:
        """Those that waited for it are its victims."""
        gone = lambda message: message.kind == "done" or (message.rank == 1 and message.kind == "local")  # noqa: E731
        victims = [problem(rank, "exchange", "connection closed by peer", partner=1) for rank in (0, 2, 3)]
        fleet = Fleet(2, drop=gone, extra=[Stage(rank=1, name="alone", step=4), *victims])
        one = only(seen(fleet))
        assert (one.kind, one.figure, one.nodes, one.ranks) == ("stopped", "stopped", ("node0",), (1,))
        assert "stopped in the stage `alone`" in one.message

    def test_a_rank_that_died_before_it_met_the_others(self) -> None:
        fleet = Fleet(2, drop=lambda message: message.rank == 1 and not isinstance(message, Facts))
        assert "before it met the others" in only(seen(fleet)).message

    def test_the_port_is_taken(self) -> None:
        """Nobody can meet rank 0 then, and nobody else is to blame."""
        meeting = [problem(rank, "meeting", "timed out", stage="meeting", step=0) for rank in (1, 2, 3)]
        port = problem(0, "port", "port 29500 (MASTER_PORT) of node0 is taken", stage="meeting", step=0)
        one = only(seen(Fleet(2, drop=ended(0, 1, 2, 3), extra=[port, *meeting])))
        assert (one.kind, one.figure, one.others, one.nodes) == ("port", "taken", "free", ("node0",))

    def test_a_rank_without_torch(self) -> None:
        late = Missing(rank=0, ranks=[2], seconds=45)
        gone = problem(2, "torch", "torch cannot be imported: libc10.so", stage="meeting", step=0)
        one = only(seen(Fleet(2, drop=ended(2), extra=[gone, late])))
        assert (one.kind, one.nodes, one.message) == (
            "broken",
            ("node1",),
            "rank 2 on node1: torch cannot be imported: libc10.so",
        )

    def test_rank_0_cannot_be_reached(self) -> None:
        extra = [problem(rank, "meeting", "no route to host", stage="meeting", step=0) for rank in (2, 3)]
        one = only(seen(Fleet(2, drop=ended(2, 3), extra=extra)))
        assert (
            one.nodes == () and one.fails and one.message.startswith("2 of 4 ranks cannot reach rank 0 on node0: no r")
        )

    def test_one_rank_cannot_reach_rank_0(self) -> None:
        extra = [problem(3, "meeting", "no route to host", stage="meeting", step=0)]
        one = only(seen(Fleet(2, drop=ended(3), extra=extra)))
        assert one.nodes == ("node1",) and "rank 3 on node1 did not meet the others" in one.message

    def test_a_link_that_carries_nothing(self) -> None:
        """Both of its ends time out, and all others later, when they wait for these."""
        ends = [
            problem(1, "exchange", "timed out", partner=6),
            problem(6, "exchange", "timed out", partner=1),
            *(problem(rank, "collective", "timed out", step=10) for rank in (0, 2, 3, 4, 5, 7)),
        ]
        one = only(seen(Fleet(4, drop=ended(*range(8)), extra=ends)))
        assert one.nodes == ("node0", "node3") and one.ranks == (1, 6)
        assert one.message == "rank 1 on node0 and rank 6 on node3 cannot exchange data: timed out"

    def test_a_collective_that_fails(self) -> None:
        extra = [problem(rank, "collective", "unhandled system error", stage="collectives") for rank in range(4)]
        verdict = seen(Fleet(2, drop=ended(*range(4)), extra=extra))
        assert only(verdict).nodes == () and verdict.exit_code == 1
        assert only(verdict).message == "collectives of all ranks failed: unhandled system error"
        assert "FAILED, and no node can be named" in text.render(verdict)

    def test_wrong_data(self) -> None:
        extra = [problem(rank, "result", "what came is not what was sent", partner=2 - rank) for rank in (0, 2)]
        one = only(seen(Fleet(2, drop=ended(0, 2), extra=extra)))
        assert one.nodes == ("node0", "node1") and "wrong numbers" in one.message


class TestSlow:
    """Without noise the share decides, strictly above: 10% longer than the median."""

    @pytest.mark.parametrize(
        ("rate", "slow"), [(100 / 1.1001, True), (100 / 1.0999, False), (100.0, False), (300.0, False)]
    )
    def test_a_rank(self, rate: float, slow: bool) -> None:
        verdict = seen(Fleet(4, rate=lambda rank, attempt, sweep: rate if rank == 5 else 100.0))
        if not slow:
            assert verdict.findings == ()
            return
        one = only(verdict)
        assert (one.kind, one.what, one.nodes, one.ranks) == ("slow", "matrix products, bf16", ("node2",), (5,))
        assert (one.figure, one.others) == ("90.9 GFLOP/s", "100 GFLOP/s")
        assert one.message.startswith(
            "rank 5 on node2 takes 10% longer for matrix products, bf16 than the fleet's median"
        )

    def test_one_of_two(self) -> None:
        """The faster of two is the measure."""
        verdict = seen(Fleet(2, each=1, rate=lambda rank, attempt, sweep: 50.0 if rank == 0 else 100.0))
        assert told(verdict) == [("slow", "matrix products, bf16", "50 GFLOP/s", "100 GFLOP/s", ("node0",))]

    def test_half_of_the_fleet(self) -> None:
        verdict = seen(Fleet(2, rate=lambda rank, attempt, sweep: 50.0 if rank > 1 else 100.0))
        assert {one.nodes for one in verdict.findings} == {("node1",)} and len(verdict.findings) == 2

    def test_what_slows_all_slows_nobody(self) -> None:
        assert seen(Fleet(4, rate=lambda rank, attempt, sweep: 100.0 / (1 + sweep))).findings == ()

    def test_it_was_measured_again(self) -> None:
        once = Fleet(4, attempts=1, rate=lambda rank, attempt, sweep: 20.0 if rank == 5 else 100.0)
        assert seen(once).findings == (), "nobody is accused by one attempt"
        recovered = Fleet(4, rate=lambda rank, attempt, sweep: 20.0 if rank == 5 and attempt == 0 else 100.0)
        assert seen(recovered).findings == ()
        again = Fleet(4, attempts=3, rate=lambda rank, attempt, sweep: 20.0 if rank == 5 and attempt < 2 else 100.0)
        assert seen(again).findings == (), "every attempt has to show it"

    @pytest.mark.parametrize(("beyond", "slow"), [(1.01, True), (0.99, False)])
    def test_a_fleet_that_differs_by_itself(self, beyond: float, slow: bool) -> None:
        """Speeds 0.8, 0.9, 1.0, 1.1, 1.2 of the median, twice: of a median of 1.0 they lie 0.1 apart, as a median."""
        own = [0.8, 0.9, 1.0, 1.1, 1.2]
        deviations = math.sqrt(9 + 2 * math.log(11))
        slowest = 1 - deviations * 1.4826 * 0.1 * beyond

        def rate(rank: int, attempt: int, sweep: int) -> float:
            return 100 * ([*own, *own, slowest][rank])

        verdict = seen(Fleet(11, each=1, rate=rate))
        assert bool(verdict.findings) is slow
        if slow:
            assert only(verdict).ranks == (10,)

    @pytest.mark.parametrize(("speed", "slow"), [(0.50, True), (0.52, False)])
    def test_a_rank_that_differs_from_sweep_to_sweep(self, speed: float, slow: bool) -> None:
        """Ten sweeps in two attempts, 0.2 above and below the median. That is their MAD, so that the median is exact to
        1.2533 * 1.4826 * 0.2 / sqrt(10) = 0.1175; of two ranks sqrt(16 + 2 ln 2) = 4.1697 of these count: 0.5100."""
        off = [0.0, 0.2, -0.2, 0.2, -0.2]

        def rate(rank: int, attempt: int, sweep: int) -> float:
            return 100 * (speed + off[sweep]) if rank == 1 else 100.0

        assert bool(seen(Fleet(2, each=1, rate=rate)).findings) is slow

    def test_a_link(self) -> None:
        def seconds(one: int, other: int, attempt: int, sweep: int) -> float:
            return 0.020 if (one, other) == (1, 6) else 0.010

        one = only(seen(Fleet(4, seconds=seconds)))
        assert (one.kind, one.what, one.nodes, one.ranks) == (
            "slow",
            "exchange between nodes",
            ("node0", "node3"),
            (1, 6),
        )
        assert (one.figure, one.others) == ("3.2 GB/s", "6.4 GB/s")

    @pytest.mark.parametrize(("took", "slow"), [(0.011001, True), (0.010999, False)])
    def test_a_link_at_the_threshold(self, took: float, slow: bool) -> None:
        fleet = Fleet(4, seconds=lambda one, other, attempt, sweep: took if (one, other) == (1, 6) else 0.010)
        assert bool(seen(fleet).findings) is slow

    @pytest.mark.parametrize(("nodes", "slow"), [(2, False), (3, True)])
    def test_of_two_links_nobody_knows_which_is_usual(self, nodes: int, slow: bool) -> None:
        """Each node has one pair of its own; of three like ones the odd one is told."""
        fleet = Fleet(nodes, seconds=lambda one, other, *_: 0.050 if (one, other) == (0, 1) else 0.010)
        assert bool(seen(fleet).findings) is slow

    def test_a_rank_that_is_slow_with_all_is_no_slow_link(self) -> None:
        verdict = seen(Fleet(4, seconds=lambda one, other, *_: 0.030 if 5 in (one, other) else 0.010))
        assert told(verdict) == [("slow", "exchanges", "3.00 x the time", "1.00 x", ("node2",))]
        assert only(verdict).ranks == (5,)

    def test_links_of_other_kinds_are_not_compared(self) -> None:
        """Between nodes everything takes ten times as long."""
        assert seen(Fleet(4, seconds=lambda one, other, *_: 0.010 if one // 2 == other // 2 else 0.100)).findings == ()

    def test_a_node(self) -> None:
        one = only(seen(Fleet(4, busbw=lambda node, attempt, sweep: 100.0 if node == 3 else 200.0)))
        assert (one.what, one.figure, one.others, one.nodes) == (
            "all-reduce in the node",
            "100 GB/s",
            "200 GB/s",
            ("node3",),
        )

    def test_a_node_is_slowed_by_its_rank(self) -> None:
        fleet = Fleet(
            4,
            busbw=lambda node, attempt, sweep: 100.0 if node == 3 else 200.0,
            rate=lambda rank, attempt, sweep: 50.0 if rank == 7 else 100.0,
        )
        assert only(seen(fleet)).what == "matrix products, bf16"


class TestNodes:
    @pytest.mark.parametrize("name", ["deepspeed", "torch", "python"])
    def test_another_release(self, name: str) -> None:
        other = node().releases | {name: "0.18.0"}
        verdict = seen(Fleet(3, facts={1: node(releases=other)}))
        usual = {"deepspeed": "0.19.8", "torch": "2.6.0+cu124", "python": "3.11.9"}[name]
        assert told(verdict) == [("release", name, "0.18.0", usual, ("node1",))]
        assert f"node1 has {name} 0.18.0, 2 of 3 nodes have {usual}" in only(verdict).message

    def test_a_package_that_one_does_not_have(self) -> None:
        less = {name: value for name, value in node().releases.items() if name != "deepspeed"}
        assert told(seen(Fleet(3, facts={2: node(releases=less)}))) == [
            ("release", "deepspeed", "not installed", "0.19.8", ("node2",))
        ]

    def test_of_two_nobody_knows_which_is_right(self) -> None:
        fleet = Fleet(2, facts={1: node(releases=node().releases | {"deepspeed": "0.18.0"})})
        one = only(seen(fleet))
        assert one.nodes == ("node0", "node1") and "0.19.8 on node0, 0.18.0 on node1" in one.message
        expected = Expectations("built/sft", {"deepspeed": "0.19.8", "torch": "2.6.0"})
        assert told(seen(fleet, expected)) == [("release", "deepspeed", "0.18.0", "0.19.8", ("node1",))]

    def test_all_have_another_than_the_build(self) -> None:
        verdict = seen(Fleet(2), Expectations("built/sft", {"deepspeed": "0.19.7", "trl": "1.16.0"}))
        assert told(verdict) == [
            ("release", "deepspeed", "0.19.8", "0.19.7", ("node0",)),
            ("release", "deepspeed", "0.19.8", "0.19.7", ("node1",)),
            ("release", "trl", "not installed", "1.16.0", ("node0",)),
            ("release", "trl", "not installed", "1.16.0", ("node1",)),
        ]

    @pytest.mark.parametrize(
        ("change", "what", "figure", "others"),
        [
            ({"driver": "560.1"}, "driver", "560.1", "550.90.07"),
            ({"memlock": 65536}, "limit of locked memory (bytes)", "65536", "unlimited"),
            ({"ram_gib": 256.0}, "memory of the host", "256.0 GiB", "512.0 GiB"),
            ({"nvme": []}, "NVMe mount /scratch", "missing", "there"),
            (
                {"infiniband": [Port(name="mlx5_0:1", gbit_s=400, state="down")]},
                "state of RDMA port mlx5_0:1",
                "down",
                "active",
            ),
        ],
    )
    def test_other_hardware(self, change: dict[str, Any], what: str, figure: str, others: str) -> None:
        verdict = seen(Fleet(3, facts={1: node(profile=profile(**change))}))
        assert told(verdict) == [("hardware", what, figure, others, ("node1",))]

    def test_of_two_kinds_of_hardware_nobody_knows_which_is_right(self) -> None:
        fleet = Fleet(2, facts={1: node(profile=profile(driver="560.1"))})
        assert only(seen(fleet)).nodes == ("node0", "node1")
        expected = Expectations("hw.json", profile=profile())
        assert only(seen(fleet, expected)).nodes == ("node1",)
        assert only(seen(fleet, expected)).message == "driver: hw.json says 550.90.07, node1 has 560.1"

    def test_names_of_virtual_interfaces_are_no_difference(self) -> None:
        other = profile(network=[{"name": "veth7f", "gbit_s": 10, "state": "up"}], numa=[{"index": 0, "cpus": "0-63"}])
        assert seen(Fleet(3, facts={1: node(profile=other)})).findings == ()

    def test_a_variable(self) -> None:
        fleet = Fleet(3, facts={2: node(environment={"NCCL_IB_TIMEOUT": "14", "NCCL_ALGO": "Ring"})})
        assert told(seen(fleet)) == [
            ("environment", "NCCL_ALGO", "Ring", "not set", ("node2",)),
            ("environment", "NCCL_IB_TIMEOUT", "14", "22", ("node2",)),
        ]

    @pytest.mark.parametrize("name", ["NCCL_SOCKET_IFNAME", "HF_HOME", "CUDA_VISIBLE_DEVICES", "NCCL_IB_HCA"])
    def test_a_variable_that_may_well_differ(self, name: str) -> None:
        verdict = seen(Fleet(3, facts={1: node(environment=node().environment | {name: "other"})}))
        assert only(verdict).what == name and not only(verdict).fails
        assert verdict.passed and verdict.exit_code == 0 and len(verdict.passing) == 3

    def test_open_files(self) -> None:
        assert told(seen(Fleet(3, facts={0: node(open_files=1024)}))) == [
            ("limit", "limit of open files", "1024", "65536", ("node0",))
        ]

    @pytest.mark.parametrize(("free", "fails"), [(71.9, True), (72.1, False)])
    def test_a_card_that_is_in_use(self, free: float, fails: bool) -> None:
        """Nine tenths of 80 GiB."""
        cards = [Card(free_gib=79.9, usable_gib=80.0), Card(free_gib=free, usable_gib=80.0)]
        verdict = seen(Fleet(2, facts={1: node(cards=cards)}))
        assert bool(verdict.findings) is fails
        if fails:
            assert told(verdict) == [("memory", "card 1", "71.9 GiB free", "80.0 GiB", ("node1",))]
            assert "8.1 of 80.0 GiB of card 1 are in use" in only(verdict).message

    @pytest.mark.parametrize(("free", "fails"), [(359.0, True), (361.0, False)])
    def test_memory_of_a_host_that_is_in_use(self, free: float, fails: bool) -> None:
        """Three quarters of 480 GiB."""
        verdict = seen(Fleet(3, facts={1: node(profile=profile(ram_available_gib=free))}))
        assert bool(verdict.findings) is fails
        if fails:
            assert told(verdict) == [("memory", "memory of the host", "359.0 GiB free", "480.0 GiB", ("node1",))]

    @pytest.mark.parametrize(
        ("free", "figure"), [(0.99, "1013.8 MiB free"), (0.0, "0.0 MiB free"), (1.0, ""), (None, "not writable")]
    )
    def test_room_in_a_folder(self, free: float | None, figure: str) -> None:
        folders = [Folder(role="temporary folder", path="/tmp", free_gib=free)]
        verdict = seen(Fleet(2, facts={1: node(folders=folders)}))
        assert [(one.kind, one.what, one.figure, one.nodes) for one in verdict.findings] == (
            [("disk", "temporary folder", figure, ("node1",))] if figure else []
        )

    def test_room_on_a_drive(self) -> None:
        verdict = seen(Fleet(2, facts={0: node(profile=profile(nvme=[Mount(path="/scratch", free_gib=0.5)]))}))
        assert told(verdict) == [("disk", "NVMe mount", "512.0 MiB free", ">= 1.0 GiB", ("node0",))]

    @pytest.mark.parametrize(
        ("ahead", "within", "figure"),
        [(1.01, 0.0, "+1.010 s"), (0.99, 0.0, ""), (1.4, 0.5, ""), (1.6, 0.5, "+1.600 s"), (-3.0, 0.001, "-3.000 s")],
    )
    def test_a_clock(self, ahead: float, within: float, figure: str) -> None:
        """Beyond a second, and beyond what can be told."""
        verdict = seen(Fleet(2, extra=[Clock(rank=2, ahead_s=ahead, within_s=within)]))
        assert [(one.figure, one.nodes) for one in verdict.findings] == ([(figure, ("node1",))] if figure else [])


class TestNames:
    def test_two_nodes_of_one_host(self) -> None:
        lines = [(source, line.replace('"host":"node1"', '"host":"node0"')) for source, line in Fleet(2).says()]
        assert [one.name for one in judge(lines, 4).nodes] == ["node0#0", "node0#1"]

    def test_no_name_follows_where_ranks_are_not_in_blocks(self) -> None:
        """Ranks 0 and 2 on one node, 1 and 3 on the other: rank 2 may be anywhere."""
        lines = [
            (source, line.replace('"rank":1,"kind":"facts","local_rank":1', '"rank":1,"kind":"facts","local_rank":0'))
            for source, line in Fleet(2, drop=silent(2)).says()
        ]
        assert only(judge(lines, 4)).nodes == ()


class TestExpectations:
    def lock(self, folder: Path, **hardware: object) -> Path:
        folder.mkdir()
        content = {
            "version": 2,
            "run": "sft",
            "files": {},
            "versions": {"deepspeed": "0.19.8"},
            "hardware": {"name": "2xH100", "accelerators_per_node": 2} | hardware,
        }
        (folder / "zerocfg.lock").write_text(json.dumps(content))
        return folder

    def test_of_a_build(self, tmp_path: Path) -> None:
        built = self.lock(tmp_path / "sft", accelerator="H100-SXM-80GB", vendor="nvidia")
        for path in (built, built / "zerocfg.lock"):
            expected = expectations.read(path)
            assert expected.releases == {"deepspeed": "0.19.8"} and expected.source == str(path)
            assert seen(Fleet(2), expected).findings == ()
        other = expectations.read(self.lock(tmp_path / "other", accelerator="A100-SXM-80GB", vendor="nvidia"))
        assert {(one.what, one.figure, one.others) for one in seen(Fleet(2), other).findings} == {
            ("devices", "2 x H100-SXM-80GB", "2 x A100-SXM-80GB")
        }

    def test_of_a_build_for_processors_and_of_an_old_one(self, tmp_path: Path) -> None:
        assert expectations.read(self.lock(tmp_path / "cpu", accelerator="cpu", vendor="cpu")).profile is None
        assert expectations.read(self.lock(tmp_path / "old")).profile is None

    def test_of_a_profile(self, tmp_path: Path) -> None:
        (tmp_path / "hw.json").write_text(profile().model_dump_json(exclude_none=True))
        expected = expectations.read(tmp_path / "hw.json")
        assert expected.releases == {} and seen(Fleet(2), expected).findings == ()

    def test_of_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="cannot be read"):
            expectations.read(tmp_path / "hw.json")
        (tmp_path / "hw.json").write_text("{}")
        with pytest.raises(ValueError, match=r"hw\.json: name: Field required"):
            expectations.read(tmp_path / "hw.json")


class TestText:
    def test_a_table_of_80_columns(self) -> None:
        fleet = Fleet(
            3,
            facts={1: node(releases=node().releases | {"deepspeed": "0.18.0"})},
            rate=lambda rank, attempt, sweep: 61.7 if rank == 5 else 100.0,
        )
        shown = text.render(seen(fleet), 80)
        assert max(map(len, shown.splitlines())) <= 80
        assert shown.startswith("preflight: 3 nodes, 6 ranks, 17 s\n\n  node ")
        rows = [line.split() for line in shown.splitlines()]
        assert [
            "node2",
            "matrix",
            "products,",
            "bf16",
            "(rank",
            "5)",
            "61.7",
            "GFLOP/s",
            "100",
            "GFLOP/s",
            "FAIL",
        ] in rows
        assert ["node1", "deepspeed", "0.18.0", "0.19.8", "FAIL"] in rows
        assert ["node0", "matrix", "products,", "bf16", "100", "GFLOP/s", "100", "GFLOP/s", "ok"] in rows
        assert shown.endswith("\nFAILED: 2 nodes of 3\nsbatch --exclude=node1,node2\n")

    def test_of_a_large_fleet_the_good_nodes_are_counted(self) -> None:
        fleet = Fleet(17, each=1, rate=lambda rank, attempt, sweep: 50.0 if rank == 3 else 100.0)
        shown = text.render(seen(fleet), 80)
        assert "node3 " in shown and "node4 " not in shown and "FAILED: 1 node of 17" in shown
        assert "passed: 17 nodes" in text.render(seen(Fleet(17, each=1)))

    def test_forms_for_schedulers(self) -> None:
        verdict = seen(Fleet(3, facts={1: node(open_files=1024)}))
        assert text.exclude(verdict) == "--exclude=node1" and text.exclude(seen(Fleet(2))) == ""
        assert text.passing_nodes(verdict) == "node0\nnode2\n"
        assert text.hostfile(verdict) == "node0 slots=2\nnode2 slots=2\n"

    def test_json_has_everything(self) -> None:
        verdict = seen(Fleet(3, facts={1: node(open_files=1024)}))
        found = json.loads(text.as_json(verdict))
        assert found["passed"] is False and found["failing"] == ["node1"] and found["passing"] == ["node0", "node2"]
        assert found["findings"][0]["kind"] == "limit" and found["findings"][0]["figure"] == "1024"
        assert found["figures"][0] == {
            "node": "node0",
            "what": "matrix products, bf16",
            "unit": "GFLOP/s",
            "rate": 100.0,
            "median": 100.0,
            "ratio": 1.0,
        }


def test_the_judge_needs_no_torch() -> None:
    code = "import sys, zerocfg.preflight.judge, zerocfg.preflight.text; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_rank_that_had_less_of_the_processor() -> None:
    lines = [
        (source, line.replace('"sweep"', f'"cpu":{0.4 if source == "source 5" else 1.0},"sweep"'))
        for source, line in Fleet(4, rate=lambda rank, *_: 40.0 if rank == 5 else 100.0).says()
    ]
    assert "it had 0.40 CPUs meanwhile, the others 1.00" in only(judge(lines, 8)).message


@pytest.mark.parametrize(("cpu", "figures"), [(0.49, ["0.49 CPUs"]), (0.50, []), (1.0, [])])
def test_processors_that_others_use(cpu: float, figures: list[str]) -> None:
    """A note, and nothing that fails."""
    lines = [(source, line.replace('"sweep"', f'"cpu":{cpu},"sweep"')) for source, line in Fleet(2).says()]
    verdict = judge(lines, 4)
    assert [one.figure for one in verdict.findings] == figures and verdict.passed


@pytest.mark.parametrize(("cpu", "kinds"), [(0.49, ["shared"]), (0.51, ["slow", "slow"])])
def test_links_are_not_judged_by_ranks_that_wait_for_their_processors(cpu: float, kinds: list[str]) -> None:
    fleet = Fleet(
        4,
        seconds=lambda one, other, *_: 0.050 if (one, other) == (1, 6) else 0.010,
        busbw=lambda number, *_: 100.0 if number == 1 else 200.0,
    )
    lines = [(source, line.replace('"sweep"', f'"cpu":{cpu},"sweep"')) for source, line in fleet.says()]
    assert [one.kind for one in judge(lines, 8).findings] == kinds


def test_a_card_is_compared_with_the_same_slot() -> None:
    """Copies to a card behind a switch are slower on every node, and no fault of any."""
    lines = []
    for source, line in Fleet(2, rate=lambda rank, *_: 50.0 if rank % 2 else 100.0).says():
        rank = int(source.split()[1])
        lines.append((source, line.replace('"like":""', f'"like":"card {rank % 2}"')))
    assert judge(lines, 4).findings == ()
