"""The moments of a training run, told by the loops; whatever is measured or read back is called from here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import memory, readback, weights

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
        self._optimizer: Any = None
        self._micro_steps = 0
        self.memory = memory.Recorder(report, job.device)

    def phase(self, name: str) -> None:
        if name == "model" and self.job.memory_limit:
            memory.limit(self.job.memory_limit, self.job.device)
        if name in ("model", "init"):
            self.memory.enter("init")
        elif name == "save":
            self.memory.enter("save")
        self.report.phase(name)

    def prepared(self, engine: Any, optimizer: Any, **settings: Any) -> None:
        """The engine stands. ``settings``: what only the loop knows, for engines that do not keep it."""
        self.memory.enter("own")
        readback.see(self.report, engine, optimizer, settings)
        memory.follow_step(engine, self.memory)
        self._optimizer = optimizer
        self.phase("step 1")
        self.memory.enter("forward")
        self._since = time.monotonic()

    def forward(self) -> None:
        """A forward pass ended."""
        self.memory.enter("backward")

    def backward(self, loss: float) -> None:
        """A backward pass ended; ``loss`` is that of its micro batch on this rank."""
        self.report.content["losses"].append(loss)
        self._micro_steps += 1
        last = self._micro_steps % (self.report.content["seen"].get("gradient_accumulation_steps") or 1) == 0
        self.memory.enter("step" if last else "forward")

    def step(self) -> None:
        """An optimizer step ended."""
        self.steps += 1
        self.memory.settle()
        now = time.monotonic()
        self.memory.enter("own")
        self.report.content["step_seconds"].append(round(now - self._since, 4))
        if self.steps == 1:
            readback.see_states(self.report, self._optimizer)
        self.phase(f"step {self.steps} done")
        self.memory.enter("forward")
        self._since = time.monotonic()

    def finish(self, model: Any) -> None:
        """Training and saving are over; ``model`` is the bare one."""
        self.memory.stop()
        self.phase("read back")
        readback.see_machine(self.report, self.job.device)
        if self.report.rank == 0:
            self.report.content["weights"] = weights.read(Path(self.job.saved), model)
