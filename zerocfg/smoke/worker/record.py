"""Records a training that is compared with the planned one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import checksums

if TYPE_CHECKING:
    import torch
    import transformers

    from .report import Report
    from .report_schema import Part, Seen


class Record:
    """Stands in for `Watch` in a training that is compared with the planned one; it writes nothing to the report.

    ``losses``: one a micro step. ``rates``: the learning rate of each optimizer step. ``steps``: how many optimizer
    steps are behind, ``first`` of them before this training; ``last``: the step with which it ends.
    """

    def __init__(self, report: Report, name: str, last: int, first: int = 0) -> None:
        self.report = report
        self.name = name
        self.steps = first
        self.last = last
        self.losses: list[float] = []
        self.rates: list[float | None] = []
        self.sums: dict[str, int] = {}
        self.momentum: float | None = None
        self.engine: torch.nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self._rate: float | None = None

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
        self.phase(f"step {self.steps + 1}")

    def trainer(self, name: str, trainer: transformers.Trainer, own: tuple[str, ...]) -> None:
        """The class that trains."""

    def forward(self) -> None:
        """A forward pass ended."""

    def backward(self, loss: float) -> None:
        self.losses.append(loss)
        self._rate = rate(self.optimizer)

    def step(self) -> None:
        self.steps += 1
        self.rates.append(self._rate)
        if self.steps == self.last and self.engine is not None:
            self.momentum = checksums.momentum(self.engine, self.optimizer)
            self.sums = checksums.live(self.engine)
        self.phase(f"step {self.steps} done")

    def checkpoint_due(self) -> bool:
        return False

    def checkpointed(self) -> None:
        """A checkpoint is written."""

    def close(self) -> None:
        """Release the engine."""
        let_go(self.engine)
        self.engine = self.optimizer = None

    def data(self) -> Part:
        return {"losses": self.losses, "rates": self.rates, "steps": self.steps, "momentum": self.momentum}


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


def rate(optimizer: torch.optim.Optimizer | None) -> float | None:
    """The learning rate of the next step, the highest of all parameter groups; None when the optimizer has none."""
    rates = [group.get("lr") for group in getattr(optimizer, "param_groups", None) or []]
    return max((float(one) for one in rates if one is not None), default=None)
