"""Stale and different machines, and several nodes in one profile: pure functions of profiles."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.hardware.measure import MeasureError
from zerocfg.hardware.nodes import from_reports, merge
from zerocfg.hardware.profile_drift import age, compare
from zerocfg.models.hardware import (
    Accelerator,
    HardwareProfile,
    Host,
    Interface,
    Link,
    Mount,
    NumaNode,
    Port,
)


def card(name: str = "H100-SXM-80GB", **more: Any) -> Accelerator:
    found = find_accelerator(name)
    assert found
    return found[0].model_copy(update={"pcie_generation": 5, "pcie_width": 16, **more})


def host(**more: Any) -> Host:
    facts: dict[str, Any] = {
        "cpu_model": "AMD EPYC 9654",
        "cpus": 192,
        "numa": [NumaNode(index=0, cpus="0-191", memory_gib=1500, accelerators=[0, 1])],
        "ram_gib": 1511.0,
        "ram_available_gib": 1400,
        "memlock": "unlimited",
        "nvme": [Mount(path="/scratch", free_gib=3000, read_gb_s=6, write_gb_s=4)],
        "network": [Interface(name="ens3", gbit_s=100, state="up")],
        "infiniband": [Port(name="mlx5_0:1", gbit_s=400, state="active")],
        "driver": "550.90.07",
        "driver_cuda": "12.4",
    }
    return Host.model_validate(facts | more)


def node(accelerator: Accelerator | None = None, host_: Host | None = None, **more: Any) -> HardwareProfile:
    facts: dict[str, Any] = {
        "name": "2xH100-SXM-80GB",
        "accelerators_per_node": 2,
        "accelerator": accelerator or card(),
        "link_within_node": Link(kind="nvlink", gb_s=900),
        "topology": ["X NV18", "NV18 X"],
        "host": host_ or host(),
        "date": "2026-01-01",
    }
    return HardwareProfile.model_validate(facts | more)


class TestCompare:
    def test_the_same_machine(self) -> None:
        assert compare(node(), node()) == []

    def test_what_changes_by_the_minute_and_what_was_measured_are_no_differences(self) -> None:
        later = node(
            card(measured_tflops={"bf16": 700.0}),
            host(ram_available_gib=3, nvme=[Mount(path="/scratch", free_gib=1)], memory_gb_s=400, pinned_gb_s=50),
            link_within_node=Link(kind="nvlink", gb_s=900, busbw_gb_s=360),
            notes=["something"],
        )
        assert compare(later, node()) == [] and compare(node(), later) == []

    @pytest.mark.parametrize(
        ("machine", "words"),
        [
            (
                node(card(usable_gib=39.4)),
                "memory of a card: the profile says 79.1 GiB, this machine has 39.4 GiB",
            ),
            (
                node(card("L4")),
                "devices: the profile says 2 x H100-SXM-80GB, this machine has 2 x L4",
            ),
            (
                node(accelerators_per_node=1),
                "devices: the profile says 2 x H100-SXM-80GB, this machine has 1 x H100-SXM-80GB",
            ),
            (
                node(Accelerator(name="cpu", vendor="cpu")),
                "devices: the profile says 2 x H100-SXM-80GB, this machine has none",
            ),
            (node(card(pcie_width=8)), "PCIe lanes: the profile says 16, this machine has 8"),
            (
                node(link_within_node=Link(kind="pcie")),
                "link between the devices: the profile says nvlink, this machine has pcie",
            ),
            (
                node(topology=["X NV17", "NV18 X"]),
                "paths of device 0: the profile says X NV18, this machine has X NV17",
            ),
            (
                node(host_=host(ram_gib=755.0)),
                "memory of the host: the profile says 1511.0 GiB, this machine has 755.0 GiB",
            ),
            (
                node(host_=host(ram_limit_gib=64)),
                "memory limit of the control group: the profile says none, this machine has 64.0 GiB",
            ),
            (
                node(host_=host(cpu_limit=8)),
                "CPU limit of the control group: the profile says none, this machine has 8.0",
            ),
            (
                node(host_=host(memlock=8388608)),
                "limit of locked memory (bytes): the profile says unlimited, this machine has 8388608",
            ),
            (node(host_=host(driver="560.1")), "driver: the profile says 550.90.07, this machine has 560.1"),
            (node(host_=host(nvme=[])), "NVMe mount /scratch: only the profile has it"),
            (
                node(host_=host(infiniband=[*host().infiniband, Port(name="mlx5_1:1", gbit_s=400, state="active")])),
                "RDMA port mlx5_1:1: only this machine has it",
            ),
            (
                node(host_=host(network=[Interface(name="ens3", gbit_s=25, state="up")])),
                "Gbit/s of network interface ens3: the profile says 100.0, this machine has 25.0",
            ),
            (
                node(host_=host(numa=[NumaNode(index=0, cpus="0-191", accelerators=[1, 0])])),
                "devices of NUMA node 0: the profile says [0, 1], this machine has [1, 0]",
            ),
        ],
    )
    def test_each_difference_in_words(self, machine: HardwareProfile, words: str) -> None:
        assert compare(node(), machine) == [words]

    def test_memory_as_another_driver_or_kernel_counts_it(self) -> None:
        assert compare(node(), node(card(usable_gib=79.4), host(ram_gib=1495.0))) == []

    def test_names_of_one_device(self) -> None:
        assert compare(node(), node(card(name="NVIDIA H100 80GB HBM3"))) == []

    def test_a_profile_of_an_older_release_says_less(self) -> None:
        old = HardwareProfile.model_validate_json(
            '{"name": "2xH100", "accelerators_per_node": 2, "accelerator": {"name": "H100-SXM-80GB", "vendor": '
            '"nvidia", "usable_gib": 79.1}, "host": {"cpus": 192, "ram_gib": 1511, "nvme": []}}'
        )
        assert compare(old, node(host_=host(nvme=[], cpu_limit=4))) == []

    def test_how_many_ranks_share_a_cpu_is_no_difference(self) -> None:
        cpu = Accelerator(name="cpu", vendor="cpu")
        assert compare(node(cpu, accelerators_per_node=4), node(cpu, accelerators_per_node=1)) == []

    def test_age(self) -> None:
        today = datetime.date(2026, 7, 1)
        assert age(node(), today) == 181
        assert age(node(date=None), today) is None
        assert age(node(date="last spring"), today) is None


class TestMerge:
    def test_equal_nodes(self) -> None:
        merged = merge([node(), node()], ["node 0 (a)", "node 1 (b)"], 2)
        assert (merged.name, merged.nodes, merged.world_size) == ("2x2xH100-SXM-80GB", 2, 4)
        assert merged.notes == []
        # one port of 400 Gbit/s for two devices
        assert merged.link_between_nodes == Link(kind="infiniband", gb_s=50)
        assert merged.topology == node().topology

    def test_one_node_has_no_link_to_others(self) -> None:
        merged = merge([node()], ["node 0 (a)"], 1)
        assert (merged.name, merged.link_between_nodes) == ("2xH100-SXM-80GB", None)

    def test_the_lesser_of_nodes_that_differ(self) -> None:
        other = node(
            card(usable_gib=70.0, pcie_width=8, host_gb_s=64.0),
            host(
                cpus=96,
                ram_gib=755.0,
                ram_limit_gib=500,
                memlock=65536,
                nvme=[Mount(path="/scratch", free_gib=10, read_gb_s=3, write_gb_s=5), Mount(path="/x", free_gib=1)],
                network=[Interface(name="ens3", gbit_s=25, state="up")],
                infiniband=[Port(name="mlx5_0:1", gbit_s=200, state="down")],
            ),
            accelerators_per_node=1,
            topology=[],
            link_within_node=None,
            notes=["NVML is old"],
        )
        merged = merge([node(), other], ["node 0 (a)", "node 1 (b)"], 2)
        assert merged.accelerators_per_node == 1
        assert (merged.accelerator.usable_gib, merged.accelerator.pcie_width, merged.accelerator.host_gb_s) == (
            70,
            8,
            64,
        )
        assert merged.topology == []
        least = merged.host
        assert least and (least.cpus, least.ram_gib, least.ram_limit_gib, least.memlock) == (96, 755, 500, 65536)
        assert least.nvme == [Mount(path="/scratch", free_gib=10, read_gb_s=3, write_gb_s=4)]
        assert least.network == [Interface(name="ens3", gbit_s=25, state="up")]
        assert least.infiniband == [Port(name="mlx5_0:1", gbit_s=200, state="down")]
        assert merged.link_between_nodes == Link(kind="ethernet", gb_s=6.25)
        assert "node 1 (b): NVML is old" in merged.notes
        memory = "memory of the host: node 0 (a) has 1511.0 GiB, node 1 (b) has 755.0 GiB"
        assert f"the nodes differ: {memory}" in merged.notes
        assert "where the nodes differ this profile has the least that each of them has" in merged.notes
        assert any("NVMe mount /x: only node 1 (b) has it" in note for note in merged.notes)

    def test_adapters_of_different_names(self) -> None:
        nodes = [
            node(host_=host(infiniband=[], network=[Interface(name=n, gbit_s=r, state="up")]))
            for n, r in (("va", 10), ("vb", 20))
        ]
        merged = merge(nodes, ["a", "b"], 2)
        assert merged.host and merged.host.network == []
        assert merged.link_between_nodes == Link(kind="ethernet", gb_s=1.25)

    def test_a_node_without_a_card_bounds_the_job(self) -> None:
        merged = merge([node(), node(Accelerator(name="cpu", vendor="cpu"), accelerators_per_node=1)], ["a", "b"], 2)
        assert merged.accelerator.vendor == "cpu"
        assert any("devices" in note for note in merged.notes)


def report(place: str, local: int, profile: HardwareProfile | None, **more: Any) -> dict[str, Any]:
    facts = {"node": place, "host": f"host-{place}", "local_rank": local, "notes": []}
    return facts | {"profile": profile and profile.model_dump(mode="json", exclude_none=True)} | more


class TestReports:
    def test_ranks_on_cpus_are_counted(self) -> None:
        cpu = node(Accelerator(name="cpu", vendor="cpu"), accelerators_per_node=1, topology=[], link_within_node=None)
        profile = from_reports([report("0", 0, cpu), report("0", 1, None), report("1", 0, cpu), report("1", 1, None)])
        assert (profile.name, profile.nodes, profile.accelerators_per_node) == ("2x2xcpu", 2, 2)

    def test_a_node_without_its_first_rank(self) -> None:
        profile = from_reports([report("0", 0, node()), report("1", 1, None)])
        assert profile.nodes == 2
        assert profile.notes == ["node 1 (host-1) did not describe itself: none of its ranks has the local rank 0"]

    def test_nobody_described_a_node(self) -> None:
        with pytest.raises(MeasureError, match="local rank 0"):
            from_reports([report("0", 1, None)])

    def test_the_slowest_rank_counts(self) -> None:
        def measured(tflops: float, busbw: float, latency: float) -> dict[str, Any]:
            return {
                "device": "cuda",
                "threads": 1,
                "torch": "2.13.0",
                "matrix_products": {"bf16": tflops, "fp32": 50.0},
                "memory_of_the_device": 3000.0 - latency,
                "copies_from_and_to_the_host": 50.0 + latency,
                "launch_of_a_kernel": 10.0 + latency,
                "links": {
                    "within": {"ranks": 2, "busbw_gb_s": busbw, "latency_us": latency},
                    "between": {"ranks": 2, "busbw_gb_s": busbw / 8, "latency_us": 2 * latency},
                },
            }

        first = measured(700.0, 360.0, 20.0) | {"memory_of_the_host": 400.0}
        profile = from_reports(
            [
                report("0", 0, node(), **first),
                report("0", 1, None, **measured(690.0, 364.0, 22.0)),
                report("1", 0, node(), **measured(710.0, 352.0, 21.0), memory_of_the_host=380.0),
                report("1", 1, None, **measured(705.0, 361.0, 24.0)),
            ]
        )
        assert profile.accelerator.measured_tflops == {"bf16": 690, "fp32": 50}
        assert profile.accelerator.measured_memory_gb_s == 2976
        assert profile.host and (profile.host.memory_gb_s, profile.host.pinned_gb_s) == (380, 70)
        assert profile.host.launch_us == 34, "of the slowest rank"
        assert profile.link_within_node == Link(kind="nvlink", gb_s=900, busbw_gb_s=352, latency_us=24)
        assert profile.link_between_nodes == Link(kind="infiniband", gb_s=50, busbw_gb_s=44, latency_us=48)
        assert profile.origin.endswith("measured with torch 2.13.0")
        assert HardwareProfile.model_validate_json(profile.model_dump_json()) == profile

    def test_a_torch_without_the_cards_measures_the_host_alone(self) -> None:
        cpu = {
            "device": "cpu",
            "threads": 4,
            "torch": "2.13.0+cpu",
            "matrix_products": {"bf16": 0.2},
            "memory_of_the_host": 200.0,
            "launch_of_a_kernel": 14.5,
            "links": {"within": {"ranks": 2, "busbw_gb_s": 1.0, "latency_us": 100.0}},
        }
        profile = from_reports([report("0", 0, node(), **cpu), report("0", 1, None, **cpu)])
        assert profile.accelerator.measured_tflops == {} and profile.link_within_node == node().link_within_node
        assert profile.host and profile.host.memory_gb_s == 200
        assert "torch 2.13.0+cpu does not see them, only cpu" in profile.notes[0]
        assert profile.host.launch_us == 14.5
        assert "the launch of a kernel was measured on the processor: on a device it may take longer" in profile.notes

    def test_a_precision_that_one_rank_lacks_is_left_out(self) -> None:
        base: dict[str, Any] = {"device": "cuda", "threads": 1, "torch": "2"}
        profile = from_reports(
            [
                report("0", 0, node(), **base, matrix_products={"bf16": 1.0, "fp8": 2.0}),
                report("0", 1, None, **base, matrix_products={"bf16": 1.5}, **{}),
            ]
        )
        assert profile.accelerator.measured_tflops == {"bf16": 1.0}
