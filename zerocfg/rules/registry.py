"""Every rule, in the order of its code: those of the modules that the families import."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from zerocfg.rules import batch, files, fsdp, keys, launch, memory, offload, precision, zero
from zerocfg.rules.api import Rule


def _of(*families: ModuleType) -> tuple[Rule, ...]:
    modules = [module for family in families for module in vars(family).values() if isinstance(module, ModuleType)]
    rules = {id(rule): rule for module in modules for rule in vars(module).values() if isinstance(rule, Rule)}
    return tuple(sorted(rules.values(), key=lambda rule: rule.code))


_FAMILIES = (files, keys, batch, precision, zero, offload, fsdp, launch, memory)
WITHOUT_RECIPES = _of(*_FAMILIES)
"""The rules of all families but `recipes` (see `zerocfg.linter.concerned`). A family imports its modules."""
_BY_WORD = {word: rule for rule in WITHOUT_RECIPES for word in (rule.code, rule.name)}
ALL: tuple[Rule, ...]


@cache
def __getattr__(name: str) -> tuple[Rule, ...]:
    if name != "ALL":
        raise AttributeError(name)
    from zerocfg.rules import recipes

    return _of(*_FAMILIES, recipes)


def find(name: str) -> Rule | None:
    """A rule by code (any case) or name."""
    found = _BY_WORD.get(name) or _BY_WORD.get(name.upper())
    return found or next((rule for rule in __getattr__("ALL") if name.upper() == rule.code or name == rule.name), None)
