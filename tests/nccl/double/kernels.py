"""Kernels of c10d's operators in place of torch's for the processor: gloo does the work, the manners are NCCL's.

They replace torch's kernels at the key CPU, so that whatever is registered in front of the backends, or dispatched by a
mode, meets these as it would meet those of NCCL.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from . import cards, gloo, groups
from .callers import own_caller

WRITES_NOTHING = ("send", "barrier")
PAIRS = ("send", "recv_", "recv_any_source_")
"""NCCL makes a communicator of two ranks for these."""
DEAD = ("Connection", "connection", "Broken pipe", "Timed out", "transport", "Socket", "socket")
"""Words of gloo where a partner is gone."""

_library: Any = None
_waiting: list[Late] = []
"""Works that nobody has waited for; without a reference torch would forget that they are classes of Python."""


class Late(dist.Work):  # type: ignore[misc]
    """The Work of an asynchronous call of zerocfg's own: until it is waited for, there is no result."""

    def __init__(self, work: Any, results: list[tuple[Any, Any]], group: groups.Group, started: float) -> None:
        super().__init__()
        self._work, self._results, self._group, self._started = work, results, group, started
        _waiting.append(self)

    def wait(self, timeout: Any = None) -> bool:
        if self in _waiting:
            _waiting.remove(self)
            _finish(self._work, self._group, self._started)
            with torch.no_grad():
                for given, result in self._results:
                    given.copy_(result)
        return True

    def is_completed(self) -> bool:
        return self not in _waiting


def install() -> None:
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for name in gloo.METHODS:
            if hasattr(torch.ops.c10d, name):
                _library.impl(name, _kernel(name), "CPU")


def _kernel(name: str) -> Callable[..., object]:
    operator = getattr(torch.ops.c10d, name).default
    places = [argument.name for argument in operator._schema.arguments]
    defaults = {argument.name: argument.default_value for argument in operator._schema.arguments}
    returns = len(operator._schema.returns)

    def boxed(given: dict[str, Any], work: Any) -> Any:
        found = dist.Work.boxed(work)
        return found if returns == 1 else (given[places[0]], found)

    def kernel(*args: Any, **named: Any) -> Any:
        given = defaults | dict(zip(places, args, strict=False)) | named
        tensors, own = list(_tensors([given[place] for place in places])), own_caller()
        process_group = dist.ProcessGroup.unbox(given["process_group"])
        group = groups.of(process_group)
        if group.gloo_takes(any(map(cards.holds, tensors))):
            return boxed(given, gloo.call(name, given, process_group))
        group.raise_late()
        if own is not None and name == "barrier" and not given["device_ids"]:
            raise RuntimeError("a barrier without device_ids: NCCL guesses the card by the number of the rank")
        if own is not None and name != "barrier" and not all(map(cards.holds, tensors)):
            raise RuntimeError("No backend type associated with device type cpu")
        started = time.monotonic()
        asynchronous = given.get("async_op", True)
        copies = {id(tensor): tensor.clone() for tensor in tensors} if own is not None and asynchronous else {}
        try:
            words = {place: _replaced(given[place], copies) for place in places}
            work = gloo.call(name, words, process_group)
        except RuntimeError as error:
            if not _dead(error):
                raise
            group.die(started, error)
        group.connected = group.connected or name not in PAIRS
        if not asynchronous:
            _finish(work, group, started)
            work = None
        elif copies:
            written = [] if name in WRITES_NOTHING else list(_tensors([given[places[0]]]))
            work = Late(work, [(tensor, copies[id(tensor)]) for tensor in written], group, started)
            for tensor in written:
                _spoil(tensor)
        return boxed(given, work)

    return kernel


def _finish(work: Any, group: groups.Group, started: float) -> None:
    """Wait for gloo. NCCL says nothing of an error here: it hangs, or the next call says so."""
    if work is None:
        return
    try:
        work.wait()
    except RuntimeError as error:
        if _dead(error):
            group.die(started, error)
        group.late = error


def _dead(error: Exception) -> bool:
    return any(word in str(error) for word in DEAD)


def _tensors(things: Any) -> Iterator[Any]:
    for thing in things:
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, (list, tuple)):
            yield from _tensors(thing)


def _replaced(thing: Any, copies: dict[int, Any]) -> Any:
    if isinstance(thing, torch.Tensor):
        return copies.get(id(thing), thing)
    if isinstance(thing, (list, tuple)):
        return [_replaced(one, copies) for one in thing]
    return thing


def _spoil(tensor: Any) -> None:
    """What a result that is not there yet looks like."""
    with torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype != torch.bool:
            tensor.fill_(torch.iinfo(tensor.dtype).max)
