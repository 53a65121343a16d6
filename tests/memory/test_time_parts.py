"""The parts of a step worked out by hand: operations and bytes of a layer, launches, links, the optimizer on the host,
and how many calls of collectives there are.

A LLaMA of 2 layers, 64 wide, with 4 heads of 16, 2 of keys, 96 inside and 100 words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.time import rates
from zerocfg.memory.time.expected import expected_step_time, offloads, with_offload
from zerocfg.memory.time.flops import active_parameters, work
from zerocfg.memory.time.host_cost import host_cost, trained_tensors, visited_modules
from zerocfg.memory.time.links import Links, from_host, nvme
from zerocfg.memory.time.measured_spread import HOST_STEP_NS, MEASURED
from zerocfg.memory.time.rates import Band, exactly, longer, taken_by
from zerocfg.memory.time.spread import Circumstances
from zerocfg.memory.time.step_time import StepTime, step_time
from zerocfg.memory.time.wire import Collective, Traffic, WireOptions, traffic
from zerocfg.models.hardware import Accelerator, HardwareProfile, Host, Link, Mount
from zerocfg.models.model_facts import ModelFacts, Part, from_config

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
FACTS = from_config(CONFIG)
LINEAR = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96  # of a layer
EVERY = 2 * (LINEAR + 2 * 64) + 64 + 2 * 6400
TOKENS = 3 * 20
SHAPE = Workload(3, 20)
DEVICE = Accelerator(
    name="card",
    vendor="nvidia",
    memory_gib=80,
    memory_gb_s=2000,
    bf16_tflops=312,
    fp32_tflops=19.5,
    architecture="8.0",
    measured_tflops={"bf16": 200.0},
    measured_memory_gb_s=1000,
    host_gb_s=64,
)
PROFILE = HardwareProfile(
    name="two nodes",
    nodes=2,
    accelerators_per_node=4,
    accelerator=DEVICE,
    link_within_node=Link(kind="nvlink", busbw_gb_s=100, latency_us=10),
    link_between_nodes=Link(kind="infiniband", busbw_gb_s=10, latency_us=30),
    host=Host(memory_gb_s=100, pinned_gb_s=20, launch_us=5),
)


class TestWork:
    def test_one_layer_and_the_head(self) -> None:
        """Two operations for each weight that multiplies; of the score matrix the half that is seen. A layer moves 14
        passes over its width and 4 over the inner one, and in plain code two norms in fp32 (36 bytes an element in
        place of 4 passes) and a rotation (9 passes). Logits are 16 bytes each."""
        done = work(FACTS, SHAPE)
        products = 2 * LINEAR + 6400
        assert done.forward.products == 2 * products * TOKENS
        assert done.forward.attention == 4 * 20 * 64 * 2 * 0.5 * TOKENS
        layer = 2 * (14 * 64 + 4 * 96) + 64 * (2 * 36 - 4 * 2 + 9 * 2)
        assert done.forward.bytes == TOKENS * (2 * layer + 16 * 100)
        assert done.forward.kernels == 2 * 42 + 26 and done.backward.kernels == 2 * 82 + 26
        assert done.backward.products == 4 * products * TOKENS
        assert done.backward.attention == 2.5 * done.forward.attention
        assert done.backward.bytes == 2 * done.forward.bytes
        assert done.model_flops == TOKENS * (6 * EVERY + 12 * 2 * 64 * 20)
        assert done.recomputed.kernels == done.recomputed.flops == done.recomputed.bytes == 0
        assert done.flops == pytest.approx(6 * products * TOKENS + 3.5 * done.forward.attention)

    def test_other_kernels_and_widths(self) -> None:
        fused = work(FACTS, SHAPE, "fused", width=4)
        assert fused.forward.bytes == TOKENS * (2 * 4 * (14 * 64 + 4 * 96) + 16 * 100)
        compiled = work(FACTS, replace(SHAPE, gradient_checkpointing=True), "compiled")
        assert compiled.forward.bytes == TOKENS * (2 * 2 * (14 * 64 + 4 * 96) + 16 * 100)
        kernels = [item.kernels for item in (compiled.forward, compiled.backward, compiled.recomputed)]
        assert kernels == [2 * 20 + 26, 2 * 40 + 26, 2 * 16]
        cut = work(FACTS, replace(SHAPE, fused_loss=True), "fused", width=4)
        assert fused.forward.bytes - cut.forward.bytes == TOKENS * 12 * 100

    def test_eager_attention_computes_all_scores_and_moves_them(self) -> None:
        flash, eager = work(FACTS, SHAPE), work(FACTS, replace(SHAPE, attention="eager"))
        assert eager.forward.attention == 2 * flash.forward.attention
        assert eager.backward.attention == 2 * eager.forward.attention
        assert eager.forward.bytes - flash.forward.bytes == TOKENS * 2 * 16 * 20 * 4
        unknown = work(FACTS.model_copy(update={"num_attention_heads": None}), replace(SHAPE, attention="eager"))
        assert unknown.forward.bytes - flash.forward.bytes == TOKENS * 2 * 16 * 20 * 1, "of 64, one head of 128"

    def test_recomputation_stops_before_the_last_product(self) -> None:
        done = work(FACTS, replace(SHAPE, gradient_checkpointing=True))
        assert done.recomputed.products == 2 * 2 * (LINEAR - 64 * 96) * TOKENS
        assert done.recomputed.attention == done.forward.attention
        assert done.recomputed.bytes == done.forward.bytes - TOKENS * 16 * 100
        assert done.recomputed.kernels == 2 * 34

    def test_a_tied_table_multiplies_as_a_head(self) -> None:
        tied = from_config({**CONFIG, "tie_word_embeddings": True})
        assert tied.parameters == EVERY - 6400
        assert work(tied, SHAPE).forward.products == work(FACTS, SHAPE).forward.products

    def test_what_is_frozen_has_no_gradient_of_its_weights(self) -> None:
        part = FACTS.model_copy(update={"trainable_parameters": EVERY // 4})
        done, whole = work(part, SHAPE), work(FACTS, SHAPE)
        share = (EVERY // 4) / EVERY
        assert done.backward.products == pytest.approx(whole.forward.products * (1 + share))
        assert done.backward.attention == whole.backward.attention

    def test_experts(self) -> None:
        """Mixtral of 8 experts, 2 chosen: a layer has them, its attention, a router and two norms."""
        config = {**CONFIG, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
        facts, expert = from_config(config), 3 * 64 * 96
        every = facts.parameters or 0
        assert every == 2 * (8 * expert + 2 * 64 * 64 + 2 * 64 * 32 + 8 * 64 + 2 * 64) + 64 + 2 * 6400
        assert active_parameters(facts) == every - 2 * 6 * expert
        done = work(facts, SHAPE)
        layer = 2 * (14 * 64 + 4 * 96 * 2) + 64 * (2 * 36 - 4 * 2 + 9 * 2)
        assert done.forward.bytes == TOKENS * (2 * layer + 16 * 100), "both experts' inner widths"
        all_of_them = facts.model_copy(update={"experts_per_token": 9})
        assert active_parameters(all_of_them) == every
        assert active_parameters(facts.model_copy(update={"experts_per_token": None})) is None
        assert active_parameters(facts.model_copy(update={"num_experts": 1})) == every
        unlisted = work(facts.model_copy(update={"layout": []}), SHAPE)
        assert unlisted.model_flops == TOKENS * (6 * every + 12 * 2 * 64 * 20)
        assert unlisted.notes == ("experts are not distinguished: every parameter is taken to work for every token",)
        assert not done.notes


class TestHost:
    def test_what_deepspeed_launches(self) -> None:
        """A layer is 9 modules with a tensor and 4 without; beside them an embedding, a norm and a head."""
        assert visited_modules(FACTS) == 2 * 13 + 3 and trained_tensors(FACTS) == 2 * 9 + 3
        zero_3 = host_cost(FACTS, Options(3, 4))
        assert (zero_3.forward, zero_3.backward) == (pytest.approx(18.7 * 29), pytest.approx(18.7 * 29))
        assert zero_3.recomputed == pytest.approx(4.8 * 29) and zero_3.step == pytest.approx(2.7 * 21)
        assert zero_3.hidden == 0.57
        for stage, hook, tensor in ((0, 0, 10.2), (1, 1.1, 8.5 / 4), (2, 1.1, 8.5 / 4)):
            found = host_cost(FACTS, Options(stage, 4))
            assert (found.forward, found.recomputed, found.hidden) == (0, 0, 1)
            assert found.backward == pytest.approx(hook * 21) and found.step == pytest.approx(tensor * 21)
        assert host_cost(FACTS, Options(2, 4, gradient_accumulation_steps=2)).backward == pytest.approx(7 * 21)
        assert host_cost(FACTS, Options(1, 4, gradient_accumulation_steps=2)).backward == pytest.approx(1.1 * 21)

    def test_what_torch_launches(self) -> None:
        for kind in ("fsdp1", "fsdp2"):
            found = host_cost(FACTS, TorchOptions(kind, 4))
            assert (found.forward, found.backward, found.recomputed) == (32 * 3, 49 * 3, 32 * 3)
            assert found.step == pytest.approx(1.5 * 21)
        ddp = host_cost(FACTS, TorchOptions("ddp", 4))
        assert (ddp.forward, ddp.backward, ddp.step) == (0, 21, 0)
        single = host_cost(FACTS, TorchOptions("single", 1))
        assert (single.forward, single.backward, single.recomputed, single.step) == (0, 0, 0, 0)

    def test_leaves_adapters_and_what_is_frozen(self) -> None:
        """Of a leaf's experts one visit is left; the other modules of its layer stay."""
        experts = Part(modules=[[30], [30], [30], [5], [2]], times=3, block=True)
        facts = ModelFacts(parameters=300, layout=[Part(modules=[[7], [30]], frozen=True), experts])
        assert visited_modules(facts) == 2 + 3 * (5 + 4)
        assert visited_modules(facts.model_copy(update={"leaf_modules": ["Expert"]})) == 2 + 3 * (3 + 4)
        assert trained_tensors(facts) == 3 * 5
        adapted = facts.model_copy(update={"adapters": [4, 4], "num_hidden_layers": 3})
        assert trained_tensors(adapted) == 3 * 5 + 2 * 3

    def test_a_model_that_is_not_listed_is_taken_for_a_llama(self) -> None:
        bare = ModelFacts(parameters=1000, num_hidden_layers=5)
        assert visited_modules(bare) == 5 * 13 and trained_tensors(bare) == 5 * 9
        assert trained_tensors(ModelFacts(parameters=1000)) == 9


