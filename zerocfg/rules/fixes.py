"""Fixes made of the edits of :mod:`zerocfg.source.edit`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zerocfg.record import replace
from zerocfg.rules.api import Fix, Intent
from zerocfg.rules.intents import meant, written_at
from zerocfg.run.model import UNKNOWN, SourceFile
from zerocfg.source.edit import Edit, apply_edits, delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.load import load_as
from zerocfg.source.node import Path
from zerocfg.source.text import SourceText, Span


def edited(
    edit: Callable[..., list[Edit]],
    file: SourceFile | None,
    path: Path,
    *values: str,
    why: str,
    safe: bool = True,
    after: str | None = None,
) -> Fix | None:
    """A fix by one of the edits of `zerocfg.source.edit`; None where the file leaves no room for it."""
    if file is None or file.document is None:
        return None
    try:
        edits = edit(file.document, path, *values, **({"after": after} if after else {}))
    except ValueError:
        return None
    return Fix(why, tuple((file, item) for item in edits), safe, meant(edit, file, path, values), edit is rename_key)


def together(why: str, *fixes: Fix | None, safe: bool = True) -> Fix | None:
    """One fix out of several; None as soon as one of them is not possible."""
    parts = [fix for fix in fixes if fix is not None]
    if not parts or len(parts) < len(fixes):
        return None
    edits = tuple(edit for fix in parts for edit in fix.edits)
    gives = tuple(intent for fix in parts for intent in fix.gives)
    return Fix(why, edits, safe, gives, any(fix.renames for fix in parts))


def rewritten(file: SourceFile | None, path: Path, new: str, text: str, *, why: str, safe: bool = True) -> Fix | None:
    """A fix that gives an entry another name and another value."""
    if file is None or file.document is None:
        return None
    try:
        edits = rename_key(file.document, path, new) + replace_value(file.document, path, text)
    except ValueError:
        return None
    gives = written_at(file, (*path[:-1], new), text)
    return Fix(why, tuple((file, edit) for edit in edits), safe, gives, renames=True)


def giving(fix: Fix | None, name: str, value: object) -> Fix | None:
    """The fix, to be kept only where it gives the setting this value; one that nobody knows demands nothing."""
    return fix if fix is None or value is UNKNOWN else replace(fix, gives=(*fix.gives, Intent(name, value)))


def put(
    file: SourceFile | None, path: Path, text: str, *, why: str, safe: bool = False, after: str | None = None
) -> Fix | None:
    """A fix that gives a key a value, whether the key is there or not; the mapping around it has to be."""
    if present(file, path):
        return edited(replace_value, file, path, text, why=why, safe=safe)
    return edited(insert_entry, file, path[:-1], str(path[-1]), text, why=why, safe=safe, after=after)


def without(file: SourceFile | None, paths: Iterable[Path], why: str, *, safe: bool = True) -> Fix | None:
    """A fix that removes several keys at once. Their commas meet, so each is taken out of what the others leave."""
    if file is None or file.document is None:
        return None
    text = before = file.source.text
    for path in paths:
        document = load_as(SourceText(file.source.name, text), file.document.format)
        try:
            text = apply_edits(text, delete_entry(document, path))
        except ValueError:
            return None
    start = _alike(before, text)
    end = _alike(before[start:][::-1], text[start:][::-1])
    edit = Edit(Span(start, len(before) - end), text[start : len(text) - end])
    return Fix(why, ((file, edit),), safe)


def _alike(item: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    return next((at for at, pair in enumerate(zip(item, other, strict=False)) if pair[0] != pair[1]), len(other))


def present(file: SourceFile | None, path: Path) -> bool:
    return file is not None and file.document is not None and file.document.get(path) is not None
