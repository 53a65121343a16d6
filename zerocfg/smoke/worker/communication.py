"""What a rank sends in one optimizer step: calls, bytes and seconds of every kind of collective, under any engine.

The collectives are seen where torch dispatches them (``c10d::allreduce_`` and its siblings), below DeepSpeed, FSDP and
the reducer of DDP, whatever the backend: by kernels in front of those of the backends, so that compiled code stays
compiled. Each is waited for at once, because that is when its time is known: nothing overlaps in the step that is
counted, and a rank that comes early waits for the others within it.

Payloads are counted as `zerocfg.memory.time.wire` does: the whole buffer that is reduced, the gathered result, the
input that is scattered.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .report_schema import COUNTER, FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .fence import Fence
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
"""Elements: norms, flags, counts of tokens. No prediction counts them; their time is that of ranks that wait. Of real
numbers it may be one for each tensor of the model: the norms that FSDP 2 clips by, in one collective."""


@dataclass
class _Kind:
    calls: int = 0
    payload: int = 0
    sent: float = 0.0
    seconds: float = 0.0
    events: list[tuple[Any, Any]] = field(default_factory=list)


class Counter:
    """Counts from `start` to `stop`; `collectives` has the result.

    The collectives are called outside of it, and of the ``fence``: what breaks here keeps nobody from one.
    """

    def __init__(self, fence: Fence, on_card: bool) -> None:
        self.fence = fence
        self._on_card = on_card
        self._kinds: dict[str, _Kind] = {}
        self._norms = SMALL
        self._seeing: contextlib.AbstractContextManager[object] | None = None

    def start(self, tensors: int = 0) -> None:
        """Count from now on, in a model of so many tensors."""
        self._kinds.clear()
        self._norms = max(SMALL, tensors)
        self._seeing = _kernels(self) if _with_kernels() else _mode(self)
        self._seeing.__enter__()

    def stop(self) -> None:
        """See no more collectives. Never raises."""
        seeing, self._seeing = self._seeing, None
        if seeing is not None:
            with contextlib.suppress(Exception):
                seeing.__exit__(None, None, None)

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

    def now(self) -> Any:
        """A point in time: seconds, on a card an event in the current stream."""
        if not self._on_card:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def count(self, name: str, args: tuple[Any, ...], result: object, begun: Any) -> None:
        """Count a collective that was called with ``args`` at ``begun``, after having waited for its end."""
        _wait(result)
        ended = self.now()
        elements, size, ranks = _payload(args)
        small = elements <= (self._norms if _are_real(args) else SMALL)
        kind = self._kinds.setdefault(FLAGS if small else OPERATIONS.get(name, name.strip("_")), _Kind())
        if self._on_card:
            kind.events.append((begun, ended))
        else:
            kind.seconds += ended - begun
        kind.calls += 1
        if not small:
            kind.payload += size
            kind.sent += size * (ranks - 1) / max(1, ranks) * (2 if OPERATIONS.get(name) == "all_reduce" else 1)


def _with_kernels() -> bool:
    """Whether a kernel can hand a call on to the next one; older releases of torch have no way to."""
    import torch

    return "with_keyset" in inspect.signature(torch.library.Library.impl).parameters


@contextlib.contextmanager
def _kernels(counter: Counter) -> Iterator[None]:
    """Kernels of all operators of c10d, in front of the backends'. They are gone at the end."""
    import torch

    key = torch._C.DispatchKey.BackendSelect  # comes before every backend, and torch has no kernel of c10d there
    measure = counter.fence.measure

    def kernel_of(name: str) -> Callable[..., object]:
        operator = getattr(torch.ops.c10d, name).default

        def kernel(keyset: Any, *args: Any, **named: Any) -> object:
            begun = measure(COUNTER, counter.now)
            result = operator.redispatch(keyset.remove(key), *args, **named)
            measure(COUNTER, counter.count, name, args, result, begun)
            return result

        return kernel

    library = torch.library.Library("c10d", "IMPL")
    try:
        for name in _operators():
            library.impl(name, kernel_of(name), "BackendSelect", with_keyset=True)
        yield
    finally:
        library._destroy()


def _operators() -> list[str]:
    """The operators of c10d that this torch has and that send something."""
    import torch

    names = (name.removeprefix("c10d::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::"))
    return sorted({name.partition(".")[0] for name in names} - {"monitored_barrier_", "check_for_nan"})


def _mode(counter: Counter) -> contextlib.AbstractContextManager[object]:
    """The same where kernels cannot: a mode of the dispatcher, under which compiled code runs uncompiled."""
    from torch.utils._python_dispatch import TorchDispatchMode

    measure = counter.fence.measure

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> object:
            named = kwargs or {}
            if func.namespace != "c10d":
                return func(*args, **named)
            begun = measure(COUNTER, counter.now)
            result = func(*args, **named)
            measure(COUNTER, counter.count, func.__name__.split(".")[0], args, result, begun)
            return result

    mode: contextlib.AbstractContextManager[object] = Mode()
    return mode


def _payload(args: tuple[Any, ...]) -> tuple[int, int, int]:
    """Elements and bytes of the larger side, the whole of a gather or a scatter; and the ranks of the group."""
    sides = [list(_tensors(argument)) for argument in args[:2]]
    whole = max(sides, key=lambda side: sum(item.numel() for item in side), default=[])
    ranks = next((count for argument in args if (count := _ranks(argument))), 1)
    return sum(item.numel() for item in whole), sum(item.numel() * item.element_size() for item in whole), ranks


def _are_real(args: tuple[Any, ...]) -> bool:
    """Whether real numbers are sent; a map of used parameters, which DDP sums, has whole ones."""
    return all(tensor.is_floating_point() for tensor in _tensors(args[:1]))


def _tensors(thing: object) -> Iterator[Any]:
    import torch

    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (list, tuple)):
        for item in thing:
            yield from _tensors(item)


def _ranks(thing: object) -> int:
    """The size of the group, of the argument that is one."""
    import torch

    if isinstance(thing, torch.ScriptObject):
        with contextlib.suppress(RuntimeError, TypeError):
            return int(torch.distributed.ProcessGroup.unbox(thing).size())
    return 0


def _wait(result: object) -> None:
    import torch

    for item in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(item, torch.ScriptObject):
            work = torch.distributed.Work.unbox(item)
            if work is not None:  # a synchronous collective of NCCL gives none since torch 2.8
                work.wait()