class TestRates:
    def test_bands_are_counted_with_end_by_end(self) -> None:
        assert taken_by(12, Band(2, 3, 4)) == Band(3, 4, 6)
        assert longer(Band(1, 5, 6), Band(2, 3, 7)) == Band(2, 5, 7)
        assert Band(1, 2, 3) + Band(4, 6, 8) == Band(5, 8, 11) and Band(1, 2, 3) * 3 == Band(3, 6, 9)

    def test_links_as_measured_or_as_printed(self) -> None:
        links = Links(PROFILE, [])
        assert links.within == exactly(100e9) and links.between == exactly(10e9) and links.host == exactly(20e9)
        printed = PROFILE.model_copy(
            update={"link_within_node": Link(kind="nvlink", gb_s=600), "link_between_nodes": None, "host": None}
        )
        found = Links(printed, [])
        assert found.within == Band(0.65, 0.75, 0.82) * 300e9 and found.between is None
        assert found.host == rates.PINNED * 32e9
        bare = printed.model_copy(update={"accelerator": DEVICE.model_copy(update={"host_gb_s": None})})
        assert Links(bare, []).host == rates.PINNED * 16e9
        other = printed.model_copy(update={"link_within_node": Link(kind="other", gb_s=100)})
        assert Links(other, []).within == Band(0.4, 0.6, 0.85) * 50e9

    def of(self, ranks: int, per_node: int, messages: int = 3) -> Collective:
        return Collective("x", "all_gather", 10**9, 2, 2, ranks, per_node, messages, "forward")

    def test_a_ring_is_as_slow_as_its_slowest_hop(self) -> None:
        """4 GB in all, of which a rank sends 7/8; a fourth leaves a node for each of four."""
        item, links = self.of(8, 4), Links(PROFILE, [])
        assert (item.payload, item.sent, item.between, item.within) == (4e9, 3.5e9, 0.875e9, 3.5e9)
        assert links.seconds(item) == exactly(0.875e9 / 10e9 + 3 * 30e-6)
        near = self.of(4, 4)
        assert (near.sent, near.between, near.within) == (3e9, 0, 3e9)
        assert links.seconds(near) == exactly(3e9 / 100e9 + 3 * 10e-6)
        apart = self.of(2, 1)
        assert (apart.between, apart.within) == (2e9, 0)
        assert links.seconds(apart) == exactly(0.2 + 3 * 30e-6)
        assert replace(item, operation="all_reduce").sent == 7e9
        both = Traffic((item, near))
        assert (both.payload, both.sent, both.between, both.messages) == (8e9, 6.5e9, 0.875e9, 6)

    def test_a_link_that_is_not_known_is_left_out_and_said_once(self) -> None:
        notes: list[str] = []
        bare = PROFILE.model_copy(update={"link_between_nodes": None})
        links = Links(bare, notes)
        assert links.seconds(self.of(8, 4)) == exactly(3.5e9 / 100e9) + rates.LATENCY_BETWEEN_US * 3e-6
        links.seconds(self.of(8, 4))
        assert notes == ["the link between nodes is not known: its share of the communication is left out"]
        within = Links(PROFILE.model_copy(update={"link_within_node": None}), notes)
        assert within.seconds(self.of(4, 4)) == rates.LATENCY_WITHIN_US * 3e-6
        assert len(notes) == 2 and notes[1].startswith("the link within a node")

    def test_drives_are_the_fastest_that_were_measured(self) -> None:
        mounts = [
            Mount(path="/a", free_gib=1, read_gb_s=2, write_gb_s=9),
            Mount(path="/b", free_gib=1, read_gb_s=6),
            Mount(path="/c", free_gib=1),
        ]
        profile = PROFILE.model_copy(update={"host": Host(nvme=mounts)})
        assert nvme(profile) == (exactly(6e9), exactly(9e9))
        for host in (None, Host(), Host(nvme=mounts[2:])):
            unknown = PROFILE.model_copy(update={"host": host})
            assert nvme(unknown) == (Band(1.5, 3, 6) * 1e9, Band(0.7, 1.5, 4) * 1e9)

    def test_parameters_that_come_from_the_host(self) -> None:
        links = Links(PROFILE, [])
        own = 2 * EVERY / 8
        assert from_host(FACTS, Options(3, 8), links) == exactly(0.0)
        assert from_host(FACTS, Options(3, 8, offload_param="cpu"), links) == exactly(own / 20e9)
        assert from_host(FACTS, TorchOptions("fsdp2", 8, cpu_offload=True), links) == exactly(own / 20e9)
        hybrid = TorchOptions("fsdp2", 8, shard_ranks=2, cpu_offload=True)
        assert from_host(FACTS, hybrid, links) == exactly(4 * own / 20e9)
        assert from_host(FACTS, TorchOptions("fsdp2", 8), links) == exactly(0.0)
        # A node's four ranks read from one drive.
        drives = Options(3, 8, offload_param="nvme")
        assert from_host(FACTS, drives, links) == taken_by(4 * own, Band(1.5, 3, 6) * 1e9)
        alone = Options(3, 2, offload_param="nvme")
        assert from_host(FACTS, alone, links) == taken_by(2 * 4 * own, Band(1.5, 3, 6) * 1e9)


