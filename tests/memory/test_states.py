"""Memory of model states: the formulas against figures measured on real DeepSpeed, and their invariants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.fit import smallest_stage_that_fits
from zerocfg.memory.states import Options, States, model_states
from zerocfg.models.hardware import Host
from zerocfg.models.model_facts import ModelFacts, from_config

LINEAR = 512 * 512
THREE_LINEARS = ModelFacts(
    parameters=3 * (LINEAR + 512),
    largest_parameter=LINEAR,
    largest_module=LINEAR + 512,
    tensor_sizes=[(LINEAR, 3), (512, 3)],
)
N = 3 * (LINEAR + 512)
GIB = 1 << 30

# Bytes for each parameter that DeepSpeed 0.19.8 held on one CPU rank after an optimizer step (host and device
# together, both being CPU): three Linear(512), AdamW, reduce_bucket_size = N. Buckets of stages 1 and 2 are
# freed by then.
AFTER_STEP = [
    (Options(0, 1), 14),
    (Options(1, 1), 14),
    (Options(2, 1), 14),
    (Options(1, 1, accumulation="fp32"), 18),
    (Options(2, 1, offload_optimizer="cpu"), 5.33 + 16),
    (Options(2, 1, offload_optimizer="cpu", gradient_accumulation_steps=2), 7.33 + 16),
    (Options(3, 1), 18),
    (Options(3, 1, accumulation="fp32"), 20),
    (Options(3, 1, offload_optimizer="cpu"), 22),
    (Options(3, 1, offload_optimizer="cpu", offload_param="cpu"), 22),
    (Options(3, 1, precision="fp32"), 24),
]


def per_parameter(states: States, *moments: Any) -> float:
    # Tensors below the persistence threshold are the same memory when one rank holds everything.
    terms = [term for term in states.terms if term.name != "persistent small parameters"]
    return sum(term.size for term in terms if term.moment in moments) / N


@pytest.mark.parametrize(("options", "measured"), AFTER_STEP)
def test_resting_memory_is_what_was_measured(options: Options, measured: float) -> None:
    states = model_states(THREE_LINEARS, replace(options, reduce_bucket_size=N))
    assert per_parameter(states, "always") == pytest.approx(measured, abs=0.01)


@pytest.mark.parametrize(
    ("options", "measured_before_the_first_step"),
    [
        (Options(1, 1), 2 + 2 + 4),
        (Options(2, 1), 2 + 2 + 4),
        (Options(2, 1, accumulation="fp32"), 2 + 8),
    ],
)
def test_after_backward(options: Options, measured_before_the_first_step: float) -> None:
    """Adam's moments (8 bytes) come with the first step; the bucket is freed when backward ends."""
    states = model_states(THREE_LINEARS, replace(options, reduce_bucket_size=N))
    held = per_parameter(states, "always", "gradients") - 8
    assert held == pytest.approx(measured_before_the_first_step, abs=0.01)


def test_fp16_with_fp32_accumulation_has_an_accumulator_and_an_fp32_bucket() -> None:
    options = Options(1, 1, precision="fp16", accumulation="fp32", reduce_bucket_size=N)
    states = model_states(THREE_LINEARS, options)
    named = {term.name: term.size / N for term in states.terms if term.moment in ("gradients", "backward")}
    assert named["gradient accumulator"] == named["reduce bucket"] == 4


def test_llama_7b_on_eight_ranks() -> None:
    """Resting ZeRO-3 minus ZeRO-3 with offloaded optimizer was 11.0 GiB on 8 A800 (14 bytes for each
    parameter)."""
    facts = from_config({"model_type": "llama"})
    zero_3 = model_states(facts, Options(3, 8))
    offloaded = model_states(facts, Options(3, 8, offload_optimizer="cpu"))
    difference = zero_3.at("device", "always") - offloaded.at("device", "always")
    assert difference / GIB == pytest.approx(11.0, abs=0.05)


def test_the_bucket_is_counted_in_elements_and_doubled_by_overlap_in_stages_1_and_2() -> None:
    facts = ModelFacts(parameters=10**6)

    def bucket(options: Options) -> int:
        return sum(term.size for term in model_states(facts, options).terms if term.name == "reduce bucket")

    assert bucket(Options(2, 8)) == 10**9
    assert bucket(Options(2, 8, overlap_comm=True)) == 2 * 10**9
    assert bucket(Options(3, 8)) == bucket(Options(3, 8, overlap_comm=False)) == 10**9
    assert bucket(Options(2, 8, precision="fp32")) == 2 * 10**9
    assert bucket(Options(3, 8, contiguous_gradients=False)) == 0


def test_frozen_parameters_have_no_gradients_and_no_optimizer() -> None:
    frozen = ModelFacts(parameters=10**9, trainable_parameters=0)
    names = {term.name for term in model_states(frozen, Options(1, 4)).terms}
    assert "parameters" in names
    assert not names & {"gradients", "master weights", "optimizer moments"}


