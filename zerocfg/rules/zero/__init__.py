"""ZC4xx: ZeRO, the other sections of the DeepSpeed config, saving."""

from __future__ import annotations

from zerocfg.rules.zero import (
    autos,
    checkpoint,
    communication,
    compiling,
    experts,
    features,
    gradients,
    instruments,
    saving,
    stage_keys,
    stages,
    zenflow,
    zeropp,
)
