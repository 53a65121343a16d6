"""What one rank holds in each phase of training, as torch's allocator, the driver and the kernel count it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .report_schema import COUNTERS, MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import torch

    from .report import Report
    from .report_schema import Phase

INTERVAL = 0.02  # seconds between two samples at first; it doubles whenever the timeline is full
POINTS = 200
TIMELINE = "memory timeline"
"""The instrument that samples; the peaks are the recorder's."""
STATUS = re.compile(r"^(VmHWM|VmRSS|VmData):\s+(\d+) kB", re.MULTILINE)


@dataclass
class Point:
    """Bytes held at a time, in seconds since the creation of the model began."""

    seconds: float
    size: int
    phase: str


class Recorder:
    """Records one rank from the creation of the model to its end.

    It keeps in the report: "memory" by phase, with the peaks "allocated", "reserved" (torch's allocator), "device" (in
    use on the whole card, by the driver), "rss" (host) and "pinned"; "memory_start" (the same counters before the model
    was made), "device_memory" (the card's size) and on rank 0 "timeline", at most POINTS: what is allocated on a card,
    on a processor the resident memory. All sizes are bytes. None: nothing counts this here; on a processor torch counts
    neither tensors nor pinned blocks.

    Phases are init, forward, backward, step and save; "own" is what the smoke-run itself reads in between.
    """

    def __init__(self, report: Report, device: str) -> None:
        self._report, self._on_card = report, device == "cuda"
        self._phase: str | None = None
        self._since = self._zero = 0.0
        self._index: int | None = None
        self._done: dict[str, Phase] = {}
        self._points: list[Point] = []
        self._interval, self._next = INTERVAL, 0.0
        self._largest_rss = 0  # sampled; where the kernel's own peak cannot be reset
        self._resets = True
        self._lock = threading.Lock()
        self._over = threading.Event()

    def enter(self, phase: str) -> None:
        """Begin a phase and end the one before."""
        if phase == self._phase or self._over.is_set():
            return
        if self._phase is None:
            self._start()
        else:
            self._close()
        self._reset()
        self._phase, self._since = phase, time.monotonic()

    def stop(self) -> None:
        """Training is over; stop counting."""
        if self._phase is not None and not self._over.is_set():
            self._close()
            self._phase = None
        self._over.set()
        self._fill()

    def settle(self) -> None:
        """Wait until the card has finished its work, so that a clock read now is right."""
        torch = self._torch()
        if torch is not None:
            torch.cuda.synchronize(self._index)

    def _start(self) -> None:
        self._zero = time.monotonic()
        self._report.content["memory_start"] = self._count()
        self._report.fills[MEMORY] = self._fill
        measure = self._report.fence.measure
        threading.Thread(target=measure, args=(TIMELINE, self._follow), daemon=True, name="zerocfg-memory").start()

    def _torch(self) -> ModuleType | None:
        """torch, once it uses the card; asking earlier would create a context on another rank's card."""
        torch = sys.modules.get("torch") if self._on_card else None
        if torch is None or not torch.cuda.is_initialized():
            return None
        if threading.current_thread() is threading.main_thread():
            self._index = torch.cuda.current_device()  # another thread always sees the first card as current
        return torch

    def _count(self) -> Phase:
        """The peaks since the last reset."""
        found: Phase = {"allocated": None, "reserved": None, "device": None, "rss": None, "pinned": None}
        status = _status()
        found["rss"] = status.get("VmHWM") if self._resets else None
        if found["rss"] is None:
            found["rss"] = max(self._largest_rss, status.get("VmRSS", 0)) or None
        torch = self._torch()
        if torch is None:
            return found
        found["allocated"] = torch.cuda.max_memory_allocated(self._index)
        found["reserved"] = torch.cuda.max_memory_reserved(self._index)
        with contextlib.suppress(Exception):  # a card without room left may refuse even to answer
            free, total = torch.cuda.mem_get_info(self._index)
            found["device"] = total - free
            self._report.content["device_memory"] = total
        if hasattr(torch.cuda, "host_memory_stats"):
            with contextlib.suppress(Exception):
                stats = torch.cuda.host_memory_stats()
                found["pinned"] = stats.get("allocated_bytes.peak")
        return found

    def _reset(self) -> None:
        self._resets = _reset_peak()
        self._largest_rss = 0
        torch = self._torch()
        if torch is not None:
            torch.cuda.reset_peak_memory_stats(self._index)
            if hasattr(torch.cuda, "reset_peak_host_memory_stats"):
                with contextlib.suppress(Exception):
                    torch.cuda.reset_peak_host_memory_stats()

    def _close(self) -> None:
        """Keep the peaks of the phase that ends, here and in the timeline, which may have missed them."""
        assert self._phase is not None
        now, peaks = time.monotonic(), self._count()
        self._done[self._phase] = _joined(self._done.get(self._phase), peaks, now - self._since)
        highest = peaks["allocated"] if self._torch() is not None else peaks["rss"]
        if highest is None:
            return
        with self._lock:
            began = self._since - self._zero
            own = [point for point in self._points if point.seconds >= began]
            if own:
                largest = max(own, key=lambda point: point.size)
                largest.size = max(largest.size, highest)
            else:
                self._points.append(Point(round((began + now - self._zero) / 2, 3), highest, self._phase))

    def _fill(self) -> None:
        """Bring the report up to date, the phase that is not over included."""
        phases = dict(self._done)
        if self._phase is not None and not self._over.is_set():
            with contextlib.suppress(Exception):  # nothing that is only measured may fail a run
                seconds = time.monotonic() - self._since
                phases[self._phase] = _joined(phases.get(self._phase), self._count(), seconds)
        self._report.content["memory"] = phases
        if self._report.rank == 0:
            with self._lock:
                self._report.content["timeline"] = [[point.seconds, point.size, point.phase] for point in self._points]

    def _follow(self) -> None:
        """Of a thread of its own, until the training is over."""
        while not self._over.wait(INTERVAL):
            self._report.fence.measure(TIMELINE, self._look)

    def _look(self) -> None:
        torch, phase = self._torch(), self._phase
        size = torch.cuda.memory_allocated(self._index) if torch is not None else _resident()
        if torch is None:
            self._largest_rss = max(self._largest_rss, size)
        now = time.monotonic() - self._zero
        if phase is None:
            return
        with self._lock:
            last = self._points[-1] if self._points else None
            if last is not None and now < self._next and last.phase == phase:
                last.size = max(last.size, size)
                return
            self._points.append(Point(round(now, 3), size, phase))
            self._next = now + self._interval
            if len(self._points) >= POINTS:
                self._interval *= 2
                self._points = _thinned(self._points)


