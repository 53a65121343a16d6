"""Observes a training run: the loops call it at each stage, and it measures and reads back."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import checksums, communication, memory, record, resume_point, weights
from .readback import collect, trl_trainers

if TYPE_CHECKING:
    import torch
    import transformers

    from .job import Job
    from .report import Report
    from .report_schema import Seen


class Watch:
    """One training run. A loop calls, in this order::

    phase("model")  phase("init")
    prepared(engine, optimizer, ...)                     the engine stands
    forward() backward(loss) [per micro step]  step()    after each of these
    checkpoint_due()  checkpointed()                     after a step: whether a checkpoint is wanted, and is written
    phase("save")

    ``checkpoint``: optimizer steps behind the checkpoint that was written, 0 for none, and then ``no_checkpoint``
    says why. ``config``: the DeepSpeed config as the engine resolved it, None for other engines.
    """

    def __init__(self, job: Job, report: Report) -> None:
        self.job = job
        self.report = report
        self.steps = 0
        self._since = 0.0
        self._optimizer: torch.optim.Optimizer | None = None
        self._micro_steps = 0
        self.memory = memory.Recorder(report, job.device)
        self.checkpoint = 0
        self.no_checkpoint: str | None = None
        self.config: dict[str, object] | None = None
        self._engine: torch.nn.Module | None = None
        self._before: dict[str, int] = {}
        self._rate: float | None = None
        self._skipped = 0
        # A loop of the user's own may hold what a dispatched call cannot pass.
        self._counter = communication.Counter(job.device == "cuda") if job.consumer != "command" else None

    def phase(self, name: str) -> None:
        if name == "model" and self.job.memory_limit:
            memory.limit(self.job.memory_limit, self.job.device)
        if name in ("model", "init"):
            self.memory.enter("init")
        elif name == "save":
            self.memory.enter("save")
        self.report.phase(name)

    def prepared(
        self,
        engine: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: Seen | None = None,
        scheduler: object = None,
    ) -> None:
        """The engine is ready. ``settings``, ``scheduler``: what only the loop knows, of engines without them."""
        self.memory.enter("own")
        collect.see(self.report, engine, optimizer, settings or {}, scheduler)
        memory.follow_step(engine, self.memory)
        self._engine, self._optimizer = engine, optimizer
        if hasattr(engine, "zero_optimization_stage"):
            self.config = copy.deepcopy(engine.config)
        self.report.content.update({"rates": [], "parameters": checksums.elements(engine)})
        self._before = self._sums()
        self.phase("step 1")
        self.memory.enter("forward")
        self._count()
        self._since = time.monotonic()

    def trainer(self, name: str, trainer: transformers.Trainer, own: tuple[str, ...]) -> None:
        """The class that trains, and which values the arguments of its ``own`` have in it."""
        acting, parsed = trl_trainers.settings(trainer, own)
        self.report.see({"trainer": name})
        self.report.content["seen"]["settings"].update(acting)
        self.report.content["seen"]["parsed"].update(parsed)

    def forward(self) -> None:
        """A forward pass ended."""
        self.memory.enter("backward")

    def backward(self, loss: float) -> None:
        """A backward pass ended; ``loss`` is that of its micro batch on this rank."""
        self.report.content["losses"].append(loss)
        self._rate = record.rate(self._optimizer)
        self._micro_steps += 1
        last = self._micro_steps % (self.report.content["seen"].get("gradient_accumulation_steps") or 1) == 0
        self.memory.enter("step" if last else "forward")

    def step(self) -> None:
        """An optimizer step ended."""
        self.steps += 1
        self.memory.settle()
        self._counted()
        now = time.monotonic()
        self.memory.enter("own")
        self.report.content["step_seconds"].append(round(now - self._since, 4))
        if self.steps == 1:
            collect.see_states(self.report, self._optimizer)
        self.report.content["rates"].append(self._rate)
        self._skipped += bool(getattr(self._optimizer, "step_was_skipped", False))
        if self.steps == self.job.steps:
            self._trained()
        self.phase(f"step {self.steps} done")
        self._next()

    def _next(self) -> None:
        """Another step begins, unless it was the last one."""
        if self.steps < self.job.steps:
            self.memory.enter("forward")
            self._count()
        self._since = time.monotonic()

    def _count(self) -> None:
        """Count the collectives of the last step: by then every engine knows in which order it needs what."""
        if self._counter is not None and self.steps == self.job.steps - 1:
            self._counter.start()

    def _counted(self) -> None:
        if self._counter is not None and self.steps == self.job.steps:
            self._counter.stop()
            self.report.content["collectives"] = self._counter.collectives()

    def _trained(self) -> None:
        """The last step is done: record what the engine holds now."""
        after = self._sums()
        self.report.content["sums"] = after
        self.report.content["changed"] = sum(1 for name, value in after.items() if self._before.get(name) != value)
        self.report.content["momentum"] = checksums.momentum(self._engine, self._optimizer)
        self.report.content["skipped_steps"] = int(getattr(self._engine, "skipped_steps", self._skipped) or 0)

    def _sums(self) -> dict[str, int]:
        """Checksums of the live parameters; empty where an engine does not expose them, no fault of the run."""
        try:
            return checksums.live(self._engine)
        except Exception as error:
            self.report.content["unread"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return {}

    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is to be written now. All ranks get the same answer."""
        last = resume_point.last_before(self.job.steps) or self.job.steps
        if "resume" not in self.job.parts or self.steps != last:
            return False
        self.no_checkpoint = resume_point.obstacle(self.job, self._engine)
        if self.no_checkpoint is not None:
            return False
        if self._counter is not None:
            self._counter.stop()
        self.memory.enter("own")
        self.report.phase("checkpoint")
        return True

    def checkpointed(self) -> None:
        """The checkpoint is written."""
        self.checkpoint = self.steps
        self.phase(f"step {self.steps} done")
        self._next()

    def close(self) -> None:
        """Release the engine."""
        record.let_go(self._engine)
        self._engine = self._optimizer = None

    def finish(self, model: torch.nn.Module) -> None:
        """Training and saving are over; ``model`` is the bare one."""
        self.memory.stop()
        self.phase("read back")
        collect.see_machine(self.report, self.job.device)
        if self.report.rank == 0 and self.job.saves:
            self.report.content["weights"] = weights.read(Path(self.job.saved), model, self.report.content.get("sums"))
