"""Checksums of a live model, tensor by tensor: which parameters two engines, or an engine and a file, do not share."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING

from . import group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    # Added up on the device, where 64 bits wrap around: a card is waited for once, and not for each chunk.
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for start in range(0, bits.numel(), CHUNK):
        part = bits[start : start + CHUNK].to(torch.int64)
        place = torch.arange(start, start + part.numel(), device=part.device, dtype=torch.int64)
        total += (part * (2 * place + 1)).sum()
    return int(total) % 2**64


def square_sum(tensor: torch.Tensor) -> float:
    """The sum of the squares, in double precision and without a copy of the whole tensor in it."""
    import torch

    flat = tensor.detach().reshape(-1)
    total = torch.zeros((), dtype=torch.float64, device=flat.device)
    for start in range(0, flat.numel(), CHUNK):
        total += flat[start : start + CHUNK].double().square().sum()
    return float(total)


def live(meet: Callable[[], None], engine: torch.nn.Module) -> dict[str, int]:
    """The checksum of every parameter, of its full tensor whatever an engine has made of it.

    All ranks call this. ``meet`` as in `Fence.measure_together`. Raises the first error of a checksum after all tensors
    were gathered, so that no other rank waits for this one.
    """
    sums: dict[str, int] = {}
    wrong: Exception | None = None
    for name, tensor in full(engine, meet):
        try:
            sums[name] = checksum(tensor)
        except Exception as error:
            wrong = wrong or error
    if wrong is not None:
        raise wrong
    return sums


def full(engine: torch.nn.Module, meet: Callable[[], None] = lambda: None) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, full tensor) of every parameter, tied ones once, one in memory at a time. All ranks have to follow it."""
    bare = getattr(engine, "module", engine)
    if type(engine).__name__ == FLAT:
        # Flat parameters have no tensors of their own: FSDP itself has to say what they are.
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        known = {plain_name(name) for name, _ in engine.named_parameters()}
        meet()
        state = get_model_state_dict(engine, options=StateDictOptions(full_state_dict=True))
        yield from ((plain_name(name), tensor) for name, tensor in state.items() if plain_name(name) in known)
        return
    parameters = [(plain_name(name), parameter) for name, parameter in bare.named_parameters()]
    gathered = importlib.import_module("deepspeed").zero.GatheredParameters if _any_partitioned(bare) else None
    meet()
    for name, parameter in parameters:
        if hasattr(parameter, "ds_id") and gathered is not None:
            with gathered([parameter], modifier_rank=None):
                yield name, parameter.data
        elif hasattr(parameter, "full_tensor"):
            yield name, parameter.detach().full_tensor()
        else:
            yield name, parameter.data


def _any_partitioned(model: torch.nn.Module) -> bool:
    return any(hasattr(parameter, "ds_id") for parameter in model.parameters())


def plain_name(name: str) -> str:
    """A parameter's name in the bare model."""
    for wrapper in ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def elements(model: torch.nn.Module) -> int:
    """Elements of all parameters, also of those that are spread over the ranks."""
    parameters = getattr(model, "module", model).parameters()
    count: int = sum(math.prod(getattr(parameter, "ds_shape", parameter.shape)) for parameter in parameters)
    # Each rank has its share of FSDP 1's flat parameters, and padding.
    return count * group.size() if type(model).__name__ == FLAT else count


def momentum(meet: Callable[[], None], engine: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float | None:
    """The L2 norm of the optimizer's first moments: what it was given as gradients, averaged and clipped.

    None where the optimizer keeps none, or keeps them where they cannot be read (on NVMe, in 8 bit, under FSDP). All
    ranks call this; ``meet`` as in `Fence.measure_together`.
    """
    import torch

    stage = int(engine.zero_optimization_stage()) if hasattr(engine, "zero_optimization_stage") else 0
    moments = []
    for state in base(optimizer).state.values():
        found = next((state[key] for key in ("exp_avg", "momentum_buffer") if key in state), None)
        if isinstance(found, torch.Tensor) and found.is_floating_point() and not hasattr(found, "full_tensor"):
            moments.append(found)
    squares = math.fsum(map(square_sum, moments))
    count = sum(moment.numel() for moment in moments)
    bare = getattr(engine, "module", engine)
    trained = (parameter for parameter in bare.parameters() if parameter.requires_grad)
    wanted = sum(math.prod(getattr(parameter, "ds_shape", parameter.shape)) for parameter in trained)
    meet()
    if stage:
        squares, count = group.total([squares, float(count)])
    if type(engine).__name__ == FLAT or count < wanted:
        return None
    return math.sqrt(squares)


def base(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer inside the wrappers of accelerate and DeepSpeed."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
