"""Compares the effective values of two sides; the most important differences come first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.compare.sides import ARGUMENTS, GROUPS, SETTINGS, VARIABLES, Group, Side, Value
from zerocfg.compare.values import echoed, importance, same
from zerocfg.run.config import AUTO
from zerocfg.run.model import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Difference:
    """A name whose values differ; None for the side that does not have it."""

    group: Group
    name: str
    a: Value | None
    b: Value | None


@dataclass(slots=True)
class Comparison:
    """``unsaid`` counts, for A and B, the names that stand only there and that nobody sets: defaults, and values that
    nobody knows. ``left_out`` are the groups that only one side has."""

    a: Side
    b: Side
    differences: list[Difference] = field(default_factory=list)
    unsaid: tuple[int, int] = (0, 0)
    left_out: list[Group] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return not self.differences


def compare(a: Side, b: Side) -> Comparison:
    """The differences of two sides, in the groups that both have."""
    found = Comparison(a, b)
    only = [0, 0]
    for group in GROUPS:
        one, other = a.groups.get(group), b.groups.get(group)
        if one is None or other is None:
            if one or other:
                found.left_out.append(group)
            continue
        for name in sorted({*one, *other}, key=importance):
            pair = (one.get(name), other.get(name))
            if pair[0] is None or pair[1] is None:
                index = int(pair[0] is None)
                present = pair[index]
                if present is not None and not present.said:
                    only[index] += 1
                    continue
            elif same(pair[0].value, pair[1].value):
                continue
            found.differences.append(Difference(group, name, *pair))
    found.differences = list(_without_echoes(found.differences, a, b))
    found.unsaid = (only[0], only[1])
    return found


def _without_echoes(differences: list[Difference], a: Side, b: Side) -> Iterable[Difference]:
    """Leaves out the arguments and variables whose difference the setting that they become shows already."""
    names = {difference.name for difference in differences if difference.group == SETTINGS}
    for difference in differences:
        if difference.group == VARIABLES and f"fsdp_config.{difference.name.lower()}" in names:
            continue
        setting = echoed(difference.name) or difference.name
        if difference.group != ARGUMENTS or setting not in names or _open(a, setting) or _open(b, setting):
            yield difference


def _open(side: Side, setting: str) -> bool:
    """Whether a setting is less specific than its argument."""
    value = side.groups[SETTINGS].get(setting)
    return value is None or value.value is UNKNOWN or value.value == AUTO
