"""The report of one rank, written to disk after every change."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .report_schema import RankReport, Seen


RESERVE = 256 * 1024
"""Bytes; a report is far smaller."""


class Report:
    """``rank<N>.json``. ``fills`` are called before every writing, to bring the content up to date."""

    def __init__(self, folder: Path) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.path = folder / f"rank{self.rank}.json"
        self.content: RankReport = {"rank": self.rank, "pid": os.getpid(), "phase": "start", "done": False}
        self.content.update({"seen": {}, "losses": [], "step_seconds": []})
        self.fills: list[Callable[[], None]] = []
        # Room for the error report on a disk that is full by then.
        self._reserve = folder / f"rank{self.rank}.reserve"
        self._reserve.write_bytes(bytes(RESERVE))
        self.write()
        self.stack = failure.dump_stack_on_signal(folder / f"rank{self.rank}.stack")

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
        them all. All ranks call it at their end.
        """
        import torch.distributed as dist

        everyone: list[RankReport] = [{}] * dist.get_world_size()  # places, which the reports take
        dist.all_gather_object(everyone, self.content)
        if os.environ.get("LOCAL_RANK", "0") != "0":
            return
        here = {int(path.stem[4:]) for path in self.path.parent.glob("rank*.json")}
        for content in everyone:
            if content["rank"] not in here:
                # Process ids of other machines mean nothing here.
                copy = content.copy()
                copy.pop("pid", None)
                copy.update({"done": True, "phase": "done"})
                (self.path.parent / f"rank{content['rank']}.json").write_text(json.dumps(copy))

    def see(self, seen: Seen) -> None:
        """Add values that were read back from the live engine."""
        self.content["seen"].update(seen)
