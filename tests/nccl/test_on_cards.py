"""What the ranks' program asks of cards, on cards that no machine needs to have (`fake_cuda`)."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.smoke.worker import communication, device, fence, group, memory, parts, reference, sharing

from .fake_cuda import CONTEXT, GIB, AcceleratorError, Card, Cuda, WithHost, distributed, torch

Put = Callable[..., Cuda]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Have ``import torch`` give these cards."""

    def put(cuda: Cuda, **more: Any) -> Cuda:
        monkeypatch.setitem(sys.modules, "torch", torch(cuda, **more))
        return cuda

    return put


def report() -> Any:
    return SimpleNamespace(content={}, fills={}, rank=0, fence=fence.Fence({}), see=lambda seen: None)


class TestMemory:
    def recorded(self, cuda: Cuda) -> Any:
        """A rank of the second card: 1 GiB for the model; 3 GiB more, and 2 of them given back, in a forward pass."""
        told = report()
        recorder = memory.Recorder(told, "cuda")
        recorder.enter("init")
        assert cuda.contexts() == [], "asked before the rank has chosen its card, torch opens the first"
        cuda.set_device(1)
        cuda.take(GIB, 1)
        recorder.enter("forward")
        cuda.take(3 * GIB, 1)
        cuda.give(2 * GIB, 1)
        recorder.enter("own")
        recorder.stop()
        return told.content

    def test_peaks_are_those_of_the_own_card_and_of_the_phase(self, put: Put) -> None:
        cuda = put(Cuda())
        cuda.cards[0].allocated = cuda.cards[0].peak = 9 * GIB  # of another rank
        content = self.recorded(cuda)
        assert [content["memory"][phase]["allocated"] for phase in ("init", "forward", "own")] == [
            GIB,
            4 * GIB,
            2 * GIB,
        ]
        assert content["memory"]["forward"]["reserved"] == 4 * GIB
        assert content["memory"]["forward"]["device"] == 4 * GIB + CONTEXT, "the driver counts the context too"
        assert content["device_memory"] == 140 * GIB
        assert cuda.contexts() == [1]

    def test_torch_before_2_6_counts_no_pinned_memory(self, put: Put) -> None:
        assert self.recorded(put(Cuda()))["memory"]["forward"]["pinned"] is None

    def test_pinned_memory_is_that_of_the_phase(self, put: Put) -> None:
        cuda = WithHost()
        cuda.pinned = 5
        memory_of = self.recorded(put(cuda))["memory"]
        assert [memory_of[phase]["pinned"] for phase in ("init", "forward")] == [5, 0]

    def test_the_thread_that_samples_looks_at_the_card_of_the_rank(self, put: Put) -> None:
        cuda, told = put(Cuda()), report()
        recorder = memory.Recorder(told, "cuda")
        cuda.set_device(1)
        recorder.enter("forward")
        recorder.stop()
        cuda.take(3 * GIB, 1)
        recorder._points, recorder._phase = [], "forward"
        thread = threading.Thread(target=recorder._look)
        thread.start()
        thread.join()
        assert [point.size for point in recorder._points] == [3 * GIB] and cuda.contexts() == [1]

    def test_after_an_error_of_the_card_the_counters_of_torch_go_on(self, put: Put) -> None:
        cuda, told = put(Cuda()), report()
        recorder = memory.Recorder(told, "cuda")
        cuda.set_device(0)
        recorder.enter("forward")
        cuda.take(GIB, 0)
        cuda.fail("an illegal memory access was encountered")
        with pytest.raises(AcceleratorError, match="illegal memory access"):
            recorder.settle()
        recorder.stop()
        forward = told.content["memory"]["forward"]
        assert (forward["allocated"], forward["device"]) == (GIB, None)

    @pytest.mark.parametrize(("size", "fraction"), [(70 * GIB, 0.5), (140 * GIB, 1.0), (280 * GIB, 1.0)])
    def test_the_limit_is_a_share_of_the_own_card(
        self, put: Put, monkeypatch: pytest.MonkeyPatch, size: int, fraction: float
    ) -> None:
        cuda = put(Cuda())
        monkeypatch.setenv("LOCAL_RANK", "3")  # 3 modulo 2 cards
        memory.limit(size, "cuda")
        assert [card.fraction for card in cuda.cards] == [None, fraction] and cuda.contexts() == []

    def test_free_memory_is_that_of_the_own_card(self, put: Put) -> None:
        cuda = put(Cuda([Card(total=80 * GIB), Card(total=40 * GIB)]))
        cuda.set_device(1)
        cuda.take(8 * GIB, 1)
        assert reference._free("cuda") == 32 * GIB - CONTEXT

    def test_in_a_fork_of_a_process_with_a_context_the_card_is_not_asked(self, put: Put) -> None:
        """Its main process answers every question of it with an error."""
        put(Cuda(forked=True))
        told = report()
        recorder = memory.Recorder(told, "cuda")
        recorder.enter("init")
        recorder.stop()
        init = told.content["memory"]["init"]
        assert (init["allocated"], init["device"]) == (None, None) and init["rss"] > 0

    def test_releasing_opens_no_context(self, put: Put) -> None:
        cuda = put(Cuda())
        parts.release()
        assert cuda.contexts() == []

    def test_releasing_gives_back_what_is_only_reserved(self, put: Put) -> None:
        cuda = put(Cuda())
        cuda.take(2 * GIB, 0)
        cuda.give(GIB, 0)
        parts.release()
        assert cuda.cards[0].reserved == GIB


