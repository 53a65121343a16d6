"""Bytes on the wire: the ratios that the schemes promise, and properties that hold for every job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.time.wire import Traffic, WireOptions, traffic
from zerocfg.models.model_facts import ModelFacts, from_config

LLAMA = from_config({"model_type": "llama"})  # 6.7e9 parameters
SMALL = from_config({"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8})
PLAIN = Workload(1, 128)
ACCUMULATION = st.integers(1, 16)


def sent(options: Options | TorchOptions, facts: ModelFacts = LLAMA, hardware: str = "", **wire: Any) -> Traffic:
    profile = parse_hardware(hardware or f"{options.world_size}xA100")
    return traffic(facts, options, PLAIN, profile, WireOptions(**wire))


def ddp(ranks: int = 8, accumulation: int = 1) -> Traffic:
    return sent(TorchOptions("ddp", ranks, master=False, gradient_accumulation_steps=accumulation))


def reduced_between(found: Traffic) -> float:
    return sum(one.between for one in found.collectives if "gradients" in one.name)


def zero(stage: int, ranks: int = 8, accumulation: int = 1, **more: Any) -> Options:
    return Options(stage, ranks, gradient_accumulation_steps=accumulation, **more)


@given(ACCUMULATION)
def test_accumulation_multiplies_what_is_done_in_each_micro_step(accumulation: int) -> None:
    base = ddp(accumulation=accumulation).sent
    assert base == ddp().sent, "no_sync: one all-reduce in a step"
    assert sent(zero(0, accumulation=accumulation)).sent == base
    assert sent(zero(1, accumulation=accumulation)).sent == pytest.approx(1.5 * base, rel=1e-6)
    assert sent(zero(2, accumulation=accumulation)).sent == pytest.approx((accumulation + 0.5) * base, rel=1e-6)
    nothing_kept = zero(3, accumulation=accumulation, max_live_parameters=0, max_reuse_distance=0)
    assert sent(nothing_kept).sent == pytest.approx(1.5 * accumulation * base, rel=1e-3)


def test_what_stays_gathered_is_not_gathered_again() -> None:
    all_again = sent(zero(3, max_live_parameters=0, max_reuse_distance=0)).payload
    assert all_again - sent(zero(3)).payload == 2 * 1_000_000_000, "max_live_parameters, two bytes each"
    off = zero(3, prefetch_bucket_size=0)
    assert all_again - sent(off).payload == 2 * 500_000_000, "half of max_reuse_distance"
    small = sent(zero(3), SMALL)
    assert not any(one.name == "parameters, backward" for one in small.collectives)


def test_recomputation_gathers_only_with_reuse_and_prefetching_off() -> None:
    again = Workload(1, 128, gradient_checkpointing=True)
    profile = parse_hardware("8xA100")
    for options in (zero(3), zero(3, max_reuse_distance=0), zero(3, prefetch_bucket_size=0)):
        assert traffic(LLAMA, options, again, profile) == traffic(LLAMA, options, PLAIN, profile)
    off = zero(3, max_reuse_distance=0, prefetch_bucket_size=0)
    assert traffic(LLAMA, off, again, profile).sent > traffic(LLAMA, off, PLAIN, profile).sent


def test_reduction_type_and_quantization() -> None:
    nothing_kept = zero(3, max_live_parameters=0, max_reuse_distance=0)
    base = {one.name: one.payload for one in sent(nothing_kept).collectives}
    wide = {one.name: one.payload for one in sent(nothing_kept, communication="fp32").collectives}
    assert wide["gradients"] == 2 * base["gradients"]
    assert wide["parameters, forward"] == base["parameters, forward"]
    quantized = {one.name: one.payload for one in sent(nothing_kept, quantized_weights=True).collectives}
    assert quantized["parameters, forward"] == pytest.approx(base["parameters, forward"] / 2, rel=1e-3)
    two_nodes = replace(nothing_kept, world_size=16)
    plain, gradients = (sent(two_nodes, hardware="2x8xA100", quantized_gradients=on) for on in (False, True))
    assert reduced_between(plain) > 4 * reduced_between(gradients) > 0
    assert sent(nothing_kept, quantized_gradients=True).sent == sent(nothing_kept).sent, "on one node as without"


def test_within_and_between_nodes() -> None:
    one, two = sent(zero(2, 8)), sent(zero(2, 16), hardware="2x8xA100")
    assert one.between == 0 and two.between == pytest.approx(two.sent / 8)
    apart = sent(zero(2, 16), hardware="16x1xA100")
    assert apart.between == apart.sent and all(part.within == 0 for part in apart.collectives)


def test_hpz_leaves_the_node_once_in_a_step() -> None:
    options = zero(3, 16, 4, max_live_parameters=0, max_reuse_distance=0)
    plain = sent(options, hardware="2x8xA100")
    local = sent(replace(options, secondary_partition_size=8), hardware="2x8xA100")
    between = {one.name: one.between for one in local.collectives}
    assert between["parameters, forward, secondary copy"] == between["parameters, backward"] == 0
    assert local.between < plain.between / 2
    assert local.payload == plain.payload


def test_hybrid_sharding_sends_shards_between_nodes() -> None:
    full = sent(TorchOptions("fsdp2", 16), hardware="2x8xA100")
    hybrid = sent(TorchOptions("fsdp2", 16, shard_ranks=8), hardware="2x8xA100")
    assert [one.name for one in hybrid.collectives if one.between] == ["gradients between copies"]
    assert hybrid.between < full.between


@pytest.mark.parametrize("options", [zero(3), zero(2), zero(0), TorchOptions("ddp", 8), TorchOptions("fsdp2", 8)])
def test_frozen_parameters_are_not_reduced(options: Options | TorchOptions) -> None:
    half = LLAMA.model_copy(update={"trainable_parameters": (LLAMA.parameters or 0) // 2})
    assert sent(options, half).sent < sent(options).sent
    none = LLAMA.model_copy(update={"trainable_parameters": 0})
    assert not any("gradients" in one.name for one in sent(options, none).collectives)


@given(st.sampled_from([0, 1, 2, 3]), st.integers(1, 64), ACCUMULATION, st.integers(1, 8))
def test_any_job(stage: int, ranks: int, accumulation: int, per_node: int) -> None:
    profile = parse_hardware(f"{per_node}xA100")
    found = traffic(LLAMA, zero(stage, ranks, accumulation), PLAIN, profile)
    assert 0 <= found.between <= found.sent <= 2 * found.payload
    assert (found.payload == 0) == (ranks == 1), "one rank talks to nobody"
    for one in found.collectives:
        assert one.messages >= one.times and 1 <= one.per_node <= one.ranks and one.source
    more = traffic(LLAMA, zero(stage, ranks + 1, accumulation), PLAIN, profile)
    assert more.sent >= found.sent * (1 - 1e-6), "a larger ring sends no less from each rank"


def test_alone() -> None:
    assert sent(TorchOptions("single", 1)).collectives == ()


def test_unknown_models_are_refused_with_one_line() -> None:
    with pytest.raises(ValueError, match="not known"):
        sent(zero(2), ModelFacts(hidden_size=4096))
    sent(zero(3), ModelFacts(parameters=10**9))
