"""``[tool.zerocfg]`` in pyproject.toml, or zerocfg.toml: the nearest one upwards wins, nothing is merged."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from zerocfg.budgets import FILE_BYTES
from zerocfg.catalog.values import show
from zerocfg.errors import UsageError
from zerocfg.linter.selection import Selection
from zerocfg.record import field, record, replace
from zerocfg.run.consumers import consumer_of, consumers
from zerocfg.run.model import Consumer
from zerocfg.source import boundary, disk

SETTINGS_FILES = ("zerocfg.toml", "pyproject.toml")
LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torch")
KNOWN = {
    *("select", "ignore", "preview", "notes", "exclude", "per-file-ignores", "baseline", "fail-on"),
    *("consumer", "consumers", "gate", "cache"),
    *LIBRARIES,
}


@record(frozen=True)
class Settings:
    """The settings of the project for linting. ``source``: their file, if any."""

    selection: Selection = field(default_factory=Selection)
    fail_on: str = "warning"
    versions: dict[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    baseline: str | None = None
    consumer: str | None = None
    consumers: tuple[tuple[str, Consumer], ...] = ()
    """By a pattern of the path of a file of the run; the first that fits counts."""
    notes: bool = False
    cache: bool = True
    """Whether outcomes are kept in the user's cache folder."""
    gate: object = None
    """The table of `zerocfg gate`, as it stands there; `zerocfg.gate.policy` reads it."""
    source: Path | None = None
    given: tuple[str, ...] = ()
    """What ``--config`` named."""

    @property
    def folder(self) -> Path | None:
        """What patterns and paths in them are relative to; of a file that ``--config`` names the current folder."""
        if self.given and (self.source is None or any(disk.is_file(word) for word in self.given)):
            return Path.cwd()
        return self.source.parent if self.source is not None else None


def find_settings(start: Path, given: Sequence[str] = (), *, isolated: bool = False) -> Settings:
    """Read the nearest settings at or above a folder. Raises UsageError for settings that make no sense.

    ``given``: what ``--config`` names, a file in place of the nearest one, or ``name = value`` in TOML, which wins over
    any file. ``isolated``: no file is read.
    """
    files = [Path(word) for word in given if disk.is_file(word)]
    if len(files) > 1:
        raise UsageError(f"--config names two files, {files[0]} and {files[1]}")
    if files and isolated:
        raise UsageError(f"--isolated reads no settings, and --config names {files[0]}")
    overrides: dict[str, Any] = {}
    for word in given:
        if not disk.is_file(word):
            overrides.update(_override(word))
    table, source = ({}, None) if isolated else _table(files[0]) if files else _nearest(start)
    if not overrides and source is None:
        return Settings()
    _settings(overrides, "--config", None)
    return _settings({**table, **overrides}, str(source or "--config"), source, tuple(given))


@record(frozen=True)
class SettingsOptions:
    """``exclude`` takes the place of what the settings exclude, ``extend_exclude`` is added."""

    config: tuple[str, ...] = ()
    isolated: bool = False
    exclude: tuple[str, ...] = ()
    extend_exclude: tuple[str, ...] = ()

    def settings(self, start: Path) -> Settings:
        """What counts for files at or below a path. Raises UsageError for settings that make no sense."""
        found = find_settings(start if disk.is_dir(start) else start.parent, self.config, isolated=self.isolated)
        if not self.exclude and not self.extend_exclude:
            return found
        return replace(found, exclude=(self.exclude or found.exclude) + self.extend_exclude)


def folder_of_settings(path: Path) -> Path | None:
    """The folder that a settings file speaks of; None for every other file, and a pyproject.toml without a table of
    zerocfg. Raises UsageError for a file that is no TOML."""
    own, shared = SETTINGS_FILES
    if path.name != own and (path.name != shared or "zerocfg" not in _read(path).get("tool", {})):
        return None
    return path.parent


def _nearest(start: Path) -> tuple[dict[str, Any], Path | None]:
    folder = disk.resolved(start)
    for above in (folder, *folder.parents):
        own, shared = (above / name for name in SETTINGS_FILES)
        if disk.is_file(own):
            return _read(own), own
        if disk.is_file(shared):
            table = _of_shared(shared)
            if table is not None:
                return _checked(table, str(shared)), shared
    return {}, None