def parts(step: StepTime) -> dict[str, Band]:
    assert all(part.seconds.high > 0 for part in step.parts)
    return {part.name: part.seconds for part in step.parts}


def timed(options: Options | TorchOptions, profile: HardwareProfile = PROFILE, **more: Any) -> StepTime:
    facts = more.pop("facts", FACTS)
    return step_time(facts, options, more.pop("workload", SHAPE), profile, **more)


ALONE = PROFILE.model_copy(update={"nodes": 1, "accelerators_per_node": 1})


class TestStep:
    def test_what_is_computed(self) -> None:
        """Products at three quarters of the measured 200 TFLOP/s, attention at 0.55 of the printed 312, bytes at what
        was measured; three micro steps."""
        step, done = timed(Options(1, 1, gradient_accumulation_steps=3), ALONE), work(FACTS, SHAPE)
        for name, item in (("forward", done.forward), ("backward", done.backward)):
            seconds = item.products / 150e12 + item.attention / (0.55 * 312e12) + item.bytes / 1e12
            assert parts(step)[name].expected == pytest.approx(3 * seconds)
        assert "recomputation" not in parts(step)
        assert (step.tokens, step.samples, step.devices, step.micro_steps) == (180, 9, 1, 3)
        assert step.peak_tflops == 312

    def test_every_part_shows_what_was_put_into_it(self) -> None:
        """Figures whose product or quotient the seconds are."""
        drive = Host(memory_gb_s=100, launch_us=5, nvme=[Mount(path="/x", free_gib=1, read_gb_s=6, write_gb_s=3)])
        profile = PROFILE.model_copy(update={"host": drive})
        step = timed(Options(3, 8, offload_optimizer="nvme", gradient_accumulation_steps=2), profile)
        shown = {part.name: dict(part.inputs) for part in step.parts}
        for name in ("forward", "backward"):
            item = shown[name]
            seconds = (
                item["operations in products"] / item["their rate"] + item["operations in attention"] / item["its rate"]
            )
            seconds = item["micro steps"] * (seconds + item["other bytes"] / item["memory bandwidth"])
            assert parts(step)[name].expected == pytest.approx(seconds)
            waited = shown[f"waiting for the host in {name}"]
            left = waited["launches"] * waited["seconds of one"] - waited["seconds beside it"]
            assert parts(step)[f"waiting for the host in {name}"].expected == pytest.approx(left)
        stepping = shown["waiting for the host in the optimizer"]
        assert stepping == {"launches": pytest.approx(2.7 * 21), "seconds of one": pytest.approx(5e-6)}
        own = EVERY / 8
        assert shown["optimizer states from NVMe and back"] == {
            "parameters of the node": 4 * own,
            "read rate": 6e9,
            "write rate": 3e9,
        }
        assert shown["gradients to the host"]["parameters"] == own and shown["gradients to the host"]["copies"] == 2
        host = shown["optimizer on the host"]
        assert (host["parameters"], host["ranks of the node"], host["memory bandwidth of the host"]) == (own, 4, 100e9)
        assert (
            host["threads of a rank"] == 1
            and host["nanoseconds of one thread for one parameter"] == HOST_STEP_NS.expected
        )
        slower = shown["slower than tuned code"]
        assert slower["time of published steps / time of tuned code"] == MEASURED["short"].expected
        assert parts(step)["slower than tuned code"].expected == pytest.approx(
            slower["seconds on the device"] * (MEASURED["short"].expected - 1)
        )

    def test_the_optimizer_on_the_device(self) -> None:
        """Bytes through the memory for each parameter that a rank updates, by stage."""
        for options, own, each in (
            (Options(0, 8), EVERY, 38),
            (Options(1, 8), EVERY / 8, 45),
            (Options(2, 8), EVERY / 8, 45),
            (Options(3, 8), EVERY / 8, 85),
            (TorchOptions("ddp", 8), EVERY, 38),
            (TorchOptions("single", 1), EVERY, 38),
            (TorchOptions("fsdp2", 8), EVERY / 8, 38),
            (TorchOptions("fsdp1", 8, shard_ranks=4), EVERY / 4, 38),
        ):
            assert parts(timed(options))["optimizer"] == exactly(own * each / 1e12), options

    @pytest.mark.parametrize(
        ("options", "copies", "own", "ranks"),
        [
            (Options(2, 8, offload_optimizer="cpu", gradient_accumulation_steps=3), 3, EVERY / 8, 4),
            (Options(1, 8, offload_optimizer="cpu", gradient_accumulation_steps=3), 1, EVERY / 8, 4),
            (Options(3, 2, offload_optimizer="cpu"), 1, EVERY / 2, 2),
            (TorchOptions("fsdp2", 8, cpu_offload=True, gradient_accumulation_steps=3), 3, EVERY / 8, 4),
        ],
    )
    def test_the_optimizer_on_the_host(self, options: Any, copies: int, own: float, ranks: int) -> None:
        """Gradients go there in each micro step where they are partitioned, parameters come back once. Its memory
        moves 28 bytes a parameter for all ranks of a node; a thread of a rank takes some nanoseconds for each."""
        found = parts(timed(options))
        assert "optimizer" not in found
        assert found["gradients to the host"] == exactly(own * 2 * copies / 20e9)
        assert found["parameters from the host"] == exactly(own * 2 / 20e9)
        computed = Band(HOST_STEP_NS.low / 8, HOST_STEP_NS.expected, HOST_STEP_NS.high) * (own * 1e-9)
        assert found["optimizer on the host"] == longer(exactly(own * ranks * 28 / 100e9), computed)
        assert not [note for note in timed(options).notes if "host is not known" in note]

    def test_what_is_not_known_of_the_host_is_said(self) -> None:
        options = Options(3, 8, offload_optimizer="nvme")
        bare = PROFILE.model_copy(update={"host": None})
        step = timed(options, bare)
        assert "the memory bandwidth of the host is not known: assumed" in step.notes
        assert "the rates of NVMe are not known: assumed" in step.notes
        found = parts(step)["optimizer states from NVMe and back"]
        size = EVERY / 8 * 12 * 4
        assert found == taken_by(size, Band(1.5, 3, 6) * 1e9) + taken_by(size, Band(0.7, 1.5, 4) * 1e9)
        drive = Host(memory_gb_s=100, nvme=[Mount(path="/x", free_gib=1, read_gb_s=6, write_gb_s=3)])
        known = timed(options, PROFILE.model_copy(update={"host": drive}))
        assert not [note for note in known.notes if "not known" in note]
        assert parts(known)["optimizer states from NVMe and back"] == exactly(size / 6e9 + size / 3e9)
        names = ("gradients to the host", "optimizer on the host", "parameters from the host")
        whole = sum(parts(known)[name].expected for name in (*names, "optimizer states from NVMe and back"))
        assert known.on_host.expected == pytest.approx(whole)
        two = timed(Options(3, 2, offload_optimizer="nvme"), PROFILE.model_copy(update={"host": drive}))
        assert parts(two)["optimizer states from NVMe and back"] == exactly(2 * size / 6e9 + 2 * size / 3e9)

    def test_waiting_for_launches(self) -> None:
        """5 us each; beside them the device computes as long as published steps of so few tokens took."""
        scale = MEASURED["short"].expected
        step = timed(Options(1, 1, gradient_accumulation_steps=2), ALONE)
        found = parts(step)
        forward = 2 * 5e-6 * (2 * 42 + 26) - scale * found["forward"].expected
        assert found["waiting for the host in forward"] == exactly(pytest.approx(forward))
        backward = 2 * 5e-6 * (2 * 82 + 26 + 1.1 * 21) - scale * found["backward"].expected
        assert found["waiting for the host in backward"] == exactly(pytest.approx(backward))
        assert found["waiting for the host in the optimizer"] == exactly(pytest.approx(5e-6 * 8.5 * 21))
        again = timed(Options(3, 1), ALONE, workload=replace(SHAPE, gradient_checkpointing=True))
        found = parts(again)
        beside = 0.57 * scale * (found["backward"].expected + found["recomputation"].expected)
        launches = 2 * 82 + 26 + 18.7 * 29 + 2 * 34 + 4.8 * 29
        assert found["waiting for the host in backward"].expected == pytest.approx(5e-6 * launches - beside)
        assumed = timed(Options(1, 1), ALONE.model_copy(update={"host": Host(memory_gb_s=100)}))
        band = parts(assumed)["waiting for the host in the optimizer"]
        assert band == Band(15, 27, 50) * 1e-6 * (8.5 * 21)

    def test_slower_than_tuned_code(self) -> None:
        """What published steps of the group took beyond the parts on the device that are no launches."""
        step = timed(Options(2, 8, offload_optimizer="cpu"))
        scale = MEASURED["short"]
        on_host = {"gradients to the host", "parameters from the host", "optimizer on the host"}
        base = sum(
            part.seconds.expected
            for part in step.parts
            if part.name not in on_host and "waiting" not in part.name and part.name != "slower than tuned code"
        )
        slower = parts(step)["slower than tuned code"]
        assert slower.expected == pytest.approx((scale.expected - 1) * base)
        assert slower.high == pytest.approx((scale.high - 1) * base)
        assert slower.low == pytest.approx(max(0.0, scale.low - 1) * base)
        assert step.on_host.expected == pytest.approx(sum(parts(step)[name].expected for name in on_host))
        rest = sum(part.seconds.expected for part in step.parts if part.name not in on_host)
        assert step.as_tuned == pytest.approx(rest / scale.expected)
        for end in ("low", "expected", "high"):
            whole = getattr(scale, end) * rest / scale.expected + getattr(step.on_host, end)
            assert getattr(step.seconds, end) == pytest.approx(whole)
        same = step.scaled(exactly(1.0))
        assert "slower than tuned code" not in parts(same) and same.seconds.low < step.seconds.expected

    def test_communication_hides_behind_the_computation_of_its_phase(self) -> None:
        """Reduction of stage 2 waits unless it overlaps; the optimizer's gather never does. In the high value half of
        the computation hides it."""
        slow = PROFILE.model_copy(update={"link_between_nodes": Link(kind="infiniband", busbw_gb_s=0.01, latency_us=0)})
        options = Options(2, 8, overlap_comm=False)
        plain = timed(options, slow)
        seconds = {
            phase: sum(
                Links(slow, []).seconds(item).expected for item in plain.traffic.collectives if item.phase == phase
            )
            for phase in ("forward", "backward", "step")
        }
        found = parts(plain)
        assert found["communication, backward"] == exactly(pytest.approx(seconds["backward"]))
        assert found["communication, step"] == exactly(pytest.approx(seconds["step"])) and seconds["forward"] == 0
        beside = found["backward"].expected + found["waiting for the host in backward"].expected
        over = parts(timed(replace(options, overlap_comm=True), slow))
        assert over["communication, step"] == found["communication, step"]
        left = over["communication, backward"]
        assert left.expected == left.low == pytest.approx(seconds["backward"] - beside)
        assert left.high == pytest.approx(seconds["backward"] - beside / 2)

    def test_what_happens_once_hides_behind_one_micro_step(self) -> None:
        slow = PROFILE.model_copy(update={"link_between_nodes": Link(kind="infiniband", busbw_gb_s=0.01, latency_us=0)})
        found = parts(timed(TorchOptions("ddp", 8, gradient_accumulation_steps=4), slow))
        once = parts(timed(TorchOptions("ddp", 8), slow))
        beside = once["backward"].expected + once["waiting for the host in backward"].expected
        whole = once["communication, backward"].expected + beside
        four = found["backward"].expected + found["waiting for the host in backward"].expected
        assert four == pytest.approx(4 * beside)
        assert found["communication, backward"].expected == pytest.approx(whole - four / 4)

    def test_what_follows(self) -> None:
        step = timed(Options(2, 8, gradient_accumulation_steps=2))
        seconds = step.seconds.expected
        assert (step.tokens, step.samples) == (8 * 2 * 60, 8 * 2 * 3)
        assert step.tokens_per_second == pytest.approx(960 / seconds)
        assert step.samples_per_second == pytest.approx(48 / seconds)
        assert step.tflops == pytest.approx(2 * step.work.model_flops / seconds / 1e12)
        assert step.mfu == pytest.approx(step.tflops / 312)
        assert step.cost_per_step(3.6) == step.seconds * (8 * 3.6 / 3600)
        assert step.cost_per_billion_tokens(3.6).high == pytest.approx(step.seconds.high * 8 * 0.001 * 1e9 / 960)


