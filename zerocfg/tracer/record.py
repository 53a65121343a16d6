"""Runs one micro batch forward and backward and records what it holds, stretch by stretch.

A stretch ends when a parameter gets its gradient and, in forward, where a block begins or ends. Gradients leave the
count the moment their parameter has them, as ZeRO-2 and 3 take them away.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import torch
import transformers
from torch import nn

from . import cuda
from .completions import completion_loss
from .fused import fused_loss
from .model import DTYPES, blocks_of
from .storages import Storages


@dataclass(frozen=True)
class Batch:
    """One micro batch, and how its activations are kept (the fields of ``zerocfg.memory.options.Workload``)."""

    micro_batch: int
    sequence_length: int
    gradient_checkpointing: bool = False
    use_reentrant: bool = False
    fused_loss: bool = False
    autocast: str | None = None  # the dtype of the computation, when parameters are fp32
    keeps_outputs: bool = False  # a loop of one's own, whose `outputs` live until the next step; not the Trainer
    completion: int | None = None  # tokens at the end whose log-probabilities are trained on, behind a padded prompt


@dataclass
class Recorder:
    """Stretches as (moment, block or -1, bytes, trainable elements whose gradient ends it)."""

    storages: Storages
    moment: str = "forward"
    stretches: list[tuple[str, int, int, int]] = field(default_factory=list)
    before_loss: int = 0
    logits: int = 0  # the most that the head and the loss add to what the blocks left

    def cut(self, block: int = -1, elements: int = 0, then: str | None = None) -> None:
        """Ends a stretch; ``block`` is the one it belongs to, ``then`` the moment that begins."""
        size = self.storages.restart()
        last = self.stretches[-1] if self.stretches else None
        if last and last[:2] == (self.moment, block) and last[3] == elements == 0:
            self.stretches[-1] = (self.moment, block, max(size, last[2]), 0)
        else:
            self.stretches.append((self.moment, block, size, elements))
        self.moment = then or self.moment


def record(model: transformers.PreTrainedModel, batch: Batch, fake: bool = True) -> Recorder:
    """Forward and backward of ``batch``; ``fake`` false runs the same on real tensors, for tests."""
    _prepare(model, batch)
    outside = [*model.parameters(), *model.buffers()]
    recorder = Recorder(Storages(outside, cuda.workspace if fake else None))
    _watch(model, recorder)
    with recorder.storages, cuda.behaviour():
        shape = (batch.micro_batch, batch.sequence_length)
        ids, labels = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        loss, outputs = _loss(model, batch, ids, labels)
        if not batch.keeps_outputs:
            outputs = None
        recorder.cut(then="head backward")
        loss.backward()
        recorder.cut()
        del outputs
    heads = [size for moment, _, size, _ in recorder.stretches if moment in ("loss", "head backward")]
    recorder.logits = max(heads) - recorder.before_loss
    return recorder


def _prepare(model: transformers.PreTrainedModel, batch: Batch) -> None:
    # The Trainer's default (TrainingArguments.use_cache).
    model.config.use_cache = False
    if batch.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": batch.use_reentrant})
        if batch.use_reentrant and not model.get_input_embeddings().weight.requires_grad:
            model.enable_input_require_grads()


def _loss(
    model: transformers.PreTrainedModel, batch: Batch, ids: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, object]:
    """The loss, and the outputs, which hold the logits: ``Trainer.compute_loss`` lets go of them when it returns."""
    with ExitStack() as stack:
        if batch.autocast:
            stack.enter_context(torch.autocast("cpu", DTYPES[batch.autocast]))
        if batch.completion:
            return completion_loss(model, ids, batch.completion), None
        if batch.fused_loss:
            return fused_loss(model, ids, labels), None
        if type(model).__name__.endswith("ForSequenceClassification"):
            labels = labels[:, 0]
        outputs = model(input_ids=ids, labels=labels)
        loss: torch.Tensor = outputs.loss
        if batch.autocast:
            # accelerate's convert_outputs_to_fp32 copies every 16-bit output.
            stack.close()
            outputs = [leaf.float() for leaf in outputs.to_tuple() if isinstance(leaf, torch.Tensor)]
        return loss, outputs


def _watch(model: transformers.PreTrainedModel, recorder: Recorder) -> None:
    blocks = blocks_of(model)
    owner = {id(parameter): index for index, block in enumerate(blocks) for parameter in block.parameters()}
    last = len(blocks) - 1

    def enter(*_: object, index: int) -> None:
        if recorder.moment == "forward":
            recorder.cut(index - 1 if index else -1)

    def leave(_module: nn.Module, _inputs: object, output: object, index: int) -> None:
        if recorder.moment != "forward":
            return
        recorder.cut(index)
        hidden = output[0] if isinstance(output, tuple) else output
        if index == last and isinstance(hidden, torch.Tensor) and hidden.requires_grad:
            hidden.register_hook(head_done)

    def head_done(_gradient: torch.Tensor) -> None:
        if recorder.moment == "head backward":
            recorder.cut(then="backward")

    def head_starts(*_: object) -> None:
        if recorder.moment == "forward":
            recorder.cut(then="loss")
            recorder.before_loss = recorder.storages.live

    for index, block in enumerate(blocks):
        block.register_forward_pre_hook(partial(enter, index=index))
        block.register_forward_hook(partial(leave, index=index))
    head = model.get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(head_starts)

    def handed(parameter: torch.Tensor) -> None:
        block = owner.get(id(parameter), -1)
        if block >= 0:
            head_done(parameter)
        recorder.cut(block, parameter.numel())
        if parameter.grad is not None:
            recorder.storages.forget(parameter.grad)
            recorder.storages.restart()
            parameter.grad = None

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(handed)
