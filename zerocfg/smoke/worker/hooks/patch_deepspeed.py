"""A script's own loop around ``deepspeed.initialize``; it ends as one around accelerate does."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from . import redirect
from .session import current

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
        session = current()
        mine = session.claim(LOOP)
        if mine:
            session.watch.phase("init")
        result = original(*args, **named)
        engine, optimizer = result[0], result[1]
        if mine and Seen.engine is None and optimizer is not None:
            Seen.engine = engine
            session.watch.prepared(engine, optimizer)
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


def _backward(original: Call) -> Call:
    @functools.wraps(original)
    def backward(self: deepspeed.DeepSpeedEngine, loss: torch.Tensor, *args: object, **named: object) -> object:
        session = current()
        if self is not Seen.engine or not session.claim(LOOP):
            return original(self, loss, *args, **named)
        session.watch.forward()
        result = original(self, loss, *args, **named)
        session.watch.backward(loss)
        return result

    return backward


def _step(original: Call) -> Call:
    @functools.wraps(original)
    def step(self: deepspeed.DeepSpeedEngine, *args: object, **named: object) -> object:
        before = self.global_steps
        result = original(self, *args, **named)
        session = current()
        if Seen.engine is not None and self is Seen.engine and self.global_steps > before and session.claim(LOOP):
            session.watch.step()
            if session.enough:
                session.leave()
        return result

    return step
