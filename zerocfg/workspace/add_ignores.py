"""``lint --add-ignore``: suppress every finding in place, so that only new ones are reported from now on."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

from zerocfg.budgets import FILE_BYTES
from zerocfg.errors import UsageError
from zerocfg.linter.add_ignores import Added, ignores_for
from zerocfg.linter.engine import Result
from zerocfg.record import record, replace
from zerocfg.run.discover import display_name
from zerocfg.run.model import SourceFile
from zerocfg.source import disk
from zerocfg.source.write import Change, write_together
from zerocfg.workspace.job import Job
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import find_settings, trusted
from zerocfg.workspace.settings_edit import with_ignores


@record(frozen=True)
class Silenced:
    """How many findings are silenced, in which files, and the result of the lint after that."""

    count: int
    files: list[str]
    remaining: Result


def add_ignores(job: Job, result: Result) -> Silenced:
    """Write comments into YAML and shell files and entries into the settings."""
    added = ignores_for(result.diagnostics)
    changes = [
        Change(Path(path), job.original(path).encode("utf-8"), text.encode("utf-8"))
        for path, text in sorted(added.texts.items())
    ]
    settings = _settings_file(job) if added.patterns else None
    with trusted(settings) if settings is not None else nullcontext():
        if settings is not None:
            changes.append(_with_patterns(settings, job.settings.folder or settings.parent, added))
        write_together(changes)
    again = replace(job, settings=find_settings(_start(job), job.settings.given) if settings else job.settings)
    again.selection = replace(job.selection, per_file=selection_of(again.settings, "", "", False).per_file)
    again.selection = replace(again.selection, root=again.settings.folder)
    remaining = again.lint({disk.real(change.path): change.after.decode("utf-8") for change in changes})
    return Silenced(added.count, [display_name(change.path) for change in changes], remaining)


def _start(job: Job) -> Path:
    target = job.targets[0]
    return target if target.is_dir() else target.parent


def _settings_file(job: Job) -> Path:
    """The settings file in use; if there is none, a new one at the root of the repository."""
    if job.settings.source is not None:
        return job.settings.source
    folder = _start(job).resolve()
    cwd = Path.cwd()
    top = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)
    return (top or (cwd if folder.is_relative_to(cwd) else folder)) / "zerocfg.toml"


def _with_patterns(settings: Path, folder: Path, added: Added) -> Change:
    before = disk.whole(settings, FILE_BYTES) if disk.exists(settings) else None
    entries: dict[str, list[str]] = {}
    for file, keys, code in added.patterns:
        codes = entries.setdefault(_pattern(file, keys, folder), [])
        if code not in codes:
            codes.append(code)
    table = ("tool", "zerocfg") if settings.name == "pyproject.toml" else ()
    try:
        text = with_ignores((before or b"").decode("utf-8"), table, entries)
    except ValueError as error:
        raise UsageError(f"{settings}: {error}; nothing was written") from None
    return Change(settings, before, text.encode("utf-8"))


def _pattern(file: SourceFile, keys: str, folder: Path) -> str:
    path = file.path.resolve() if file.path is not None else Path(file.name)
    name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
    name = _literal(name).replace(":", "?")
    return f"{name}:{_literal(keys)}" if keys else name


def _literal(text: str) -> str:
    """As a pattern that matches nothing else, but for ``?`` where a name holds bytes that no text file can."""
    return re.sub("[\ud800-\udfff]", "?", re.sub(r"([*?[])", r"[\1]", text))
