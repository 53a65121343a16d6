"""``zerocfg explain`` for builds: the provenance of a value in its lock."""

from __future__ import annotations

from pathlib import Path

import click

from zerocfg.catalog.suggest import closest
from zerocfg.cli.screens.settings_table import settings_table
from zerocfg.compare.lock_table import Row, Table, changed_sources, table
from zerocfg.compare.values import importance, same, shown
from zerocfg.emit.lock import NAME, Lock, LockError, load
from zerocfg.run.discover import display_name

KINDS = {
    "file": "written",
    "flag": "given on the launch line",
    "environment": "set in the environment",
    "default": "a library's default",
    "computed": "computed",
    "hardware": "read off the hardware",
    "chosen": "chosen by zerocfg",
}


class LockUnreadableError(click.ClickException):
    """A lock that this zerocfg cannot read."""

    exit_code = 2


def lock_at(name: str) -> Path | None:
    """The lock that a user names: itself, or the folder of a run; None when it is neither."""
    try:
        path = Path(name)
        if path.is_dir():
            return path / NAME if (path / NAME).exists() else None
        return path if path.name == NAME and path.exists() else None
    except (OSError, ValueError):
        return None


def locks_below(folder: Path) -> list[Path]:
    """The locks in a folder and two levels below it: ``out/RUN/zerocfg.lock``."""
    found = {path for depth in ("", "*/", "*/*/") for path in folder.glob(depth + NAME) if path.is_file()}
    return sorted(found)


def read_lock(path: Path) -> Lock:
    try:
        return load(path)
    except LockError as error:
        raise LockUnreadableError(str(error)) from None


def find_key(rows: Table, what: str) -> list[str]:
    """The names that a user may mean: the name itself, else names that end with it, else those of the section."""
    if what in rows:
        return [what]
    ends = [name for name in rows if name.endswith(f".{what}")]
    return ends or [name for name in rows if name.startswith(f"{what}.")]


def explain_lock(path: Path, what: str | None) -> str:
    """One value of a build, a section of it, or all. Raises UsageError for a key that it does not hold."""
    lock = read_lock(path)
    rows = table(lock)
    where = display_name(path.parent)
    head = f"{lock.run or where}  (built in {where} for {lock.hardware_name} by zerocfg {lock.zerocfg})\n"
    if what is None:
        text = head + _table(rows, list(rows))
    else:
        names = find_key(rows, what)
        if not names:
            near = _near(what, rows)
            hint = f"; did you mean {near}?" if near else f"; `zerocfg explain --run {where}` prints all"
            raise click.UsageError(f"the build {where} has no value '{what}'{hint}")
        text = _one(rows[names[0]], lock, where) if len(names) == 1 else head + _table(rows, names)
    changed = changed_sources(lock, path.parent)
    return text + (f"changed since this build: {', '.join(changed)}\n" if changed else "")


def _near(what: str, rows: Table) -> str | None:
    """The key that was meant, also where only its last part was given."""
    lasts = {name.rpartition(".")[2]: name for name in rows}
    return closest(what, rows) or lasts.get(closest(what, lasts) or "")


def _table(rows: Table, names: list[str]) -> str:
    text = ""
    for group, title in (
        ("setting", "settings"),
        ("changed argument", "arguments that differ from the recipe"),
        ("accelerate", "accelerate.yaml"),
        ("recipe", "recipe"),
        ("run", "run"),
    ):
        found = sorted((name for name in names if rows[name].group == group), key=importance)
        text += f"{title}\n" if found else ""
        text += settings_table([(name, shown(rows[name].value), _brief(rows[name])) for name in found], names)
    return text


def _brief(row: Row) -> str:
    return " ".join(row.reason.split())


def _one(row: Row, lock: Lock, where: str) -> str:
    lines = [f"{row.name} = {shown(row.value)}"]
    if row.reason:
        lines.append(f"  because  {_brief(row)}")
    lines.append(f"  kind     {KINDS.get(row.kind, row.kind or 'not said')}")
    if row.place:
        lines.append(f"  at       {row.place}")
    for name, value in row.inputs.items():
        lines.append(f"  from     {name} = {shown(value)}")
    if row.kind == "chosen":
        lines += _alternatives(row, lock)
    lines.append(f"  build    {where}, for {lock.hardware_name}")
    return "\n".join(lines) + "\n"


def _alternatives(row: Row, lock: Lock) -> list[str]:
    """The other values that were weighed, each with what excluded the best plan that has it."""
    lines: dict[str, str] = {}
    for plan in lock.considered.runners_up:
        if row.name in plan.settings and not same(plan.settings[row.name], row.value):
            value = shown(plan.settings[row.name])
            lines.setdefault(value, f"  not      {value}: {plan.excluded or 'ranked lower'}")
    return list(lines.values())
