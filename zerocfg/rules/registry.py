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
    fsdp_keys,
    fsdp_training,
    fsdp_wrapping,
    gradients,
    ignores,
    keys,
    launch,
    launch_line,
    machines,
    nvme,
    offload,
    offload_keys,
    offload_steps,
    optimizer,
    overridden,
    parallelism,
    places,
    precision,
    reading,
    recipe,
    releases,
    rendezvous,
    runner,
    saving,
    scheduler,
    stage_keys,
    torchrun,
    trainer_arguments,
    trainer_schedule,
    trainer_values,
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
    places,
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
    fsdp_keys,
    fsdp_wrapping,
    fsdp_training,
    parallelism,
    launch,
    launch_line,
    machines,
    rendezvous,
    runner,
    torchrun,
    environment,
    recipe,
    trainer_arguments,
    trainer_schedule,
    trainer_values,
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
