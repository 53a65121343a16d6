"""The moments of a training run, told by the loops; whatever is measured or read back is called from here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import readback, weights

if TYPE_CHECKING:
    from .job import Job
    from .report import Report


class Watch:
    """One training run. A loop calls, in this order::

    phase("model")  phase("init")
    prepared(engine, optimizer, ...)                     the engine stands
    forward() backward(loss) [per micro step]  step()    after each of these
    phase("save")
    """

    def __init__(self, job: Job, report: Report) -> None:
        self.job = job
        self.report = report
        self.steps = 0
        self._since = 0.0

    def phase(self, name: str) -> None:
        self.report.phase(name)

    def prepared(self, engine: Any, optimizer: Any, **settings: Any) -> None:
        """The engine stands. ``settings``: what only the loop knows, for engines that do not keep it."""
        readback.see(self.report, engine, optimizer, settings)
        self.phase("step 1")
        self._since = time.monotonic()

    def forward(self) -> None:
        """A forward pass ended."""

    def backward(self, loss: float) -> None:
        """A backward pass ended; ``loss`` is that of its micro batch on this rank."""
        self.report.content["losses"].append(loss)

    def step(self) -> None:
        """An optimizer step ended."""
        self.steps += 1
        now = time.monotonic()
        self.report.content["step_seconds"].append(round(now - self._since, 4))
        self.phase(f"step {self.steps} done")
        self._since = time.monotonic()

    def finish(self, model: Any) -> None:
        """Training and saving are over; ``model`` is the bare one."""
        self.phase("read back")
        readback.see_machine(self.report, self.job.device)
        if self.report.rank == 0:
            self.report.content["weights"] = weights.read(Path(self.job.saved), model)
