"""Checksums of a live model, tensor by tensor: which parameters two engines, or an engine and a file, do not share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

FLAT = "FullyShardedDataParallel"  # FSDP of version 1, which makes flat parameters
CHUNK = 2**20  # elements that are worked on at a time: 8 MiB an intermediate


def checksum(tensor: torch.Tensor) -> int:
    """Sum of the bit patterns, each times an odd number of its place, modulo 2^64.

    It differs whenever exactly one element does: an odd number is no divisor of zero modulo 2^64.
    """
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.detach().contiguous().view(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).view(-1)
    bits = flat.view(kinds[flat.element_size()])
    total = 0
    for start in range(0, bits.numel(), CHUNK):
        part = bits[start : start + CHUNK].to(torch.int64)
        place = torch.arange(start, start + part.numel(), device=part.device, dtype=torch.int64)
        total += int((part * (2 * place + 1)).sum())
    return total % 2**64


def live(engine: torch.nn.Module) -> dict[str, int]:
    """The checksum of every parameter, of its full tensor whatever an engine has made of it. All ranks call this."""
    return {name: checksum(tensor) for name, tensor in full(engine)}


def full(engine: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, full tensor) of every parameter, tied ones once, one in memory at a time. All ranks have to follow it."""
    bare = getattr(engine, "module", engine)
    if type(engine).__name__ == FLAT:
        # Flat parameters have no tensors of their own: FSDP itself has to say what they are.
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        known = {plain_name(name) for name, _ in engine.named_parameters()}
        state = get_model_state_dict(engine, options=StateDictOptions(full_state_dict=True))
        yield from ((plain_name(name), tensor) for name, tensor in state.items() if plain_name(name) in known)
        return
    for name, parameter in bare.named_parameters():
        if hasattr(parameter, "ds_id"):
            import deepspeed

            with deepspeed.zero.GatheredParameters([parameter], modifier_rank=None):
                yield plain_name(name), parameter.data
        elif hasattr(parameter, "full_tensor"):
            yield plain_name(name), parameter.detach().full_tensor()
        else:
            yield plain_name(name), parameter.data


def plain_name(name: str) -> str:
    """A parameter's name in the bare model."""
    for wrapper in ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def elements(model: torch.nn.Module) -> int:
    """Elements of all parameters, also of those that are spread over the ranks."""
    parameters = getattr(model, "module", model).parameters()
    count: int = sum(math.prod(getattr(parameter, "ds_shape", parameter.shape)) for parameter in parameters)
    if type(model).__name__ != FLAT:
        return count
    import torch

    # Each rank has its share of the flat parameters, and padding.
    return count * int(torch.distributed.get_world_size())


def momentum(engine: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float | None:
    """The L2 norm of the optimizer's first moments: what it was given as gradients, averaged and clipped.

    None where the optimizer keeps none, or keeps them where they cannot be read (on NVMe, in 8 bit, under FSDP). All
    ranks call this.
    """
    import torch

    stage = int(engine.zero_optimization_stage()) if hasattr(engine, "zero_optimization_stage") else 0
    moments = []
    for state in base(optimizer).state.values():
        found = next((state[key] for key in ("exp_avg", "momentum_buffer") if key in state), None)
        if isinstance(found, torch.Tensor) and found.is_floating_point() and not hasattr(found, "full_tensor"):
            moments.append(found)
    squares = math.fsum(float(moment.detach().double().square().sum()) for moment in moments)
    count = sum(moment.numel() for moment in moments)
    if stage:
        squares, count = total([squares, float(count)])
    bare = getattr(engine, "module", engine)
    trained = (parameter for parameter in bare.parameters() if parameter.requires_grad)
    wanted = sum(math.prod(getattr(parameter, "ds_shape", parameter.shape)) for parameter in trained)
    if type(engine).__name__ == FLAT or count < wanted:
        return None
    return math.sqrt(squares)


def base(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer inside the wrappers of accelerate and DeepSpeed."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def total(values: list[float]) -> list[float]:
    """The element-wise sum over all ranks."""
    return _reduce(values, "SUM")


def least(value: float) -> float:
    """The minimum over all ranks, so that all decide alike."""
    return _reduce([value], "MIN")[0]


def _reduce(values: list[float], how: str) -> list[float]:
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return values
    on_card = "nccl" in torch.distributed.get_backend()
    tensor = torch.tensor(values, dtype=torch.float64, device="cuda" if on_card else "cpu")
    torch.distributed.all_reduce(tensor, op=getattr(torch.distributed.ReduceOp, how))
    result: list[float] = tensor.tolist()
    return result
