"""From the lock of an earlier build to the lock of a new one: which values changed, and because of what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from zerocfg.catalog.counterparts import Format, paths
from zerocfg.catalog.schema import load_schema
from zerocfg.compare.lock_table import Row, table
from zerocfg.compare.values import ABSENT, echoed, importance, same, shown

if TYPE_CHECKING:
    from zerocfg.emit.lock import Lock


@dataclass(frozen=True, slots=True)
class Change:
    """A value of the old and of the new build; ABSENT where one has none.

    ``because`` says which input or source changed, empty where nothing can be said. ``inputs`` are the facts behind a
    computed value that changed: name -> (old, new).
    """

    row: Row
    old: object
    new: object
    because: str
    inputs: dict[str, tuple[object, object]] = field(default_factory=dict)

    @property
    def said(self) -> bool:
        """False for a default that nobody sets and that only comes or goes, with the engine that has it."""
        return self.row.kind != "default" or ABSENT not in (self.old, self.new)

    def __str__(self) -> str:
        return f"{self.row.name} {shown(self.old)} -> {shown(self.new)}" + (
            f" because {self.because}" if self.because else ""
        )


def changes(old: Lock, new: Lock) -> list[Change]:
    """What changed in meaning, the important first; reasons, places and notes that read otherwise are no change."""
    before, after = table(old), table(new)
    if old.version == 1:  # its locks do not hold these
        after = {name: row for name, row in after.items() if row.group not in ("accelerate", "run") or name in before}
    found = []
    for name in sorted({*before, *after}, key=importance):
        one, other = before.get(name), after.get(name)
        values = (one.value if one else ABSENT, other.value if other else ABSENT)
        if not same(*values):
            found.append(_change(one, other, *values, old, new))
    settings = {change.row.name for change in found if change.row.group == "setting"}
    found = [change for change in found if echoed(change.row.name) not in settings]
    # What the engine gets first, then what else is emitted, the recipe and the run.
    groups = ("setting", "changed argument", "accelerate", "recipe", "run")
    return sorted(found, key=lambda change: groups.index(change.row.group))


def sources(old: Lock, new: Lock) -> list[str]:
    """What the builds were made from, as far as it changed: files by path, hardware, releases, zerocfg."""
    found = []
    for role in sorted({*old.inputs, *new.inputs}):
        one, other = old.inputs.get(role), new.inputs.get(role)
        entry = other or one
        if one == other or entry is None:
            continue
        note = " (was not used)" if one is None else " (is not used any more)" if other is None else ""
        found.append(f"{entry.path}{note}")
    hardware = _hardware(old, new)
    if hardware:
        found.append(hardware)
    found += [f"{name} {release} -> {other}" for name, release, other in _releases(old, new)]
    if old.zerocfg != new.zerocfg:
        found.append(f"zerocfg {old.zerocfg} -> {new.zerocfg}")
    return found


def _change(item: Row | None, other: Row | None, before: object, after: object, old: Lock, new: Lock) -> Change:
    row = other or item
    assert row is not None
    inputs = _inputs(item, other)
    because = " and ".join(_input(name, *pair) for name, pair in inputs.items())
    return Change(row, before, after, because or _because(item, other, old, new), inputs)


def _inputs(row: Row | None, other: Row | None) -> dict[str, tuple[object, object]]:
    """The facts behind a value that changed. A fact that only one of the builds used tells nothing by itself."""
    if row is None or other is None or not row.inputs or not other.inputs:
        return {}
    return {
        name: (row.inputs[name], value)
        for name, value in other.inputs.items()
        if name in row.inputs and not same(row.inputs[name], value)
    }


def _input(name: str, old: object, new: object) -> str:
    return f"{name} changed {shown(old)} -> {shown(new)}"


def _because(row: Row | None, other: Row | None, old: Lock, new: Lock) -> str:
    if not sources(old, new):
        return "of something that the lock does not name (was it edited?)"
    if other is None:
        return f"nothing sets it any more ({row.place} did)" if row is not None and row.place else ""
    if other.place:
        # A list may be made of several keys, of which the place is the first.
        says = "says so" if isinstance(other.value, (list, dict)) else f"says {shown(other.value)}"
        moved = f" (before: {row.place})" if row is not None and row.place and _file(row) != _file(other) else ""
        return f"{other.place} {says} now{moved}"
    if other.group == "recipe":
        return f"{new.source('recipe') or 'the recipe'} says so now"
    if row is not None and row.place:
        return f"nothing sets it any more ({row.place} did); {other.reason}"
    if other.kind == "hardware" and (hardware := _hardware(old, new)):
        return "" if other.group == "run" else hardware
    owners = _owners(other.name) if other.kind == "default" else ()
    releases = [f"{name} changed {was} -> {now}" for name, was, now in _releases(old, new) if name in owners]
    if releases:
        return " and ".join(releases)
    if row is None or row.reason != other.reason:
        return other.reason
    if old.zerocfg != new.zerocfg:
        return f"zerocfg changed {old.zerocfg} -> {new.zerocfg}"
    return ""


def _owners(name: str) -> list[str]:
    """The libraries whose default a value may be: those that have a key for it."""
    path = tuple(name.split("."))
    return [
        str(load_schema(format).root.facts["library"])
        for format in get_args(Format)
        if load_schema(format).find(path) or any(item == name or item.startswith(f"{name}.") for item in paths(format))
    ]


def _file(row: Row) -> str:
    return row.place.file if row.place is not None else ""


def _hardware(old: Lock, new: Lock) -> str:
    """``hardware changed 8xA100-80GB -> 8xH100-80GB``; the facts that differ where the name is the same."""
    before, after = old.hardware_name, new.hardware_name
    if before != after:
        return f"hardware changed {before} -> {after}"
    if 1 in (old.version, new.version):  # it knows the name alone
        return ""
    one, other = old.hardware, new.hardware
    differ = [
        f"{name} {shown(one.get(name, ABSENT))} -> {shown(other.get(name, ABSENT))}"
        for name in sorted({*one, *other})
        if not same(one.get(name, ABSENT), other.get(name, ABSENT))
    ]
    return f"hardware {after} changed: {', '.join(differ)}" if differ else ""


def _releases(old: Lock, new: Lock) -> list[tuple[str, str, str]]:
    before, after = old.versions, new.versions
    return [(name, before[name], after[name]) for name in sorted(after) if before.get(name, after[name]) != after[name]]