class TestCollectives:
    def counter(self, put: Put) -> tuple[Cuda, communication.Counter]:
        cuda = put(Cuda(), Tensor=float, ScriptObject=float)
        return cuda, communication.Counter(fence.Fence({}), on_card=True)

    def test_seconds_are_those_between_events_once_the_card_has_finished(self, put: Put) -> None:
        cuda, counter = self.counter(put)
        counter.count("allreduce_", (), "result", counter.now())
        with pytest.raises(AcceleratorError, match="not ready"):
            counter.collectives()
        cuda.synchronize()
        assert [kind["seconds"] for kind in counter.collectives().values()] == [0.25]

    def test_a_card_in_error_costs_the_count(self, put: Put) -> None:
        cuda, counter = self.counter(put)
        cuda.sticky = "an illegal memory access was encountered"
        begun = counter.fence.measure(communication.COUNTER, counter.now)
        counter.fence.measure(communication.COUNTER, counter.count, "allreduce_", (), "result", begun)
        assert counter.collectives() == {}
        assert "illegal memory access" in counter.fence.instruments[communication.COUNTER]


class TestGroup:
    @pytest.mark.parametrize(
        ("backend", "place", "ids"),
        [("nccl", "cuda:1", [1]), ("gloo", "cpu", None), ("cpu:gloo,cuda:nccl", "cuda:1", [1])],
    )
    def test_device_and_barrier(self, put: Put, backend: str, place: str, ids: list[int] | None) -> None:
        calls: list[tuple[str, Any]] = []
        cuda = put(Cuda(), distributed=distributed(backend, calls))
        cuda.set_device(1)
        assert str(group.device()) == place
        group.barrier()
        assert calls == [("barrier", {"device_ids": ids})]

    def test_ranks_that_share_a_card_all_use_the_first(self, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
        cuda = put(Cuda())
        for name in ("LOCAL_RANK", "RANK", *sharing.MODES["nccl"]):
            monkeypatch.setenv(name, "1")
        sharing.join("nccl")
        assert os.environ["LOCAL_RANK"] == "0" and cuda.contexts() == [0]

    @pytest.mark.parametrize("words", [None, "an illegal memory access was encountered"])
    def test_the_trial_of_sharing_waits_for_the_card(
        self, put: Put, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str | None
    ) -> None:
        """A collective of NCCL that fails on the card has returned before."""
        cuda = put(Cuda())
        cuda.nccl = SimpleNamespace(version=lambda: (2, 30, 1))  # type: ignore[attr-defined]
        calls: list[tuple[str, Any]] = []
        group_of = distributed("nccl", calls)
        group_of.destroy_process_group = lambda: None
        sys.modules["torch"].distributed = group_of  # type: ignore[attr-defined]

        def collective() -> bool:
            if words:
                cuda.fail(words)
            return True

        for name in ("LOCAL_RANK", "RANK", *sharing.MODES["nccl"]):
            monkeypatch.setenv(name, "0")
        monkeypatch.setattr(sharing, "collectives", lambda _: [("all_reduce", collective)])
        (tmp_path / "job.json").write_text(json.dumps({"reports": str(tmp_path), "mode": "nccl", "device": "cuda"}))
        monkeypatch.setattr(sys, "argv", ["sharing", str(tmp_path / "job.json")])
        if words:
            with pytest.raises(AcceleratorError, match="illegal"):
                sharing.main()
        else:
            sharing.main()
        told = json.loads((tmp_path / "rank0.json").read_text())
        assert (told["done"], told["seen"]["nccl"]) == (words is None, "2.30.1")


def test_the_name_is_that_of_the_own_card(put: Put) -> None:
    cuda = put(Cuda([Card("NVIDIA A100"), Card("NVIDIA H200")]))
    cuda.set_device(1)
    seen: dict[str, object] = {}
    told: Any = SimpleNamespace(see=seen.update)
    device.see_device(told, "cuda")
    assert seen == {"device_name": "NVIDIA H200"} and cuda.contexts() == [1]
