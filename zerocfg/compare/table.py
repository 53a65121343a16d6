"""The values of a lock as one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from zerocfg.emit.lock import HUB, sha256
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem

if TYPE_CHECKING:
    from pathlib import Path

Group = Literal["setting", "changed argument", "accelerate", "recipe", "run"]


@dataclass(frozen=True, slots=True)
class Row:
    """One value of a lock. ``place`` and ``inputs`` as in `zerocfg.resolve.plan.Decision`."""

    group: Group
    name: str
    value: object
    reason: str = ""
    kind: str = ""
    place: str = ""
    inputs: dict[str, object] = field(default_factory=dict)


Table = dict[str, Row]


def table(lock: dict[str, object]) -> Table:
    """Every value by name. Of a name in several groups the one counts that decides: what the engine gets, then what the
    emitted files say, then what the recipe says."""
    found: Table = {}
    for row in rows(lock):
        found.setdefault(row.name, row)
    return found


def rows(lock: dict[str, object]) -> list[Row]:
    """Every value, those that decide first."""
    return [
        *_decisions(lock, "settings", "setting"),
        *_decisions(lock, "changes", "changed argument"),
        *_decisions(lock, "accelerate", "accelerate"),
        *_recipe(lock),
        *_run(lock),
    ]


def hardware_name(lock: dict[str, object]) -> str:
    hardware = lock.get("hardware")
    return str(hardware.get("name", "")) if isinstance(hardware, dict) else str(hardware or "")


def changed_sources(lock: dict[str, object], folder: Path) -> list[str]:
    """The source files that are no longer as they were when the lock in ``folder`` was built, relative to the spec.

    A file of the hub's cache is not looked for.
    """
    start, inputs = lock.get("spec_folder"), lock.get("inputs")
    found = []
    for _, entry in _items(inputs) if isinstance(start, str) else []:
        if not isinstance(entry, dict) or not isinstance(path := entry.get("path"), str) or path.startswith(HUB):
            continue
        data = read_bytes(folder / str(start) / path)
        if isinstance(data, Problem):
            found.append(f"{path} ({data.message})")
        elif sha256(data) != entry.get("sha256"):
            found.append(path)
    return found


def _decisions(lock: dict[str, object], key: str, group: Group) -> list[Row]:
    section = lock.get(key)
    found = []
    for name, entry in section.items() if isinstance(section, dict) else ():
        if not isinstance(entry, dict):
            continue
        inputs = entry.get("inputs")
        found.append(
            Row(
                group,
                name,
                entry.get("value"),
                str(entry.get("reason", "")),
                str(entry.get("kind", "")),
                str(entry.get("place", "")),
                inputs if isinstance(inputs, dict) else {},
            )
        )
    return found


def _recipe(lock: dict[str, object]) -> list[Row]:
    recipe = lock.get("recipe")
    reason = f"as in {source_path(lock, 'recipe') or 'the recipe'}"
    return [Row("recipe", name, value, reason, "file") for name, value in _items(recipe)]


def _run(lock: dict[str, object]) -> list[Row]:
    names = ("consumer", "script", "arguments", "launcher", "hosts")
    reason = f"as in {source_path(lock, 'spec') or 'the spec'}, or what follows from it"
    found = [Row("run", name, lock[name], reason, "file") for name in names if lock.get(name) not in (None, [])]
    return [*found, Row("run", "hardware", hardware_name(lock), "the hardware of the build", "hardware")]


def source_path(lock: dict[str, object], role: str) -> str:
    """The path of a source file, relative to the spec's folder; empty where there is none."""
    inputs = lock.get("inputs")
    entry = inputs.get(role) if isinstance(inputs, dict) else None
    return str(entry.get("path", "")) if isinstance(entry, dict) else ""


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []
