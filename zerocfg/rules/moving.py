"""Fixes that take a value to the place where somebody reads it, in the same file or in another one."""

from __future__ import annotations

import json

from zerocfg.rules.api import Fix
from zerocfg.rules.intents import written_at
from zerocfg.run.model import SourceFile
from zerocfg.source.edit import Edit, delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.node import Document, Mapping, Path


def moved(file: SourceFile, path: Path, to: SourceFile, target: Path, text: str, why: str) -> Fix | None:
    """Delete the entry at ``path`` and write ``text`` at ``target``, in both files or in neither.

    None where the target is taken or leaves no room. The value begins to count, so the fix is not a safe one.
    """
    if file.document is None or to.document is None:
        return None
    try:
        if to is file and _there(file.document, target) == path[:-1]:
            new = _nested(target[len(path) :], text)
            rewritten = rename_key(file.document, path, str(target[len(path) - 1]))
            if new != text_at(file, path):
                rewritten += replace_value(file.document, path, new)
            return Fix(why, tuple((file, edit) for edit in rewritten), False, written_at(to, target, text))
        edits = [(file, edit) for edit in delete_entry(file.document, path)]
        edits += [(to, edit) for edit in placed(to.document, target, text, path if to is file else ())]
    except ValueError:
        return None
    return Fix(why, tuple(edits), False, written_at(to, target, text))


def placed(document: Document, path: Path, text: str, gone: Path = ()) -> list[Edit]:
    """Edits that write a value at a path that is not there yet, with the sections around it. Raises ValueError.

    ``gone``: what another edit removes from the same document; a block of YAML may end where that ends.
    """
    known = _there(document, path)
    text = _nested(path[len(known) + 1 :], text)
    root = document.root
    after = None
    if document.format == "yaml" and gone and not known and isinstance(root, Mapping):
        after = next((entry.key for entry in root.entries if entry.key != gone[0]), None)
    return insert_entry(document, known, str(path[len(known)]), text, after)


def _there(document: Document, path: Path) -> Path:
    """The part of a path that the document has already. Raises ValueError when the rest cannot be added to it."""
    known: Path = ()
    while len(known) < len(path) and document.get((*known, path[len(known)])) is not None:
        known = (*known, path[len(known)])
    if known == path:
        raise ValueError("the key is there already")
    if known and not isinstance(document.get(known), Mapping):
        raise ValueError("the section is no mapping")
    return known


def _nested(names: Path, text: str) -> str:
    for name in reversed(names):
        text = f"{{{json.dumps(name)}: {text}}}"
    return text


def text_at(file: SourceFile, path: Path) -> str | None:
    """The value at a path as it is written there."""
    node = file.document.get(path) if file.document is not None else None
    return None if node is None else file.source.text[node.span.start : node.span.end]


def as_json(value: object) -> str | None:
    """A value of a YAML file as JSON has it; None for what JSON cannot say."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return None
