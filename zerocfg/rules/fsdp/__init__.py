"""ZC6xx: FSDP and the other ways to be parallel."""

from __future__ import annotations

from zerocfg.rules.fsdp import (
    arguments,
    keys,
    layer_names,
    parallelism,
    plugin,
    sequence_parallel,
    training,
    values,
    wrapping,
)
