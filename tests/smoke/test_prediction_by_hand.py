"""What is predicted of a launch: its data, whose values count, and the batch that is expected to fit, by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.memory.overhead import Band
from zerocfg.memory.time.wire import Traffic
from zerocfg.smoke.judge import prediction
from zerocfg.smoke.judge.prediction import Expected, Sent, expect, largest_expected
from zerocfg.smoke.model.reduction import Reduced
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce

from .conftest import PARAMETERS

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import MakeRun

CPU, CARD = Device("cpu", "cpu"), Device("cuda", "NVIDIA H100 80GB HBM3", 2, 80 << 30)


def reduced(**facts: Any) -> Reduced:
    empty: dict[str, Any] = {"model": {}, "accelerate": None, "deepspeed": None, "arguments": {}, "plan": {}}
    return Reduced(**({"ranks": 2} | empty | {"sequence": 8} | facts))


def sent(operation: str, payload: float, sent: float) -> Any:
    return SimpleNamespace(operation=operation, payload=payload, sent=sent)


def expectation(**more: Any) -> Expected:
    peaks = {"device": SimpleNamespace(size=9), "host": SimpleNamespace(size=11)}
    phases = {"init": SimpleNamespace(size=3), "step": SimpleNamespace(size=4)}
    estimate = SimpleNamespace(phases=lambda place: phases if place == "device" else {}, peak=peaks.__getitem__)
    held = SimpleNamespace(
        allocated=Band(1, 2, 3),
        reserved=Band(4, 5, 6),
        device=Band(7, 8, 9),
        complete=True,
        worst=SimpleNamespace(moment="backward"),
        estimate=estimate,
    )
    given: dict[str, Any] = {"facts": None, "setup": None, "prediction": held, "time": None, "flops": None}
    return Expected(**given | {"traffic": Traffic(())} | more)


class TestData:
    def test_of_a_processor(self) -> None:
        assert expectation().data() == {
            "allocated": [1, 2, 3],
            "reserved": [4, 5, 6],
            "device": [7, 8, 9],
            "complete": True,
            "worst": "backward",
            "phases": {"init": 3, "step": 4},
            "host": 11,
            "communication": {},
        }
        assert expectation().allocated == Band(1, 2, 3)

    def test_times_of_a_card(self) -> None:
        seconds = SimpleNamespace(low=0.1234567, expected=0.2, high=0.3000004)
        time = SimpleNamespace(seconds=seconds, tokens_per_second=1234.56, tflops=3.14159)
        found = expectation(time=time).data()
        assert found["step_seconds"] == [0.123457, 0.2, 0.3]
        assert (found["tokens_per_second"], found["tflops"]) == (1234.6, 3.142)

    def test_what_is_sent_by_kind(self) -> None:
        """Several collectives of one kind are one figure, in whole bytes."""
        each = (sent("all_gather", 10.4, 5.2), sent("reduce", 8.0, 4.0), sent("all_gather", 3.6, 1.9))
        item = expectation(traffic=SimpleNamespace(collectives=each))
        assert item.collectives() == {"all_gather": Sent(14, 7), "reduce": Sent(8, 4)}
        assert item.data()["communication"] == {
            "all_gather": {"payload": 14, "sent": 7},
            "reduce": {"payload": 8, "sent": 4},
        }


class TestValues:
    def test_the_engines_own_file_goes_over_the_plan(self) -> None:
        zero = {"stage": 2, "reduce_bucket_size": "auto", "offload_optimizer": {"device": "cpu", "pin_memory": None}}
        found = prediction._values(
            reduced(
                plan={"engine": "ddp", "zero_optimization.stage": 3, "zero_optimization.reduce_bucket_size": 7, "x": 1},
                deepspeed={"zero_optimization": zero, "bf16": {"enabled": False}},
                accelerate={"y": 2},
                arguments={"bf16": True},
            )
        )
        assert found == {
            "engine": "deepspeed",
            "zero_optimization.stage": 2,
            "zero_optimization.reduce_bucket_size": 7,
            "zero_optimization.offload_optimizer.device": "cpu",
            "bf16.enabled": False,
            "x": 1,
        }

    def test_without_deepspeed_the_plan_goes_over_accelerates_file(self) -> None:
        found = prediction._values(
            reduced(
                plan={"engine": "fsdp", "fsdp_config.fsdp_version": 2, "fp16.enabled": False},
                accelerate={"mixed_precision": "no", "fsdp_config": {"fsdp_version": 1, "z": 3}},
                arguments={"bf16": True, "fp16": True},
            )
        )
        assert found == {
            "engine": "fsdp",
            "mixed_precision": "no",
            "fsdp_config.fsdp_version": 2,
            "fsdp_config.z": 3,
            "bf16.enabled": True,
            "fp16.enabled": False,
        }
        assert prediction._values(reduced()) == {"bf16.enabled": None, "fp16.enabled": None}

    @pytest.mark.parametrize(
        ("model", "arguments", "autocast", "recomputes"),
        [
            ({"dtype": "bfloat16"}, {"bf16": True}, False, False),
            ({"torch_dtype": "bfloat16"}, {"bf16": True, "gradient_checkpointing": True}, False, True),
            ({"dtype": "float32", "torch_dtype": "bfloat16"}, {"bf16": True}, True, False),
            ({}, {"bf16": True, "gradient_checkpointing": False}, True, False),
            ({"dtype": "float32"}, {}, False, False),
        ],
    )
    def test_a_setup_by_the_dtype_of_the_model_and_by_the_arguments(
        self, model: Any, arguments: Any, autocast: bool, recomputes: bool
    ) -> None:
        arguments = {"per_device_train_batch_size": 3} | arguments
        plan = {"engine": "ddp", "train_micro_batch_size_per_gpu": 3}
        setup = prediction.setup_in(reduced(model=model, arguments=arguments, plan=plan, sequence=64), "transformers")
        assert setup.workload is not None
        assert (setup.workload.autocast, setup.workload.gradient_checkpointing) == (autocast, recomputes)
        assert (setup.workload.micro_batch, setup.workload.sequence_length) == (3, 64)

    @pytest.mark.parametrize(("ranks", "nodes", "each"), [(4, 2, 2), (2, 1, 2), (1, 2, 1)])
    def test_processors_of_the_ranks(self, ranks: int, nodes: int, each: int) -> None:
        found = prediction._here(reduced(ranks=ranks, nodes=nodes))
        assert (found.nodes, found.accelerators_per_node, found.accelerator.vendor) == (nodes, each, "cpu")


class TestExpect:
    def small(self, make_run: MakeRun, tmp_path: Path, stage: int | None = 3) -> Reduced:
        return reduce(read(make_run(stage)), CPU, 2, tmp_path)

    def test_what_is_not_known_is_said(
        self, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        less = self.small(make_run, tmp_path)
        wrong = json.loads(json.dumps(less.deepspeed))
        wrong["zero_optimization"]["stage"] = 9
        refused = expect(replace(less, deepspeed=wrong), CPU, "transformers")
        assert isinstance(refused, str) and "9" in refused
        setup = replace(prediction.setup_in(less, "transformers"), workload=None, unknown="no batch")
        with monkeypatch.context() as other:
            other.setattr(prediction, "setup_in", lambda *_: setup)
            assert expect(less, CPU, "transformers") == "no batch"
        for because, said in (("a strange model", "a strange model"), (None, "the model's tensors are not known")):
            facts = SimpleNamespace(parameters=None, unknown_because=because)
            with monkeypatch.context() as other:
                other.setattr(prediction, "from_config", lambda model, facts=facts: facts)
                assert expect(less, CPU, "transformers") == said
        assert isinstance(expect(less, CPU, "transformers"), Expected)

    def test_another_micro_batch(self, make_run: MakeRun, tmp_path: Path) -> None:
        less = self.small(make_run, tmp_path)
        own, other = (expect(less, CPU, "transformers", size) for size in (None, 6))
        assert isinstance(own, Expected) and isinstance(other, Expected)
        assert own.setup.workload is not None and other.setup.workload is not None and own.flops
        assert own.setup.workload.micro_batch == less.plan["train_micro_batch_size_per_gpu"]
        assert other.setup.workload == replace(own.setup.workload, micro_batch=6)
        assert other.flops == own.flops * 6 / own.setup.workload.micro_batch

    def test_operations_grow_with_the_steps_that_are_accumulated(self, make_run: MakeRun, tmp_path: Path) -> None:
        less = self.small(make_run, tmp_path)
        two = expect(less, CPU, "transformers")
        once = json.loads(json.dumps(less.deepspeed)) | {"gradient_accumulation_steps": 1}
        plan = less.plan | {"gradient_accumulation_steps": 1}
        item = expect(replace(less, deepspeed=once, plan=plan), CPU, "transformers")
        assert isinstance(two, Expected) and isinstance(item, Expected)
        assert item.flops is not None and two.flops == 2 * item.flops
        assert two.facts.parameters == PARAMETERS

    def test_of_several_ranks_for_one_model_no_operations_are_told(self, make_run: MakeRun, tmp_path: Path) -> None:
        found = expect(self.small(make_run, tmp_path), CPU, "transformers")
        assert isinstance(found, Expected)
        split: Any = replace(found.setup, options=replace(found.setup.options, tensor_parallel=2))
        assert prediction._flops(found.facts, split) is None
        assert prediction._flops(found.facts, replace(found.setup, workload=None)) is None
        assert prediction._flops(found.facts, found.setup) == found.flops
        assert prediction._flops(found.facts.model_copy(update={"hidden_size": None}), found.setup) is None

    def test_the_time_of_a_card_alone(self, make_run: MakeRun, tmp_path: Path) -> None:
        found = expect(self.small(make_run, tmp_path), CARD, "transformers")
        assert isinstance(found, Expected) and found.time is not None
        profile = prediction.profile_of(CARD, 2)
        assert prediction._time(found.facts, found.setup, profile) == found.time
        assert prediction._time(found.facts, found.setup, None) is None
        assert prediction._time(found.facts, replace(found.setup, workload=None), profile) is None
        unknown = prediction.profile_of(Device("cuda", "Card X", 1), 2)
        assert prediction._time(found.facts, found.setup, unknown) is None, "a card without rates"

    def test_links_and_counts_of_a_profile(self) -> None:
        found = prediction.profile_of(CARD, 4)
        assert found is not None
        assert (found.name, found.nodes, found.accelerators_per_node) == (CARD.name, 1, 4)


class TestLargest:
    """Each sample takes 10 bytes beside 100, as tensors; the driver shows 50 more."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        found: list[int] = []

        def predicted(less: Reduced, device: Device, consumer: str, size: int) -> Any:
            found.append(size)
            held = Band(0, 100 + 10 * size, 0)
            both = SimpleNamespace(complete=True, device=Band(0, 150 + 10 * size, 0))
            return SimpleNamespace(prediction=both, allocated=held)

        monkeypatch.setattr(prediction, "expect", predicted)
        return found

    def largest(self, device: Device, room: int, seen: tuple[int, int] | None = None) -> int | None:
        return largest_expected(reduced(), device, "transformers", room, seen)

    @pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 63, 64, 65, 1000])
    def test_the_last_that_is_within_the_room(self, asked: list[int], most: int) -> None:
        assert self.largest(CPU, 100 + 10 * most) == most
        assert self.largest(CPU, 100 + 10 * most + 9) == most
        assert self.largest(CARD, 150 + 10 * most) == most, "what the driver shows"
        assert self.largest(CARD, 150 + 10 * most - 1) == max(1, most - 1)

    def test_one_at_the_least_and_not_without_end(self, asked: list[int]) -> None:
        assert self.largest(CPU, 0) == 1
        assert self.largest(CPU, 10**9) in (4095, 4096) and max(asked) <= 4096

    def test_what_was_seen_counts(self, asked: list[int]) -> None:
        """4 samples took 1,000 bytes, so that 6 take 1,020, on whichever device."""
        assert self.largest(CPU, 1020, (4, 1000)) == self.largest(CARD, 1020, (4, 1000)) == 6
        assert self.largest(CARD, 1019, (4, 1000)) == 5

    def test_nothing_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prediction, "expect", lambda *_: "not known")
        assert self.largest(CPU, 10**9) is None
        low = SimpleNamespace(prediction=SimpleNamespace(complete=False), allocated=Band(1, 1, 1))
        monkeypatch.setattr(prediction, "expect", lambda *_: low)
        assert self.largest(CPU, 10**9) is None and self.largest(CPU, 10**9, (1, 5)) is None
