"""Every rule, in the order of its code: those of the modules that the families import."""

from __future__ import annotations

from types import ModuleType

from zerocfg.rules import batch, files, fsdp, keys, launch, memory, offload, precision, recipes, zero
from zerocfg.rules.api import Rule

FAMILIES = (files, keys, batch, precision, zero, offload, fsdp, launch, recipes, memory)
"""One package a family, in the order of the codes; it imports its modules, and there is no other list of them."""

_MODULES = [module for family in FAMILIES for module in vars(family).values() if isinstance(module, ModuleType)]

ALL: tuple[Rule, ...] = tuple(
    sorted(
        {id(rule): rule for module in _MODULES for rule in vars(module).values() if isinstance(rule, Rule)}.values(),
        key=lambda rule: rule.code,
    )
)
"""What `@rule` declares in them."""

_BY_WORD = {word: rule for rule in ALL for word in (rule.code, rule.name)}


def find(name: str) -> Rule | None:
    """A rule by code (any case) or name."""
    return _BY_WORD.get(name) or _BY_WORD.get(name.upper())
