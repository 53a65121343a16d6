"""Records a training that is compared with the planned one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import checksums, learning_rate
from .report_schema import CHECKSUMS, LOSS, MOMENTS, PARAMETERS, RATE

if TYPE_CHECKING:
    import torch
    import transformers

    from .report import Report
    from .report_schema import Part, Seen


class Record:
    """Stands in for `Watch` in a training that is compared with the planned one; it writes nothing to the report.

    ``losses``: one a micro step. ``rates``: the scheduled learning rate of each optimizer step. ``steps``: how many
    optimizer steps are behind, ``first`` of them before this training; ``last``: the step with which it ends.
    ``compared``: whether its parameters are looked at after that. ``rate``: the least learning rate of its steps.
    """

    def __init__(
        self, report: Report, name: str, last: int, first: int = 0, compared: bool = True, rate: float | None = None
    ) -> None:
        self.report = report
        self.fence = report.fence
        self.name = name
        self.steps = first
        self.last = last
        self.compared = compared
        self.rate = rate
        self.parameters: int | None = None
        self.losses: list[float] = []
        self.rates: list[float | None] = []
        self.sums: dict[str, int] = {}
        self.momentum: float | None = None
        self.engine: torch.nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self._rates = learning_rate.Rates()

    def phase(self, name: str) -> None:
        self.report.phase(f"{self.name}: {name}")

    def prepared(
        self,
        engine: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: Seen | None = None,
        scheduler: object = None,
    ) -> None:
        """The engine is ready."""
        self.engine, self.optimizer = engine, optimizer
        self.parameters = self.fence.measure(PARAMETERS, checksums.elements, engine)
        self.phase(f"step {self.steps + 1}")

    def trainer(self, name: str, trainer: transformers.Trainer, own: tuple[str, ...]) -> None:
        """The class that trains."""

    def forward(self) -> None:
        """A forward pass ended."""
        self.fence.measure(RATE, self._rates.begin, self.optimizer, self.rate)

    def backward(self, loss: torch.Tensor, scale: float = 1.0) -> None:
        """A backward pass ended; ``loss`` times ``scale`` is that of its micro batch."""
        value = self.fence.measure(LOSS, scalar, loss, scale)
        if value is not None:
            self.losses.append(value)

    def step(self) -> None:
        self.steps += 1
        self.rates.append(self.fence.measure(RATE, self._rates.end, self.optimizer))
        if self.compared and self.steps == self.last and self.engine is not None:
            measure = self.fence.measure_together
            self.momentum = measure(MOMENTS, self.name, checksums.momentum, self.engine, self.optimizer)
            self.sums = measure(CHECKSUMS, self.name, checksums.live, self.engine, otherwise={})
        self.phase(f"step {self.steps} done")

    def close(self) -> None:
        """Release the engine."""
        self.fence.measure("release of the engine", let_go, self.engine)
        self.engine = self.optimizer = None

    def data(self) -> Part:
        return {"losses": self.losses, "rates": self.rates, "steps": self.steps, "momentum": self.momentum}


def scalar(loss: torch.Tensor, scale: float = 1.0) -> float:
    """A loss as a number; the mean, where a loop has one a sample."""
    return float(loss.detach().float().mean()) * scale


def let_go(engine: torch.nn.Module | None) -> None:
    """Free what an engine of DeepSpeed holds; it cannot be used any more.

    Hooks of autograd keep an engine of ZeRO-3 alive where Python's collector does not see them, so its tensors are
    dropped one by one.
    """
    if engine is None or not hasattr(engine, "zero_optimization_stage"):
        return
    import torch

    engine.destroy()
    optimizer = engine.optimizer
    inner = checksums.base(optimizer)
    inner.state.clear()
    inner.param_groups.clear()
    for parameter in engine.module.parameters():
        parameter.grad = None
        for tensor in (parameter, getattr(parameter, "ds_tensor", None)):
            if tensor is not None:
                tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    if not isinstance(optimizer, torch.optim.Optimizer):
        vars(optimizer).clear()
