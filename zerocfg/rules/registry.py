"""Every rule, in the order of its code. An explicit list: no import scanning."""

from __future__ import annotations

from zerocfg.rules import batch, files, fsdp, keys, launch, memory, offload, precision, recipes, zero
from zerocfg.rules.api import Rule

FAMILIES = (files, keys, batch, precision, zero, offload, fsdp, launch, recipes, memory)
"""One package a family, in the order of the codes; each lists its modules."""

_MODULES = tuple(module for family in FAMILIES for module in family.MODULES)

ALL: tuple[Rule, ...] = tuple(
    sorted(
        (rule for module in _MODULES for rule in vars(module).values() if isinstance(rule, Rule)),
        key=lambda rule: rule.code,
    )
)
"""What `@rule` declares in them."""

_BY_WORD = {word: rule for rule in ALL for word in (rule.code, rule.name)}


def find(name: str) -> Rule | None:
    """A rule by code (any case) or name."""
    return _BY_WORD.get(name) or _BY_WORD.get(name.upper())
