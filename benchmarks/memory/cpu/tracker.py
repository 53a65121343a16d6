"""Every tensor storage that a process allocates, with the line of the library that allocated it.

A storage is seen when an operator of torch returns it, and gone when it is freed. Its site is the innermost frame of
DeepSpeed or of torch.optim on the stack; without one it belongs to the model ("model": its parameters, activations and
gradients). What an operator allocates and frees within itself is not seen.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

MODEL = "model"
LIBRARIES = (("/deepspeed/", "deepspeed/"), ("/torch/optim/", "torch/optim/"))
# Frames that only pass on to the model and to autograd: what is allocated below them is the model's.
PASSING = {
    ("deepspeed/runtime/engine.py", "forward"),
    ("deepspeed/runtime/engine.py", "backward"),
    ("deepspeed/runtime/engine.py", "_backward"),
    ("deepspeed/runtime/base_optimizer.py", "backward"),
    ("deepspeed/runtime/bf16_optimizer.py", "backward"),
    ("deepspeed/runtime/fp16/fused_optimizer.py", "backward"),
    ("deepspeed/runtime/fp16/unfused_optimizer.py", "backward"),
    ("deepspeed/runtime/fp16/loss_scaler.py", "backward"),
}
LINEAR = "deepspeed/runtime/zero/linear.py"  # ZeRO-3's F.linear: outputs and gradients of the model
SKIPPED_FILES = ("deepspeed/utils/", "deepspeed/comm/", "deepspeed/accelerator/")


class Tracker(TorchDispatchMode):
    """Counts live storages by site and size; ``peak`` is the worst point since the last ``restart``, model left out."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[str, int]] = {}
        self.count: Counter[tuple[str, int]] = Counter()
        self.now = 0
        self.high = -1
        self.peak: Counter[tuple[str, int]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        site: str | None = None
        for one in tree_iter(result):
            if isinstance(one, torch.Tensor) and one.device.type != "meta":
                storage = one.untyped_storage()
                if storage._cdata in self.live:
                    continue
                site = site or site_of(sys._getframe(1))
                self.add(storage, site)
        return result

    def add(self, storage: torch.UntypedStorage, site: str) -> None:
        size = storage.nbytes()
        if size == 0:
            return
        if self.now + size > self.high:
            time.sleep(0.001)  # gloo's threads let go of the tensors of a finished call a little later
        key = storage._cdata
        self.live[key] = (site, size)
        weakref.finalize(storage, self.remove, key)
        self.book(site, size, 1)

    def remove(self, key: int) -> None:
        self.book(*self.live.pop(key), -1)

    def label(self, tensor: torch.Tensor, site: str) -> None:
        """Give the storage of ``tensor`` another site."""
        key = tensor.untyped_storage()._cdata
        if key in self.live:
            before, size = self.live[key]
            self.live[key] = (site, size)
            self.book(before, size, -1)
            self.book(site, size, 1)

    def site(self, tensor: torch.Tensor) -> str:
        return self.live.get(tensor.untyped_storage()._cdata, (MODEL, 0))[0]

    def book(self, site: str, size: int, times: int) -> None:
        self.count[site, size] += times
        if site != MODEL:
            self.now += size * times
            if self.now > self.high:
                self.high, self.peak = self.now, self.count.copy()

    def restart(self) -> None:
        self.high, self.peak = self.now, self.count.copy()


def listed(point: Counter[tuple[str, int]]) -> dict[str, list[list[int]]]:
    """``{site: [[bytes, how many], ...]}``"""
    found: dict[str, list[list[int]]] = {}
    for (site, size), times in sorted(point.items()):
        if times:
            found.setdefault(site, []).append([size, times])
    return found


def site_of(frame: Any) -> str:
    """``file.py:function:line`` of the innermost frame of a library, or "model"."""
    while frame is not None:
        file = frame.f_code.co_filename
        for part, kept in LIBRARIES:
            if part in file:
                short = kept + file.rsplit(part, 1)[1]
                name = frame.f_code.co_name
                if any(short.startswith(skipped) for skipped in SKIPPED_FILES):
                    break
                if (short, name) in PASSING or short == LINEAR:
                    return MODEL
                return f"{Path(short).name}:{name}:{frame.f_lineno}"
        frame = frame.f_back
    return MODEL
