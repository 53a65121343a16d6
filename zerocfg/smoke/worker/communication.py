"""What a rank sends in one optimizer step: calls, bytes and seconds of every kind of collective, under any engine.

The collectives are seen where torch dispatches them (``c10d::allreduce_`` and its siblings), below DeepSpeed, FSDP and
the reducer of DDP, whatever the backend. Each is waited for at once, because that is when its time is known: nothing
overlaps in the step that is counted, and a rank that comes early waits for the others within it.

Payloads are counted as `zerocfg.memory.time.wire` does: the whole buffer that is reduced, the gathered result, the
input that is scattered.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .report_schema import FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .report_schema import Collectives

OPERATIONS = {
    "allreduce_": "all_reduce", "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather", "_allgather_base_": "all_gather", "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter", "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_": "reduce", "broadcast_": "broadcast", "alltoall_": "all_to_all", "alltoall_base_": "all_to_all",
}  # fmt: skip
"""Kinds by torch's operator; others are called as torch calls them."""
SMALL = 16
"""Elements: norms, flags, counts of tokens. No prediction counts them; their time is that of ranks that wait."""


@dataclass
class _Kind:
    calls: int = 0
    payload: int = 0
    sent: float = 0.0
    seconds: float = 0.0
    events: list[tuple[Any, Any]] = field(default_factory=list)


class Counter:
    """Counts from `start` to `stop`; `collectives` has the result."""

    def __init__(self, on_card: bool) -> None:
        self._on_card = on_card
        self._kinds: dict[str, _Kind] = {}
        self._mode: contextlib.AbstractContextManager[object] | None = None

    def start(self) -> None:
        self._kinds.clear()
        self._mode = _mode(self)
        self._mode.__enter__()

    def stop(self) -> None:
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None

    def collectives(self) -> dict[str, Collectives]:
        """By kind; a card has to have finished its work."""
        return {
            name: {
                "calls": kind.calls,
                "payload": kind.payload,
                "sent": round(kind.sent),
                "seconds": round(kind.seconds + sum(a.elapsed_time(b) / 1000 for a, b in kind.events), 6),
            }
            for name, kind in self._kinds.items()
        }

    def call(self, name: str, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> object:
        """Make the call, wait for it, and count it."""
        elements, size, ranks = _payload(args)
        kind = self._kinds.setdefault(FLAGS if elements <= SMALL else OPERATIONS.get(name, name.strip("_")), _Kind())
        if self._on_card:
            import torch

            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            result = func(*args, **named)
            _wait(result)
            last.record()
            kind.events.append((first, last))
        else:
            begun = time.perf_counter()
            result = func(*args, **named)
            _wait(result)
            kind.seconds += time.perf_counter() - begun
        kind.calls += 1
        if elements > SMALL:
            kind.payload += size
            kind.sent += size * (ranks - 1) / max(1, ranks) * (2 if OPERATIONS.get(name) == "all_reduce" else 1)
        return result


def _mode(counter: Counter) -> contextlib.AbstractContextManager[object]:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> object:
            if func.namespace != "c10d":
                return func(*args, **(kwargs or {}))
            return counter.call(func.__name__.split(".")[0], func, args, kwargs or {})

    mode: contextlib.AbstractContextManager[object] = Mode()
    return mode


def _payload(args: tuple[Any, ...]) -> tuple[int, int, int]:
    """Elements and bytes of the larger side, the whole of a gather or a scatter; and the ranks of the group."""
    sides = [list(_tensors(one)) for one in args[:2]]
    whole = max(sides, key=lambda side: sum(one.numel() for one in side), default=[])
    ranks = next((count for one in args if (count := _ranks(one))), 1)
    return sum(one.numel() for one in whole), sum(one.numel() * one.element_size() for one in whole), ranks


def _tensors(thing: object) -> Iterator[Any]:
    import torch

    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _tensors(one)


def _ranks(thing: object) -> int:
    """The size of the group, of the argument that is one."""
    import torch

    if isinstance(thing, torch.ScriptObject):
        with contextlib.suppress(RuntimeError, TypeError):
            return int(torch.distributed.ProcessGroup.unbox(thing).size())
    return 0


def _wait(result: object) -> None:
    import torch

    for one in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(one, torch.ScriptObject):
            work = torch.distributed.Work.unbox(one)
            if work is not None:  # a synchronous collective of NCCL gives none since torch 2.8
                work.wait()
