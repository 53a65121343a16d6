"""What the log-probabilities of completions take: TRL's fused head, in which logits exist a tile at a time.

GRPOTrainer of TRL 1.15 and 1.16 trains and scores with it, whatever `use_liger_kernel` says (trl/trainer/utils.py:
add_fused_lm_head; kernels/chunked_logprob.py: ChunkedLogProbFunction). For each of the ``scored`` tokens it copies the
hidden state and keeps that until backward. A tile of logits has at most 4,096 tokens and 32,768 words of the
vocabulary. Backward collects the gradients of hidden states and head in fp32, whole, and then casts them. Sizes are
bytes, but for ``hidden`` and ``vocabulary``, which are elements. The tracer's head holds the same
(`zerocfg.tracer.completions`), and both are held against the real trainer by ``tests/memory/test_grpo_real.py``.
"""

from __future__ import annotations

SINCE = "1.15.0"
"""The first release of TRL with this head; before it the logits of all completions were whole."""
TILE_TOKENS, TILE_WORDS = 4096, 32768
STATISTICS = 7 * 4
"""Bytes of the running sums of a token in forward."""


def tile(scored: int, size: int) -> int:
    """The tile is as wide as it may be, whatever the vocabulary."""
    return size * min(scored, TILE_TOKENS) * TILE_WORDS


def head_forward(scored: int, hidden: int, size: int) -> int:
    """The most that a forward of the head takes beside the hidden states that it gets."""
    return scored * (size * hidden + STATISTICS) + tile(scored, size)


def head_backward(scored: int, hidden: int, vocabulary: int, size: int, *, trained: bool) -> int:
    """The most that backward takes; ``trained``: the head gets a gradient. In fp32 nothing is cast."""
    cast = size if size < 4 else 0
    return (
        scored * (size * hidden + (4 + cast) * hidden)
        + ((4 + cast) * vocabulary * hidden if trained else 0)
        + tile(scored, size)
    )
