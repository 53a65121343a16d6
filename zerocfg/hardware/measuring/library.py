"""torch, and the device of this rank."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# By name: nothing that is imported on the way to a lint or a build may pull in torch, and mypy sees none of it here.
torch = import_module("torch")

MIB = 1 << 20
GB = 1e9


@dataclass(frozen=True)
class Device:
    """``kind`` is cuda (ROCm's torch says so too), xpu or cpu."""

    kind: str
    index: int = 0

    @property
    def torch(self) -> object:
        """The device as torch writes it."""
        return torch.device(self.kind, self.index) if self.kind != "cpu" else torch.device("cpu")

    def wait(self) -> None:
        """Until everything that was asked of the device is done."""
        if self.kind != "cpu":
            getattr(torch, self.kind).synchronize(self.index)

    def free_bytes(self, otherwise: int) -> int:
        """Memory of the device that is free now."""
        if self.kind == "cpu":
            return otherwise
        free, _ = getattr(torch, self.kind).mem_get_info(self.index)
        return int(free)


def device_of(local_rank: int) -> Device:
    """The device that a rank uses; one that sees a single device (srun --gpus-per-task=1) uses that."""
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            device = Device(kind, local_rank % module.device_count())
            module.set_device(device.index)
            return device
    return Device("cpu")


def seconds_of(run: Callable[[], object], device: Device, budget: float, least: int = 3) -> float:
    """Seconds of one call, the mean of as many as fit into ``budget`` seconds; two calls warm up."""
    run()
    device.wait()
    start = time.perf_counter()
    run()
    device.wait()
    one = max(time.perf_counter() - start, 1e-7)
    calls = max(least, min(1000, int(budget / one)))
    start = time.perf_counter()
    for _ in range(calls):
        run()
    device.wait()
    return (time.perf_counter() - start) / calls
