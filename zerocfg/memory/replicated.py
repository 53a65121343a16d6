"""Memory of a rank that keeps all that it computes with: one process, DDP, or a part of a split model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zerocfg.memory.caching_allocator import CachingAllocator
from zerocfg.memory.optimizers import moments_of
from zerocfg.memory.options import TorchOptions
from zerocfg.memory.tensors import model_of
from zerocfg.memory.terms import ALWAYS, BACKWARD, TRAINING, WORK, Term
from zerocfg.memory.torch_states import STEP, optimizer_terms, term, widths

if TYPE_CHECKING:
    from zerocfg.memory.lora import Base
    from zerocfg.models.model_facts import ModelFacts


def replicated_terms(facts: ModelFacts, options: TorchOptions, base: Base | None) -> Iterator[Term]:
    every, trained = facts.parameters or 0, facts.trainable or 0
    kept, low = widths(options)
    accumulates = options.gradient_accumulation_steps > 1
    # Only what is trained is worth a master copy: peft keeps adapters in fp32 beside a base in 16 bit.
    frozen = base.size if base is not None else (kept if trained == every else low) * (every - trained)
    yield term("parameters", kept * trained + frozen, ALWAYS, "parameters", "the model")
    if base is not None:
        source = "bitsandbytes/autograd/_functions.py: backward"
        yield term("unpacked weight", base.unpacked, frozenset({"backward"}), "temporaries", source)
    held = WORK | STEP if accumulates else BACKWARD | STEP
    bucketed = options.kind == "ddp"
    if bucketed:
        source = "torch/csrc/distributed/c10d/reducer.cpp: initialize_buckets"
        yield term("gradient buckets", kept * trained, ALWAYS, "gradients", source)
    if not bucketed or not options.gradient_as_bucket_view:
        yield term("gradients", kept * trained, held, "gradients", "autograd", grows=not accumulates)
    source = "torch/distributed/tensor/_ops/_embedding_ops.py"
    yield term("rest of the embedding's gradient", kept * _looked_up_whole(facts, options), held, "gradients", source)
    whole = trained == every
    sizes = facts.tensor_sizes if whole else []
    yield from optimizer_terms(
        facts, options, trained, facts.largest_parameter or trained, sizes, facts.hidden_size if sizes else None
    )


def _looked_up_whole(facts: ModelFacts, options: TorchOptions) -> int:
    """Elements of the embedding's gradient that are other ranks': where the embedding is split it is replicated, unless
    that of a tied head is added to it."""
    if options.tensor_parallel == 1 or facts.tied_embeddings:
        return 0
    rows, width = facts.vocab_size or 0, facts.hidden_size or 0
    return (rows - -(-rows // options.tensor_parallel)) * width


def remainder_terms(facts: ModelFacts, options: TorchOptions) -> Iterator[Term]:
    """What the caching allocator of a card adds to parameters and moments, tensor by tensor.

    Only where all tensors are trained and known: of others the blocks are not known either.
    """
    whole = facts.trainable == facts.parameters and bool(facts.layout)
    if options.kind not in ("single", "ddp") or options.tensor_parallel > 1 or not whole:
        return
    kept, _ = widths(options)
    blocks, sizes = CachingAllocator(), model_of(facts).trained
    source = "CUDACachingAllocator.cpp: should_split"
    lost = blocks.lost(kept * size for size in sizes)
    lost += blocks.lost(kept * size for size in sizes for _ in range(moments_of(options.optimizer)))
    yield term("remainders of the allocator's blocks", lost, TRAINING, "buffers", source)
