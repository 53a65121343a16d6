"""Which tensors of zerocfg's own code would be on a card: those that it makes on the device of the group.

torch forgets the index of a processor's device. So the device that zerocfg asks for is ``cpu:0`` here, and the torch
that zerocfg's modules import marks what they make on it; everybody else has the torch of always.
"""

from __future__ import annotations

import builtins
import sys
from types import ModuleType
from typing import Any

CARD = 0
MARK = "_nccl_double_on_card"
FACTORIES = ("tensor", "as_tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn", "randint")
LIKE = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "clone", "cat", "stack")


def holds(tensor: Any) -> bool:
    """Whether a tensor would be on a card."""
    return hasattr(tensor, MARK)


def _mark(tensor: Any) -> Any:
    setattr(tensor, MARK, True)
    return tensor


def _marked_by_device(make: Any, device: Any) -> Any:
    def factory(*args: Any, **named: Any) -> Any:
        made = make(*args, **named)
        place = named.get("device")
        return _mark(made) if place is not None and device(place).index == CARD else made

    return factory


def _marked_as_given(make: Any) -> Any:
    def factory(given: Any, *args: Any, **named: Any) -> Any:
        made = make(given, *args, **named)
        every = given if isinstance(given, (list, tuple)) else [given]
        return _mark(made) if "device" not in named and all(map(holds, every)) else made

    return factory


class Torch(ModuleType):
    """torch as zerocfg's own modules see it."""

    def __init__(self, real: Any) -> None:
        super().__init__("torch")
        self.__dict__["_real"] = real
        for name in FACTORIES:
            self.__dict__[name] = _marked_by_device(getattr(real, name), real.device)
        for name in LIKE:
            self.__dict__[name] = _marked_as_given(getattr(real, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)


_seen: Torch | None = None


def seen() -> Torch:
    global _seen
    if _seen is None:
        _seen = Torch(sys.modules["torch"])
    return _seen


def own_torch(module: Any) -> None:
    """Before a module of the ranks' program runs: its ``import torch`` gives the torch that marks."""

    def import_(name: str, *args: Any, **named: Any) -> Any:
        found = builtins.__import__(name, *args, **named)
        return seen() if found is sys.modules.get("torch") and hasattr(found, "distributed") else found

    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_}


def worker_device(module: Any) -> None:
    """``zerocfg_worker.group.device`` where the group is NCCL's."""
    original = module.device

    def device() -> Any:
        import torch

        from . import groups

        return (
            original() if groups.of(torch.distributed.group.WORLD).backend == groups.GLOO else torch.device("cpu", CARD)
        )

    module.device = device


def measuring_device(module: Any) -> None:
    """``zerocfg.hardware.measuring.library``: its torch, and the device of its ranks."""
    real = module.torch
    module.torch = Torch(real)
    module.Device.torch = property(lambda _: real.device("cpu", CARD))