class TestExpected:
    def test_offload_takes_what_the_high_end_of_ordinary_code_takes(self) -> None:
        options = Options(2, 8, offload_optimizer="cpu")
        plain = timed(options)
        shown = expected_step_time(FACTS, options, SHAPE, PROFILE)
        assert shown.scale == with_offload(plain).scale
        ordinary = MEASURED["ordinary"]
        assert shown.scale.expected == pytest.approx(plain.scale.expected * ordinary.high / ordinary.expected)
        assert shown.seconds.expected > plain.seconds.expected
        assert shown.seconds.low <= plain.seconds.low * (1 + 1e-9) and shown.seconds.high >= plain.seconds.high * (
            1 - 1e-9
        )
        low, high = (end * plain.as_tuned / shown.as_tuned for end in (plain.scale.low, plain.scale.high))
        assert shown.scale.low == pytest.approx(min(low, shown.scale.expected))
        assert shown.scale.high == pytest.approx(max(high, shown.scale.expected))

    @pytest.mark.parametrize(
        ("options", "answer"),
        [
            (Options(2, 8), False),
            (Options(2, 8, offload_optimizer="cpu"), True),
            (Options(3, 8, offload_param="nvme"), True),
            (TorchOptions("fsdp2", 8), False),
            (TorchOptions("fsdp2", 8, cpu_offload=True), True),
        ],
    )
    def test_what_is_kept_elsewhere_than_on_the_device(self, options: Any, answer: bool) -> None:
        assert offloads(options) is answer
        same = expected_step_time(FACTS, options, SHAPE, PROFILE) == timed(options)
        assert same is not answer


