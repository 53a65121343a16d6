"""Instruments a training loop of plain torch: counts optimizer steps, and ends the rank after the steps of the job.

It is used when no other loop claims the script. The model is searched at the first optimizer step: it is the outermost
module that has the parameters of the optimizer.
"""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import TYPE_CHECKING

from .. import compiling
from .session import current, quietly

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import torch

    from .. import report_schema

    Call = Callable[..., object]

LOOP = "torch"
DTYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}


class FirstStep:
    """The optimizer that steps first, and the losses that were backpropagated before its first step."""

    optimizer: torch.optim.Optimizer | None = None
    losses: list[torch.Tensor] = []  # noqa: RUF012


def patch_tensor(module: ModuleType) -> None:
    module.Tensor.backward = _backward(module.Tensor.backward)


def patch_extensions(module: ModuleType) -> None:
    compiling.follow(module, Path(current().job.reports))


def patch_optimizer(module: ModuleType) -> None:
    module.register_optimizer_step_pre_hook(_before)
    module.register_optimizer_step_post_hook(_after)


def _backward(original: Call) -> Call:
    @functools.wraps(original)
    def backward(self: torch.Tensor, *args: object, **named: object) -> object:
        watched = quietly(_before_backward, self, otherwise=False)
        result = original(self, *args, **named)
        if watched:
            quietly(_after_backward, self)
        return result

    return backward


def _before_backward(loss: torch.Tensor) -> bool:
    session = current()
    watched = session.free(LOOP) and loss.numel() == 1
    if watched and FirstStep.optimizer is not None:
        session.watch.forward()
    return watched


def _after_backward(loss: torch.Tensor) -> None:
    if FirstStep.optimizer is not None:
        current().watch.backward(loss)
    else:
        FirstStep.losses.append(loss.detach())


def _before(optimizer: torch.optim.Optimizer, *_: object) -> None:
    quietly(_before_step, optimizer)


def _after(optimizer: torch.optim.Optimizer, *_: object) -> None:
    quietly(_after_step, optimizer)


def _before_step(optimizer: torch.optim.Optimizer) -> None:
    session = current()
    if FirstStep.optimizer is not None or not session.claim(LOOP):
        return
    FirstStep.optimizer = optimizer
    model = model_of(optimizer)
    settings: report_schema.Seen = {"gradient_accumulation_steps": max(1, len(FirstStep.losses))}
    first = session.measure("read-back of the precision", lambda: next(model.parameters()).dtype)
    settings["dtype"] = DTYPES.get(str(first), "")
    session.watch.prepared(model, optimizer, settings)
    for loss in FirstStep.losses:
        session.watch.forward()
        session.watch.backward(loss)


def _after_step(optimizer: torch.optim.Optimizer) -> None:
    session = current()
    if optimizer is FirstStep.optimizer and session.claim(LOOP):
        session.step()
        if session.enough:
            session.leave()


def model_of(optimizer: torch.optim.Optimizer) -> torch.nn.Module:
    """The outermost live module that has the optimizer's first parameter; a list of its parameters if there is none."""
    import torch

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    model: torch.nn.Module | None = current().measure("search of the model", _outermost, parameters[0])
    return model if model is not None else torch.nn.ParameterList(parameters)


def _outermost(first: torch.nn.Parameter) -> torch.nn.Module | None:
    """The live module with the most submodules among those that have this parameter."""
    import torch

    outermost, most = None, 0
    for item in gc.get_objects():
        if issubclass(type(item), torch.nn.Module) and any(parameter is first for parameter in item.parameters()):
            number = sum(1 for _ in item.modules())
            if number > most:
                outermost, most = item, number
    return outermost
