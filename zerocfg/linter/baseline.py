"""Findings that a repository lives with: known by what was written where, not by line, so that edits keep them known.

A baseline is a JSON file. Each entry is a code, a file, a key path, a fingerprint of the value and how often that
occurs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping as Table
from dataclasses import replace
from pathlib import Path

from zerocfg.linter.engine import Diagnostic, Result, Suppressed
from zerocfg.source import disk
from zerocfg.source.node import Mapping, plain

Entry = tuple[str, str, str, str]
"""Code, file (relative to the baseline), key path, fingerprint."""


def entry_of(diagnostic: Diagnostic, folder: Path) -> Entry:
    span = diagnostic.span
    return (diagnostic.code, _relative(diagnostic, folder), span.path, fingerprint(diagnostic))


def _relative(diagnostic: Diagnostic, folder: Path) -> str:
    path = diagnostic.span.file.path
    if path is None:
        return diagnostic.span.file.name
    real = disk.resolved(path)
    return real.relative_to(folder).as_posix() if real.is_relative_to(folder) else real.as_posix()


def fingerprint(diagnostic: Diagnostic) -> str:
    """Of the value found, wherever it stands. A section has none: what is in it may change for other reasons."""
    span = diagnostic.span
    document = span.file.document
    node = document.get(span.keys) if document is not None and span.keys else None
    if isinstance(node, Mapping):
        return ""
    if node is not None:
        value = json.dumps(plain(node), sort_keys=True, default=str)
    else:
        source = span.file.source
        start, end = (source.offset(place.line - 1, place.column - 1) for place in (span.start, span.end))
        value = " ".join(source.text[start:end].split())
    from hashlib import sha256

    return sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:12] if value else ""


def baseline_text(result: Result, folder: Path) -> str:
    """The baseline that knows everything found; one entry a line, in a stable order."""
    counts = Counter(entry_of(diagnostic, folder) for diagnostic in result.diagnostics)
    lines = [
        json.dumps({"code": code, "file": file, "path": path, "value": value, "count": count}, ensure_ascii=False)
        for (code, file, path, value), count in sorted(counts.items())
    ]
    body = "\n    " + ",\n    ".join(lines) + "\n  " if lines else ""
    return f'{{\n  "version": 1,\n  "findings": [{body}]\n}}\n'


def read_baseline(text: str) -> dict[Entry, int]:
    """The entries with their counts. Raises ValueError with what is wrong."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict) or data.get("version") != 1 or not isinstance(data.get("findings"), list):
        raise ValueError('it is no baseline ("version": 1 and a list of "findings" are expected)')
    known: Counter[Entry] = Counter()
    for item in data["findings"]:
        entry, count = _entry(item)
        known[entry] += count
    return dict(known)


def _entry(item: object) -> tuple[Entry, int]:
    if not isinstance(item, dict):
        raise ValueError("an entry is not an object")
    code, file, path, value = fields = [item.get(name) for name in ("code", "file", "path", "value")]
    if not all(isinstance(field, str) for field in fields):
        raise ValueError("an entry lacks its code, file, path or value")
    count = item.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError("the count of an entry is not a number above 0")
    return (str(code), str(file), str(path), str(value)), count


def without_known(result: Result, known: Table[Entry, int], folder: Path, looked_at: frozenset[str]) -> Result:
    """The findings that the baseline does not know, and how many of its entries no longer occur.

    An entry can only be missed when its rule ran and its file was looked at; ``looked_at`` holds real paths.
    """
    left = Counter(known)
    fresh, suppressed = [], list(result.suppressed)
    for diagnostic in result.diagnostics:
        entry = entry_of(diagnostic, folder)
        if left[entry] > 0:
            left[entry] -= 1
            suppressed.append(Suppressed(diagnostic, "baseline"))
        else:
            fresh.append(diagnostic)
    stale = sum(
        count
        for (code, file, _, _), count in left.items()
        if count > 0 and code in result.ran and str(folder / file) in looked_at
    )
    return replace(result, diagnostics=fresh, suppressed=suppressed, stale=stale)
