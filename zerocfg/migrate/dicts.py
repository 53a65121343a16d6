"""Changes of a config that a script or a notebook writes out as a dict."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from zerocfg.migrate.program import Program, literal, program_of
from zerocfg.migrate.steps import Drop, Operation, Put
from zerocfg.run.model import SourceFile, original
from zerocfg.source.edit import Edit
from zerocfg.source.node import Document, Mapping, Path
from zerocfg.source.text import Span


def dropped(file: SourceFile, operations: Iterable[Operation]) -> Iterator[int]:
    """Where the keys begin that go."""
    for operation in operations:
        entry = (
            file.document.entry(operation.path) if isinstance(operation, Drop) and file.document is not None else None
        )
        if entry is not None:
            yield entry.key_span.start


def dict_edits(file: SourceFile, operations: Iterable[Operation], gone: Collection[int]) -> list[Edit]:
    """The operations as edits of the program. ``gone``: where keys begin that go, by whatever operation. Raises
    ValueError where one has no place in its text."""
    program = program_of(original(file))
    if program is None or file.document is None:
        raise ValueError("it stands within another file")
    return [edit for operation in operations for edit in _edits(program, file.document, operation, gone)]


def _edits(program: Program, document: Document, operation: Operation, gone: Collection[int]) -> tuple[Edit, ...]:
    entry = document.entry(operation.path)
    found = program.entry(entry.key_span.start) if entry is not None else None
    if isinstance(operation, Put) and entry is None:
        return _put(program, document, operation.path, operation.value, gone)
    if found is None:
        raise ValueError("the program does not write it out")
    key, value = program.span(found[0]), program.span(found[1])
    if isinstance(operation, Put):
        if not isinstance(found[1], ast.Constant):
            raise ValueError("the program works its value out")
        return program.replaced(value, literal(operation.value))
    if program.text[value.end :].lstrip()[:1] not in (",", "}", "#"):
        raise ValueError("its value stands in parentheses")
    assert isinstance(operation, Drop), "only arguments are renamed, and none is an entry of a config"
    return program.removed(key.start, value.end)


def _put(program: Program, document: Document, path: Path, value: object, gone: Collection[int]) -> tuple[Edit, ...]:
    """A new entry behind the last one that stays in the innermost section, on a line of its own where that has one."""
    depth = next(end for end in range(len(path) - 1, -1, -1) if end == 0 or document.get(path[:end]) is not None)
    holder = document.get(path[:depth]) if depth else document.root
    section = program.mapping(holder.span.start) if isinstance(holder, Mapping) else None
    if section is None or any(key is None for key in section.keys):
        raise ValueError("the program does not write its section out")
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    written = f"{literal(path[depth])}: {literal(value)}"
    kept = [item for item in zip(section.keys, section.values, strict=True) if not _among(program, item[0], gone)]
    if not kept:
        inside = program.span(section).start + 1
        return program.replaced(Span(inside, inside), written)
    last, last_value = kept[-1]
    assert last is not None
    entry = Span(program.span(last).start, program.span(last_value).end)
    if program.text[entry.end :].lstrip()[:1] not in (",", "}", "#"):
        raise ValueError("the value before it stands in parentheses")
    return program.added(entry, [written])


def _among(program: Program, key: ast.expr | None, starts: Collection[int]) -> bool:
    return key is not None and any(program.stands_at(key, start) for start in starts)
