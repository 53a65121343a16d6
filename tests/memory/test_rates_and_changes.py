"""Rates of devices and links by hand, and which changes are offered, each just on both sides of its condition."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.time import rates
from zerocfg.memory.time.device_rates import HOMES, device_rates
from zerocfg.memory.time.expected import offloads
from zerocfg.memory.time.links import Links, from_host, nvme
from zerocfg.memory.time.rates import Band, exactly, longer, taken_by
from zerocfg.memory.verdict import Setting, _possible, by_nothing, workloads
from zerocfg.models.hardware import Accelerator, HardwareProfile, Host, Link, Mount
from zerocfg.models.model_facts import ModelFacts

# -- changes -----------------------------------------------------------------------------------------------------------


def changes(options: Options | TorchOptions, work: Workload | None = None, by: str = "") -> dict[str, dict[str, Any]]:
    """By what is done, the values that differ from those of the job."""

    def values(setting: Setting) -> dict[str, Any]:
        parts = (setting.options, *([setting.workload] if setting.workload else []))
        return {one.name: getattr(part, one.name) for part in parts for one in fields(part)}

    before = values(Setting(options, work))
    found = {}
    for step in _possible(Setting(options, work), lambda _: by):
        after = values(step.setting)
        found[step.what] = {name: after[name] for name in after if after[name] != before.get(name)}
    return found


def zero(stage: int, ranks: int = 2, **more: Any) -> Options:
    quiet = {"reduce_bucket_size": 10, "sub_group_size": 10, "max_live_parameters": 10, "overlap_comm": False}
    return Options(stage, ranks, **(quiet | more))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (zero(1, reduce_bucket_size=50_000_000), {}),
        (
            zero(1, reduce_bucket_size=50_000_001),
            {"reduce_bucket_size 50000000": {"reduce_bucket_size": 50_000_000}},
        ),
        (zero(0, reduce_bucket_size=50_000_001), {}),
        (zero(2, overlap_comm=True), {"overlap_comm false": {"overlap_comm": False}}),
        (zero(2, overlap_comm=None), {}),
        (zero(3, overlap_comm=True), {}),
        (zero(3, sub_group_size=100_000_000), {}),
        (zero(3, sub_group_size=100_000_001), {"sub_group_size 100000000": {"sub_group_size": 100_000_000}}),
        (zero(3, sub_group_size=100_000_001, offload_optimizer="cpu"), {}),
        (zero(2, sub_group_size=100_000_001), {}),
        (zero(3, max_live_parameters=30_000_000), {}),
        (
            zero(3, max_live_parameters=30_000_001),
            {
                "stage3_max_live_parameters and stage3_max_reuse_distance 30000000": {
                    "max_live_parameters": 30_000_000,
                    "max_reuse_distance": 30_000_000,
                }
            },
        ),
        (zero(3, max_live_parameters=30_000_001, max_reuse_distance=30_000_000), {}),
        (zero(3, param_persistence_threshold=100_000), {}),
        (
            zero(3, param_persistence_threshold=100_001),
            {"stage3_param_persistence_threshold 100000": {"param_persistence_threshold": 100_000}},
        ),
        (zero(2, param_persistence_threshold=100_001), {}),
    ],
)
def test_changes_that_cost_nothing(options: Options, expected: dict[str, dict[str, Any]]) -> None:
    dear = ("ZeRO stage", "the optimizer on", "optimizer and")
    assert {what: made for what, made in changes(options).items() if not what.startswith(dear)} == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            zero(0),
            {
                "ZeRO stage 1": {"stage": 1},
                "ZeRO stage 2": {"stage": 2},
                "ZeRO stage 3": {"stage": 3},
                "the optimizer on the host (stage 2)": {"stage": 2, "offload_optimizer": "cpu"},
                "optimizer and parameters on the host (stage 3)": {
                    "stage": 3,
                    "offload_optimizer": "cpu",
                    "offload_param": "cpu",
                },
            },
        ),
        (
            zero(1, 1),
            {
                "the optimizer on the host (stage 2)": {"stage": 2, "offload_optimizer": "cpu"},
                "optimizer and parameters on the host (stage 3)": {
                    "stage": 3,
                    "offload_optimizer": "cpu",
                    "offload_param": "cpu",
                },
            },
        ),
        (
            zero(2, offload_optimizer="cpu"),
            {
                "ZeRO stage 3": {"stage": 3},
                "optimizer and parameters on the host (stage 3)": {"stage": 3, "offload_param": "cpu"},
            },
        ),
        (
            zero(3),
            {
                "the optimizer on the host (stage 3)": {"offload_optimizer": "cpu"},
                "optimizer and parameters on the host (stage 3)": {"offload_optimizer": "cpu", "offload_param": "cpu"},
            },
        ),
        (
            zero(3, offload_optimizer="nvme"),
            {"optimizer and parameters on the host (stage 3)": {"offload_param": "cpu"}},
        ),
        (zero(3, offload_optimizer="cpu", offload_param="cpu"), {}),
        (TorchOptions("ddp", 1), {}),
        (TorchOptions("fsdp2", 2), {}),
    ],
)
def test_more_sharding(options: Options | TorchOptions, expected: dict[str, dict[str, Any]]) -> None:
    assert changes(options) == expected


def test_ddp_with_deepspeed() -> None:
    found = changes(TorchOptions("ddp", 2, "fp16", optimizer="sgd", gradient_accumulation_steps=3))
    assert list(found) == [f"DeepSpeed, ZeRO stage {stage}" for stage in (1, 2, 3)]
    steps = list(
        _possible(Setting(TorchOptions("ddp", 2, "fp16", optimizer="sgd"), Workload(1, 8, autocast=True)), by_nothing)
    )
    engines = [one.setting for one in steps if one.what.startswith("DeepSpeed")]
    assert [one.options for one in engines] == [Options(stage, 2, "fp16", optimizer="sgd") for stage in (1, 2, 3)]
    assert all(one.workload == Workload(1, 8) for one in engines), "DeepSpeed casts the model"


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (Workload(1, 512, True), {}),
        (Workload(1, 513, True), {"sequences of 256 tokens": {"sequence_length": 256}}),
        (Workload(1, 512), {"gradient checkpointing": {"gradient_checkpointing": True}}),
        (
            Workload(6, 8, True),
            {"micro batch 3, 2 accumulation steps": {"micro_batch": 3, "gradient_accumulation_steps": 2}},
        ),
        (
            Workload(3, 8, True),
            {"micro batch 1, 3 accumulation steps": {"micro_batch": 1, "gradient_accumulation_steps": 3}},
        ),
        (Workload(1, 2048, True, fused_loss=True, completion=512), {}),
    ],
)
def test_smaller_work(work: Workload, expected: dict[str, dict[str, Any]]) -> None:
    assert changes(TorchOptions("fsdp2", 2), work) == expected
    fused = {"compute the loss without all logits (liger)": {"fused_loss": True}} if not work.fused_loss else {}
    assert changes(TorchOptions("fsdp2", 2), work, "liger") == fused | expected


def test_workloads_that_will_be_asked_for() -> None:
    """Each change alone, and each on top of those before it; shorter sequences are another training."""
    setting = Setting(zero(3, offload_optimizer="cpu", offload_param="cpu"), Workload(2, 1024))
    assert set(workloads(setting)) == {
        Workload(2, 1024),
        Workload(2, 1024, True),
        Workload(1, 1024),
        Workload(2, 512),
        Workload(1, 1024, True),
    }
    assert workloads(Setting(setting.options, None)) == ()


# -- rates -------------------------------------------------------------------------------------------------------------


def test_bands() -> None:
    one, other = Band(1, 2, 4), Band(3, 3, 3)
    assert one * 2 == Band(2, 4, 8) and one + other == Band(4, 5, 7) and longer(one, other) == Band(3, 3, 4)
    assert taken_by(8, one) == Band(2, 4, 8) and exactly(3) == other


def device(**facts: Any) -> Accelerator:
    base = {"name": "card", "vendor": "nvidia", "architecture": "8.0", "bf16_tflops": 312, "memory_gb_s": 2039}
    return Accelerator(**(base | facts))


def test_rates_of_a_card_that_was_compared() -> None:
    """An A100: 312 TFLOP/s at 2039 GB/s are 153 operations per byte."""
    found = device_rates(device(), "bf16", newer=False)
    assert found.peak == 312 and not found.elsewhere
    assert found.products == Band(0.596, 0.708, 0.763) * 312e12
    assert found.attention == Band(0.309, 0.327, 0.372) * 312e12 and found.memory == Band(0.7, 0.8, 0.9) * 2039e9
    assert device_rates(device(), "bf16", newer=True).attention == Band(0.45, 0.55, 0.65) * 312e12


def test_rates_of_another_card() -> None:
    """Of the same architecture, with ten times the memory: a product waits less for it."""
    balance = 312e12 / 20390e9
    found = device_rates(device(memory_gb_s=20390, fp32_tflops=19.5), "bf16", newer=False)
    share = [1 / (1 + beside * balance) for beside in (0.0027, 0.0024, 0.0021)]
    assert (found.products.low, found.products.expected, found.products.high) == pytest.approx(
        [one * 312e12 for one in share]
    )
    # a softmax as on an A100, where attention reaches 0.327 and products 0.708 of the peak
    seconds = 1 / share[1] + (1 / 0.327 - 1 / 0.708)
    assert found.attention.expected == pytest.approx(312e12 / seconds)
    assert found.attention.high / found.attention.expected == pytest.approx(0.372 / 0.327) and found.elsewhere
    unknown = device_rates(device(memory_gb_s=20390), "bf16", newer=False)
    assert unknown.attention == Band(0.177, 0.25, 0.372) * 312e12, "the rate of a softmax is not known"
    other = device_rates(device(architecture="12.0", fp32_tflops=100), "bf16", newer=True)
    assert other.attention == Band(0.25, 0.40, 0.65) * 312e12


def test_measured_rates_and_those_that_are_missing() -> None:
    found = device_rates(device(measured_tflops={"bf16": 200}, measured_memory_gb_s=1500), "bf16", newer=False)
    assert found.peak == 312 and found.memory == exactly(1500e9) and found.products == Band(0.6, 0.75, 0.95) * 200e12
    alone = device_rates(device(bf16_tflops=None, measured_tflops={"bf16": 200}), "bf16", newer=False)
    assert alone.peak == 200
    with pytest.raises(ValueError, match="the fp16 rate of card is not known"):
        device_rates(device(), "fp16", newer=False)
    with pytest.raises(ValueError, match="the memory bandwidth of card is not known"):
        device_rates(device(memory_gb_s=None), "bf16", newer=False)
    assert device_rates(device(vendor="amd"), "bf16", newer=False).elsewhere


@pytest.mark.parametrize(
    ("name", "balance", "near"),
    [("8.0", 102, True), ("8.0", 101.9, False), ("8.0", 301.5, True), ("8.0", 301.6, False), ("9.0", 196.6, False)],
)
def test_what_counts_as_alike(name: str, balance: float, near: bool) -> None:
    """Up to one and a half times more or fewer operations per byte."""
    assert HOMES[name].near(balance) is near


# -- links -------------------------------------------------------------------------------------------------------------


class Sent:
    """What a collective sends within a node and between nodes, in bytes of one rank."""

    def __init__(self, within: float, between: float, messages: int) -> None:
        self.within, self.between, self.messages = within, between, messages


def profile(**facts: Any) -> HardwareProfile:
    made = parse_hardware("2x8xA100-SXM-80GB")
    return made.model_copy(update=facts)


def test_rates_of_links() -> None:
    """Half of what vendors print is one direction; a measured one is taken as it is."""
    within, between = Link(kind="nvlink", gb_s=600), Link(kind="infiniband", gb_s=50)
    links = Links(profile(link_within_node=within, link_between_nodes=between), [])
    assert links.within == Band(0.65, 0.75, 0.82) * 300e9 and links.between == Band(0.75, 0.85, 0.95) * 25e9
    fast = links.seconds(Sent(3e9, 0, 10))  # type: ignore[arg-type]
    assert fast.expected == pytest.approx(3e9 / (0.75 * 300e9) + 10 * 20e-6)
    assert (fast.low, fast.high) == pytest.approx((3e9 / (0.82 * 300e9) + 1e-4, 3e9 / (0.65 * 300e9) + 5e-4))
    slow = links.seconds(Sent(3e9, 3e9, 2))  # type: ignore[arg-type]
    assert slow.expected == pytest.approx(3e9 / (0.85 * 25e9) + 2 * 50e-6), "a ring is as slow as its slowest hop"
    measured = Link(kind="nvlink", gb_s=600, busbw_gb_s=200, latency_us=5)
    links = Links(profile(link_within_node=measured, link_between_nodes=Link(kind="odd", gb_s=2)), [])
    assert links.within == exactly(200e9) and links.between == Band(0.4, 0.6, 0.85) * 1e9
    assert links.seconds(Sent(2e9, 0, 100)) == exactly(0.01 + 0.0005)  # type: ignore[arg-type]


def test_a_link_that_is_not_known_is_named_once() -> None:
    notes: list[str] = []
    links = Links(profile(link_within_node=None, link_between_nodes=None), notes)
    for _ in range(2):
        assert links.seconds(Sent(1e9, 0, 0)) == exactly(0.0)  # type: ignore[arg-type]
    assert notes == ["the link within a node is not known: its share of the communication is left out"]
    links.seconds(Sent(0, 1e9, 0))  # type: ignore[arg-type]
    assert len(notes) == 2 and "between nodes" in notes[1]


def test_what_comes_from_the_host() -> None:
    facts = ModelFacts(parameters=8_000_000_000)
    own = profile(
        host=Host(
            pinned_gb_s=20,
            nvme=[Mount(path="/a", free_gib=1, read_gb_s=5), Mount(path="/b", free_gib=1, read_gb_s=2, write_gb_s=3)],
        )
    )
    links = Links(own, [])
    assert links.host == exactly(20e9)
    assert from_host(facts, Options(3, 8), links) == exactly(0.0)
    host = Options(3, 8, offload_optimizer="cpu", offload_param="cpu")
    assert from_host(facts, host, links) == exactly(8e9 * 2 / 8 / 20e9)
    drives = Options(3, 16, offload_optimizer="nvme", offload_param="nvme")
    assert from_host(facts, drives, links) == exactly(8e9 * 2 / 16 * 8 / 5e9), "a drive of a node serves eight ranks"
    torch = TorchOptions("fsdp2", 8, cpu_offload=True)
    assert from_host(facts, torch, links) == exactly(0.1)
    assert from_host(facts, TorchOptions("fsdp2", 8, shard_ranks=4, cpu_offload=True), links) == exactly(0.2)
    assert from_host(facts, TorchOptions("fsdp2", 8), links) == exactly(0.0)
    assert nvme(own) == (exactly(5e9), exactly(3e9))
    bare = profile(host=None)
    assert nvme(bare) == (Band(1.5, 3, 6) * 1e9, Band(0.7, 1.5, 4) * 1e9)
    printed = bare.accelerator.model_copy(update={"host_gb_s": 64.0})
    assert Links(bare.model_copy(update={"accelerator": printed}), []).host == rates.PINNED * 32e9
    unknown = bare.accelerator.model_copy(update={"host_gb_s": None})
    assert Links(bare.model_copy(update={"accelerator": unknown}), []).host == rates.PINNED * 16e9


def test_what_is_kept_elsewhere() -> None:
    assert offloads(Options(2, 2, offload_optimizer="cpu")) and offloads(Options(3, 2, offload_param="cpu"))
    assert not offloads(Options(3, 2)) and not offloads(TorchOptions("fsdp2", 2))
    assert offloads(TorchOptions("fsdp2", 2, cpu_offload=True))
