"""The report of one rank, written to disk after every change."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import failure
from .fence import Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .report_schema import RankReport, Seen


RESERVE = 256 * 1024
"""Bytes; a report is far smaller."""


class Report:
    """``rank<N>.json``, and the ``fence`` of the rank, whose findings are a part of it.

    ``fills`` are called before every writing, to bring the content up to date: instruments, by name.
    """

    def __init__(self, folder: Path) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.path = folder / f"rank{self.rank}.json"
        self.content: RankReport = {"rank": self.rank, "pid": os.getpid(), "phase": "start", "done": False}
        self.content.update({"seen": {}, "losses": [], "step_seconds": [], "instruments": {}})
        self.fence = Fence(self.content["instruments"])
        self.fills: dict[str, Callable[[], None]] = {}
        # Room for the error report on a disk that is full by then.
        self._reserve = folder / f"rank{self.rank}.reserve"
        with contextlib.suppress(OSError):
            self._reserve.write_bytes(bytes(RESERVE))
        self.write()
        stack = folder / f"rank{self.rank}.stack"
        self.stack = self.fence.measure("stack on a signal", failure.dump_stack_on_signal, stack)

    def write(self) -> None:
        """Write the report; where that fails, the one before stays, and the run goes on."""
        for name, fill in self.fills.items():
            self.fence.measure(name, fill)
        temporary = self.path.with_suffix(".tmp")
        text = json.dumps(self.content)
        try:
            temporary.write_text(text)
        except OSError:
            with contextlib.suppress(OSError):
                self._reserve.unlink(missing_ok=True)
                temporary.write_text(text)
        with contextlib.suppress(OSError):
            if temporary.stat().st_size == len(text.encode()):
                temporary.replace(self.path)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Around all work of the rank: records that it is done, or the error that ended it."""
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

    def exchange(self) -> None:
        """Write the reports of the ranks on other machines beside those of this one, so that every machine can judge
        them all. All ranks call it, when the planned training is over and again at their end.
        """
        import torch.distributed as dist

        everyone: list[RankReport] = [{}] * dist.get_world_size()  # places, which the reports take
        dist.all_gather_object(everyone, self.content)
        if os.environ.get("LOCAL_RANK", "0") != "0":
            return
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        for content in everyone:
            if content["rank"] // local != self.rank // local:
                # Process ids of other machines mean nothing here.
                copy = content.copy()
                copy.pop("pid", None)
                copy.update({"done": True, "phase": "done"})
                (self.path.parent / f"rank{content['rank']}.json").write_text(json.dumps(copy))

    def see(self, seen: Seen) -> None:
        """Add values that were read back from the live engine."""
        self.content["seen"].update(seen)
