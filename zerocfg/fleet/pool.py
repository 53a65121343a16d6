"""Work in processes of their own, some at a time: a piece that crashes, hangs or takes all memory costs itself."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Generic, TypeVar

from zerocfg.record import record

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

T = TypeVar("T")
R = TypeVar("R")


@record(frozen=True)
class Lost:
    """Why a piece of work has no result, and after how many seconds that was known."""

    why: str
    seconds: float


@record
class _Running(Generic[T]):
    item: T
    process: BaseProcess
    answer: Connection
    began: float


def results(
    work: Callable[[T], R], items: Sequence[T], *, jobs: int, limit: float, preload: Sequence[str] = ()
) -> Iterator[tuple[T, R | Lost]]:
    """Each item with its result, as they come. ``limit``: seconds for one. ``preload``: modules that every process has.

    ``work`` is a function of a module, and what it takes and gives can be pickled. Leaving the iterator ends what runs.
    """
    # Processes are forked from one that did nothing but import, where the system can; a thread of this one harms none.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if preload and method == "forkserver":
        context.set_forkserver_preload(list(preload))
    waiting = list(reversed(items))
    running: list[_Running[T]] = []

    def start(item: T) -> _Running[T]:
        answer, giver = context.Pipe(duplex=False)
        process = context.Process(target=_play, args=(work, item, giver), daemon=True)  # type: ignore[attr-defined]
        process.start()
        giver.close()
        return _Running(item, process, answer, time.monotonic())

    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(start(waiting.pop()))
            first = min(entry.began for entry in running) + limit
            wait([entry.answer for entry in running], max(0.0, first - time.monotonic()))
            for entry in list(running):
                if entry.answer.poll():
                    result: R | Lost = _answer(entry)
                elif time.monotonic() - entry.began >= limit:
                    result = Lost(f"took longer than {limit:g} s", time.monotonic() - entry.began)
                else:
                    continue
                running.remove(entry)
                _end(entry)
                yield entry.item, result
    finally:
        for entry in running:
            _end(entry)


def _play(work: Callable[[T], R], item: T, giver: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this is interrupted too, and ends it
    result = work(item)
    with contextlib.suppress(BrokenPipeError):
        giver.send(result)


def _answer(item: _Running[T]) -> R | Lost:
    try:
        result: R = item.answer.recv()
    except (EOFError, OSError):
        item.process.join()
        return Lost(_died(item.process.exitcode or 0), time.monotonic() - item.began)
    return result


def _died(code: int) -> str:
    if code >= 0:
        return f"its process ended without an answer (exit code {code})"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"its process was ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")


def _end(item: _Running[T]) -> None:
    item.answer.close()
    item.process.kill()
    item.process.join()
    item.process.close()
