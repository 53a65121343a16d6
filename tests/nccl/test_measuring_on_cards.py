"""What probe and preflight ask of cards, on cards that no machine needs to have (`fake_cuda`)."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from .fake_cuda import CONTEXT, GIB, Card, Cuda, Device, torch

pytestmark = pytest.mark.libs


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    # All that take the name from there, before it is another one's: they keep what they get.
    from zerocfg.hardware.measuring import collectives, library, rates
    from zerocfg.preflight import measuring, meeting

    assert collectives and measuring and meeting
    cards = Cuda([Card(), Card(total=40 * GIB)])
    fake = torch(cards, xpu=None, version=SimpleNamespace(hip=None), uint8="uint8", float32="fp32")
    for module in (library, rates):
        monkeypatch.setattr(module, "torch", fake)
    return cards


def test_a_rank_takes_the_card_of_its_number_and_opens_no_other(cuda: Cuda) -> None:
    from zerocfg.hardware.measuring import library

    assert library.device_of(3) == library.Device("cuda", 1)
    assert cuda.contexts() == [1]


def test_free_memory_is_that_of_the_card(cuda: Cuda) -> None:
    from zerocfg.hardware.measuring import library

    cuda.take(8 * GIB, 1)
    assert library.Device("cuda", 1).free_bytes(0) == 32 * GIB - CONTEXT
    assert library.Device("cpu").free_bytes(7) == 7


@pytest.mark.parametrize("window", [False, True])
def test_no_clock_is_read_while_the_card_works(cuda: Cuda, monkeypatch: pytest.MonkeyPatch, window: bool) -> None:
    from zerocfg.hardware.measuring import library
    from zerocfg.preflight import measuring

    readings = []

    def perf_counter() -> float:
        readings.append(len(cuda.queued))
        return time.monotonic()

    device = library.Device("cuda", 1)
    run = lambda: cuda.Event(enable_timing=True).record()  # noqa: E731 - a kernel that is queued
    module = measuring if window else library
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=perf_counter, process_time=time.process_time))
    if window:
        sweeps = measuring.Sweeps.__new__(measuring.Sweeps)
        sweeps.device = device
        sweeps._window(run, 1.0)
    else:
        library.seconds_of(run, device, 0.01)
    assert len(readings) >= 3 and set(readings) == {0}


def test_copies_to_and_from_a_card_are_of_pinned_memory_and_asynchronous(cuda: Cuda) -> None:
    from zerocfg.hardware.measuring import library, rates

    made: list[dict[str, Any]] = []
    copied: list[tuple[Any, Any]] = []

    class Tensor:
        def __init__(self, *size: int, **named: Any) -> None:
            made.append(named)
            self.named = named

        def copy_(self, other: Tensor, non_blocking: bool = False) -> None:
            copied.append((self.named.get("device"), non_blocking))

    library.torch.empty = Tensor  # type: ignore[attr-defined]
    rates.torch.empty = Tensor
    forth, back = rates.pinned_copies(library.Device("cuda", 1), 64)
    forth()
    back()
    assert made == [{"dtype": "uint8", "pin_memory": True}, {"dtype": "uint8", "device": Device("cuda", 1)}]
    assert copied == [("cuda:1", True), (None, True)]


@pytest.mark.parametrize(
    ("hip", "capability", "fp8"),
    [(None, (8, 9), True), (None, (8, 6), False), (None, (9, 0), True), ("6.2", (9, 4), True), ("6.2", (9, 0), False)],
)
def test_fp8_is_tried_where_the_card_has_it(
    cuda: Cuda, hip: str | None, capability: tuple[int, int], fp8: bool
) -> None:
    from zerocfg.hardware.measuring import library, rates

    rates.torch.version.hip = hip
    asked: list[int] = []

    def get_device_capability(index: int) -> tuple[int, int]:
        asked.append(index)
        return capability

    cuda.get_device_capability = get_device_capability  # type: ignore[attr-defined]
    assert rates._has_fp8(library.Device("cuda", 1)) is fp8
    assert asked == [1]


@pytest.mark.parametrize("reports", [True, False])
def test_devices_of_intel(cuda: Cuda, reports: bool) -> None:
    """torch.xpu of a release that says whether a device has bf16, and of one that does not."""
    from zerocfg.hardware.measuring import __main__ as program
    from zerocfg.hardware.measuring import library

    xpu = Cuda([Card("Intel Max 1550", 64 * GIB)])
    if reports:
        xpu.is_bf16_supported = lambda: True  # type: ignore[attr-defined]
    library.torch.xpu = xpu  # type: ignore[attr-defined]
    expected = {"name": "Intel Max 1550", "total": 64 * GIB, "driver": "", "bf16": True if reports else None}
    assert program._xpu_devices() == [expected]
    xpu.cards.clear()
    assert program._xpu_devices() == []