class TestGroups:
    BASE = Circumstances("eager", 4096, experts=False, elsewhere=False)

    @pytest.mark.parametrize(
        ("changed", "group", "thin"),
        [
            ({}, "ordinary", ()),
            ({"kernels": "fused"}, "tuned", ()),
            ({"tokens": 2048}, "ordinary", ()),
            ({"tokens": 2047}, "short", ("short",)),
            ({"kernels": "compiled"}, "compiled", ("compiled",)),
            ({"experts": True}, "experts", ("experts",)),
            ({"elsewhere": True, "kernels": "fused"}, "elsewhere", ("elsewhere",)),
            ({"elsewhere": True, "experts": True, "tokens": 9}, "short", ("short", "experts", "elsewhere")),
        ],
    )
    def test_the_group_of_a_step(self, changed: dict[str, Any], group: str, thin: tuple[str, ...]) -> None:
        found = replace(self.BASE, **changed)
        assert (found.group, found.thin) == (group, thin)
        assert bool(found.why_wide) is bool(thin)

    def test_why_its_band_is_wide(self) -> None:
        assert replace(self.BASE, offload=True).why_wide == (
            "the band of the time is wide: of optimizers on the host only one source published times, and does not "
            "describe its host"
        )
        both = replace(self.BASE, experts=True, offload=True).why_wide
        assert both.count("; ") == 1 and both.startswith("the band of the time is wide: no published step of a mixture")
        assert timed(Options(2, 8)).notes[-1].startswith("the band of the time is wide: of micro batches below 2048")


