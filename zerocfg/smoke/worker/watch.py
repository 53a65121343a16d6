"""Observes the planned training: the loops call it at each stage, and everything that it measures is fenced."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import checksums, communication, device, learning_rate, memory, record, weights
from .readback import collect, optimizers, trl_trainers
from .report_schema import CHECKSUMS, COUNTER, LOSS, MEMORY, MOMENTS, PARAMETERS, RATE, READ_BACK, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    import transformers

    from .job import Job
    from .report import Report
    from .report_schema import Seen, Weights

CLOCK = "step clock"
DEVICE = "device name"


class Watch:
    """The planned training. A loop calls, in this order::

    phase("model")  phase("init")
    prepared(engine, optimizer, ...)                     the engine stands
    forward() backward(loss) [per micro step]  step()    after each of these
    phase("save")

    ``config``: the DeepSpeed config as the engine resolved it, None for other engines.
    """

    def __init__(self, job: Job, report: Report) -> None:
        self.job = job
        self.report = report
        self.fence = report.fence
        self.steps = 0
        self.config: dict[str, object] | None = None
        self._since = time.monotonic()
        self._optimizer: torch.optim.Optimizer | None = None
        self._engine: torch.nn.Module | None = None
        self._micro_steps = 0
        self._tensors = 0
        self._before: dict[str, int] = {}
        self._rates = learning_rate.Rates()
        self._skipped = 0
        self._memory: memory.Recorder | None = self.fence.measure(MEMORY, memory.Recorder, report, job.device)
        # A loop of the user's own may hold what a dispatched call cannot pass.
        self._counter: communication.Counter | None = None
        if job.consumer != "command":
            on_card = job.device == "cuda"
            self._counter = self.fence.measure(COUNTER, communication.Counter, self.fence, on_card)

    def phase(self, name: str) -> None:
        if name == "model" and self.job.memory_limit:
            memory.limit(self.job.memory_limit, self.job.device)
        if name in ("model", "init"):
            self._enter("init")
        elif name == "save":
            self._enter("save")
        self.report.phase(name)

    def prepared(
        self,
        engine: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: Seen | None = None,
        scheduler: object = None,
    ) -> None:
        """The engine is ready. ``settings``, ``scheduler``: what only the loop knows, of engines without them."""
        self._enter("own")
        self._engine, self._optimizer = engine, optimizer
        content, measure = self.report.content, self.fence.measure
        content["rates"] = []
        measure(READ_BACK, collect.see, self.report, engine, optimizer, settings or {}, scheduler)
        measure(DEVICE, device.see_device, self.report, self.job.device)
        measure(MEMORY, memory.follow_step, engine, self._enter)
        if hasattr(engine, "zero_optimization_stage"):
            self.config = measure("DeepSpeed's config", copy.deepcopy, engine.config)
        self._tensors = measure("parameters", lambda: len(list(engine.parameters())), otherwise=0)
        parameters = measure(PARAMETERS, checksums.elements, engine)
        if parameters is not None:
            content["parameters"] = parameters
        self._before = self._sums("before")
        self._choose_rate()
        self.phase("step 1")
        self._enter("forward")
        self._count()
        self._since = time.monotonic()

    def trainer(self, name: str, trainer: transformers.Trainer, own: tuple[str, ...]) -> None:
        """The class that trains, and which values the arguments of its ``own`` have in it."""
        self.report.see({"trainer": name})
        acting, parsed = self.fence.measure("read-back of the trainer", trl_trainers.settings, trainer, own) or ({}, {})
        seen = self.report.content["seen"]
        seen.setdefault("settings", {}).update(acting)
        seen.setdefault("parsed", {}).update(parsed)

    def forward(self) -> None:
        """A forward pass ended; an optimizer step may follow with the next call that a loop makes."""
        self._enter("backward")
        self.fence.measure(RATE, self._rates.begin, self._optimizer, self.report.content.get("trial_rate"))

    def backward(self, loss: torch.Tensor, scale: float = 1.0) -> None:
        """A backward pass ended; ``loss`` times ``scale`` is that of its micro batch on this rank."""
        value = self.fence.measure(LOSS, record.scalar, loss, scale)
        if value is not None:
            self.report.content["losses"].append(value)
        self._micro_steps += 1
        last = self._micro_steps % (self.report.content["seen"].get("gradient_accumulation_steps") or 1) == 0
        self._enter("step" if last else "forward")

    def step(self) -> None:
        """An optimizer step ended."""
        self.steps += 1
        if self._memory is not None:
            self.fence.measure(CLOCK, self._memory.settle)
        self._counted()
        now = time.monotonic()
        self._enter("own")
        self.report.content["step_seconds"].append(round(now - self._since, 4))
        if self.steps == 1:
            states = self.fence.measure("read-back of the optimizer's states", optimizers.states, self._optimizer)
            if states:
                self.report.see({"states": states})
        self.report.content["rates"].append(self.fence.measure(RATE, self._rates.end, self._optimizer))
        self._skipped += bool(getattr(self._optimizer, "step_was_skipped", False))
        if self.steps == self.job.steps:
            self._trained()
        self.phase(f"step {self.steps} done")
        if self.steps < self.job.steps:
            self._enter("forward")
            self._count()
        self._since = time.monotonic()

    def _enter(self, phase: str) -> None:
        if self._memory is not None:
            self.fence.measure(MEMORY, self._memory.enter, phase)

    def _choose_rate(self) -> None:
        """Set a least learning rate for the steps, on all ranks or on none: with rates of their own the ranks would
        come apart. A script of the user's own keeps its rates."""
        if self.job.consumer == "command":
            return
        measure = self.fence.measure_together
        least = measure(RATE, "trial", learning_rate.agreed, self.job, self._optimizer)
        if least is not None:
            self.report.content["trial_rate"] = least

    def _count(self) -> None:
        """Count the collectives of the last step: by then every engine knows in which order it needs what."""
        if self._counter is not None and self.steps == self.job.steps - 1:
            self.fence.measure(COUNTER, self._counter.start, self._tensors)

    def _counted(self) -> None:
        if self._counter is not None and self.steps == self.job.steps:
            self.fence.measure(COUNTER, self._counter.stop)
            collectives = self.fence.measure(COUNTER, self._counter.collectives)
            if collectives is not None:
                self.report.content["collectives"] = collectives

    def _trained(self) -> None:
        """The last step is done: record what the engine holds now."""
        content, measure = self.report.content, self.fence.measure_together
        after = self._sums("after")
        if after:
            content["sums"] = after
        if after and self._before:
            content["changed"] = sum(1 for name, value in after.items() if self._before.get(name) != value)
        content["momentum"] = measure(MOMENTS, "planned", checksums.momentum, self._engine, self._optimizer)
        content["skipped_steps"] = self.fence.measure("skipped steps", self._skipped_steps, otherwise=self._skipped)

    def _skipped_steps(self) -> int:
        return int(getattr(self._engine, "skipped_steps", self._skipped) or 0)

    def _sums(self, occasion: str) -> dict[str, int]:
        """Checksums of the live parameters; empty where they cannot be read."""
        sums: dict[str, int] = self.fence.measure_together(
            CHECKSUMS, occasion, checksums.live, self._engine, otherwise={}
        )
        return sums

    def close(self) -> None:
        """Release the engine."""
        self.fence.measure("release of the engine", record.let_go, self._engine)
        self._engine = self._optimizer = None

    def stop(self) -> None:
        """Stop counting memory: the training is over."""
        if self._memory is not None:
            self.fence.measure(MEMORY, self._memory.stop)

    def finish(self, model: torch.nn.Module) -> None:
        """Training and saving are over; ``model`` is the bare one."""
        self.stop()
        self.phase("read back")
        if self.report.rank == 0 and self.job.saves:
            found = self.read_weights(weights.read, Path(self.job.saved), model)
            if found is not None:
                self.report.content["weights"] = found
        self.report.content["trained"] = True
        self.report.phase("trained")

    def read_weights(self, read: Callable[..., Weights], folder: Path, model: torch.nn.Module) -> Weights | None:
        """The saved weights beside the live model's, by ``read`` (`weights.read`)."""
        sums = self.report.content.get("sums")
        found: Weights | None = self.fence.measure(WEIGHTS, read, folder, model, sums)
        return found
