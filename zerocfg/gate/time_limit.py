"""A time limit for work that others decide: a pattern that is tried in more ways than there is time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitError(Exception):
    """The work took longer than it may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeLimitError in what runs longer; Python's matcher of patterns looks for signals while it tries.

    Only the main thread gets signals, and Windows has none for this: there the time limit of the job counts.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_: int, __: FrameType | None) -> None:
        raise TimeLimitError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
