"""The learning rate of the steps: what the schedule asks for, and a higher one where that decides nothing.

A schedule that warms up begins with rates at which no loss moves (1e-9), so that a few steps show nothing. There the
smoke-run trains with the least rate at which the loss of one repeated batch falls visibly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .values import mapping, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from .job import Job

STEP = 0.3
"""Change of a token's logit by one step of Adam, which moves each of the ``width`` weights of the head by the rate: the
rate is this over the width. Seen on processors with widths from 64 to 1,024: the loss falls by 4 to 20 % a step."""
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
WIDTH = 64
"""Where the config does not say it."""


def deciding_rate(job: Job) -> float:
    """The least rate at which two steps show whether the loss falls."""
    text = mapping(job.model.get("text_config")) or job.model
    return STEP / next((whole(text[name], WIDTH) for name in WIDTHS if text.get(name)), WIDTH)


def agreed(meet: Callable[[], None], job: Job, optimizer: torch.optim.Optimizer) -> float:
    """`deciding_rate`, where all ranks can raise their rates to it. ``meet`` as in `Fence.measure_together`."""
    least, before = deciding_rate(job), scheduled_rate(optimizer)
    rates = [group.get("lr") if group.get("lr") is None else float(group["lr"]) for group in optimizer.param_groups]
    raise_rate(optimizer, least)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            _set(group, rate)
    assert scheduled_rate(optimizer) == before, "a rate could not be set back"
    meet()
    return least


def scheduled_rate(optimizer: torch.optim.Optimizer | None) -> float | None:
    """The learning rate of the next step, the highest of all parameter groups; None when the optimizer has none."""
    rates = [group.get("lr") for group in getattr(optimizer, "param_groups", None) or []]
    return max((float(rate) for rate in rates if rate is not None), default=None)


def raise_rate(optimizer: torch.optim.Optimizer | None, least: float) -> None:
    """Raise the rate of the next step to ``least`` in every parameter group that has a lower one."""
    for group in getattr(optimizer, "param_groups", None) or []:
        if group.get("lr") is not None and float(group["lr"]) < least:
            _set(group, least)


def _set(group: dict[str, Any], rate: float) -> None:
    if hasattr(group["lr"], "fill_"):  # a tensor, which captured or compiled steps read
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