def follow_step(engine: torch.nn.Module, enter: Callable[[str], None]) -> None:
    """Have a DeepSpeed engine call ``enter("step")`` when it begins an optimizer step: accelerate calls it within its
    backward pass. ``enter`` never raises."""
    if not hasattr(engine, "is_gradient_accumulation_boundary"):
        return
    real: Callable[..., object] = engine.step
    begins: Callable[[], bool] = engine.is_gradient_accumulation_boundary

    def step(*args: object, **named: object) -> object:
        with contextlib.suppress(Exception):
            if begins():
                enter("step")
        return real(*args, **named)

    engine.step = step


def _joined(before: Phase | None, peaks: Phase, seconds: float) -> Phase:
    """Merge a phase that occurred again: the higher peaks, the total time."""
    known: Phase = before or {"seconds": 0.0, "times": 0}
    found: Phase = {"seconds": round(known["seconds"] + seconds, 4), "times": known["times"] + 1}
    for name in COUNTERS:
        sizes = [size for size in (known.get(name), peaks[name]) if size is not None]
        found[name] = max(sizes, default=None)
    return found


def _thinned(points: list[Point]) -> list[Point]:
    """Halve the points: of two neighbours keep the one that holds more."""
    return [max(points[at : at + 2], key=lambda point: point.size) for at in range(0, len(points), 2)]


def _status() -> dict[str, int]:
    """Bytes of this process by the kernel; empty on a system without /proc."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return {}
    return {name: int(size) * 1024 for name, size in STATUS.findall(text)}


def _resident() -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _reset_peak() -> bool:
    """Reset the kernel's peak of resident memory; False where that is not possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def limit(size: int, device: str) -> None:
    """Limit this rank to ``size`` bytes: of the card, through torch's allocator; else of the host.

    On the host what is resident now counts, and from there on every page that is asked for. Raises MemoryError when
    the libraries alone take more, RuntimeError on a system without such limits.
    """
    if device == "cuda":
        import torch

        index = int(os.environ.get("LOCAL_RANK", "0")) % max(1, torch.cuda.device_count())
        total = torch.cuda.get_device_properties(index).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, size / total), index)
        return
    status = _status()
    if "VmData" not in status:
        raise RuntimeError("a processor's ranks can be limited on Linux only")
    import resource

    room = size - status["VmRSS"]
    if room <= 0:
        taken = status["VmRSS"] / 2**30
        raise MemoryError(f"the libraries alone take {taken:.2f} GiB of a rank; {size / 2**30:.2f} GiB are allowed")
    resource.setrlimit(resource.RLIMIT_DATA, (status["VmData"] + room, resource.RLIM_INFINITY))