@pytest.mark.parametrize(
    "bad",
    [
        {"stage": 4, "world_size": 1},
        {"stage": 2, "world_size": 0},
        {"stage": 0, "world_size": 1, "offload_optimizer": "cpu"},
        {"stage": 2, "world_size": 1, "offload_param": "cpu"},
        {"stage": 2, "world_size": 1, "offload_optimizer": "nvme"},
    ],
)
def test_what_deepspeed_refuses_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Options(**bad)


def test_unknown_parameters_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="mamba"):
        model_states(from_config({"model_type": "mamba"}), Options(2, 8))


models = st.sampled_from([from_config({"model_type": name}) for name in ("llama", "gpt2", "mixtral", "gemma2")])
precisions = st.sampled_from(["fp32", "bf16", "fp16"])


@given(models, st.integers(0, 3), st.integers(1, 512), precisions)
def test_more_ranks_never_need_more(facts: ModelFacts, stage: int, ranks: int, precision: Any) -> None:
    one = model_states(facts, Options(stage, ranks, precision))
    more = model_states(facts, Options(stage, 2 * ranks, precision))
    padding = 64 * ranks  # a partition is padded
    assert more.peak("device") <= one.peak("device") + padding


@given(models, st.integers(2, 512), precisions)
def test_a_higher_stage_rests_on_less(facts: ModelFacts, ranks: int, precision: Any) -> None:
    """Resting memory without buckets; the peak may go the other way for small models (buckets, gathering)."""

    def rest(stage: int) -> int:
        options = Options(stage, ranks, precision, param_persistence_threshold=0)
        terms = [term for term in model_states(facts, options).terms if "bucket" not in term.name]
        resting = [term for term in terms if term.moment in ("always", "gradients")]
        return sum(term.size for term in resting if term.place == "device")

    assert rest(1) >= rest(2) >= rest(3)


@given(models, st.integers(1, 64), st.sampled_from(["cpu", "nvme"]))
def test_offload_moves_bytes_off_the_device(facts: ModelFacts, ranks: int, device: Any) -> None:
    plain = model_states(facts, Options(3, ranks))
    offloaded = model_states(facts, Options(3, ranks, offload_optimizer=device, offload_param=device))
    assert offloaded.peak("device") < plain.peak("device")
    assert offloaded.peak("host") + offloaded.peak("nvme") > 0
    assert (offloaded.peak("nvme") > 0) == (device == "nvme")


class TestFit:
    def stage(self, parameters: float, hardware: str, **more: Any) -> int | None:
        fit = smallest_stage_that_fits(ModelFacts(parameters=int(parameters)), parse_hardware(hardware), **more)
        return fit.stage if fit else None

    def test_the_least_partitioned_stage_is_taken(self) -> None:
        assert self.stage(1e9, "8xA100-80GB") == 0
        assert self.stage(7e9, "8xA100-80GB") == 1
        assert self.stage(16e9, "8xA100-80GB") == 2
        assert self.stage(30e9, "8xA100-80GB") == 3
        assert self.stage(1e12, "8xA100-80GB", offload=False) is None

    def test_one_device_partitions_nothing(self) -> None:
        fit = smallest_stage_that_fits(ModelFacts(parameters=3 * 10**9), parse_hardware("RTX3090"))
        assert fit and fit.states.options.offload_optimizer == "cpu"
        assert [states.options.stage for states in fit.passed_over] == [0]
        assert self.stage(3e9, "RTX3090", offload=False) is None

    def test_a_reserve_for_activations_raises_the_stage(self) -> None:
        assert self.stage(7e9, "8xA100-80GB", reserved_gib=40.0, offload=False) == 2
        assert self.stage(7e9, "8xA100-80GB", reserved_gib=45.0, offload=False) == 3

    def test_the_host_has_to_hold_what_is_offloaded(self) -> None:
        facts, hardware = ModelFacts(parameters=13 * 10**9), parse_hardware("2xRTX3090")
        assert smallest_stage_that_fits(facts, hardware) is not None
        small = hardware.model_copy(update={"host": Host(ram_gib=64.0)})
        assert smallest_stage_that_fits(facts, small) is None
        large = hardware.model_copy(update={"host": Host(ram_gib=1024.0)})
        fit = smallest_stage_that_fits(facts, large)
        assert fit and fit.host_bytes == int(1024 * 0.9 * GIB / 2)

    def test_unknown_memory_is_refused(self) -> None:
        with pytest.raises(ValueError, match="cpu"):
            self.stage(1e9, "cpu")

    def test_the_fit_really_fits(self) -> None:
        for size in (1e8, 1e9, 7e9, 13e9, 70e9):
            facts = ModelFacts(parameters=int(size))
            fit = smallest_stage_that_fits(facts, parse_hardware("4xA100-40GB"))
            if fit:
                assert fit.states.peak("device") <= fit.device_bytes
                assert all(states.peak("device") > fit.device_bytes for states in fit.passed_over)
