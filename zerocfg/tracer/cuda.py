"""Makes a trace on CPU tensors without content do what CUDA would do with real ones, where memory differs.

Read in two snapshots of PyTorch's main branch, no release: ``transformers/cuda/sdp_utils.cpp`` (which attention kernel;
commit 001f694a) and ``flash_api.cpp`` (``mha_bwd``, its workspace; commit 03b7c19d). They differ from PyTorch 2.13 in
this: there the memory-efficient kernel takes grouped heads, in 2.13 only flash and math do, says the documentation of
``scaled_dot_product_attention``; this module does as 2.13. Hopper and Blackwell with a recent cuDNN try its kernel
first; its workspace is not known and flash's counts in its place. That ``dropout`` is ``native_dropout`` on CUDA and
not on the CPU comes from a run of 2.13.0 on tensors without content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from .storages import rounded

try:
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
except ImportError:  # before 4.53
    masking_utils = None

FLASH = "zerocfg_stand_in"
"""The name of an attention that keeps what the flash-attn package keeps (a name with "flash" would be looked for)."""

_SOFTMAX_BACKWARD = "aten::_softmax_backward_data"
_FLASH_BACKWARD = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
_LARGEST_FLASH_HEAD = 256


def workspace(operator: torch._ops.OpOverload, arguments: tuple[torch.Tensor, ...], result: object) -> int:
    """Bytes that CUDA takes inside the backward of softmax and of flash attention, beyond their results.

    Softmax (eager attention, torch's own math): gradient times result, a tensor of its own (``SoftMax.cu``:
    softmax_backward_cuda_out). Flash, ``mha_bwd``: fp32 ``softmax_d`` [b, heads, S to 128] and ``dq_accum`` [b, S to
    128, heads, d to 32 or 64], and, when keys have fewer heads than queries, ``dk`` and ``dv`` of every query head
    before they are summed. Its memory-efficient cousin (fp32, or with a mask) has other workspaces, which are not
    counted.
    """
    if operator.name() == _SOFTMAX_BACKWARD:
        gradient, output = arguments[:2]
        return rounded(gradient.numel() * torch.promote_types(gradient.dtype, output.dtype).itemsize)
    if operator.name() != _FLASH_BACKWARD:
        return 0
    query, key = arguments[1], arguments[2]
    masked = len(arguments) > 8 and arguments[8] is not None
    if masked or query.dtype == torch.float32:
        return 0
    batch, heads, length, width = query.shape
    rows = _up(length, 128)
    size = rounded(batch * heads * rows * 4)
    size += rounded(batch * rows * heads * _up(width, 32 if width <= 128 else 64) * 4)
    if key.shape[1] != heads:
        size += 2 * rounded(batch * key.shape[2] * heads * width * query.element_size())
    return size


class _Fused(torch.autograd.Function):  # type: ignore[misc]
    """What a fused kernel keeps, for shapes that the one for CPU does not take: its result and a fp32 number a row."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        batch, heads, length, _ = query.shape
        result = query.new_empty((batch, length, heads, value.shape[-1])).transpose(1, 2)
        ctx.save_for_backward(query, key, value, result, query.new_empty((batch, heads, length), dtype=torch.float32))
        return result

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, _gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


def _flash(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """As ``transformers.integrations.flash_attention``: grouped heads, windows, soft caps are the kernel's matter."""
    causal = bool(getattr(module, "is_causal", True))
    grouped = key.shape[1] != query.shape[1]
    result = functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=grouped)
    return result.transpose(1, 2).contiguous(), None


if masking_utils is not None:
    AttentionInterface.register(FLASH, _flash)
    AttentionMaskInterface.register(FLASH, masking_utils.flash_attention_mask)


@contextmanager
def behaviour() -> Iterator[None]:
    """While it lasts, attention and dropout keep in memory what they keep on CUDA."""
    attention: Callable[..., torch.Tensor] = functional.scaled_dot_product_attention
    dropout: Callable[..., torch.Tensor] = functional.dropout

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        **rest: bool,
    ) -> torch.Tensor:
        query, key, value = map(_lowered, (query, key, value))
        if _is_math(query, key, value, attn_mask, rest.get("enable_gqa", False)):
            with sdpa_kernel(SDPBackend.MATH):
                return attention(query, key, value, attn_mask, dropout_p, **rest)
        if query.shape[-1] != value.shape[-1] and attn_mask is None:
            return _Fused.apply(query, key, value)
        # A fused kernel keeps the state of its random numbers, not a mask; the one for CPU refuses dropout.
        return attention(query, key, value, attn_mask, 0.0, **rest)

    def drop(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        if not training or not 0 < p < 1 or inplace:
            return dropout(input, p, training, inplace)
        return torch.native_dropout(input, p, True)[0]

    with ExitStack() as stack:
        stack.enter_context(_replaced(functional, "scaled_dot_product_attention", attend))
        stack.enter_context(_replaced(functional, "dropout", drop))
        # A batch without packed samples and without padding has no mask. transformers would look into the positions
        # to see that, which fake tensors do not have; it would then make a mask of [S, S] for every layer.
        stack.enter_context(_replaced(masking_utils, "find_packed_sequence_indices", lambda *_, **__: None))
        yield


@contextmanager
def _replaced(module: ModuleType | None, name: str, by: object) -> Iterator[None]:
    before = getattr(module, name, None)
    if before is None:
        yield  # an older transformers
        return
    setattr(module, name, by)
    try:
        yield
    finally:
        setattr(module, name, before)


def _lowered(tensor: torch.Tensor) -> torch.Tensor:
    """As the kernel gets it: autocast makes the inputs of attention 16 bit, though rotated queries come in fp32."""
    return tensor.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else tensor


def _is_math(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, grouped: bool
) -> bool:
    """Whether CUDA has no fused kernel for it and keeps the whole [S, S] matrix.

    Flash takes 16 bit (on Ampere and later), no mask and one head width of at most 256. The memory-efficient one takes
    the rest, fp32 and masks among them, but no grouped heads. transformers groups heads only where there is no mask
    (``use_gqa_in_sdpa``), so what is left is fp32.
    """
    grouped = grouped and key.shape[-3] != query.shape[-3]
    flash = mask is None and query.dtype != torch.float32 and query.shape[-1] == value.shape[-1] <= _LARGEST_FLASH_HEAD
    return grouped and not flash


def _up(value: int, multiple: int) -> int:
    return int(-(-value // multiple) * multiple)
