"""What nobody wrote down: what a run of configs by hand is given before its start, which launch of a search is the
fastest, which rules foretell a crash, where a verdict tells of its certificate. No library runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.rules.registry import find as find_rule
from zerocfg.smoke.judge import diagnosis
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch import leftovers
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.max_batch import Found, Try
from zerocfg.smoke.model.reduction import Kind, Reduced
from zerocfg.smoke.prepare import memory_files
from zerocfg.smoke.prepare import reduce as reducing
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.handwritten import Handwritten
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.prepare.requested_settings import DTYPE, Claim
from zerocfg.smoke.text import render

from .sets import RECIPE, Set, trainer, zero

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU = Device("cpu", "cpu")
CARD = Device("cuda", "NVIDIA H100 80GB HBM3", 1, 80 << 30)


def claim(value: Any) -> Any:
    return SimpleNamespace(value=value)


def fitted(
    consumer: str,
    config: dict[str, Any] | None,
    device: Device = CPU,
    *,
    dtypes: tuple[str, ...] = (),
    accelerate: dict[str, Any] | None = None,
    options: tuple[str, ...] = (),
    **arguments: Any,
) -> tuple[Reduced, Handwritten]:
    asked: dict[str, list[Claim]] = {DTYPE: [claim(item) for item in dtypes]} if dtypes else {}
    run: Any = SimpleNamespace(consumer=consumer, recipe=None)
    own = Handwritten(run, asked, options=list(options))
    reduced = Reduced(2, {}, accelerate, config, arguments, {})
    own.fit(reduced, device)
    return reduced, own


class TestFit:
    @pytest.mark.parametrize("consumer", ["accelerate", "deepspeed"])
    def test_a_loop_of_its_own_takes_the_batch_of_the_config(self, consumer: str) -> None:
        micro = "per_device_train_batch_size"
        assert fitted(consumer, {"train_micro_batch_size_per_gpu": 3})[0].arguments == {micro: 3}
        assert fitted(consumer, {"train_micro_batch_size_per_gpu": 1})[0].arguments == {micro: 1}
        given = fitted(consumer, {"train_micro_batch_size_per_gpu": 3}, per_device_train_batch_size=2)[0]
        assert given.arguments == {micro: 2}, "its options come first"
        for unusable in ("auto", 0, -1, 1.5):
            assert fitted(consumer, {"train_micro_batch_size_per_gpu": unusable})[0].arguments == {}
        assert fitted(consumer, None)[0].arguments == {}

    @pytest.mark.parametrize("consumer", ["transformers", "trl"])
    def test_a_trainer_takes_its_own_and_what_its_arguments_no_longer_have(self, consumer: Any, tmp_path: Path) -> None:
        own = read(Set(trainer(zero(2), RECIPE + "no_cuda: true\n")).write(tmp_path)).handwritten
        assert own is not None
        own.run = replace(own.run, consumer=consumer)
        reduced = Reduced(2, {}, None, {"train_micro_batch_size_per_gpu": 3}, {}, {})
        own.fit(reduced, CPU)
        assert reduced.arguments == {"no_cuda": True}

    def test_the_schedule_of_the_config_has_an_end(self) -> None:
        schedule = {"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 7}}}
        assert fitted("deepspeed", schedule)[0].arguments == {"max_steps": 7}
        assert fitted("deepspeed", schedule, max_steps=4)[0].arguments == {"max_steps": 4}
        for without in ({}, {"params": None}, {"params": {"total_num_steps": "auto"}}):
            assert fitted("deepspeed", {"scheduler": without})[0].arguments == {}
        assert fitted("deepspeed", {"scheduler": "none"})[0].arguments == {}

    def test_a_processor_trains_no_fp16(self) -> None:
        reduced, own = fitted(
            "accelerate",
            None,
            dtypes=("fp16",),
            accelerate={"mixed_precision": "fp16"},
            options=("--mixed_precision", "fp16", "--num_processes", "2"),
            fp16=True,
        )
        assert reduced.arguments == {"fp16": False, "bf16": True}
        assert reduced.accelerate == {"mixed_precision": "bf16"}
        assert own.options == ["--mixed_precision", "bf16", "--num_processes", "2"]
        (change,) = reduced.changes
        assert (change.kind, change.planned, change.run) == (Kind.PRECISION, "fp16", "bf16")
        assert change.why == "because a processor has no fp16 training"

    def test_what_is_not_asked_there_stays(self) -> None:
        reduced, _ = fitted("accelerate", None, dtypes=("fp16",), accelerate={"mixed_precision": "no"}, fp16=False)
        assert reduced.arguments == {"fp16": False} and reduced.accelerate == {"mixed_precision": "no"}
        assert len(reduced.changes) == 1

    def test_of_a_deepspeed_config_only_the_options_are_changed(self) -> None:
        reduced, own = fitted("deepspeed", {"fp16": {"enabled": True}}, dtypes=("fp16",), options=("fp16",), fp16=True)
        assert reduced.arguments == {"fp16": True} and reduced.changes == [] and own.options == ["bf16"]

    @pytest.mark.parametrize("dtypes", [(), ("bf16",), ("fp16", "bf16"), ("fp32",)])
    def test_another_precision_stays(self, dtypes: tuple[str, ...]) -> None:
        reduced, own = fitted("accelerate", None, dtypes=dtypes, options=("fp16",), fp16=True)
        assert reduced.arguments == {"fp16": True} and reduced.changes == [] and own.options == ["fp16"]

    def test_a_card_trains_fp16(self) -> None:
        reduced, own = fitted("accelerate", None, CARD, dtypes=("fp16",), options=("fp16",), fp16=True)
        assert reduced.arguments == {"fp16": True} and reduced.changes == [] and own.options == ["fp16"]


class TestFastest:
    def fastest(self, *rates: tuple[int, bool, float | None]) -> int | None:
        run: Any = None
        item = Found(run, 4, 64, None, [Try(batch, fits, None, rate, 1.0) for batch, fits, rate in rates]).fastest
        return None if item is None else item.batch

    def test_most_tokens_a_second_win(self) -> None:
        assert self.fastest((1, True, 10.0), (8, True, 30.0), (4, True, 20.0)) == 8

    def test_of_equals_the_smallest(self) -> None:
        assert self.fastest((8, True, 100.0), (4, True, 97.5), (2, True, 96.0)) == 4
        assert self.fastest((8, True, 100.0), (4, True, 96.9)) == 8

    def test_slow_ones_are_rated_too(self) -> None:
        assert self.fastest((2, True, 0.2), (1, True, 0.1)) == 2

    def test_only_what_fits_and_was_measured(self) -> None:
        assert self.fastest((8, False, 90.0), (4, True, None), (2, True, 10.0)) == 2
        assert self.fastest((8, False, 90.0), (4, True, None)) is None
        assert self.fastest() is None


class TestCrashes:
    @pytest.mark.parametrize(
        ("code", "phase", "other"),
        [("ZC101", "parse", "init"), ("ZC201", "init", "step"), ("ZC223", "step", "init"), ("ZC460", "load", "save")],
    )
    def test_in_the_phase_of_its_proof(self, code: str, phase: str, other: str) -> None:
        rule: Any = find_rule(code)
        assert diagnosis._crashes(rule) and diagnosis._crashes(rule, (phase,))
        assert diagnosis._crashes(rule, (other, phase)) and not diagnosis._crashes(rule, (other,))

    def test_a_silent_rule_never(self) -> None:
        rule: Any = find_rule("ZC102")
        assert not diagnosis._crashes(rule) and not diagnosis._crashes(rule, ("parse",))


def test_the_certificate_has_a_line_if_and_only_if_there_is_one(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    verdict = Verdict(run, CPU, reduce(run, CPU, 2, tmp_path), Outcome([{"losses": [4.0]}], seconds=3.0))
    verdict.expected = "nothing was predicted"
    assert "certificate:" not in render(verdict)
    verdict.certificate = tmp_path / "smoke.json"
    assert f"\ncertificate: {tmp_path}/smoke.json\n" in render(verdict)
    verdict.certificate, verdict.uncertified = None, "none, because it failed"
    assert render(verdict).count("certificate:") == 1 and "\ncertificate: none, because it failed\n" in render(verdict)


@pytest.mark.parametrize(
    ("value", "above"), [(1, True), (0.5, True), (0, False), (-1, False), (None, False), ("auto", False)]
)
def test_a_number_of_steps(value: object, above: bool) -> None:
    assert reducing._above_zero(value) is above


@pytest.mark.parametrize(
    ("mounts", "there"),
    [
        ("tmpfs /dev/shm tmpfs", True),
        ("tmpfs /dev/shm tmpfs rw", True),
        ("shm /dev/shm tmpfs rw 0 0\nover /dev/shm ext4 rw 0 0", False),
        ("over /dev/shm ext4 rw 0 0\nshm /dev/shm tmpfs rw 0 0", True),
        ("tmpfs /dev/shm", False),
        ("tmpfs /run tmpfs rw 0 0", False),
        ("", False),
    ],
)
def test_the_last_mount_counts(mounts: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in memory_files.CHOSEN_BY:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text(f"/dev/vda / ext4 rw 0 0\n{mounts}\n")
    (tmp_path / "dev/shm").mkdir(parents=True)
    assert memory_files.memory_folder(tmp_path) == (tmp_path / "dev/shm" if there else None)


class TestKill:
    def test_ends_at_once_where_nothing_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leftovers, "marked", lambda mark: set())
        clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: pytest.fail("nothing to wait for"))
        monkeypatch.setattr(leftovers, "time", clock)
        assert leftovers.kill("x") == set()

    def test_kills_what_starts_meanwhile_and_gives_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        times = iter([0.0, 1.0, 2.0, 4.9, 5.0, 6.0, 7.0])
        killed: list[int] = []

        def gone(process: int, signal: int) -> None:
            killed.append(process)
            raise ProcessLookupError

        left = iter([{11}, {11, 12}, {13}, {14}, {15}, {16}])
        monkeypatch.setattr(leftovers, "marked", lambda mark: next(left))
        clock = SimpleNamespace(monotonic=lambda: next(times), sleep=lambda seconds: None)
        monkeypatch.setattr(leftovers, "time", clock)
        monkeypatch.setattr(os, "kill", gone)
        assert leftovers.kill("x") == {11, 12, 13}
        assert sorted(killed) == [11, 11, 12, 13], "after the patience it leaves the rest"
