"""Answers about one place in one open document: hover, completion, definition, links."""

from __future__ import annotations

from lsprotocol.types import (
    CompletionList,
    DocumentLink,
    Hover,
    Location,
    MarkupContent,
    MarkupKind,
    Position,
    Range,
)

from zerocfg.linter.engine import real_name
from zerocfg.lsp.completion import complete
from zerocfg.lsp.cursor import in_json, in_yaml
from zerocfg.lsp.documents import Document, file_uri
from zerocfg.lsp.hover import hover, origins, start_of
from zerocfg.lsp.keys import place_in
from zerocfg.lsp.links import links
from zerocfg.lsp.positions import lines_of
from zerocfg.lsp.session import Reading, Session
from zerocfg.run.model import Run
from zerocfg.source.launch.line import Option
from zerocfg.source.node import Path, walk
from zerocfg.source.text import Span


async def hover_text(session: Session, uri: str, position: Position) -> Hover | None:
    snapshot = await session.snapshot(uri)
    document = session.documents.open.get(uri)
    if document is None:
        return None
    lines = lines_of(document.text, session.encoding)
    offset = lines.offset(position)
    runs = session.runs(snapshot, document.path)
    reading = session.reading(document, snapshot)
    if reading is None:
        option = _option_at(runs, document, offset)
        if option is None:
            return None
        name = option.plain
        data = {name: None, "per_device_train_batch_size": None}
        # An option of the script is a training argument, one of the launcher a key of the accelerate config.
        kind = "recipe" if any(option in run.launch.script_options for run in runs if run.launch) else "accelerate"
        text = hover(place_in(kind, data, ()), (name,), runs, document.path, option.span, session.documents.uri_of)
        return _shown(text, lines.range(option.span))
    keys, span = _key_at(reading, document.text, offset)
    if not keys:
        return None
    place = place_in(reading.kind, reading.data, keys[:-1])
    return _shown(hover(place, keys, runs, document.path, None, session.documents.uri_of), lines.range(span))


def _shown(text: str, where: Range) -> Hover | None:
    return Hover(MarkupContent(MarkupKind.Markdown, text), where) if text else None


async def completions(session: Session, uri: str, position: Position, trigger: str | None) -> CompletionList:
    # The last snapshot will do: who types waits for nothing.
    document = session.documents.open.get(uri)
    snapshot = session.latest(uri)
    reading = session.reading(document, snapshot) if document is not None else None
    if document is None or reading is None:
        return CompletionList(is_incomplete=False, items=[])
    lines = lines_of(document.text, session.encoding)
    offset = lines.offset(position)
    if trigger in (" ", ":") and not document.text[:offset].rstrip(" ").endswith(":"):
        return CompletionList(is_incomplete=False, items=[])
    consumers = {run.consumer for run in session.runs(snapshot, document.path)}
    items = complete(reading.kind, reading.form, lines, offset, reading.data, consumers)
    # Other names are offered once they are begun: ask again at the next letter.
    return CompletionList(is_incomplete=True, items=items)


async def definitions(session: Session, uri: str, position: Position) -> list[Location]:
    """The file that a value names; else the places whose values take the place of the key."""
    snapshot = await session.snapshot(uri)
    document = session.documents.open.get(uri)
    if document is None or document.path is None:
        return []
    lines = lines_of(document.text, session.encoding)
    offset = lines.offset(position)
    runs = session.runs(snapshot, document.path)
    targets = [link.target for link in links(runs, document.path) if link.span.start <= offset <= link.span.end]
    if targets:
        start = Position(0, 0)
        return [Location(session.documents.uri_of(target), Range(start, start)) for target in dict.fromkeys(targets)]
    reading = session.reading(document, snapshot)
    span: Span | None = None
    keys: Path = ()
    if reading is None:
        option = _option_at(runs, document, offset)
        span = option.span if option is not None else None
    else:
        keys, _ = _key_at(reading, document.text, offset)
    found: list[Location] = []
    for origin in origins(runs, document.path, keys, span):
        if origin.file is not None and origin.file.path is not None:
            there = lines_of(origin.file.source.text, session.encoding)
            place = Location(session.documents.uri_of(real_name(origin.file)), there.range(start_of(origin)))
            if place not in found:
                found.append(place)
    return found


async def link_targets(session: Session, uri: str) -> list[DocumentLink]:
    snapshot = await session.snapshot(uri)
    document = session.documents.open.get(uri)
    if document is None or document.path is None:
        return []
    lines = lines_of(document.text, session.encoding)
    runs = session.runs(snapshot, document.path)
    return [
        DocumentLink(lines.range(link.span), target=file_uri(link.target), tooltip="Open the file that this names")
        for link in links(runs, document.path)
    ]


def _option_at(runs: list[Run], document: Document, offset: int) -> Option | None:
    """The option of a launch line at an offset, its value included."""
    for run in runs:
        if run.launch is None or run.launch_file is None or real_name(run.launch_file) != document.path:
            continue
        for option in (*run.launch.options, *run.launch.script_options):
            end = option.value.span.end if option.value is not None else option.span.end
            if option.span.start <= offset <= max(end, option.span.end):
                return option
    return None


def _key_at(reading: Reading, text: str, offset: int) -> tuple[Path, Span]:
    """The key at an offset, on the key itself or on its plain value, with what to underline."""
    if reading.tree is not None and reading.tree.root is not None:
        best: tuple[Path, Span] = ((), Span(0, 0))
        for path, node, entry in walk(reading.tree.root):
            if entry is not None and entry.key_span.start <= offset <= entry.key_span.end:
                return path, entry.key_span
            if node.span.start <= offset <= node.span.end and entry is not None and not _has_parts(node):
                best = path, Span(entry.key_span.start, node.span.end)
        return best
    cursor = in_json(text, offset) if reading.form == "json" else in_yaml(text, offset)
    if cursor is None:
        return (), Span(0, 0)
    word = cursor.key if cursor.at == "value" else text[cursor.typed.start : cursor.typed.end].strip("\"'")
    return ((*cursor.path, word), cursor.typed) if word else ((), Span(0, 0))


def _has_parts(node: object) -> bool:
    return bool(getattr(node, "entries", None))
