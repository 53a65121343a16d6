"""Rules of other packages. Their code runs inside a lint, so only what was installed counts: a repository that is
linted brings none, neither by metadata in a folder that Python searches nor by a module that hides an installed one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import ModuleType

from zerocfg.internal_errors import in_a_line
from zerocfg.record import record, replace
from zerocfg.rule_packages import RulePackage, rule_packages
from zerocfg.rules.api import OWN, Rule
from zerocfg.source import boundary

_CODE = r"(?!ZC)[A-Z]{2,8}\d{3}"
_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"


class RefusedPackageError(Exception):
    """A package, or one of its rules, is not taken; says why."""


@record(frozen=True, slots=True)
class OutsideRules:
    """``problems``: what could not be taken, and why, in a sentence each."""

    rules: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()


NOTHING = OutsideRules()


def outside_rules(own: tuple[Rule, ...]) -> OutsideRules:
    """The rules of the packages that are installed, for what is linted. Without a boundary (`boundary.reading`) around
    that, the current folder counts as linted. ``own``: zerocfg's rules, whose codes and names are given."""
    packages = rule_packages()
    if not packages:
        return NOTHING
    if not boundary.is_drawn():
        with boundary.reading(()):
            return outside_rules(own)
    return _loaded(own, tuple(package for package in packages if _is_installed(package.folder)))


def _is_installed(place: str) -> bool:
    """Whether a path lies where packages are installed, or at least not in what is linted."""
    real = os.path.realpath(place)
    return any(_lies_below(real, os.path.realpath(folder)) for folder in _site_folders()) or (
        not boundary.lies_inside(real)
    )


def _lies_below(real: str, folder: str) -> bool:
    return real == folder or real.startswith(folder.rstrip(os.sep) + os.sep)


def _site_folders() -> list[str]:
    """Where installers put packages. A virtual environment in a repository is the user's own: it runs zerocfg."""
    import site

    return [*site.getsitepackages(), site.getusersitepackages()]


@lru_cache(maxsize=32)
def _loaded(own: tuple[Rule, ...], packages: tuple[RulePackage, ...]) -> OutsideRules:
    words = {word: "zerocfg" for rule in own for word in (rule.code, rule.name)}
    rules: list[Rule] = []
    problems: list[str] = []
    for package in packages:
        for _, target in package.entry_points:
            try:
                candidates = _rules_at(target)
            except (Exception, SystemExit) as error:
                reason = str(error) if isinstance(error, RefusedPackageError) else in_a_line(error)  # type: ignore[arg-type]
                problems.append(f"the rules of {package.name} are not loaded: `{target}`: {reason}")
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
    from importlib import import_module

    name, _, attribute = target.partition(":")
    _require_installed(name)
    value: object = import_module(name)
    for part in filter(None, attribute.split(".")):
        value = getattr(value, part)
    found = list(_rules_in(value))
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


def _require_installed(module: str) -> None:
    """The first folder with such a module is imported, wherever the metadata lies: refuse one of what is linted."""
    from importlib.util import find_spec

    top = module.partition(".")[0]
    if top in sys.modules:
        places = [getattr(sys.modules[top], "__file__", None) or "", *getattr(sys.modules[top], "__path__", ())]
    else:
        spec = find_spec(top)
        if spec is None:
            raise RefusedPackageError(f"there is no module {top}")
        places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    for place in filter(None, places):
        if not _is_installed(place):
            raise RefusedPackageError(f"{top} would be imported from what is linted")
