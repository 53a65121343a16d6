"""FSDP on a processor.

torch shards over gloo as it does over NCCL. It is accelerate that makes plain data parallelism of FSDP there, because
it looks for FSDP only where its state says that the job is one of several cards (accelerate/state.py,
`AcceleratorState`); so the state says so. The device stays the processor.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any


def allow() -> None:
    """Patch accelerate where its launcher asked for FSDP; nothing is imported elsewhere."""
    if _asked():
        patch_state(importlib.import_module("accelerate.state"))


def _asked() -> bool:
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


def patch_state(module: ModuleType) -> None:
    """From here on accelerate takes the ranks of this job for those of several cards, where its launcher asked for
    FSDP. ``module``: accelerate.state."""
    if not _asked():
        return
    import torch
    from accelerate.utils import DistributedType

    kind = module.PartialState
    made = kind.__init__

    def __init__(self: Any, *arguments: object, **named: object) -> None:  # noqa: N807
        made(self, *arguments, **named)
        state = kind._shared_state
        if state.get("distributed_type") == DistributedType.MULTI_CPU:
            state["distributed_type"] = DistributedType.MULTI_GPU
            state["device"] = torch.device("cpu")  # FSDP 1 compares it with that of the weights, which has no number

    kind.__init__ = __init__
