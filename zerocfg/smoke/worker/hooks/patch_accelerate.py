"""A script's own loop around accelerate.

The engine is read back at the first backward pass, when whatever has to be prepared is. After the steps of the job the
rank ends: what the script does after its training is its own.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from .. import fsdp_on_cpu
from ..model import join_deepspeed
from ..readback.collect import DTYPES
from . import redirect
from .patch_torch import model_of
from .session import current, quietly

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import accelerate
    import torch

    from .. import report_schema

    Call = Callable[..., object]

LOOP = "accelerate"


class Seen:
    """What was prepared in this process, until the engine is read back."""

    engine: torch.nn.Module | None = None
    optimizer: accelerate.optimizer.AcceleratedOptimizer | None = None
    micro_batch: int | None = None
    prepared = False


def patch_accelerator(module: ModuleType) -> None:
    redirect.patch(module)
    kind = module.Accelerator
    wraps = {"__init__": _init, "prepare": _prepare, "backward": _backward, "clip_grad_norm_": _clip}
    for name, wrap in wraps.items():
        setattr(kind, name, wrap(getattr(kind, name)))
    kind.init_trackers = lambda self, *_, **__: None


def patch_state(module: ModuleType) -> None:
    """FSDP on a processor."""
    if current().job.device == "cpu":
        fsdp_on_cpu.patch_state(module)


def patch_optimizer(module: ModuleType) -> None:
    module.AcceleratedOptimizer.step = _step(module.AcceleratedOptimizer.step)


def _init(original: Call) -> Call:
    @functools.wraps(original)
    def __init__(self: accelerate.Accelerator, *args: object, **named: object) -> None:  # noqa: N807
        session = current()
        if session.job.device == "cpu" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from accelerate import PartialState

            # Without a card accelerate connects the ranks only on request; each would train alone.
            if not PartialState._shared_state:
                PartialState(cpu=True)
            join_deepspeed()
        original(self, *args, **named)
        project = self.project_configuration
        for name in ("project_dir", "logging_dir"):
            if getattr(project, name, None) is not None:
                setattr(project, name, session.places.of(getattr(project, name)))

    return __init__


def _prepare(original: Call) -> Call:
    @functools.wraps(original)
    def prepare(self: accelerate.Accelerator, *args: object, **named: object) -> object:
        quietly(_begin, args)
        result = original(self, *args, **named)
        quietly(_take, result)
        if Seen.micro_batch is None:
            Seen.micro_batch = quietly(_micro_batch, self, args)
        return result

    return prepare


def _begin(given: tuple[object, ...]) -> None:
    """A model is about to be prepared."""
    import torch

    session = current()
    if any(isinstance(item, torch.nn.Module) for item in given) and session.claim(LOOP):
        session.watch.phase("init")


def _take(result: object) -> None:
    """Keep the first engine and optimizer that were prepared."""
    import torch

    if Seen.optimizer is not None:
        return
    for item in result if isinstance(result, tuple) else (result,):
        if isinstance(item, torch.nn.Module):
            Seen.engine = item
        elif isinstance(item, torch.optim.Optimizer):
            Seen.optimizer = item


def _micro_batch(accelerator: accelerate.Accelerator, prepared: tuple[object, ...]) -> int | None:
    """Samples of a rank in a micro step, of the first loader among what is prepared."""
    import torch

    loader = next((item for item in prepared if isinstance(item, torch.utils.data.DataLoader)), None)
    if loader is None or loader.batch_size is None:
        return None
    return int(loader.batch_size // (accelerator.num_processes if accelerator.split_batches else 1))


def _backward(original: Call) -> Call:
    @functools.wraps(original)
    def backward(self: accelerate.Accelerator, loss: torch.Tensor, **named: object) -> object:
        before = quietly(_before_backward)
        result = original(self, loss, **named)
        if before is not None:
            quietly(_after_backward, loss, before)
        return result

    return backward


def _before_backward() -> int | None:
    """The engine's own optimizer steps so far; None where another loop is watched."""
    session = current()
    if (Seen.optimizer is None and not _deepspeed()) or not session.take(LOOP):
        return None
    _ready()
    session.watch.forward()
    return _engine_steps()


def _after_backward(loss: torch.Tensor, before: int) -> None:
    current().watch.backward(loss)
    if _engine_steps() > before:
        _stepped()  # it steps by itself; the script's own call of `step` does nothing


def _ready() -> None:
    """The engine is ready at the latest when the first gradients are computed."""
    if Seen.prepared:
        return
    Seen.prepared = True
    engine, optimizer = Seen.engine, Seen.optimizer
    if engine is not None and _deepspeed():
        current().watch.prepared(engine, optimizer or engine.optimizer)
        return
    assert optimizer is not None, "no loop comes here without one"
    settings: report_schema.Seen = {} if Seen.micro_batch is None else {"micro_batch": Seen.micro_batch}
    session = current()
    settings.update(session.measure("read-back of accelerate's state", _of_state, optimizer, otherwise={}))
    session.watch.prepared(engine if engine is not None else model_of(optimizer), optimizer, settings)


def _of_state(optimizer: accelerate.optimizer.AcceleratedOptimizer) -> report_schema.Seen:
    return {
        "gradient_accumulation_steps": optimizer.gradient_state.num_steps,
        "dtype": DTYPES[optimizer.accelerator_state.mixed_precision],
    }


def _deepspeed() -> bool:
    return hasattr(Seen.engine, "zero_optimization_stage")


def _engine_steps() -> int:
    """Optimizer steps that DeepSpeed made by itself; 0 of another engine."""
    return Seen.engine.global_steps if Seen.engine is not None and _deepspeed() else 0


def _stepped() -> None:
    session = current()
    session.step()
    if session.enough:
        session.leave()


def _clip(original: Call) -> Call:
    @functools.wraps(original)
    def clip_grad_norm_(
        self: accelerate.Accelerator, parameters: object, max_norm: float, *args: object, **named: object
    ) -> object:
        quietly(_see_clipping, max_norm)
        return original(self, parameters, max_norm, *args, **named)

    return clip_grad_norm_


def _see_clipping(max_norm: float) -> None:
    session = current()
    # DeepSpeed clips by its own config, which is read from the engine.
    if session.claim(LOOP) and not _deepspeed():
        session.watch.report.see({"gradient_clipping": float(max_norm)})


def _step(original: Call) -> Call:
    @functools.wraps(original)
    def step(self: accelerate.optimizer.AcceleratedOptimizer, *args: object, **named: object) -> object:
        result = original(self, *args, **named)
        quietly(_after_step, self)
        return result

    return step


def _after_step(optimizer: accelerate.optimizer.AcceleratedOptimizer) -> None:
    mine = Seen.optimizer is not None and optimizer is Seen.optimizer and not _deepspeed()
    if mine and optimizer.gradient_state.sync_gradients and current().claim(LOOP):
        _ready()
        _stepped()
