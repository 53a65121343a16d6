"""``zerocfg diff --releases``: what changes for some files from one set of releases to another."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from zerocfg.catalog.versions import library_name
from zerocfg.compare.sides import Value
from zerocfg.compare.values import ABSENT, shown
from zerocfg.linter.engine import Diagnostic
from zerocfg.linter.selection import Selection
from zerocfg.migrate.impact import Impact, KeyChange, impact
from zerocfg.migrate.outcome import Changed
from zerocfg.migrate.releases import ReleasesError, parse_releases, pinned_releases
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import folded
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import find_settings


def diff_releases(new: str, words: tuple[str, ...], output_format: str) -> bool:
    """Print what changes; returns whether something does. Raises click.UsageError.

    ``words``: the paths, and releases where two sets are named: ``new`` is the older one of them then.
    """
    sets = [new, *(word for word in words if "==" in word)]
    if len(sets) > 2:
        raise click.UsageError(f"'{sets[2]}' is a third set of releases; name one or two")
    try:
        *old, other = map(parse_releases, sets)
    except ReleasesError as error:
        raise click.UsageError(str(error)) from None
    targets = [Path(word) for word in words if "==" not in word] or [Path()]
    missing = next((path for path in targets if not path.exists()), None)
    if missing is not None:
        raise click.UsageError(f"there is no file or folder '{missing}'")
    settings = find_settings(targets[0] if targets[0].is_dir() else targets[0].parent)
    job = Job(targets, settings, Selection())
    with Working("comparing", job.progress):
        unread = job.find_targets()
        runs = job.included
        found = impact(runs, old[0] if old else {}, other)
    if unread:
        raise click.UsageError(f"'{unread[0].file}' was not read: {unread[0].reason}")
    if not runs:
        raise click.UsageError(f"there is no config in {', '.join(map(repr, map(str, targets)))}")
    one = old[0] if old else pinned_releases(runs, other)
    if not one:
        raise click.UsageError(
            f"the project pins no release of {' or '.join(map(library_name, other))}; "
            f"name the old ones, too: --releases OLD {new}"
        )
    if output_format == "json":
        click.echo(as_data(one, other, found), nl=False)
    else:
        click.echo(folded(as_text(one, other, found), columns(sys.stdout)), nl=False)
    return found.breaks


def as_text(item: Mapping[str, str], other: Mapping[str, str], found: Impact) -> str:
    lines = [f"- {_named(item)}", f"+ {_named(other)}"]
    blocks = [
        ("findings that come", [_finding(each) for each in found.comes]),
        ("findings that go", [_finding(each) for each in found.goes]),
        ("settings", [row for each in found.settings for row in _settings(each)]),
        ("keys", [f"{_place(each)}: {_words(each)}" for each in found.keys]),
    ]
    for title, rows in blocks:
        if rows:
            lines += ["", f"{title}:", *(f"  {row}" for row in rows)]
    if len(lines) == 2:
        lines += ["", "nothing changes for these files"]
    return "\n".join(lines) + "\n"


def _named(releases: Mapping[str, str]) -> str:
    return ", ".join(f"{library_name(library)} {version}" for library, version in releases.items())


def _finding(diagnostic: Diagnostic) -> str:
    start = diagnostic.span.start
    place = f"{diagnostic.span.file.name}:{start.line}:{start.column}"
    return f"{place}: {diagnostic.severity.value} {diagnostic.code} {diagnostic.message}"


def _settings(item: Changed) -> list[str]:
    return [f"{item.run}: {each.name} {_value(each.a)} -> {_value(each.b)}" for each in item.differences]


def _value(value: Value | None) -> str:
    return shown(ABSENT if value is None else value.value)


def _place(key_change: KeyChange) -> str:
    return f"{key_change.span.file.name}:{key_change.span.start.line}:{key_change.span.start.column}"


def _words(key_change: KeyChange) -> str:
    edge = f" {library_name(key_change.library)} {key_change.since}" if key_change.since else ""
    if key_change.kind == "default":
        now, before = shown(key_change.after), shown(key_change.before)
        return f"the default of `{key_change.name}` is {now}, was {before} (since{edge})"
    said = {
        "gone": f"`{key_change.name}` is gone",
        "new": f"`{key_change.name}` is new",
        "refused": f"`{key_change.name}: {shown(key_change.before)}` is refused",
        "accepted": f"`{key_change.name}: {shown(key_change.before)}` is accepted",
    }[key_change.kind]
    return (
        said
        + (f" (since{edge})" if edge else "")
        + (f"; `{key_change.instead}` takes its place" if key_change.instead else "")
    )


def as_data(item: Mapping[str, str], other: Mapping[str, str], found: Impact) -> str:
    data = {
        "version": 1,
        "same": found.same,
        "a": dict(item),
        "b": dict(other),
        "comes": [_diagnostic(each) for each in found.comes],
        "goes": [_diagnostic(each) for each in found.goes],
        "settings": [
            {"run": each.run, "key": one_.name, "a": _value(one_.a), "b": _value(one_.b)}
            for each in found.settings
            for one_ in each.differences
        ],
        "keys": [_key(each) for each in found.keys],
    }
    return json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"


def _diagnostic(diagnostic: Diagnostic) -> dict[str, object]:
    start = diagnostic.span.start
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "file": diagnostic.span.file.name,
        "path": diagnostic.span.path,
        "line": start.line,
        "column": start.column,
    }


def _key(key_change: KeyChange) -> dict[str, object]:
    data: dict[str, object] = {
        "file": key_change.span.file.name,
        "line": key_change.span.start.line,
        "column": key_change.span.start.column,
        "library": key_change.library,
        "key": key_change.name,
        "change": key_change.kind,
        "since": key_change.since,
    }
    if key_change.kind == "default":
        data |= {"a": key_change.before, "b": key_change.after}
    return data | ({"instead": key_change.instead} if key_change.instead else {})
