"""The learning rate of the steps: what the schedule asks for, and a higher one where that decides nothing.

A schedule that warms up begins with rates at which no loss moves (1e-9), so that a few steps show nothing. There the
smoke-run trains with the least rate at which the loss of one repeated batch falls visibly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .values import mapping, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from .job import Job

STEP = 0.3
"""Change of a token's logit by one step of Adam, which moves each of the ``width`` weights of the head by the rate: the
rate is this over the width. In eleven runs on a processor, with widths from 64 to 1,024, the first step lowered the
loss by 3 to 68 %."""
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
WIDTH = 64
"""Where the config does not say it."""


def deciding_rate(job: Job) -> float:
    """The least rate at which two steps show whether the loss falls."""
    text = mapping(job.model.get("text_config")) or job.model
    return STEP / next((whole(text[name], WIDTH) for name in WIDTHS if text.get(name)), WIDTH)


def agreed(meet: Callable[[], None], job: Job, optimizer: torch.optim.Optimizer) -> float:
    """`deciding_rate`, where all ranks can raise their rates to it. ``meet`` as in `Fence.measure_together`."""
    least, before, tried = deciding_rate(job), scheduled_rate(optimizer), Rates()
    tried.begin(optimizer, least)
    assert tried.end(optimizer) == before == scheduled_rate(optimizer), "a rate cannot be set"
    meet()
    return least


@dataclass
class Rates:
    """The rates of one training, a step at a time."""

    _scheduled: float | None = None
    _raised: dict[int, float] = field(default_factory=dict)
    _least: float | None = None
    _begun: bool = False

    def begin(self, optimizer: torch.optim.Optimizer | None, least: float | None) -> None:
        """A step begins, with rates of ``least`` at least; None: with those of the schedule. Again within a step it
        changes nothing."""
        if self._begun:
            return
        self._begun, self._least = True, least
        self._scheduled = scheduled_rate(optimizer)
        self._raised = {}
        for index, group in enumerate(getattr(optimizer, "param_groups", None) or []):
            rate = group.get("lr")
            if least is not None and rate is not None and float(rate) < least:
                self._raised[index] = float(rate)
                _set(group, least)

    def end(self, optimizer: torch.optim.Optimizer | None) -> float | None:
        """The step is done: the scheduled rate that it would have had. Rates that nobody has set since are those of the
        schedule again, so that a checkpoint holds them."""
        for index, rate in self._raised.items():
            assert optimizer is not None, "it had groups"
            group = optimizer.param_groups[index]
            if math.isclose(float(group["lr"]), self._least or 0.0, rel_tol=1e-6):  # a tensor holds it in fp32
                _set(group, rate)
        self._begun, self._raised = False, {}
        return self._scheduled


def scheduled_rate(optimizer: torch.optim.Optimizer | None) -> float | None:
    """The learning rate of the next step, the highest of all parameter groups; None when the optimizer has none."""
    rates = [group.get("lr") for group in getattr(optimizer, "param_groups", None) or []]
    return max((float(rate) for rate in rates if rate is not None), default=None)


def _set(group: dict[str, Any], rate: float) -> None:
    if hasattr(group["lr"], "fill_"):  # a tensor, which captured or compiled steps read
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
