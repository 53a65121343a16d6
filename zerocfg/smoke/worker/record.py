"""The course of a training that is compared with the planned one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import sums

if TYPE_CHECKING:
    from .report import Report


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
        self.engine: Any = None
        self.optimizer: Any = None
        self._rate: float | None = None

    def phase(self, name: str) -> None:
        self.report.phase(f"{self.name}: {name}")

    def prepared(self, engine: Any, optimizer: Any, **settings: Any) -> None:
        self.engine, self.optimizer = engine, optimizer
        self.phase(f"step {self.steps + 1}")

    def forward(self) -> None:
        """A forward pass ended."""

    def backward(self, loss: float) -> None:
        self.losses.append(loss)
        self._rate = rate(self.optimizer)

    def step(self) -> None:
        self.steps += 1
        self.rates.append(self._rate)
        if self.steps == self.last:
            self.momentum = sums.momentum(self.engine, self.optimizer)
            self.sums = sums.live(self.engine)
        self.phase(f"step {self.steps} done")

    def checkpoint_due(self) -> bool:
        return False

    def checkpointed(self) -> None:
        """A checkpoint is written."""

    def close(self) -> None:
        """Let go of the engine."""
        if hasattr(self.engine, "destroy"):
            self.engine.destroy()
        self.engine = self.optimizer = None

    def data(self) -> dict[str, Any]:
        return {"losses": self.losses, "rates": self.rates, "steps": self.steps, "momentum": self.momentum}


def rate(optimizer: Any) -> float | None:
    """The learning rate of the next step, the highest of all parameter groups; None when the optimizer tells none."""
    rates = [group.get("lr") for group in getattr(optimizer, "param_groups", None) or []]
    return max((float(one) for one in rates if one is not None), default=None)
