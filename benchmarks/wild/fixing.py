"""What `lint --fix` does to whole repositories: nothing that a library took may be refused afterwards, no value may
change that no mended finding spoke of, and a second `--fix` may change nothing.

Each file that a fix changed is read before and after by the real library that its run gives it to, beside zerocfg's own
effective settings of every run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.wild.data import Repository
from benchmarks.wild.libraries import PAGES, SHELL, Kind, Reading, read, read_line
from benchmarks.wild.lint import Run, diagnostics, fix, runs
from benchmarks.wild.trees import changed, copied
from zerocfg.catalog.counterparts import settings
from zerocfg.catalog.schema import load_schema

_ATTRIBUTES = {
    "optimizer_name": "optimizer.type",
    "optimizer_params": "optimizer.params",
    "scheduler_name": "scheduler.type",
    "scheduler_params": "scheduler.params",
    "zero_optimization_stage": "zero_optimization.stage",
    "ACCELERATE_DEBUG_MODE": "debug",
}
"""What DeepSpeedConfig and the launcher call what they read there."""
_WORD = re.compile(r"[A-Za-z]\w{2,}")
_LIBRARIES: Mapping[str, Kind] = {"deepspeed": "deepspeed", "accelerate": "accelerate", "recipe": "recipe"}


@dataclass(frozen=True)
class Refused:
    """A file that its library took before the fix and refuses now, or a run that would stop now and did not."""

    file: str
    by: str
    why: str


@dataclass(frozen=True)
class Value:
    """A value that is another one after the fix. ``codes``: of the mended findings that speak of it."""

    file: str
    by: str
    key: str
    before: str | None
    after: str | None
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Fixed:
    """``gone``: findings that are no longer there; ``come``: the codes of those that were not there before. ``unread``:
    changed files that no library reads in any run; ``again``: files that a second call changes once more."""

    repository: str
    unsafe: bool
    files: tuple[str, ...]
    gone: int
    come: tuple[str, ...]
    refused: tuple[Refused, ...]
    values: tuple[Value, ...]
    unread: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    @property
    def unspoken(self) -> list[Value]:
        return [one for one in self.values if not one.codes]


def fixed(repository: Repository, tree: Path, *, unsafe: bool) -> Fixed:
    """Fixes a copy of the tree and compares."""
    told = diagnostics(tree)
    if not _offered(told, unsafe=unsafe):
        return Fixed(repository.name, unsafe, (), 0, (), (), ())
    with copied(tree) as copy:
        fix(copy, unsafe=unsafe)
        files = changed(tree, copy)
        left = diagnostics(copy)
        old, new = runs(tree), runs(copy)
        before, after = Counter(map(_key, told)), Counter(map(_key, left))
        mended = [one for one in told if before[_key(one)] > after[_key(one)]]
        refused = [*_refused(tree, copy, files, old), *_stopped(old, new)]
        refused += _lines_refused(old, new, files)
        values = [*_values(tree, copy, files, old, mended), *_settings(old, new, mended)]
        values += _line_values(old, new, files, mended)
        unread = tuple(file for file in files if not _kinds(file, old) and not file.endswith(PAGES))
        again = tuple(_changed_again(copy, unsafe=unsafe)) if _offered(left, unsafe=unsafe) else ()
    gone = (before - after).total()
    come = tuple(sorted({key[0] for key in after - before}))
    return Fixed(repository.name, unsafe, tuple(files), gone, come, tuple(refused), tuple(values), unread, again)


def _offered(told: Sequence[Mapping[str, Any]], *, unsafe: bool) -> bool:
    return any(one["fix"] is not None and (unsafe or one["fix"]["safety"] == "safe") for one in told)


def _key(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return one["code"], one["file"], one["path"]


def _changed_again(copy: Path, *, unsafe: bool) -> Iterator[str]:
    """The files that the same call changes when it is made once more."""
    with copied(copy) as once:
        fix(copy, unsafe=unsafe)
        yield from changed(once, copy)


def _kinds(file: str, known: Sequence[Run]) -> list[Kind]:
    """Who reads a file: the libraries that runs give it to, the shell, Python."""
    found = {_LIBRARIES[role] for run in known for role, name in run.files.items() if name == file if role != "line"}
    if file.endswith(SHELL):
        found.add("shell")
    if file.endswith(".py"):
        found.add("python")
    return sorted(found)


def _refused(tree: Path, copy: Path, files: Sequence[str], known: Sequence[Run]) -> Iterator[Refused]:
    for file in files:
        for kind in _kinds(file, known):
            after = read(kind, copy / file)
            if after.error is not None and read(kind, tree / file).error is None:
                yield Refused(file, kind, " ".join(after.error.split())[:200])


def _pairs(old: Sequence[Run], new: Sequence[Run]) -> Iterator[tuple[Run, Run]]:
    """The same run before and after; a fix of a script moves its lines, but not their order."""
    for file in dict.fromkeys(_file(run) for run in old):
        before, after = [[run for run in all_ if _file(run) == file] for all_ in (old, new)]
        if len(before) == len(after):
            yield from zip(before, after, strict=True)


def _file(run: Run) -> str:
    name, _, line = run.name.rpartition(":")
    return name if line.isdigit() else run.name


def _stopped(old: Sequence[Run], new: Sequence[Run]) -> Iterator[Refused]:
    for before, after in _pairs(old, new):
        come = set(after.failures) - set(before.failures)
        if come:
            yield Refused(before.name, "zerocfg", ", ".join(sorted(come)))


def _values(
    tree: Path, copy: Path, files: Sequence[str], known: Sequence[Run], told: Sequence[Mapping[str, Any]]
) -> Iterator[Value]:
    for file in files:
        for kind in _kinds(file, known):
            before, after = read(kind, tree / file), read(kind, copy / file)
            if before.error is None and after.error is None:
                yield from _differences(file, kind, before.values, after.values, told, {file})


def _lines(old: Sequence[Run], new: Sequence[Run], files: Sequence[str]) -> Iterator[tuple[Run, Reading, Reading]]:
    """The launch lines of changed files as the parsers of launcher and Trainer read them, before and after."""
    for before, after in _pairs(old, new):
        old_line, new_line = before.line, after.line
        if before.files.get("line") in files and old_line and new_line and old_line != new_line:
            trainer = before.consumer in ("transformers", "trl")
            yield before, read_line(old_line, trainer=trainer), read_line(new_line, trainer=trainer)


def _lines_refused(old: Sequence[Run], new: Sequence[Run], files: Sequence[str]) -> Iterator[Refused]:
    for run, before, after in _lines(old, new, files):
        if before.error is None and after.error is not None:
            yield Refused(run.name, "parsers of the line", " ".join(after.error.split())[:200])


def _line_values(
    old: Sequence[Run], new: Sequence[Run], files: Sequence[str], told: Sequence[Mapping[str, Any]]
) -> Iterator[Value]:
    for run, before, after in _lines(old, new, files):
        if before.error is None and after.error is None and before.values.keys() == after.values.keys():
            yield from _differences(run.name, "line", before.values, after.values, told, set(run.files.values()))


def _settings(old: Sequence[Run], new: Sequence[Run], told: Sequence[Mapping[str, Any]]) -> Iterator[Value]:
    for before, after in _pairs(old, new):
        about = set(before.files.values())
        yield from _differences(before.name, "zerocfg", before.settings, after.settings, told, about)


def _differences(
    file: str,
    by: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    told: Sequence[Mapping[str, Any]],
    about: Collection[str],
) -> Iterator[Value]:
    for key in sorted({*before, *after}):
        if not _same(before.get(key), after.get(key)):
            gone = key not in after or after[key] == "None"
            codes = {one["code"] for one in told if _touches(one, about) and _speaks(one, key, gone)}
            yield Value(file, by, key, before.get(key), after.get(key), tuple(sorted(codes)))


def _same(one: str | None, other: str | None) -> bool:
    """Whether two values are one: 1 and 1.0 are."""
    if one is None or other is None:
        return one is other
    with suppress(ValueError):
        return one == other or float(one) == float(other)
    return False


def _touches(one: Mapping[str, Any], files: Collection[str]) -> bool:
    edited = [edit["file"] for edit in one["fix"]["edits"]] if one["fix"] is not None else []
    return not files.isdisjoint((one["file"], *edited, *(other["file"] for other in one["related"])))


@cache
def _also() -> Mapping[str, frozenset[str]]:
    """By a key of accelerate's config: the setting that it says, and the variables that carry it, in small letters."""
    known = settings("accelerate")
    found = {name: {setting.rpartition(".")[2]} for name, setting in known.items()}
    schema = load_schema("accelerate")
    for name, key in schema.root.keys.items():
        section = key.section(schema)
        for inner, one in {name: key, **(section.keys if section is not None else {})}.items():
            found.setdefault(inner, set()).update(variable.lower() for variable in one.variables)
    return {name: frozenset(others) for name, others in found.items()}


def _speaks(one: Mapping[str, Any], key: str, gone: bool) -> bool:
    """Whether a finding is about a value: by the keys that it names, and those that its fix writes; of what is gone,
    the section is enough."""
    written = [edit["text"] for edit in one["fix"]["edits"]] if one["fix"] is not None else []
    said = {word for text in (one["path"], one["message"], one["help"] or "", *written) for word in _WORD.findall(text)}
    said |= {other for word in said for other in _also().get(word, ())}
    said |= {word for full in said for word in (full.removeprefix("stage3_"), full.removeprefix("fsdp_"))}
    first, _, rest = key.partition(".")
    parts = ".".join(filter(None, (_ATTRIBUTES.get(first, first), rest))).lower().split(".")
    named = parts if gone else parts[-2:]
    return any(part in said for part in named) or any(parts[-1].endswith(f"_{word}") for word in said if "_" in word)
