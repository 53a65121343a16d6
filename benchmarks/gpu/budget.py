"""The seconds of a whole run and of each check in it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

ENDING = 12.0
"""Seconds between the time limit of a check and the latest end of all that it started."""


class Clock:
    """Counts down the seconds of one check. ``cut``: it has fewer than the check's own time limit."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic, *, cut: bool = False) -> None:
        self.seconds = seconds
        self.cut = cut
        self._now = now
        self._start = now()

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    @property
    def spent(self) -> float:
        return self._now() - self._start


class Budget:
    """``seconds`` for a whole run; None: no limit."""

    def __init__(self, seconds: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end = math.inf if seconds is None else now() + seconds

    @property
    def left(self) -> float:
        return self._end - self._now()

    def allot(self, least: float, limit: float) -> Clock | None:
        """The clock of a check that takes ``limit`` seconds at most; None where less than ``least`` can be given."""
        seconds = min(limit, self.left - ENDING)
        if seconds < least:
            return None
        return Clock(seconds, self._now, cut=seconds < limit)
