"""Every rule, in the order of its code. An explicit list: no import scanning."""

from __future__ import annotations

from zerocfg.rules import (
    batch,
    communication,
    engine_parts,
    fsdp,
    keys,
    launch,
    machines,
    offload,
    precision,
    reading,
    recipe,
    saving,
    zero,
)
from zerocfg.rules.api import Rule

ALL: tuple[Rule, ...] = tuple(
    sorted(
        (
            *reading.RULES,
            *keys.RULES,
            *batch.RULES,
            *engine_parts.RULES,
            *precision.RULES,
            *saving.RULES,
            *zero.RULES,
            *communication.RULES,
            *offload.RULES,
            *fsdp.RULES,
            *launch.RULES,
            *machines.RULES,
            *recipe.RULES,
        ),
        key=lambda rule: rule.code,
    )
)


def find(name: str) -> Rule | None:
    """A rule by code (any case) or name."""
    for rule in ALL:
        if name.upper() == rule.code or name == rule.name:
            return rule
    return None
