"""Every rule, in the order of its code: those of the modules that the families import."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from zerocfg.plugins import RULES, plugins
from zerocfg.rules import batch, files, fsdp, keys, launch, memory, offload, precision, zero
from zerocfg.rules.api import Rule

if TYPE_CHECKING:
    from zerocfg.rules.outside import OutsideRules


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


def every() -> tuple[Rule, ...]:
    """All rules, and those of other installed packages behind them."""
    return with_outside(__getattr__("ALL"))


def with_outside(own: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Some of zerocfg's own rules, and those of other packages."""
    if not plugins(RULES):
        return own
    return _together(own, _outside().rules)


def problems() -> tuple[str, ...]:
    """Which rules of other packages could not be taken, and why."""
    return _outside().problems if plugins(RULES) else ()


def _outside() -> OutsideRules:
    from zerocfg.rules.outside import outside_rules  # hardly anybody has such packages

    return outside_rules(__getattr__("ALL"))


@cache
def _together(own: tuple[Rule, ...], others: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return own + others


def find(name: str) -> Rule | None:
    """A rule by code (any case) or name."""
    found = _BY_WORD.get(name) or _BY_WORD.get(name.upper())
    return found or next((rule for rule in every() if name.upper() == rule.code or name == rule.name), None)
