"""What an optimizer keeps between steps, and what it needs for a moment while it steps. Sizes are bytes.

Checked on torch 2.13 and transformers 5.23 by ``tests/memory/test_optimizers.py``; bitsandbytes and DeepSpeed's own
kernels, which need a card, were read.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from zerocfg.memory.options import OptimizerName

_BLOCK = 256  # bitsandbytes >= 0.44, optim/optimizer.py: Optimizer2State.init_state; 2048 before
_SMALL = 4096  # elements; smaller tensors keep fp32 moments, same place: min_8bit_size
_STATES: dict[OptimizerName, int] = {
    "adamw": 2,
    "adamw_fused": 2,
    "fused_adam": 2,
    "adamw_foreach": 2,
    "adamw_for_loop": 2,
    "sgd": 0,
    "sgd_momentum": 1,
    "lion": 1,
}


def moments_of(name: OptimizerName) -> int:
    """Tensors of state that have the shape and the dtype of their parameter, for each parameter."""
    return _STATES.get(name, 0)


def moment_bytes(
    name: OptimizerName,
    elements: int,
    width: int,
    tensor_sizes: Iterable[tuple[int, int]] = (),
    hidden_size: int | None = None,
) -> int:
    """Bytes of state for ``elements`` parameters whose elements take ``width`` bytes.

    Moments have the dtype of the parameter: 4 + 4 bytes for fp32 masters, 2 + 2 when a bf16 model is trained without
    them (torch/optim/adam.py: _init_group; deepspeed/ops/adam/fused_adam.py; deepspeed/ops/lion/fused_lion.py). The
    step counters, 4 bytes a tensor, are left out.

    ``tensor_sizes`` are the tensors as (elements, how many), needed for what depends on single tensors: without them
    8-bit Adam is counted as one large tensor, and Adafactor as if it factored nothing, which is what it does with flat
    shards (transformers/optimization.py: Adafactor.step; always fp32). With them and ``hidden_size``, every tensor
    that it divides is taken for a matrix with one side of that size.
    """
    sizes = list(tensor_sizes) or [(elements, 1)]
    if name == "adamw_8bit":
        return sum(count * _eight_bit(size) for size, count in sizes)
    if name == "adafactor":
        if hidden_size is None:
            sizes = [(elements, 1)]
        return sum(4 * count * _factors(size, hidden_size) for size, count in sizes)
    return _STATES[name] * elements * width


def _eight_bit(elements: int) -> int:
    """Two moments: a byte each, and a fp32 maximum for each block of both."""
    return 8 * elements if elements < _SMALL else 2 * elements + 8 * ceil(elements / _BLOCK)


def _factors(elements: int, side: int | None) -> int:
    """Elements that Adafactor keeps for a tensor: rows + columns of a matrix, everything of a vector."""
    if side is None or elements % side or elements // side < 2:
        return elements
    return min(elements, side + elements // side)


def step_temporaries(name: OptimizerName, elements: int, width: int, largest: int) -> int:
    """Bytes that one call of the optimizer takes for a moment, on top of its state and the gradients.

    ``elements`` are what the call updates, ``largest`` those of its largest tensor, ``width`` their bytes.
    ``adamw`` is torch's choice on an accelerator, foreach (torch/optim/optimizer.py: _default_to_fused_or_foreach);
    DeepSpeed's FusedAdam is ``fused_adam``, the Trainer's default, adamw_torch_fused, ``adamw_fused``.

    foreach holds the root of the second moment of all tensors at once (torch/optim/adam.py: _multi_tensor_adam). The
    for-loop holds root and denominator of one tensor beside the denominator of the one before it
    (_single_tensor_adam), so where tensors differ in size this is the most that their order can cost. Adafactor does
    as the for-loop does, in fp32, with fp32 copies of a 16-bit gradient and parameter.
    """
    largest = min(largest, elements)
    before = min(largest, elements - largest)
    if name in ("adamw", "adamw_foreach"):
        return elements * width
    if name == "adamw_for_loop":
        return (2 * largest + before) * width
    if name == "adafactor":
        copies = 2 if width < 4 else 0
        return (2 * largest + before + copies * largest) * 4
    return 0
