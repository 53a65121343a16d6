"""Random weights of large tensors, repeated from a small block of random numbers.

Drawing a normal or uniform number takes 6 to 8 ns on a processor, copying one less than 1 ns; a model of billions of
parameters that is going to be trained for three steps need not wait for the difference.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

BLOCK = 262_139
"""Numbers that are drawn for a tensor. A prime: no width of a model and no share of a rank is a multiple of it, so rows
and shards begin at different places of the block. The standard deviation of so many numbers is exact to 0.14 %."""
LEAST = 4 * BLOCK
"""Elements of the smallest tensor that is tiled: about a million, a matrix of 1024 x 1025."""
METHODS = ("normal_", "uniform_")
"""What all initialisers of `torch.nn.init` and of every transformers release draw with."""


@contextlib.contextmanager
def tiled_draws() -> Iterator[None]:
    """Fill large tensors on the processor by tiles, whoever initialises them and with whatever mean and deviation.

    Everything else stays as the model's class does it: which tensors get random numbers and of which distribution,
    norms, biases, padding rows, state space parameters, and whatever is small, or made on a card.
    """
    import torch

    own = {name: vars(torch.Tensor).get(name) for name in METHODS}
    try:
        for name in METHODS:
            setattr(torch.Tensor, name, _tiled(getattr(torch.Tensor, name)))
        yield
    finally:
        for name, method in own.items():
            if method is None:
                delattr(torch.Tensor, name)  # inherited again
            else:
                setattr(torch.Tensor, name, method)


def _tiled(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The method ``draw`` of tensors, which fills large ones by tiles. It takes the same arguments."""

    def fill(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        if not can_be_tiled(tensor):
            return draw(tensor, *arguments, **options)
        import torch

        block = draw(tensor.new_empty(BLOCK), *arguments, **options)
        flat = tensor.view(-1)
        starts = range(0, flat.numel(), BLOCK)
        turns = torch.randint(BLOCK, (len(starts),), generator=options.get("generator")).tolist()
        for start, turn in zip(starts, turns, strict=True):
            tile = flat[start : start + BLOCK]
            head = min(BLOCK - turn, tile.numel())
            tile[:head] = block[turn : turn + head]
            tile[head:] = block[: tile.numel() - head]
        return tensor

    return fill


def can_be_tiled(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a large matrix in the processor's memory; a card draws faster than the processor copies."""
    import torch

    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"
    return plain and tensor.dim() > 1 and tensor.numel() >= LEAST and tensor.is_contiguous()
