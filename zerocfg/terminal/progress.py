"""One line on standard error about work that takes longer than a second, where somebody watches."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from zerocfg.terminal.streams import columns, draw_anew

PATIENCE = 1.0
"""Seconds without a word."""
PAUSE = 0.2
"""Seconds between two looks."""


class Working:
    """``with Working("linting") as working:``, then ``working("another phase")`` as often as it is one.

    ``detail`` is asked for what is known about the progress each time the line is drawn. Nothing is shown where
    standard error is no terminal that can take a line back.
    """

    def __init__(self, phase: str = "", detail: Callable[[], str] | None = None) -> None:
        self.phase = phase
        self._detail = detail
        self._since = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._drawn = ""
        self._thread: threading.Thread | None = None

    def __call__(self, phase: str) -> None:
        """Another phase has begun; its seconds count from now."""
        with self._lock:
            self.phase, self._since = phase, time.monotonic()
            if self._drawn and phase:
                self._draw()

    def __enter__(self) -> Working:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self.clear()

    def clear(self) -> None:
        """Take the line back before something else is written."""
        with self._lock:
            if self._drawn:
                draw_anew("", sys.stderr)
                self._drawn = ""

    def _watch(self) -> None:
        patience = PATIENCE
        while not self._ended.wait(patience):
            patience = PAUSE
            with self._lock:
                if self.phase:
                    self._draw()

    def _draw(self) -> None:
        words = self.phase
        detail = self._detail() if self._detail is not None else ""
        if detail:
            words += f", {detail}"
        words += f" ({time.monotonic() - self._since:.0f} s)"
        room = (columns(sys.stderr) or 80) - 1
        if len(words) > room:
            words = words[: max(0, room - 3)] + "..."
        if words != self._drawn:
            draw_anew(words, sys.stderr)
            self._drawn = words
