"""The steps of a migration: changes of one file each, and places that need a manual change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from zerocfg.rules.api import Location
from zerocfg.rules.moving import placed
from zerocfg.rules.renaming import written
from zerocfg.run.model import SourceFile
from zerocfg.source.edit import Edit, apply_edits, delete_entry, rename_key, replace_value
from zerocfg.source.load import load_as
from zerocfg.source.node import Document, Path
from zerocfg.source.text import SourceText, Span


@dataclass(frozen=True, slots=True)
class Rename:
    """A key gets another name and keeps its value as it is written."""

    path: Path
    new: str


@dataclass(frozen=True, slots=True)
class Put:
    """Sets a key to a value; the key and the sections around it are created where they are missing."""

    path: Path
    value: object


@dataclass(frozen=True, slots=True)
class Drop:
    """A key goes."""

    path: Path


Operation = Rename | Put | Drop


@dataclass(frozen=True, slots=True)
class Step:
    """One change that keeps the meaning: ``operations`` on the document at the place, or ``edits`` of its text.
    ``names``: the arguments whose default it writes out; ``lines``: the places of the launch lines that it is for."""

    at: Location
    why: str
    operations: tuple[Operation, ...] = ()
    edits: tuple[Edit, ...] = ()
    names: tuple[str, ...] = ()
    lines: frozenset[Span] = frozenset()

    @property
    def what(self) -> tuple[object, ...]:
        """The change itself, without its reason."""
        return (*self.operations, *self.edits)


@dataclass(frozen=True, slots=True)
class Left:
    """A place that needs a manual change, and why. ``names``: the arguments whose default is another one."""

    at: Location
    why: str
    names: tuple[str, ...] = ()


def editable(file: SourceFile) -> bool:
    """Whether the file as a whole is a document that edits can be made in: no page or script that holds one."""
    document = file.document
    if document is None or document.root is None or not document.editable or file.path is None:
        return False
    return file.path.suffix.lower() in (".json", ".hjson", ".yaml", ".yml", ".conf", ".cfg", "")


def changed(file: SourceFile, text: str, operations: Iterable[Operation]) -> str:
    """A text of the file after operations on the document in it. Raises ValueError where one has no place there."""
    assert file.document is not None
    for operation in operations:
        document = load_as(SourceText(file.source.name, text), file.document.format)
        text = apply_edits(text, _edits(file, document, operation))
    return text


def _edits(file: SourceFile, document: Document, operation: Operation) -> list[Edit]:
    if isinstance(operation, Rename):
        return rename_key(document, operation.path, operation.new)
    if isinstance(operation, Drop):
        return delete_entry(document, operation.path)
    text = as_text(file, operation.value)
    if text is None:
        raise ValueError("the value cannot be written there")
    if document.get(operation.path) is not None:
        return replace_value(document, operation.path, text)
    return placed(document, operation.path, text)


def as_text(file: SourceFile, value: object) -> str | None:
    """A value as the file's language has it. YAML 1.1 takes 1e-05 for a text: a number gets its dot and sign."""
    if isinstance(value, float) and "e" in (plain := json.dumps(value)):
        mantissa, _, exponent = plain.partition("e")
        return (
            f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"
        )
    return written(file, value)