class TestMessages:
    """Calls of collectives, on two nodes of four: 8 ranks."""

    def calls(self, options: Any, workload: Workload = SHAPE, **wire: Any) -> dict[str, tuple[int, int]]:
        found = traffic(FACTS, options, workload, PROFILE, WireOptions(**wire))
        return {item.name: (item.elements, item.messages) for item in found.collectives}

    def test_zero_0_to_2(self) -> None:
        buckets = -(-EVERY // 10_000)
        assert self.calls(Options(0, 8)) == {"gradients": (EVERY, 1)}
        padded = -(-EVERY // 16) * 16
        for stage, steps in ((1, 1), (2, 3)):
            options = Options(stage, 8, reduce_bucket_size=10_000, gradient_accumulation_steps=3)
            assert self.calls(options) == {"gradients": (EVERY, buckets * steps), "parameters": (padded, 1)}
        each = self.calls(Options(1, 8, reduce_bucket_size=10_000), multi_rank_allreduce=False)
        assert each["gradients"] == (EVERY, buckets * 8), "a reduction to each rank"
        whole = self.calls(Options(1, 8, reduce_bucket_size=10_000), multi_rank_allreduce=False, reduce_scatter=False)
        assert whole["gradients"] == (EVERY, buckets)

    def test_zero_3(self) -> None:
        """The norms persist: five of 64. A gather fetches a bucket, or the largest tensor where that is more."""
        options = Options(
            3,
            8,
            param_persistence_threshold=64,
            prefetch_bucket_size=10_000,
            reduce_bucket_size=10_000,
            gradient_accumulation_steps=3,
            max_live_parameters=0,
            max_reuse_distance=0,
        )
        large, small = EVERY - 5 * 64, 5 * 64
        gathers = -(-large // 10_000) * 3
        found = self.calls(options)
        assert found == {
            "parameters, forward": (large, gathers),
            "parameters, backward": (large, gathers),
            "persistent parameters": (small, 1),
            "gradients": (EVERY, -(-EVERY // 10_000) * 3),
        }
        largest = self.calls(replace(options, prefetch_bucket_size=10))
        assert largest["parameters, forward"][1] == -(-large // 6400) * 3
        below = self.calls(replace(options, param_persistence_threshold=63))
        assert "persistent parameters" not in below and below["parameters, forward"][0] == EVERY
        capped = self.calls(replace(options, model_persistence_threshold=100))
        assert capped["persistent parameters"] == (100, 1) and capped["parameters, forward"][0] == EVERY - 100
        kept = self.calls(replace(options, max_live_parameters=20_000))
        assert kept["parameters, backward"][0] == large - 20_000
        reuse = self.calls(replace(options, max_reuse_distance=20_000))
        assert reuse["parameters, backward"][0] == large - 10_000
        again = replace(SHAPE, gradient_checkpointing=True)
        block = FACTS.largest_block or 0
        off = replace(options, prefetch_bucket_size=0)
        assert self.calls(off, again)["parameters, recomputation"][0] == 2 * block
        for kept_so in (replace(off, max_reuse_distance=block), options):
            assert "parameters, recomputation" not in self.calls(kept_so, again)
        assert "parameters, recomputation" in self.calls(replace(off, max_reuse_distance=block - 1), again)

    def test_zero_plus_plus(self) -> None:
        options = Options(
            3, 8, param_persistence_threshold=0, secondary_partition_size=4, gradient_accumulation_steps=3
        )
        found = {item.name: item for item in traffic(FACTS, options, SHAPE, PROFILE).collectives}
        first, later = found["parameters, forward, all ranks"], found["parameters, forward, secondary copy"]
        assert (first.times, first.ranks, first.per_node) == (1, 8, 4)
        assert (later.times, later.ranks, later.per_node) == (2, 4, 4)
        wire = WireOptions(quantized_gradients=True, quantized_weights=True)
        found = {
            item.name: item
            for item in traffic(FACTS, replace(options, secondary_partition_size=1), SHAPE, PROFILE, wire).collectives
        }
        near, far = found["gradients, int4 in the node"], found["gradients, int4 between nodes"]
        assert (near.width, near.elements, near.ranks, near.per_node) == (0.5, EVERY, 4, 4)
        assert (far.width, far.elements, far.ranks, far.per_node) == (0.5, EVERY // 4, 2, 1)
        assert found["parameters, forward"].width == pytest.approx(1 + 4 / 8000)
        plain = {
            item.name: item
            for item in traffic(FACTS, options, SHAPE, PROFILE, WireOptions(reduce_scatter=False)).collectives
        }
        assert (plain["gradients"].operation, plain["gradients"].elements) == ("all_reduce", EVERY)

    def test_ddp(self) -> None:
        """A first bucket of 1 MiB, then those of the stated size."""
        large = FACTS.model_copy(update={"parameters": 2**20, "layout": [], "tensor_sizes": []})
        for mib, calls in ((1, 1 + 3), (2, 1 + 2), (25, 1 + 1)):
            found = traffic(large, TorchOptions("ddp", 8, ddp_bucket_mib=mib), SHAPE, PROFILE).collectives
            assert [(item.width, item.messages) for item in found] == [(4, calls)]
        half = TorchOptions("ddp", 8, master=False, ddp_bucket_mib=1, gradient_accumulation_steps=3)
        (found,) = traffic(large, half, SHAPE, PROFILE).collectives
        assert (found.width, found.times, found.messages) == (2, 1, 1 + 1)
        (found,) = traffic(large, half, SHAPE, PROFILE, WireOptions(sync_every_micro_step=True)).collectives
        assert (found.times, found.messages) == (3, 3 * (1 + 1))
        assert self.calls(TorchOptions("ddp", 8)) == {"gradients": (EVERY, 1)}, "all of it in the first"

    def test_fsdp(self) -> None:
        """Two layers and what is left. The root of FSDP 1 stays gathered from forward to backward."""
        blocks = 2 * (LINEAR + 128)
        second = self.calls(TorchOptions("fsdp2", 8, gradient_accumulation_steps=3))
        assert second == {
            "parameters, forward": (EVERY, 9),
            "parameters, backward": (EVERY, 9),
            "gradients": (EVERY, 3),
        }
        first = self.calls(TorchOptions("fsdp1", 8, gradient_accumulation_steps=3))
        assert first == {**second, "parameters, backward": (blocks, 6)}
        kept = {"reshard_after_forward": False, "gradient_accumulation_steps": 3}
        assert self.calls(TorchOptions("fsdp1", 8, **kept)) == {  # type: ignore[arg-type]
            "parameters, forward": (EVERY, 3),
            "gradients": (EVERY, 3),
        }
        assert self.calls(TorchOptions("fsdp1", 8, **kept), sync_every_micro_step=True) == {  # type: ignore[arg-type]
            "parameters, forward": (EVERY, 9),
            "gradients": (EVERY, 9),
        }
        assert self.calls(TorchOptions("fsdp2", 8, **kept))["parameters, forward"] == (EVERY, 9)  # type: ignore[arg-type]

    def test_hybrid_copies_reduce_their_shards(self) -> None:
        options = TorchOptions("fsdp2", 8, shard_ranks=2, gradient_accumulation_steps=3)
        (between,) = [item for item in traffic(FACTS, options, SHAPE, PROFILE).collectives if "between" in item.name]
        assert (between.elements, between.ranks, between.per_node, between.messages) == (-(-EVERY // 2), 4, 2, 3)
        near = {item.name: item.per_node for item in traffic(FACTS, options, SHAPE, PROFILE).collectives}
        assert near["gradients"] == near["parameters, forward"] == 2

    def test_adapters_are_units_of_their_own(self) -> None:
        """Each of two matrices a layer; the gradient of what is frozen is not sent."""
        update = {"parameters": EVERY + 2 * 300, "trainable_parameters": 2 * 300, "adapters": [100, 200]}
        facts = FACTS.model_copy(update=update)
        found = {
            item.name: (item.elements, item.messages)
            for item in traffic(facts, TorchOptions("fsdp1", 8), SHAPE, PROFILE).collectives
        }
        blocks = 2 * (LINEAR + 128)
        assert found == {
            "parameters, forward": (EVERY + 600, 2 + 4 + 1),
            "parameters, backward": (blocks + 600, 2 + 4),
            "gradients": (600, 4),
        }
        flat = facts.model_copy(update={"adapters": []})
        (reduced,) = [
            item
            for item in traffic(flat, TorchOptions("fsdp1", 8), SHAPE, PROFILE).collectives
            if item.name == "gradients"
        ]
        assert reduced.elements == blocks, "the flat gradient of every unit, whole"

    def test_layers_that_ranks_share(self) -> None:
        """Each layer sums its two results forward and five gradients backward; an embedding that is cut sums, too."""
        options = Options(0, 4, tensor_parallel=2, gradient_accumulation_steps=3)
        facts = FACTS.model_copy(update={"tied_embeddings": False})
        found = [item for item in traffic(facts, options, SHAPE, PROFILE).collectives if item.name == "residual stream"]
        assert [(item.phase, item.elements, item.times, item.ranks) for item in found] == [
            ("forward", TOKENS * 64, 3 * 4, 2),
            ("backward", TOKENS * 64, 3 * (5 * 2 + 1), 2),
        ]
        tied = FACTS.model_copy(update={"tied_embeddings": True})
        found = [item for item in traffic(tied, options, SHAPE, PROFILE).collectives if item.name == "residual stream"]
        assert [item.times for item in found] == [3 * 5, 3 * 11]
        alone = TorchOptions("single", 2, tensor_parallel=2)
        again = replace(SHAPE, gradient_checkpointing=True)
        found = [item for item in traffic(facts, alone, again, PROFILE).collectives if item.name == "residual stream"]
        assert [item.times for item in found] == [2 * 2 + 1, 5 * 2 + 1 + 2]
        plain = FACTS.model_copy(update={"model_type": "starcoder2"})
        found = [item for item in traffic(plain, alone, SHAPE, PROFILE).collectives if item.name == "residual stream"]
        assert found[1].times == 4 * 2 + 1


def test_a_catalogued_card_is_priced_by_what_it_is() -> None:
    """Products of an A100 at 0.708 of 312 TFLOP/s, which calibrated them; of an unlisted balance by its memory."""
    profile = parse_hardware("A100")
    assert profile.accelerator.bf16_tflops == 312
    step = step_time(FACTS, TorchOptions("single", 1), Workload(8, 512), profile)
    done = work(FACTS, Workload(8, 512))
    memory = 0.8 * (profile.accelerator.memory_gb_s or 0) * 1e9
    seconds = done.forward.products / (0.708 * 312e12) + done.forward.attention / (0.55 * 312e12)
    assert parts(step)["forward"].expected == pytest.approx(seconds + done.forward.bytes / memory)
