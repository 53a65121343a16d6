"""Verdicts and the ladder, on predictions whose size is a plain function of the job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.overhead import GIB, MIB, Band, device_total, reserved, workspaces
from zerocfg.memory.predict import Prediction
from zerocfg.memory.terms import Estimate, Held
from zerocfg.memory.verdict import Setting, judge, ladder

H200, A100, CPU = (parse_hardware(name).accelerator for name in ("H200", "A100", "cpu"))


def prediction(size: int, complete: bool = True) -> Prediction:
    band = Band(size, size, size)
    return Prediction(Estimate(()), Held("device", "backward", ()), band, band, band, complete)


def simple(setting: Setting) -> Prediction:
    """States of 16 GiB over the ranks at stage 3, and 2 GiB of activations a sample."""
    options, work = setting.options, setting.workload
    assert isinstance(options, Options) and work is not None
    states = {0: 16, 1: 4 + 12 / options.world_size, 2: 2 + 14 / options.world_size, 3: 16 / options.world_size}
    size = states[options.stage] - (8 / options.world_size if options.offload_optimizer == "cpu" else 0)
    size += 2 * work.micro_batch * work.sequence_length / 1024 * (0.25 if work.gradient_checkpointing else 1)
    return prediction(int(size * GIB))


def job(**more: object) -> Setting:
    return Setting(Options(0, 4), replace(Workload(8, 1024), **more))  # type: ignore[arg-type]


class TestVerdict:
    def test_the_three_words(self) -> None:
        band = Band(10, 12, 14)
        one = Prediction(Estimate(()), Held("device", "step", ()), band, band, band, True)
        assert [judge(one, capacity) for capacity in (9, 10, 13, 14, None)] == [
            "does not fit", "tight", "tight", "fits", "unknown",
        ]  # fmt: skip

    def test_without_activations_nothing_fits_for_sure(self) -> None:
        assert judge(prediction(10, complete=False), 100) == "unknown"
        assert judge(prediction(101, complete=False), 100) == "does not fit"


class TestOutside:
    def test_workspaces_are_those_of_the_architecture(self) -> None:
        assert sum(term.size for term in workspaces(H200)) == 64 * MIB
        assert sum(term.size for term in workspaces(A100)) == 2 * 8_519_680
        assert workspaces(CPU) == workspaces(None) == ()

    def test_the_driver_shows_more_than_is_reserved_and_that_more_than_is_allocated(self) -> None:
        allocated = Band(9 * GIB, 10 * GIB, 11 * GIB)
        kept = reserved(allocated)
        alone, among_others = device_total(kept, H200, 1), device_total(kept, H200, 8)
        for end in ("low", "expected", "high"):
            assert getattr(allocated, end) <= getattr(kept, end) < getattr(alone, end) < getattr(among_others, end)

    def test_a_processor_has_no_context(self) -> None:
        band = Band(1, 2, 3)
        assert device_total(band, CPU, 2) == band


class TestLadder:
    def test_a_job_that_fits_needs_no_change(self) -> None:
        assert ladder(job(), simple, 100 * GIB).together == ()

    def test_the_cheapest_single_change_is_taken(self) -> None:
        found = ladder(job(), simple, 25 * GIB)  # 32 GiB as it is
        assert [rung.what for rung in found.together] == ["ZeRO stage 1"]
        assert found.together[0].word == "fits"

    def test_several_changes_where_one_is_not_enough(self) -> None:
        found = ladder(job(), simple, 9 * GIB)
        assert len(found.together) > 1
        assert found.together[-1].word == "fits"
        assert all(rung.word != "fits" for rung in found.together[:-1])

    def test_nothing_is_promised_where_nothing_helps(self) -> None:
        assert ladder(job(), lambda _: prediction(10 * GIB), 5 * GIB).together == ()

    @pytest.mark.parametrize("options", [Options(3, 1), Options(0, 1), TorchOptions("ddp", 4)])
    def test_every_change_can_be_built(self, options: Options | TorchOptions) -> None:
        found = ladder(Setting(options, Workload(4, 2048)), lambda _: prediction(GIB), GIB // 2)
        assert found.single
        assert len({rung.what for rung in found.single}) == len(found.single)

    @given(st.integers(1, 64), st.integers(256, 8192), st.integers(1, 60))
    def test_what_is_promised_fits_and_nothing_in_it_can_be_left_out(self, micro: int, tokens: int, room: int) -> None:
        found = ladder(job(micro_batch=micro, sequence_length=tokens), simple, room * GIB)
        if found.together:
            assert found.together[-1].word == "fits"
            assert simple(found.together[-1].setting).device.high <= room * GIB

    def test_the_global_batch_stays(self) -> None:
        found = ladder(job(), simple, 8 * GIB)
        for rung in found.single:
            work, options = rung.setting.workload, rung.setting.options
            assert work is not None
            assert work.micro_batch * options.gradient_accumulation_steps == 8
