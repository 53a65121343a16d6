"""The values of a lock as one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from zerocfg.emit.lock import HUB, Lock, sha256
from zerocfg.resolve.plan import Decision
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem

if TYPE_CHECKING:
    from pathlib import Path

Group = Literal["setting", "changed argument", "accelerate", "recipe", "run"]


@dataclass(frozen=True, slots=True)
class Row(Decision):
    """One value of a lock with its name."""

    group: Group = "setting"
    name: str = ""


Table = dict[str, Row]


def table(lock: Lock) -> Table:
    """Every value by name. Of a name in several groups the one counts that decides: what the engine gets, then what the
    emitted files say, then what the recipe says."""
    found: Table = {}
    for row in rows(lock):
        found.setdefault(row.name, row)
    return found


def rows(lock: Lock) -> list[Row]:
    """Every value, those that decide first."""
    return [
        *_values(lock.settings, "setting"),
        *_values(lock.changes, "changed argument"),
        *_values(lock.accelerate, "accelerate"),
        *_recipe(lock),
        *_run(lock),
    ]


def changed_sources(lock: Lock, folder: Path) -> list[str]:
    """The source files that are no longer as they were when the lock in ``folder`` was built, relative to the spec.

    A file of the hub's cache is not looked for.
    """
    found: list[str] = []
    if lock.spec_folder is None:
        return found
    for source in lock.inputs.values():
        if source.path.startswith(HUB):
            continue
        data = read_bytes(folder / lock.spec_folder / source.path)
        if isinstance(data, Problem):
            found.append(f"{source.path} ({data.message})")
        elif sha256(data) != source.sha256:
            found.append(source.path)
    return found


def _values(found: dict[str, Decision], group: Group) -> list[Row]:
    return [
        Row(decision.value, decision.reason, decision.kind, decision.place, decision.inputs, group, name)
        for name, decision in found.items()
    ]


def _recipe(lock: Lock) -> list[Row]:
    reason = f"as in {lock.source('recipe') or 'the recipe'}"
    return [Row(value, reason, "file", group="recipe", name=name) for name, value in lock.recipe.items()]


def _run(lock: Lock) -> list[Row]:
    reason = f"as in {lock.source('spec') or 'the spec'}, or what follows from it"
    said: dict[str, object] = {
        "consumer": lock.consumer,
        "script": lock.script,
        "arguments": list(lock.arguments) or None,
        "launcher": lock.launcher,
        "hosts": list(lock.hosts) or None,
    }
    found = [Row(value, reason, "file", group="run", name=name) for name, value in said.items() if value is not None]
    return [*found, Row(lock.hardware_name, "the hardware of the build", "hardware", group="run", name="hardware")]
