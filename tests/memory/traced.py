"""Traces in this process, for tests that need many: the tracer's own modules without its subprocess."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from zerocfg.memory.options import Workload
from zerocfg.tracer.model import DTYPES, attention_of, build, read_config
from zerocfg.tracer.record import Batch, Recorder, record


def run(
    config: Mapping[str, Any], workload: Workload, precision: str, fake: bool = True, alike: bool = False
) -> Recorder:
    """A trace, or with ``fake`` false the same on real tensors; ``alike`` leaves out what only CUDA does."""
    read = read_config(config)
    batch = Batch(
        workload.micro_batch,
        workload.sequence_length,
        workload.gradient_checkpointing,
        fused_loss=workload.fused_loss,
        completion=workload.completion,
    )
    architectures = config.get("architectures") or ()
    attention = attention_of(read, architectures, workload.attention)
    with FakeTensorMode(allow_non_fake_inputs=True) if fake else contextlib.nullcontext():
        model = build(read, architectures, attention, DTYPES[precision])
        if not fake:
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter.data, std=0.02)
        return record(model, batch, fake=fake and not alike)


def peak_of(config: Mapping[str, Any], workload: Workload, precision: str) -> int:
    return max(size for _, _, size, _ in run(config, workload, precision).stretches)
