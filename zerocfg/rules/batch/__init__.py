"""ZC2xx: batch sizes, accumulation, clipping, optimizer and schedule."""

from __future__ import annotations

from zerocfg.rules.batch import (
    accumulation,
    clipping,
    hyperparameters,
    optimizer,
    optimizer_fit,
    processes,
    scheduler,
    sections,
    sizes,
    warmup,
)
