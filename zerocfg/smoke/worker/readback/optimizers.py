"""The innermost optimizer and the schedule of the learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..values import plain

if TYPE_CHECKING:
    import torch

    from ..report_schema import States

TRANSFORMERS = "transformers.optimization"
"""The module whose functions transformers.get_scheduler puts into torch's LambdaLR. Several kinds share one function,
and several functions one name, so that a kind is known by its values alone."""
SEEN_STEPS = 64
# Parameters of DeepSpeed's schedules, and the attributes in which WarmupLR, OneCycle and LRRangeTest keep them.
ATTRIBUTES = {
    "warmup_min_lr": "min_lrs",
    "warmup_max_lr": "max_lrs",
    "warmup_num_steps": "warmup_num_steps",
    "warmup_type": "warmup_type",
    "total_num_steps": "total_num_steps",
    "cos_min_ratio": "cos_min_ratio",
    "warmup_min_ratio": "warmup_min_ratio",
    "cycle_min_lr": "min_lrs",
    "cycle_max_lr": "max_lrs",
    "cycle_first_step_size": "first_step_size",
    "cycle_second_step_size": "second_step_size",
    "decay_step_size": "decay_step_size",
    "decay_lr_rate": "decay_lr_rate",
    "lr_range_test_min_lr": "min_lr",
    "lr_range_test_step_size": "step_size",
    "lr_range_test_step_rate": "step_rate",
    "lr_range_test_staircase": "staircase",
}


def innermost(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that steps, below those of accelerate and of ZeRO."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def optimizer(optimizer: torch.optim.Optimizer, scheduler: object = None) -> dict[str, object]:
    """``optimizer.params.*`` of the first group: that with weight decay, where biases have a group of their own."""
    inner = innermost(optimizer)
    groups = getattr(inner, "param_groups", None)
    if not groups:
        return {}
    group = {key: value for key, value in groups[0].items() if key not in ("params", "initial_lr")}
    # A schedule changes the rate as soon as it is made. torch's keep the planned one beside it, DeepSpeed's do not;
    # that with which the optimizer was made is left then.
    if "initial_lr" in groups[0]:
        group["lr"] = groups[0]["initial_lr"]
    elif scheduler is not None and "lr" in getattr(inner, "defaults", {}):
        group["lr"] = inner.defaults["lr"]
    return {f"optimizer.params.{key}": plain(value) for key, value in group.items()}


def schedule(scheduler: object) -> dict[str, object]:
    """Type and parameters: ``scheduler.*`` of DeepSpeed's and torch's own, the names of TrainingArguments else."""
    while hasattr(scheduler, "scheduler"):  # accelerate's wrapper
        scheduler = scheduler.scheduler
    if scheduler is None:
        return {}
    function = next(iter(getattr(scheduler, "lr_lambdas", [])), None)
    if function is not None:
        known = dict(getattr(function, "keywords", {}))  # of the functools.partial that transformers makes
        named = {
            "lr_scheduler_type": kind_of(scheduler, function),
            "warmup_steps": known.pop("num_warmup_steps", None),
            "max_steps": known.pop("num_training_steps", None),
            **{f"lr_scheduler_kwargs.{key}": value for key, value in known.items() if key != "lr_init"},
        }
        return {key: plain(value) for key, value in named.items() if value is not None}
    found: dict[str, object] = {"scheduler.type": type(scheduler).__name__}
    for key, attribute in ATTRIBUTES.items():
        value = getattr(scheduler, attribute, None)
        if isinstance(value, (list, tuple)):  # one for each group of parameters
            value = value[0] if value else None
        if value is not None:
            found[f"scheduler.params.{key}"] = plain(value)
    base = getattr(scheduler, "base_lrs", None)
    for key, value in vars(scheduler).items() if base else ():  # torch.optim.lr_scheduler.*
        if not key.startswith("_") and isinstance(value, (bool, int, float, str)):
            found.setdefault(f"scheduler.params.{key}", plain(value))
    return found


def kind_of(scheduler: Any, function: Any) -> str | None:
    """The `lr_scheduler_type` with which transformers makes a schedule of the same values at every step that is looked
    at; None for a schedule that is not made by it. Of several that agree (a cosine, and one that ends at a rate of 0)
    the one of the same function that takes every parameter of this."""
    if getattr(getattr(function, "func", function), "__module__", "") != TRANSFORMERS:
        return None
    import inspect

    import torch
    from transformers import SchedulerType, get_scheduler
    from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION

    known = dict(getattr(function, "keywords", {}))
    rate = known.pop("lr_init", scheduler.base_lrs[0])
    warmup, total = known.pop("num_warmup_steps", 0), known.pop("num_training_steps", None)
    last = total or 4 * warmup + 4
    steps = sorted({*range(min(last, 3)), *(last * part // SEEN_STEPS for part in range(SEEN_STEPS + 1)), warmup})
    found: list[tuple[bool, int, str]] = []
    for kind in SchedulerType:
        takes = inspect.signature(TYPE_TO_SCHEDULER_FUNCTION[kind]).parameters
        given = {name: value for name, value in known.items() if name in takes}
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
        try:
            made: Any = get_scheduler(
                kind, optimizer, warmup, total if "num_training_steps" in takes else None, given or None
            )
            other = made.lr_lambdas[0]
            same = [other(step) for step in steps] == [function(step) for step in steps]
        except (AttributeError, TypeError, ValueError, ZeroDivisionError):  # it cannot be made of these parameters
            continue
        if same:
            differs = getattr(other, "func", other) is not getattr(function, "func", function)
            found.append((differs, len(known) - len(given), kind.value))
    return min(found)[2] if found else None


def states(optimizer: torch.optim.Optimizer | None) -> States:
    """Where the optimizer keeps what it knows of the weights, after its first step.

    Nothing for an optimizer without such states, or whose
    states lie in files.
    """
    elements = 0
    devices: set[str] = set()
    dtypes: set[str] = set()
    for state in getattr(innermost(optimizer), "state", {}).values():
        tensors = [value for value in state.values() if hasattr(value, "numel") and value.dim() > 0]
        elements += max((tensor.numel() for tensor in tensors), default=0)
        devices.update(tensor.device.type for tensor in tensors if tensor.numel())
        dtypes.update(str(plain(tensor.dtype)) for tensor in tensors if tensor.numel())
    if not elements:
        return {}
    return {"elements": elements, "devices": sorted(devices), "dtypes": sorted(dtypes)}
