"""Step times: what must hold for every job, and the figures of benchmarks/time that rest on the committed constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.time.flops import active_parameters, work
from zerocfg.memory.time.measured_spread import MEASURED
from zerocfg.memory.time.step_time import StepTime, step_time
from zerocfg.models.hardware import Accelerator, HardwareProfile, Host, Link, Mount
from zerocfg.models.model_facts import ModelFacts, from_config

LLAMA = from_config({"model_type": "llama"})
MIXTRAL = from_config({"model_type": "mixtral", "num_experts_per_tok": 2})
SHAPE = Workload(2, 2048)
A100 = parse_hardware("8xA100")


def seconds(step: StepTime) -> float:
    return step.seconds.expected


def parts(step: StepTime) -> dict[str, float]:
    return {part.name: part.seconds.expected for part in step.parts}


def predict(
    options: Options | TorchOptions | None = None,
    workload: Workload = SHAPE,
    profile: HardwareProfile = A100,
    facts: ModelFacts = LLAMA,
    **more: Any,
) -> StepTime:
    return step_time(facts, options or Options(2, 8), workload, profile, **more)


def with_device(**more: Any) -> HardwareProfile:
    return A100.model_copy(update={"accelerator": A100.accelerator.model_copy(update=more)})


class TestWork:
    def test_six_operations_for_each_parameter_and_token(self) -> None:
        done = work(LLAMA, SHAPE)
        tokens, products = 2 * 2048, (LLAMA.parameters or 0) - 32000 * 4096
        assert done.forward.products == pytest.approx(2 * products * tokens, rel=1e-4)
        assert done.backward.products == pytest.approx(4 * products * tokens, rel=1e-4)
        assert done.model_flops == tokens * (6 * (LLAMA.parameters or 0) + 12 * 32 * 4096 * 2048)

    def test_checkpointing_repeats_the_layers_but_their_last_product(self) -> None:
        done = work(LLAMA, replace(SHAPE, gradient_checkpointing=True))
        assert work(LLAMA, SHAPE).recomputed.flops == 0
        block = 4 * 4096**2 + 2 * 4096 * 11008
        assert done.recomputed.products == pytest.approx(2 * 32 * block * 2 * 2048, rel=1e-4)
        assert done.recomputed.attention == done.forward.attention

    def test_adapters_save_the_gradients_of_frozen_weights(self) -> None:
        adapted = LLAMA.model_copy(update={"trainable_parameters": 10**7})
        assert work(adapted, SHAPE).backward.products == pytest.approx(
            work(LLAMA, SHAPE).backward.products / 2, rel=0.01
        )

    def test_eager_attention_computes_and_moves_every_score(self) -> None:
        flash, eager = work(LLAMA, SHAPE), work(LLAMA, replace(SHAPE, attention="eager"))
        assert eager.forward.attention == 2 * flash.forward.attention
        assert eager.forward.bytes > 2 * flash.forward.bytes

    def test_a_token_meets_two_of_eight_experts(self) -> None:
        assert MIXTRAL.parameters == 46_702_792_704
        assert active_parameters(MIXTRAL) == 12_879_925_248  # 12.9e9, as Mistral states
        assert active_parameters(LLAMA) == LLAMA.parameters
        assert active_parameters(MIXTRAL.model_copy(update={"layout": []})) is None
        assert work(MIXTRAL.model_copy(update={"layout": []}), SHAPE).notes

    @pytest.mark.parametrize("missing", ["parameters", "hidden_size", "num_hidden_layers"])
    def test_unknown_models_are_refused_with_one_line(self, missing: str) -> None:
        with pytest.raises(ValueError, match="not known"):
            work(LLAMA.model_copy(update={missing: None}), SHAPE)


class TestStep:
    @given(st.integers(1, 16), st.sampled_from([512, 2048, 8192]), st.sampled_from([0, 1, 2, 3]))
    @settings(deadline=None)
    def test_more_work_takes_longer(self, batch: int, length: int, stage: int) -> None:
        base = predict(Options(stage, 8), Workload(batch, length))
        assert 0 < base.seconds.low <= base.seconds.expected <= base.seconds.high
        assert seconds(predict(Options(stage, 8), Workload(batch + 1, length))) >= seconds(base)
        assert seconds(predict(Options(stage, 8), Workload(batch, 2 * length))) > seconds(base)
        assert seconds(predict(Options(stage, 8), Workload(batch, length, True))) > seconds(base)
        assert base.tokens == 8 * batch * length and base.samples == 8 * batch
        assert 0 < base.mfu < 1

    @given(st.floats(1, 10), st.sampled_from([0, 2, 3]), st.booleans())
    @settings(deadline=None)
    def test_faster_hardware_is_never_slower(self, factor: float, stage: int, offload: bool) -> None:
        options = Options(stage, 16, offload_optimizer="cpu" if offload and stage else "none")

        def profile(rate: float) -> HardwareProfile:
            device = A100.accelerator.model_copy(
                update={"bf16_tflops": 312 * rate, "memory_gb_s": 2039 * rate, "host_gb_s": 64 * rate}
            )
            links = {"link_within_node": Link(kind="nvlink", gb_s=600 * rate)}
            links["link_between_nodes"] = Link(kind="infiniband", busbw_gb_s=20 * rate)
            host = Host(memory_gb_s=200 * rate)
            return A100.model_copy(update={"nodes": 2, "accelerator": device, "host": host, **links})

        assert seconds(predict(options, profile=profile(factor))) <= seconds(predict(options, profile=profile(1)))

    def test_a_slow_link_shows_where_nothing_hides_it(self) -> None:
        slow = A100.model_copy(update={"link_within_node": Link(kind="pcie", busbw_gb_s=2)})
        for options in (Options(0, 8), Options(2, 8), Options(3, 8), TorchOptions("fsdp2", 8)):
            assert seconds(predict(options, profile=slow)) > seconds(predict(options))
        overlapped = Options(2, 8, overlap_comm=True)
        assert seconds(predict(overlapped)) < seconds(predict(Options(2, 8)))

    def test_accumulation_pays_for_communication_once_at_stage_1(self) -> None:
        once, four = (predict(Options(1, 8, gradient_accumulation_steps=steps)) for steps in (1, 4))
        assert parts(four)["communication, step"] == parts(once)["communication, step"]
        assert parts(four)["forward"] == 4 * parts(once)["forward"]

    def test_unknown_links_are_said_and_left_out(self) -> None:
        profile = A100.model_copy(update={"nodes": 2})
        step = predict(Options(0, 16), profile=profile)
        assert "the link between nodes is not known: its share of the communication is left out" in step.notes
        assert not any("link" in note for note in predict(Options(0, 8)).notes)

    def test_measured_rates_are_taken(self) -> None:
        measured = with_device(measured_tflops={"bf16": 250.0}, measured_memory_gb_s=1700.0)
        slower = with_device(measured_tflops={"bf16": 125.0}, measured_memory_gb_s=1700.0)
        assert seconds(predict(profile=slower)) > seconds(predict(profile=measured))
        link = A100.model_copy(update={"link_within_node": Link(kind="nvlink", gb_s=600, busbw_gb_s=230, latency_us=0)})
        found = next(part for part in predict(Options(0, 8), profile=link).parts if part.name == "communication, step")
        size = 2 * 2 * (LLAMA.parameters or 0) * 7 / 8
        assert found.seconds.low == found.seconds.high == pytest.approx(size / 230e9)

    def test_offload_adds_the_host_and_nvme_adds_the_drive(self) -> None:
        device, host = predict(Options(3, 8)), predict(Options(3, 8, offload_optimizer="cpu"))
        drive = predict(Options(3, 8, offload_optimizer="nvme"))
        assert seconds(device) < seconds(host) < seconds(drive)
        assert {"gradients to the host", "optimizer on the host", "parameters from the host"} <= parts(host).keys()
        profile = A100.model_copy(
            update={"host": Host(nvme=[Mount(path="/x", free_gib=1, read_gb_s=6, write_gb_s=3)], memory_gb_s=200)}
        )
        known = predict(Options(3, 8, offload_optimizer="nvme"), profile=profile)
        size = 12 * (LLAMA.parameters or 0)
        assert parts(known)["optimizer states from NVMe and back"] == pytest.approx(size / 6e9 + size / 3e9)
        short, alone = Workload(1, 16), parse_hardware("A100")
        gathered = predict(Options(3, 1, offload_param="cpu", offload_optimizer="cpu"), short, alone)
        assert seconds(gathered) > seconds(predict(Options(3, 1, offload_optimizer="cpu"), short, alone))

    def test_parameters_on_the_host_come_back_twice_in_a_micro_step(self) -> None:
        alone = parse_hardware("A100")
        options = Options(3, 1, offload_param="cpu", offload_optimizer="cpu", overlap_comm=False)
        found = parts(predict(options, profile=alone))
        copied = 2 * (LLAMA.parameters or 0) / (64e9 / 2 * 0.8)
        assert found["communication, forward"] == found["communication, backward"] == pytest.approx(copied)
        hidden = predict(replace(options, overlap_comm=True), Workload(8, 4096), alone)
        assert "communication, forward" not in parts(hidden), "beside a longer computation"

    def test_small_batches_wait_for_python(self) -> None:
        short = predict(Options(0, 1), Workload(1, 16), parse_hardware("A100"))
        assert parts(short)["waiting for the host in forward"] > parts(short)["forward"]
        assert any("2048 tokens" in note for note in short.notes)
        long = parts(predict(Options(1, 8), Workload(4, 4096)))
        assert "waiting for the host in forward" not in long and "waiting for the host in backward" not in long

    @pytest.mark.parametrize("stage", [0, 1, 2, 3])
    def test_the_host_is_counted_in_launches(self, stage: int) -> None:
        """Llama-2-7B has 32 layers of 9 modules with a tensor and 4 without, an embedding, a norm and a head. A layer
        launches 42 kernels forward and 82 backward; 26 come before and after. One launch takes 100 us here."""
        launch = 100e-6
        host = Host(launch_us=100)
        profile = parse_hardware("A100").model_copy(update={"host": host})
        found = parts(predict(Options(stage, 1), Workload(1, 16), profile))
        modules, tensors = 32 * 13 + 3, 32 * 9 + 3
        forward, backward = 32 * 42 + 26, 32 * 82 + 26
        scale = MEASURED["short"].expected
        hidden = 0.57 if stage == 3 else 1.0
        more = {"forward": 0.0, "backward": {0: 0.0, 1: 1.1 * tensors, 2: 1.1 * tensors, 3: 0.0}[stage]}
        if stage == 3:
            more = dict.fromkeys(more, 18.7 * modules)
        for name, kernels in (("forward", forward), ("backward", backward)):
            waited = launch * (kernels + more[name]) - hidden * scale * found[name]
            assert found[f"waiting for the host in {name}"] == pytest.approx(waited)
        each = {0: 10.2, 1: 8.5, 2: 8.5, 3: 2.7}[stage]
        assert found["waiting for the host in the optimizer"] == pytest.approx(launch * each * tensors)

    @pytest.mark.parametrize(
        ("kind", "forward", "backward", "step"),
        [
            ("single", 0, 0, 0),
            ("ddp", 0, 1.0 * 291, 0),
            ("fsdp1", 32 * 33, 49 * 33, 1.5 * 291),
            ("fsdp2", 32 * 33, 49 * 33, 1.5 * 291),
        ],
    )
    def test_the_host_under_engines_of_torch(self, kind: Any, forward: float, backward: float, step: float) -> None:
        """Llama-2-7B has 32 layers, which with the root are 33 units, and 291 tensors."""
        profile = parse_hardware("A100").model_copy(update={"host": Host(launch_us=100)})
        found = parts(predict(TorchOptions(kind, 1), Workload(1, 16), profile))
        scale = MEASURED["short"].expected
        for name, kernels, more in (("forward", 32 * 42 + 26, forward), ("backward", 32 * 82 + 26, backward)):
            waited = 100e-6 * (kernels + more) - scale * found[name]
            assert found[f"waiting for the host in {name}"] == pytest.approx(waited)
        assert found.get("waiting for the host in the optimizer", 0) == pytest.approx(100e-6 * step)

    def test_accumulating_gradients_of_zero_2_take_more_of_the_host(self) -> None:
        profile = parse_hardware("A100").model_copy(update={"host": Host(launch_us=100)})

        def waited(stage: int, steps: int) -> float:
            options = Options(stage, 1, gradient_accumulation_steps=steps)
            return parts(predict(options, Workload(1, 16), profile))["waiting for the host in backward"] / steps

        assert waited(1, 4) == pytest.approx(waited(1, 1))
        assert waited(2, 4) - waited(2, 1) == pytest.approx((7.0 - 1.1) * (32 * 9 + 3) * 100e-6)

    def test_a_module_that_is_recomputed_is_visited_again(self) -> None:
        profile = parse_hardware("A100").model_copy(update={"host": Host(launch_us=100)})
        options = Options(3, 1)
        plain = parts(predict(options, Workload(1, 16), profile))
        again = parts(predict(options, Workload(1, 16, gradient_checkpointing=True), profile))
        more = 100e-6 * (32 * 34 + 4.8 * (32 * 13 + 3)) - 0.57 * MEASURED["short"].expected * again["recomputation"]
        name = "waiting for the host in backward"
        assert again[name] - plain[name] == pytest.approx(more)

    def test_of_partitioned_gradients_a_rank_steps_through_its_own(self) -> None:
        name = "waiting for the host in the optimizer"
        one, eight = (parts(predict(Options(2, ranks)))[name] for ranks in (1, 8))
        assert one == pytest.approx(8 * eight)
        one, eight = (parts(predict(Options(3, ranks)))[name] for ranks in (1, 8))
        assert one == pytest.approx(eight)

    def test_a_measured_launch_is_taken_and_an_assumed_one_is_said(self) -> None:
        assumed = predict()
        profile = A100.model_copy(update={"host": Host(launch_us=27)})
        measured = predict(profile=profile)
        assert any("zerocfg probe measures it" in note for note in assumed.notes)
        assert not any("zerocfg probe measures it" in note for note in measured.notes)
        assert seconds(measured) == pytest.approx(seconds(assumed))

    def test_what_is_derived(self) -> None:
        step = predict(Options(2, 8, gradient_accumulation_steps=4))
        assert step.tokens_per_second == pytest.approx(step.tokens / seconds(step))
        assert step.samples_per_second == pytest.approx(8 * 2 * 4 / seconds(step))
        assert step.mfu == pytest.approx(step.tflops / 312)
        assert step.cost_per_step(2.0).expected == pytest.approx(seconds(step) * 8 * 2 / 3600)
        billion = step.cost_per_billion_tokens(2.0)
        assert billion.expected == pytest.approx(1e9 / step.tokens_per_second * 8 * 2 / 3600)
        assert billion.low < billion.expected < billion.high
        assert seconds(step) == pytest.approx(sum(parts(step).values()))
        assert all(part.formula and part.inputs for part in step.parts)

    def test_tuned_code_is_faster(self) -> None:
        assert seconds(predict(kernels="fused")) < seconds(predict())

    @pytest.mark.parametrize(
        "device",
        [
            Accelerator(name="cpu", vendor="cpu"),
            A100.accelerator.model_copy(update={"memory_gb_s": None}),
            A100.accelerator.model_copy(update={"bf16_tflops": None}),
        ],
    )
    def test_unknown_devices_are_refused_with_one_line(self, device: Accelerator) -> None:
        with pytest.raises(ValueError, match="not known") as refusal:
            predict(profile=A100.model_copy(update={"accelerator": device}))
        assert "\n" not in str(refusal.value)
