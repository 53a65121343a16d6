"""A fused output head and loss: logits exist one chunk of tokens at a time.

The memory is that of Liger's ``LigerFusedLinearCrossEntropyFunction`` (``ops/fused_linear_cross_entropy.py``), which
computes the gradients of the hidden states and of the head in forward and keeps them until backward, and whose chunk
has about as many logits as all hidden states have elements. Cut cross entropy keeps less.
"""

from __future__ import annotations

import torch
import transformers


class _FusedHead(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        tokens, width = hidden.shape
        shares = -(-weight.shape[0] // width)
        chunk = min(tokens, 1 << (-(-tokens // shares) - 1).bit_length())
        gradient = torch.zeros_like(hidden)
        of_head = torch.zeros_like(weight) if weight.requires_grad else None
        losses = torch.zeros(tokens, dtype=torch.float32)
        logits = hidden.new_empty((chunk, weight.shape[0]))
        del logits
        ctx.save_for_backward(gradient, of_head)
        return torch.sum(losses)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, _gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved: tuple[torch.Tensor | None, ...] = ctx.saved_tensors
        return saved


def fused_loss(model: transformers.PreTrainedModel, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The loss of a causal language model whose logits never exist as a whole."""
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(f"{type(model).__name__} has no output head whose loss could be fused")
    hidden = model.base_model(input_ids=ids).last_hidden_state
    for hook in head._forward_pre_hooks.values():
        hook(head, ())
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    loss: torch.Tensor = _FusedHead.apply(hidden.view(-1, hidden.shape[-1]), head.weight)
    del shifted
    return loss
