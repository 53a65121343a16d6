"""Bytes of the tensors that one rank holds, at some moments of the first two optimizer steps.

Counted are the storages of all live tensors, each once, wherever they would lie on a machine with a card: on a CPU
host memory and accelerator memory are one. Tensors from before the example began are left out.
"""

from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from progress import Progress


def begin(progress: Progress) -> None:
    """Leave out what is alive now, and note what DeepSpeed asks to be pinned: a CPU cannot pin, but is asked."""
    from deepspeed.accelerator import get_accelerator

    gc.collect()
    gc.freeze()
    accelerator = get_accelerator()
    pin, asked = accelerator.pin_memory, 0

    def noted(tensor: Any, *args: Any, **named: Any) -> Any:
        nonlocal asked
        asked += tensor.nbytes
        progress.see("memory.pinned", asked)
        return pin(tensor, *args, **named)

    progress.see("memory.pinned", 0)
    accelerator.pin_memory = noted


def watch(progress: Progress, engine: Any) -> None:
    """``memory.init`` now; the others when the first step comes to them."""
    named = dict(engine.module.named_parameters())
    count = sum(math.prod(getattr(parameter, "ds_shape", parameter.shape)) for parameter in named.values())
    progress.see("memory.parameters", count)

    def see(moment: str) -> None:
        if moment == "update" and engine.global_steps == 1:
            moment = "second_update"
        elif engine.global_steps > 0 and moment != "step":
            return
        size = max(live_bytes(), progress.values.get(f"memory.{moment}", 0))
        progress.see(f"memory.{moment}", size)
        progress.see(f"memory.{moment}.bytes_per_parameter", round(size / count, 1))

    gc.collect()  # what only cycles hold is gone at some time, and when is chance
    see("init")
    for parameter in named.values():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _: see("backward"))
    inner = engine.optimizer
    while hasattr(inner, "optimizer"):
        inner = inner.optimizer
    before(inner, "step", lambda: see("update"))
    after(engine, "step", lambda: (gc.collect(), see("step")) if engine.global_steps == 1 else None)


def before(owner: Any, name: str, act: Any) -> None:
    real = getattr(owner, name)

    def called(*args: Any, **named: Any) -> Any:
        act()
        return real(*args, **named)

    setattr(owner, name, called)


def after(owner: Any, name: str, act: Any) -> None:
    real = getattr(owner, name)

    def called(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        act()
        return result

    setattr(owner, name, called)


def live_bytes() -> int:
    """The storages of all tensors that the interpreter knows, and of their gradients."""
    import torch

    sizes: dict[int, int] = {}
    for item in gc.get_objects():
        if not issubclass(type(item), torch.Tensor) or item.layout is not torch.strided or item.is_meta:
            continue
        for tensor in (item, item.grad if item.is_leaf else None):
            if tensor is not None:
                storage = tensor.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())
