"""A torch with cards that no machine needs to have: what torch.cuda does otherwise than a processor.

- A call that asks a card something opens a context on it, and each context takes memory of that card.
- The current card is that of the thread: every new thread has the first one.
- Work is asynchronous: an event has no time, and an error no victim, before somebody waits. An error stays.
- Counters are those of one card, in bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

GIB = 1 << 30
CONTEXT = GIB // 2
"""Bytes that a context takes of its card."""


@dataclass
class Card:
    name: str = "NVIDIA H200"
    total: int = 140 * GIB
    allocated: int = 0
    peak: int = 0
    reserved: int = 0
    context: bool = False
    fraction: float | None = None

    @property
    def used(self) -> int:
        return self.reserved + CONTEXT * self.context


class AcceleratorError(RuntimeError):
    """torch's class for errors of CUDA."""


class Event:
    def __init__(self, cuda: Cuda, enable_timing: bool = False) -> None:
        self.cuda, self.timed = cuda, enable_timing
        self.at: float | None = None
        self.done = False

    def record(self) -> None:
        self.cuda.check()
        self.cuda.clock += 0.25
        self.at, self.done = self.cuda.clock, False
        self.cuda.queued.append(self)

    def elapsed_time(self, other: Event) -> float:
        if not (self.timed and other.timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.at is None or other.at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.done and other.done):
            raise AcceleratorError("CUDA error: device not ready")
        return (other.at - self.at) * 1000

    def synchronize(self) -> None:
        self.cuda.synchronize()


@dataclass
class Cuda:
    """``torch.cuda``. ``forked``: the process was forked from one that had a context."""

    cards: list[Card] = field(default_factory=lambda: [Card(), Card()])
    forked: bool = False
    ready: bool = False
    clock: float = 0.0
    pending: str | None = None
    sticky: str | None = None
    queued: list[Event] = field(default_factory=list)
    waits: int = 0

    def __post_init__(self) -> None:
        self._of_thread = threading.local()

    def Event(self, enable_timing: bool = False) -> Event:  # noqa: N802
        return Event(self, enable_timing)

    def is_available(self) -> bool:
        return bool(self.cards)

    def device_count(self) -> int:
        return len(self.cards)

    def is_initialized(self) -> bool:
        return self.ready and not self.forked

    def set_device(self, index: int) -> None:
        self._of_thread.index = index
        self._open(index)

    def current_device(self) -> int:
        index: int = getattr(self._of_thread, "index", 0)
        self._open(index)
        return index

    def fail(self, words: str) -> None:
        """A kernel that was queued will fail."""
        self.pending = words

    def check(self) -> None:
        if self.sticky is not None:
            raise AcceleratorError(f"CUDA error: {self.sticky}")

    def synchronize(self, index: int | None = None) -> None:
        self._card(index)
        self.waits += 1
        if self.pending is not None:
            self.sticky, self.pending = self.pending, None
        self.check()
        for event in self.queued:
            event.done = True
        self.queued.clear()

    def memory_allocated(self, index: int | None = None) -> int:
        return self._card(index, opens=False).allocated

    def max_memory_allocated(self, index: int | None = None) -> int:
        return self._card(index, opens=False).peak

    def max_memory_reserved(self, index: int | None = None) -> int:
        return self._card(index, opens=False).reserved

    def reset_peak_memory_stats(self, index: int | None = None) -> None:
        card = self._card(index, opens=False)
        card.peak = card.allocated

    def mem_get_info(self, index: int | None = None) -> tuple[int, int]:
        card = self._card(index)
        self.check()
        return card.total - card.used, card.total

    def empty_cache(self) -> None:
        if self.ready:
            card = self._card(None)
            self.check()
            card.reserved = card.allocated

    def get_device_properties(self, index: int) -> SimpleNamespace:
        self._lazy()
        return SimpleNamespace(total_memory=self.cards[index].total, name=self.cards[index].name)

    def get_device_name(self, index: int | None = None) -> str:
        return self._card(index, opens=False).name

    def set_per_process_memory_fraction(self, fraction: float, index: int | None = None) -> None:
        self._card(index, opens=False).fraction = fraction

    def take(self, size: int, index: int) -> None:
        """Allocate, and keep for ever what was reserved."""
        card = self._card(index)
        card.allocated += size
        card.peak = max(card.peak, card.allocated)
        card.reserved = max(card.reserved, card.allocated)

    def give(self, size: int, index: int) -> None:
        self.cards[index].allocated -= size

    def contexts(self) -> list[int]:
        return [index for index, card in enumerate(self.cards) if card.context]

    def _lazy(self) -> None:
        if self.forked:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")
        self.ready = True

    def _open(self, index: int) -> None:
        self._lazy()
        self.cards[index].context = True

    def _card(self, index: int | None, opens: bool = True) -> Card:
        number: int = getattr(self._of_thread, "index", 0) if index is None else index
        self._lazy()
        if opens:
            self._open(number)
        return self.cards[number]


class WithHost(Cuda):
    """Counters of pinned memory, which torch has since 2.6."""

    pinned = 0

    def host_memory_stats(self) -> dict[str, int]:
        return {"allocated_bytes.peak": self.pinned}

    def reset_peak_host_memory_stats(self) -> None:
        self.pinned = 0


class Device(str):
    """``torch.device``."""

    type: str
    index: int | None

    def __new__(cls, type: str, index: int | None = None) -> Device:
        made = super().__new__(cls, type if index is None else f"{type}:{index}")
        made.type, made.index = type, index
        return made


def torch(cuda: Cuda, **more: Any) -> ModuleType:
    """For ``sys.modules``."""
    made = ModuleType("torch")
    made.__dict__.update({"cuda": cuda, "device": Device, **more})
    return made


def distributed(backend: str, calls: list[tuple[str, Any]], available: bool = True) -> SimpleNamespace:
    """``torch.distributed`` of one group; ``calls``: what was called."""

    def called(name: str) -> Callable[..., None]:
        return lambda *_, **named: calls.append((name, named))

    return SimpleNamespace(
        is_available=lambda: available,
        is_initialized=lambda: True,
        get_backend=lambda: backend,
        get_world_size=lambda: 2,
        barrier=called("barrier"),
    )