def _of_shared(path: Path) -> object:
    """The table of a pyproject.toml that was not asked for; None where it has none.

    A file that is no TOML stops lint only where it names zerocfg: settings that its author relies on would be lost.
    Else it is a mistake in what other tools read.
    """
    try:
        return _own_table(_read(path))
    except UsageError as error:
        with trusted(path):
            concerned = b"zerocfg" in disk.whole(path, FILE_BYTES)
        if not concerned:
            return None
        raise UsageError(
            f"{error}; it names zerocfg, whose settings in it cannot be read (--isolated reads none)"
        ) from None


def _own_table(content: dict[str, Any]) -> object:
    tools = content.get("tool")
    return tools.get("zerocfg") if isinstance(tools, dict) else None


def _table(path: Path) -> tuple[dict[str, Any], Path]:
    """The settings of a file that is named: of a pyproject.toml its table, else the whole file."""
    content, path = _read(path), disk.resolved(path)
    if path.name != "pyproject.toml":
        return content, path
    table = _own_table(content)
    if table is None:
        raise UsageError(f"{path} has no [tool.zerocfg]")
    return _checked(table, str(path)), path


def _checked(table: object, where: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: [tool.zerocfg] must be a table")
    return table


def _override(word: str) -> dict[str, Any]:
    try:
        return parse_toml(word)
    except ValueError:
        raise UsageError(
            f"--config: '{word}' is no file and no setting in TOML, such as 'fail-on = \"error\"'"
        ) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        with trusted(path):
            return parse_toml(disk.whole(path, FILE_BYTES).decode("utf-8"))
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def trusted(path: Path) -> AbstractContextManager[None]:
    """In which settings above a repository are read and changed, too: nobody but the user can have written them there.
    What a link leads to is another matter."""
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
    real = disk.real(folder)
    above = boundary.is_above(real) and disk.real(path) == os.path.join(real, name)  # noqa: PTH118
    return boundary.lent(path) if above else nullcontext()


def of_settings(path: Path, settings: Settings) -> AbstractContextManager[None]:
    """In which a file is read that settings name, which are the user's own above a repository."""
    source = settings.source
    own = source is not None and not boundary.lies_inside(disk.real(source))
    return boundary.lent(path) if own else nullcontext()


def parse_toml(text: str) -> dict[str, Any]:
    """Raises ValueError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    content: dict[str, Any] = tomllib.loads(text)
    return content


def _settings(table: dict[str, Any], path: str, source: Path | None, given: tuple[str, ...] = ()) -> Settings:
    """``path``: what messages call the place of the settings."""
    for name in table:
        if name not in KNOWN:
            raise UsageError(f"{path}: [tool.zerocfg] has no setting '{name}'; there are {', '.join(sorted(KNOWN))}")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise UsageError(f"{path}: per-file-ignores must be a table of file patterns to lists of codes")
    for name in ("preview", "notes", "cache"):
        if not isinstance(table.get(name, False), bool):
            raise UsageError(f"{path}: {name} must be true or false")
    if not isinstance(table.get("baseline", ""), str):
        raise UsageError(f"{path}: baseline must be the path of a file")
    return Settings(
        Selection(
            _codes(table, "select", path),
            _codes(table, "ignore", path),
            tuple((str(pattern), _codes(per_file, pattern, path)) for pattern in per_file),
            preview=table.get("preview", False),
        ),
        _word(table, "fail-on", ("error", "warning", "note"), path) or "warning",
        {name: str(table[name]) for name in LIBRARIES if name in table},
        _codes(table, "exclude", path),
        table.get("baseline"),
        _word(table, "consumer", consumers(), path),
        _consumers(table, path),
        table.get("notes", False),
        table.get("cache", True),
        table.get("gate"),
        source,
        given,
    )


def _consumers(table: dict[str, object], path: str) -> tuple[tuple[str, Consumer], ...]:
    by_path = table.get("consumers", {})
    if not isinstance(by_path, dict):
        raise UsageError(f"{path}: consumers must be a table of file patterns to consumers")
    found = []
    for pattern, word in by_path.items():
        consumer = consumer_of(word)
        if consumer is None:
            *names, last = consumers()
            known = f"{', '.join(names)} or {last}"
            raise UsageError(f"{path}: the consumer of '{pattern}' must be {known}, not {show(word)}")
        found.append((str(pattern), consumer))
    return tuple(found)


def _word(table: dict[str, object], name: str, choices: tuple[str, ...], path: str) -> str | None:
    word = table.get(name)
    if word is not None and word not in choices:
        raise UsageError(f"{path}: {name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {show(word)}")
    return word


def _codes(table: dict[str, object], name: str, path: str) -> tuple[str, ...]:
    value = table.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{path}: {name} must be a list of strings")
    return tuple(value)
