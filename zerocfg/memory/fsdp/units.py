"""What FSDP shards as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocfg.models.model_facts import ModelFacts


@dataclass(frozen=True)
class Units:
    """Elements of what is sharded as one: an embedding on its own (0: it is part of the tail), blocks, and the tail."""

    embedding: int
    blocks: tuple[int, ...]
    tail: int
    head: int  # of the tail, what has its gradient before the blocks go backward


def units_of(facts: ModelFacts, fsdp1: bool) -> Units:
    """FSDP 1 keeps all that is outside of blocks in its root; accelerate gives FSDP 2 an embedding that is not tied on
    its own, and final norm and head as one (accelerate/utils/fsdp_utils.py: fsdp2_prepare_model)."""
    blocks = tuple(sum(map(sum, part.modules)) for part in facts.layout if part.block for _ in range(part.times))
    if not blocks and facts.largest_block and facts.num_hidden_layers:
        blocks = (facts.largest_block,) * facts.num_hidden_layers
    if not blocks:
        raise ValueError("FSDP wraps block by block, and the size of this model's blocks is not known")
    every, trained = facts.parameters or 0, facts.trainable or 0
    if fsdp1:
        every -= len(blocks) * sum(facts.adapters)  # units of their own
    in_layout = sum(sum(map(sum, part.modules)) * part.times for part in facts.layout)
    if in_layout and trained < every:  # adapters, which the layout of the base model does not have
        blocks = tuple(block + max(every - in_layout, 0) // len(blocks) for block in blocks)
    outside = max(every - sum(blocks), 0)
    table = min((facts.vocab_size or 0) * (facts.hidden_size or 0), outside)
    embedding = 0 if fsdp1 or facts.tied_embeddings else table
    tail = outside - embedding
    head = tail - table if fsdp1 and not facts.tied_embeddings else tail
    return Units(embedding, blocks, tail, head)
