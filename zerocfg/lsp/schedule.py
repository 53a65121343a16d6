"""When to lint: after a pause in typing, never two at a time, and at once for a request that waits for the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PAUSE = 0.15
"""Seconds without a change before the files are looked at."""
LONGEST = 1.5
"""Seconds after which a change is looked at although typing goes on."""


class Schedule:
    """Calls ``look`` after `changed`; a change during a look leads to one more look, however many there were."""

    def __init__(self, look: Callable[[], Awaitable[None]], pause: float = PAUSE) -> None:
        self._look = look
        self._pause = pause
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._since: float | None = None

    def changed(self) -> None:
        """Something changed: look soon."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        delay = min(self._pause, max(0.0, self._since + LONGEST - now))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay, self._start)

    async def settled(self) -> None:
        """Wait until every change so far has been looked at. May be cancelled; the look goes on."""
        while self._since is not None or self._running is not None:
            if self._running is None:
                self._start()
            if self._running is not None:
                await asyncio.shield(self._running)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._since = None

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._since is None or self._running is not None:
            return  # the look that is under way starts the next one
        self._since = None
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._look()
        finally:
            self._running = None
            if self._since is not None and self._timer is None:
                self._start()
