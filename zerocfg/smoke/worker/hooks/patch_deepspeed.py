"""A script's own loop around ``deepspeed.initialize``; it ends as one around accelerate does."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import redirect
from .session import current, quietly

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import deepspeed
    import torch

    Call = Callable[..., object]

LOOP = "deepspeed"


class Seen:
    """The first engine with an optimizer: that of a policy, and not that of its reference model."""

    engine: deepspeed.DeepSpeedEngine | None = None


def patch_deepspeed(module: ModuleType) -> None:
    original = module.initialize

    @functools.wraps(original)
    def initialize(*args: object, **named: object) -> object:
        mine = quietly(_begin, otherwise=False)
        result = original(*args, **named)
        if mine:
            quietly(_ready, result)
        return result

    module.__dict__["initialize"] = initialize


def patch_engine(module: ModuleType) -> None:
    redirect.patch(module)
    kind = module.DeepSpeedEngine
    kind.backward = _backward(kind.backward)
    kind.step = _step(kind.step)


def patch_monitors(module: ModuleType) -> None:
    """DeepSpeed's own loggers (tensorboard, wandb, comet, files) stay off."""
    module.__dict__["get_monitor_config"] = lambda *_, **__: module.DeepSpeedMonitorConfig()


def _begin() -> bool:
    """An engine is about to be made; whether it is the one that is watched."""
    session = current()
    mine = session.claim(LOOP)
    if mine:
        session.watch.phase("init")
    return mine


def _ready(result: Any) -> None:
    engine, optimizer = result[0], result[1]
    if Seen.engine is None and optimizer is not None:
        Seen.engine = engine
        current().watch.prepared(engine, optimizer)


def _backward(original: Call) -> Call:
    @functools.wraps(original)
    def backward(self: deepspeed.DeepSpeedEngine, loss: torch.Tensor, *args: object, **named: object) -> object:
        mine = quietly(_before_backward, self, otherwise=False)
        result = original(self, loss, *args, **named)
        if mine:
            quietly(_after_backward, loss)
        return result

    return backward


def _before_backward(engine: deepspeed.DeepSpeedEngine) -> bool:
    session = current()
    if engine is not Seen.engine or not session.claim(LOOP):
        return False
    session.watch.forward()
    return True


def _after_backward(loss: torch.Tensor) -> None:
    current().watch.backward(loss)


def _step(original: Call) -> Call:
    @functools.wraps(original)
    def step(self: deepspeed.DeepSpeedEngine, *args: object, **named: object) -> object:
        before = self.global_steps
        result = original(self, *args, **named)
        if self.global_steps > before:
            quietly(_after_step, self)
        return result

    return step


def _after_step(engine: deepspeed.DeepSpeedEngine) -> None:
    session = current()
    if Seen.engine is not None and engine is Seen.engine and session.claim(LOOP):
        session.step()
        if session.enough:
            session.leave()
