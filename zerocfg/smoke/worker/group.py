"""The process group of the ranks, and the few collectives that the ranks' program calls itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def size() -> int:
    """The number of ranks in the default group; 1 without a group."""
    import torch

    return int(torch.distributed.get_world_size()) if _stands() else 1


def device() -> torch.device:
    """Where the default group's backend takes tensors: NCCL on the rank's own card, gloo on the processor."""
    import torch

    if "nccl" in torch.distributed.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def barrier() -> None:
    """Wait for all ranks; nothing without a group."""
    import torch

    if not _stands():
        return
    where = device()
    # Without a device NCCL guesses one by the rank, which is another rank's card where LOCAL_RANK was changed.
    torch.distributed.barrier(device_ids=[where.index] if where.index is not None else None)


def total(values: list[float]) -> list[float]:
    """The element-wise sum over all ranks."""
    import torch

    if not _stands():
        return values
    tensor = torch.tensor(values, dtype=torch.float64, device=device())
    torch.distributed.all_reduce(tensor)
    result: list[float] = tensor.tolist()
    return result


def _stands() -> bool:
    import torch

    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())
