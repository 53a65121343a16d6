"""Counts Ctrl-C and termination signals, so that no clean-up is cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass
class Interrupts:
    """``requests``: how often zerocfg was asked to end."""

    requests: int = 0

    def __bool__(self) -> bool:
        return self.requests > 0


_active: list[Interrupts] = []


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Counts termination signals instead of raising; code that waits polls the count.

    So no clean-up is cut short, however often Ctrl-C is pressed. Within another one the count is that one's. A signal
    that was ignored stays ignored; outside the main thread, where Python delivers none, nothing is changed.
    """
    if _active and threading.current_thread() is threading.main_thread():
        yield _active[-1]
        return
    seen = Interrupts()

    def count(*_: object) -> None:
        seen.requests += 1

    previous: dict[signal.Signals, Handler] = {}
    try:
        for name in SIGNALS:
            one = getattr(signal, name, None)
            if one is not None and signal.getsignal(one) is not signal.SIG_IGN:
                with contextlib.suppress(ValueError):
                    previous[one] = signal.signal(one, count)
        if previous:
            _active.append(seen)
        yield seen
    finally:
        if previous:
            _active.remove(seen)
        for one, handler in previous.items():
            signal.signal(one, handler)
