"""Every rule, in the order of its code. An explicit list: no import scanning."""

from __future__ import annotations

from zerocfg.rules import (
    batch,
    buffers,
    capacity,
    checkpoint,
    communication,
    dtypes,
    environment,
    features,
    fp8,
    fsdp,
    fsdp_training,
    gradients,
    ignores,
    keys,
    launch,
    machines,
    nvme,
    offload,
    offload_keys,
    offload_steps,
    optimizer,
    overridden,
    parallelism,
    precision,
    reading,
    recipe,
    releases,
    runner,
    saving,
    scheduler,
    stage_keys,
    trainer_arguments,
    trl_recipe,
    values,
    zenflow,
    zero,
    zeropp,
)
from zerocfg.rules.api import Rule

FAMILIES = (
    reading,
    ignores,
    keys,
    values,
    batch,
    overridden,
    optimizer,
    scheduler,
    precision,
    dtypes,
    fp8,
    zero,
    stage_keys,
    gradients,
    communication,
    zeropp,
    zenflow,
    features,
    saving,
    checkpoint,
    offload,
    offload_keys,
    offload_steps,
    nvme,
    fsdp,
    fsdp_training,
    parallelism,
    launch,
    machines,
    runner,
    environment,
    recipe,
    trainer_arguments,
    trl_recipe,
    releases,
    buffers,
    capacity,
)

ALL: tuple[Rule, ...] = tuple(
    sorted((rule for family in FAMILIES for rule in family.RULES), key=lambda rule: rule.code)
)


_BY_WORD = {word: rule for rule in ALL for word in (rule.code, rule.name)}


def find(name: str) -> Rule | None:
    """A rule by code (any case) or name."""
    return _BY_WORD.get(name) or _BY_WORD.get(name.upper())
