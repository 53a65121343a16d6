"""Every rule, in the order of its code. An explicit list: no import scanning."""

from __future__ import annotations

from zerocfg.rules import (
    batch,
    communication,
    fsdp,
    keys,
    launch,
    machines,
    nvme,
    offload,
    overridden,
    precision,
    reading,
    recipe,
    saving,
    values,
    zero,
)
from zerocfg.rules.api import Rule

FAMILIES = (
    reading,
    keys,
    values,
    batch,
    overridden,
    precision,
    saving,
    zero,
    communication,
    offload,
    nvme,
    fsdp,
    launch,
    machines,
    recipe,
)

ALL: tuple[Rule, ...] = tuple(
    sorted((rule for family in FAMILIES for rule in family.RULES), key=lambda rule: rule.code)
)


def find(name: str) -> Rule | None:
    """A rule by code (any case) or name."""
    for rule in ALL:
        if name.upper() == rule.code or name == rule.name:
            return rule
    return None
