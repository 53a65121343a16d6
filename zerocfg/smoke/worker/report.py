"""What one rank tells the parent, on disk after every change."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


RESERVE = 256 * 1024
"""Bytes; a report is far smaller."""


class Report:
    """``rank<N>.json``.

    "rank", "pid", "phase" (what it is doing), "done", "seen" (what the live engine says of itself), "losses" (one a
    micro step), "step_seconds", "versions", on rank 0 "weights", and "error" when it failed; `memory.Recorder` adds its
    own. ``fills`` are called before every writing, to bring the content up to date.
    """

    def __init__(self, folder: Path) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.path = folder / f"rank{self.rank}.json"
        self.content: dict[str, Any] = {"rank": self.rank, "pid": os.getpid(), "phase": "start", "done": False}
        self.content.update(seen={}, losses=[], step_seconds=[])
        self.fills: list[Callable[[], None]] = []
        # Room for the last words on a disk that is full by then.
        self._reserve = folder / f"rank{self.rank}.reserve"
        self._reserve.write_bytes(bytes(RESERVE))
        self.write()
        self.stack = failure.answer(folder / f"rank{self.rank}.stack")

    def write(self) -> None:
        for fill in self.fills:
            fill()
        temporary = self.path.with_suffix(".tmp")
        text = json.dumps(self.content)
        try:
            temporary.write_text(text)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            temporary.write_text(text)
        temporary.replace(self.path)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Around all work of the rank: tells that it is done, or of the error that ended it."""
        try:
            self.phase("import")
            yield
            self.content["done"] = True
            self.phase("done")
        except BaseException as error:
            self.content["error"] = failure.describe(error)
            self.write()
            raise

    def phase(self, name: str) -> None:
        self.content["phase"] = name
        self.write()

    def see(self, **values: Any) -> None:
        self.content["seen"].update(values)
