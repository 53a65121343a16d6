"""Rules of other packages (`zerocfg.installed`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import ModuleType

from zerocfg.installed import RefusedPackageError, installed, linted, object_at, reason
from zerocfg.plugins import RULES, Plugin
from zerocfg.record import record, replace
from zerocfg.rules.api import OWN, Rule

_CODE = r"(?!ZC)[A-Z]{2,8}\d{3}"
_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"


@record(frozen=True, slots=True)
class OutsideRules:
    """``problems``: what could not be taken, and why, in a sentence each."""

    rules: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()


def outside_rules(own: tuple[Rule, ...]) -> OutsideRules:
    """The rules of the packages that are installed. ``own``: zerocfg's rules, whose codes and names are given."""
    with linted():
        return _loaded(own, installed(RULES))


@lru_cache(maxsize=32)
def _loaded(own: tuple[Rule, ...], packages: tuple[Plugin, ...]) -> OutsideRules:
    words = {word: "zerocfg" for rule in own for word in (rule.code, rule.name)}
    rules: list[Rule] = []
    problems: list[str] = []
    for package in packages:
        for _, target in package.entry_points:
            try:
                candidates = _rules_at(target)
            except (Exception, SystemExit) as error:
                problems.append(f"the rules of {package.name} are not loaded: `{target}`: {reason(error)}")
                continue
            for rule in candidates:
                why = _why_not(rule, words)
                if why:
                    problems.append(f"the rule {rule.code} of {package.name} is not taken: {why}")
                    continue
                words |= {rule.code: package.name, rule.name: package.name}
                rules.append(replace(rule, package=package.name))
    return OutsideRules(tuple(sorted(rules, key=lambda rule: rule.code)), tuple(problems))


def _why_not(rule: Rule, words: dict[str, str]) -> str:
    """Why a rule cannot be taken; "" where it can. ``words``: codes and names that are given, and by whom."""
    if not re.fullmatch(_CODE, rule.code):
        return f"a code is two to eight capitals, not beginning with {OWN}, and three digits"
    if not re.fullmatch(_NAME, rule.name):
        return f"`{rule.name}` is no name: small letters, digits and dashes"
    taken = next((word for word in (rule.code, rule.name) if word in words), None)
    return f"`{taken}` is a rule of {words[taken]}" if taken is not None else ""


def _rules_at(target: str) -> list[Rule]:
    """The rules that an entry point names: a module with rules, one rule, or several."""
    found = list(_rules_in(object_at(target)))
    if not found:
        raise RefusedPackageError("there is no rule")
    return found


def _rules_in(value: object) -> Iterator[Rule]:
    if isinstance(value, Rule):
        yield value
    elif isinstance(value, ModuleType):
        yield from (item for item in vars(value).values() if isinstance(item, Rule))
    elif isinstance(value, Iterable):
        for item in value:
            if not isinstance(item, Rule):
                raise RefusedPackageError(f"{type(item).__name__} is no rule")
            yield item
