"""TRL's fused head: the log-probabilities of completions, with logits that exist one tile at a time.

The memory is that of ``ChunkedLogProbFunction`` (trl 1.16, ``kernels/chunked_logprob.py``) on CUDA, where a kernel
works inside the tile, and of ``add_fused_lm_head`` (``trainer/utils.py``), which scores completions alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import transformers

TILE_TOKENS, TILE_WORDS = 4096, 32768


class _LogProbabilities(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        tokens = hidden.shape[0]
        ctx.dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
        running = [hidden.new_zeros(tokens, dtype=torch.float32) for _ in range(7)]
        tile = hidden.new_empty((min(tokens, TILE_TOKENS), TILE_WORDS), dtype=ctx.dtype)
        for _ in _parts(hidden, weight, ctx.dtype):
            pass
        total = running[0] + torch.log(running[1])
        logprobs = running[6] - total
        entropy = total - running[2] / running[1]
        del tile
        ctx.save_for_backward(hidden, weight, targets, total, entropy)
        return logprobs, entropy

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, of_logprobs: torch.Tensor, _: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, *_ = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        of_hidden = hidden.new_zeros(hidden.shape, dtype=torch.float32) if wanted[0] else None
        of_weight = weight.new_zeros(weight.shape, dtype=torch.float32) if wanted[1] else None
        tile = hidden.new_empty((min(hidden.shape[0], TILE_TOKENS), TILE_WORDS), dtype=ctx.dtype)
        for _ in _parts(hidden, weight, ctx.dtype):
            pass
        found = (
            of_hidden.to(hidden.dtype) if of_hidden is not None else None,
            of_weight.to(weight.dtype) if of_weight is not None else None,
            None,
        )
        del tile
        return found


def _parts(
    hidden: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What is multiplied for one tile after the other; copies where it has another dtype."""
    for tokens in hidden.split(TILE_TOKENS):
        some = tokens.to(dtype)
        for words in weight.split(TILE_WORDS):
            yield some, words.to(dtype)


def completion_loss(model: transformers.PreTrainedModel, ids: torch.Tensor, completion: int) -> torch.Tensor:
    """The sum of what the last ``completion`` tokens of each sample are likely to be, behind a padded prompt."""
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(f"{type(model).__name__} has no output head that scores tokens")
    samples, length = ids.shape
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    result = model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
    hidden = result.last_hidden_state[:, :-1]
    for hook in head._forward_pre_hooks.values():
        hook(head, ())
    # As a mask would choose them, which tensors without content cannot.
    rows = torch.arange(samples).repeat_interleave(completion)
    columns = torch.arange(length - 1 - completion, length - 1).repeat(samples)
    logprobs, _ = _LogProbabilities.apply(hidden[rows, columns], head.weight, ids[:, -completion:].reshape(-1))
    scattered = logprobs.new_zeros((samples, length - 1)).index_put((rows, columns), logprobs)
    loss: torch.Tensor = -scattered.sum()
    return loss
