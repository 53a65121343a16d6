"""Byte-exact edits: a fix is a list of replaced ranges, and everything outside them stays as it was."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from zerocfg.patterns import pattern
from zerocfg.record import record
from zerocfg.source.node import Document, Entry, Mapping, Node, Path, Scalar, Sequence, dotted
from zerocfg.source.text import Span

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN_KEY = pattern(r"[A-Za-z_][\w.-]*\Z", re.ASCII)
_NOT_TEXT = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_SKIP_JSON = pattern(r"(?:[ \t\r\n]|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SKIP_YAML = pattern(r"(?:[ \t\r\n]|(?<=[ \t\r\n])#[^\n]*)*")
_ANCHOR = pattern(r"&\S+[ \t]+")


@record(slots=True, frozen=True)
class Edit:
    """Replace the text of ``span`` by ``replacement``. An empty span inserts."""

    span: Span
    replacement: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text after all edits; spans refer to the text before. Raises ValueError when two overlap."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda e: e.span):
        start, end = edit.span
        if start < at or end < start or end > len(text):
            raise ValueError(f"edits overlap or leave the text at {start}")
        parts += (text[at:start], edit.replacement)
        at = end
    parts.append(text[at:])
    return "".join(parts)


def unified_diff(name: str, before: str, after: str) -> str:
    """The change as ``diff -u`` shows it; empty when there is none."""
    import difflib

    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def replace_value(doc: Document, path: Path, text: str) -> list[Edit]:
    """Give a key (or sequence item) another value; ``text`` is written as it is."""
    node = _node(doc, path)
    source = doc.source.text
    start, end = node.span
    if doc.format == "json":
        return [Edit(node.span, text)]
    entry = doc.entry(path)
    if entry is not None and "\n" in source[entry.key_span.end : start] and _is_block(doc, node):
        return [Edit(Span(_colon(source, entry), end), " " + text)]  # a: <line end> b: 1  ->  a: text
    anchor = _ANCHOR.match(source, start, end)
    if anchor:
        return [Edit(Span(anchor.end(), end), text)]
    if start < end:
        return [Edit(node.span, text)]
    before = source[:start].rstrip(" \t")[-1:]
    if before not in (":", "-"):
        return [Edit(node.span, ": " + text)]  # {key}
    return [Edit(node.span, text if source[start - 1 : start] in (" ", "\t") else " " + text)]


def rename_key(doc: Document, path: Path, new: str) -> list[Edit]:
    """Give a key another name, in the same kind of quotes."""
    _, entry, _ = _place(doc, path)
    raw = doc.source.text[entry.key_span.start : entry.key_span.end]
    if raw.startswith("'"):
        written = "'" + new.replace("\\", "\\\\").replace("'", "\\'") + "'"
        if doc.format == "yaml":
            written = "'" + new.replace("'", "''") + "'"
    else:
        written = _key(doc, new, quoted=raw.startswith('"'))
    return [Edit(entry.key_span, written)]


def delete_entry(doc: Document, path: Path) -> list[Edit]:
    """Remove a key with its value: whole lines where it has its own, and the comma it needs."""
    parent, entry, own = _place(doc, path)
    if doc.format == "yaml" and _is_block(doc, parent):
        return _delete_block(doc, path, parent, entry, own)
    return _delete_flow(doc, entry, own)


def delete_duplicate(doc: Document, path: Path, key_span: Span) -> list[Edit]:
    """Remove the one of several equal keys that is written at ``key_span``."""
    parent, _, own = _place(doc, path)
    entry = own[at] if (at := _index(own, key_span)) is not None else None
    if entry is None or entry.key != path[-1]:
        raise ValueError(f"{dotted(path)} is not written there")
    if doc.format == "yaml" and _is_block(doc, parent):
        return _delete_block(doc, path, parent, entry, own)
    return _delete_flow(doc, entry, own)


def insert_entry(doc: Document, parent: Path, key: str, value_text: str, after: str | None = None) -> list[Edit]:
    """Add ``key: value`` to a mapping, behind the key ``after`` or at its end; ``value_text`` as it is."""
    text = doc.source.text
    if doc.root is None and not parent and doc.format == "yaml":
        gap = "" if not text or text.endswith("\n") else _line_end(text)
        return [Edit(Span(len(text), len(text)), f"{gap}{_key(doc, key)}: {value_text}{_line_end(text)}")]
    node = _node(doc, parent)
    written = f"{_key(doc, key)}: {value_text}"
    if isinstance(node, Scalar) and node.value is None and node.span.start == node.span.end and parent:
        holder = doc.entry(parent)
        if holder is None:
            raise ValueError(f"{dotted(parent)} is not a mapping")
        end = _end_of_line(text, node.span.end)
        indent = " " * (_column(text, holder.key_span.start) + 2)
        return [Edit(Span(end, end), f"{_line_end(text)}{indent}{written}")]
    if not isinstance(node, Mapping):
        raise ValueError(f"{dotted(parent)} is not a mapping")
    own = node.own()
    if not own:
        if text[node.span.start : node.span.start + 1] != "{":
            raise ValueError(f"{dotted(parent)} has no entry to stand beside")
        return [Edit(Span(node.span.start + 1, node.span.start + 1), written)]
    neighbour = next((e for e in reversed(own) if e.key == after), own[-1])
    if doc.format == "yaml" and _is_block(doc, node):
        end = _end_of_line(text, _entry_end(text, neighbour, doc))
        indent = " " * _column(text, neighbour.key_span.start)
        return [Edit(Span(end, end), f"{_line_end(text)}{indent}{written}")]
    return _insert_flow(doc, neighbour, written)


def _insert_flow(doc: Document, neighbour: Entry, written: str) -> list[Edit]:
    text = doc.source.text
    start, end = neighbour.key_span.start, _entry_end(text, neighbour, doc)
    own_line = not text[_line_start(text, start) : start].strip()
    if not own_line:
        return [Edit(Span(end, end), f", {written}")]
    break_ = _line_end(text) + text[_line_start(text, start) : start]
    value = neighbour.value
    bare = isinstance(value, Scalar) and isinstance(value.value, str) and not value.quoted
    if doc.format == "json" and bare:
        stop = _end_of_line(text, end)  # a comma would become part of the unquoted text
        return [Edit(Span(stop, stop), break_ + written)]
    comma = _comma(doc, end)
    stop = _end_of_line(text, end if comma is None else comma + 1)
    rest = text[end if comma is None else comma + 1 : stop].strip()
    if comma is not None and (not rest or rest.startswith(("#", "//"))) and "\n" not in text[end:comma]:
        return [Edit(Span(stop, stop), f"{break_}{written},")]
    if comma is None and rest.startswith(("#", "//")):
        return [Edit(Span(end, end), ","), Edit(Span(stop, stop), break_ + written)]
    return [Edit(Span(end, end), f",{break_}{written}")]


def _delete_flow(doc: Document, entry: Entry, own: list[Entry]) -> list[Edit]:
    text = doc.source.text
    start, end = entry.key_span.start, _entry_end(text, entry, doc)
    comma = _comma(doc, end)
    if comma is not None:
        end = comma + 1
    edits: list[Edit] = []
    index = _index(own, entry.key_span)
    if index and comma is None and index == len(own) - 1:
        before = _comma(doc, _entry_end(text, own[index - 1], doc))
        if before is not None:
            if not text[before + 1 : start].strip() and "\n" not in text[before:start]:
                start = before
            else:
                edits.append(Edit(Span(before, before + 1), ""))
    line, stop = _line_start(text, start), _end_of_line(text, end)
    rest = text[end:stop].strip()
    if not text[line:start].strip() and (not rest or rest.startswith(("#", "//"))):
        return [*edits, Edit(_lines(text, line, stop), "")]
    if comma is not None:
        while end < len(text) and text[end] in " \t":
            end += 1
    return [*edits, Edit(Span(start, end), "")]


def _delete_block(doc: Document, path: Path, parent: Mapping, entry: Entry, own: list[Entry]) -> list[Edit]:
    text = doc.source.text
    if len(own) == 1 and len(parent.entries) == 1:
        return _empty_block(doc, path, entry)
    index = _index(own, entry.key_span) or 0
    start = entry.key_span.start
    line = _line_start(text, start)
    if text[line:start].strip():  # behind a dash: "- a: 1"
        if index + 1 < len(own):
            return [Edit(Span(start, own[index + 1].key_span.start), "")]
        raise ValueError(f"{dotted(path)} does not start a line")
    return [Edit(_lines(text, line, _end_of_line(text, _entry_end(text, entry, doc))), "")]


def _empty_block(doc: Document, path: Path, last: Entry) -> list[Edit]:
    """``{}`` in place of the last entry; comments around it stay."""
    text = doc.source.text
    holder = doc.entry(path[:-1]) if len(path) > 1 else None
    colon = _colon(text, holder) if holder is not None else 0
    line = _line_start(text, last.key_span.start)
    head = text[colon : _end_of_line(text, colon)].strip()
    own_lines = holder is not None and line > colon and not text[line : last.key_span.start].strip()
    if not own_lines or (head and not head.startswith("#")):  # what stands there is an anchor or a tag
        return replace_value(doc, path[:-1], "{}")
    return [
        Edit(Span(colon, colon), " {}"),
        Edit(_lines(text, line, _end_of_line(text, _entry_end(text, last, doc))), ""),
    ]


def _lines(text: str, start: int, end: int) -> Span:
    """Whole lines, with a line end: their own, or of the last line the one before."""
    if end < len(text):
        return Span(start, text.index("\n", end) + 1)
    if start and text[start - 1] == "\n":
        start -= 2 if text[start - 2 : start] == "\r\n" else 1
    return Span(start, end)


def _node(doc: Document, path: Path) -> Node:
    """The node at a path that passes through nothing shared; raises ValueError otherwise."""
    node = doc.root
    for index, part in enumerate(path):
        above = node
        node = doc.get(path[: index + 1])
        if node is None or above is None:
            raise ValueError(f"{dotted(path)} is not in the document")
        if not (above.span.start <= node.span.start and node.span.end <= above.span.end):
            raise ValueError(f"{dotted(path)} comes from an anchor elsewhere in the file")
        if isinstance(above, Mapping) and isinstance(part, str):
            entry = above.entry(part)
            if entry is None or not above.holds(entry):
                raise ValueError(f"{dotted(path)} comes from an anchor elsewhere in the file")
    if node is None:
        raise ValueError("the document holds nothing")
    return node


def _place(doc: Document, path: Path) -> tuple[Mapping, Entry, list[Entry]]:
    """The mapping that holds the last key of the path, the entry, and the mapping's own entries."""
    _node(doc, path)
    parent = _node(doc, path[:-1]) if path else None
    entry = doc.entry(path)
    if not isinstance(parent, Mapping) or entry is None:
        raise ValueError(f"{dotted(path)} is not a key of a mapping")
    before = doc.source.text[_line_start(doc.source.text, entry.key_span.start) : entry.key_span.start]
    if doc.format == "yaml" and before.rstrip().endswith("?"):
        raise ValueError(f"{dotted(path)} is written as a complex key")
    return parent, entry, parent.own()


def _index(own: list[Entry], key: Span) -> int | None:
    """Which of a mapping's entries has its key there. They are in the order of the text, but for those that a merge key
    brought in from further inside."""
    at = bisect_left(own, key.start, key=lambda entry: entry.key_span.start)
    if at < len(own) and own[at].key_span == key:
        return at
    return next((at for at, entry in enumerate(own) if entry.key_span == key), None)


def _is_block(doc: Document, node: Node) -> bool:
    if isinstance(node, Scalar):
        return False
    text = doc.source.text[node.span.start : node.span.end]
    text = re.sub(r"^(?:[&!]\S*\s+)+", "", text)
    return text[:1] not in ("{", "[", "*") or (isinstance(node, Sequence) and text.startswith("{"))


def _entry_end(text: str, entry: Entry, doc: Document) -> int:
    if doc.format == "yaml" and entry.value.span.start == entry.value.span.end:
        return max(entry.value.span.end, _colon(text, entry))
    return max(entry.value.span.end, entry.key_span.end)


def _colon(text: str, entry: Entry) -> int:
    """The offset behind the colon of an entry."""
    found = text.find(":", entry.key_span.end, max(entry.value.span.start, entry.key_span.end) + 1)
    return entry.key_span.end if found < 0 else found + 1


def _comma(doc: Document, at: int) -> int | None:
    skip = _SKIP_JSON if doc.format == "json" else _SKIP_YAML
    at = skip.match(doc.source.text, at).end()  # type: ignore[union-attr]
    return at if doc.source.text.startswith(",", at) else None


def _key(doc: Document, key: str, quoted: bool = False) -> str:
    if doc.format == "yaml" and not quoted and _PLAIN_KEY.match(key) and key.lower() not in _NOT_TEXT:
        return key
    import json

    return json.dumps(key, ensure_ascii=False)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _end_of_line(text: str, at: int) -> int:
    """Before the line end of the line that holds ``at``."""
    end = text.find("\n", at)
    if end < 0:
        return len(text)
    return end - 1 if end > at and text[end - 1] == "\r" else end


def _column(text: str, at: int) -> int:
    start = _line_start(text, at)
    return at - start - (1 if text.startswith("\ufeff", start) else 0)
