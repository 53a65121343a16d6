"""JSON as its two readers see it: strict ``json`` (accelerate, transformers) and ``hjson`` (DeepSpeed).

The strict grammar is tried first; nearly every file passes. A text that it refuses is read again by
:mod:`zerocfg.source.hjson_scanner`, which accepts what DeepSpeed accepts and notes each construct that
strict JSON lacks. ``Document.readers`` keeps both verdicts.
"""

from __future__ import annotations

import re
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]

from zerocfg.budgets import DEPTH
from zerocfg.source.hjson_scanner import JsonError, duplicate_key, scan_hjson
from zerocfg.source.node import Document, Entry, Mapping, Node, Path, Problem, Scalar, Sequence
from zerocfg.source.text import SourceText, Span

_SPACE = re.compile(r"[ \t\n\r]*").match
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?").match
_WORDS: dict[str, tuple[str, object]] = {
    "n": ("null", None),
    "t": ("true", True),
    "f": ("false", False),
    "N": ("NaN", float("nan")),
    "I": ("Infinity", float("inf")),
    "-": ("-Infinity", float("-inf")),
}


def read_json(source: SourceText) -> Document:
    """The document of a JSON text. Never raises; what could not be read is in ``problems``."""
    text = source.text
    document = Document(source, "json", None, readers={"json": False, "hjson": False})
    strict = _Strict(text)
    try:
        document.root = strict.document()
    except JsonError as refused:
        _read_hjson(document, refused)
        return document
    document.problems = strict.problems
    document.readers["json"] = True
    document.readers["hjson"] = True
    if strict.readers_differ:
        try:
            scan_hjson(text)
        except JsonError:
            document.readers["hjson"] = False
    return document


def _read_hjson(document: Document, strict: JsonError) -> None:
    text = document.source.text
    if strict.kind == "too-deep":
        document.problems.append(strict.problem(text))
        return
    try:
        document.root, document.problems = scan_hjson(text)
        document.readers["hjson"] = True
    except JsonError as loose:
        # Strict JSON stops at the first thing that is not JSON, which is the mistake itself unless the author
        # wrote comments on purpose; hjson takes a broken word for text and stops much later.
        on_purpose = loose.noticed or loose.kind != "syntax"
        document.problems.append((loose if on_purpose else strict).problem(text))


class _Strict:
    """Recursive descent over the grammar that Python's ``json`` module accepts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self.readers_differ = False

    def document(self) -> Node:
        text = self.text
        node, end = self._value(_SPACE(text, 0).end(), (), 0)  # type: ignore[union-attr]
        end = _SPACE(text, end).end()  # type: ignore[union-attr]
        if end != len(text):
            raise JsonError("text after the end of the document", end)
        return node

    def _value(self, at: int, path: Path, depth: int) -> tuple[Node, int]:
        text = self.text
        first = text[at : at + 1]
        if first == '"':
            return self._string(at)
        if first == "{":
            return self._object(at, path, depth)
        if first == "[":
            return self._array(at, path, depth)
        number = _NUMBER(text, at)
        if number is not None:
            return self._number(number, path)
        word, value = _WORDS.get(first, ("", None))
        if not word or not text.startswith(word, at):
            raise JsonError("expected a value", at)
        end = at + len(word)
        if first in "NI-":
            self._differs(f"{word} is a number for json and text for hjson", Span(at, end), path)
        return Scalar(value, Span(at, end), word), end

    def _string(self, at: int) -> tuple[Scalar, int]:
        try:
            value, end = scanstring(self.text, at + 1, True)
        except JSONDecodeError as error:
            raise JsonError(error.msg[:1].lower() + error.msg[1:], error.pos) from None
        return Scalar(value, Span(at, end), self.text[at:end], True), end

    def _number(self, match: re.Match[str], path: Path) -> tuple[Scalar, int]:
        raw = match[0]
        span = Span(match.start(), match.end())
        whole, fraction, exponent = match.groups()
        if fraction or exponent:
            value: float = float(raw)
            if value in (float("inf"), float("-inf")):
                self._differs("json reads this number as infinity, hjson fails on it", span, path)
        else:
            try:
                value = int(whole)
            except ValueError as error:  # more digits than Python converts
                raise JsonError(f"not a number that can be read: {error}", span.start, "bad-value") from None
        return Scalar(value, span, raw), span.end

    def _differs(self, message: str, span: Span, path: Path) -> None:
        self.readers_differ = True
        self.problems.append(Problem("readers-differ", message, span, path))

    def _array(self, at: int, path: Path, depth: int) -> tuple[Sequence, int]:
        if depth >= DEPTH:
            raise JsonError(f"nested more than {DEPTH} levels deep", at, "too-deep")
        text = self.text
        items: list[Node] = []
        end = _SPACE(text, at + 1).end()  # type: ignore[union-attr]
        if text.startswith("]", end):
            return Sequence(Span(at, end + 1), items), end + 1
        while True:
            node, end = self._value(end, (*path, len(items)), depth + 1)
            items.append(node)
            end = _SPACE(text, end).end()  # type: ignore[union-attr]
            mark = text[end : end + 1]
            if mark == "]":
                return Sequence(Span(at, end + 1), items), end + 1
            if mark != ",":
                raise JsonError("expected ',' or ']'", end)
            end = _SPACE(text, end + 1).end()  # type: ignore[union-attr]

    def _object(self, at: int, path: Path, depth: int) -> tuple[Mapping, int]:
        if depth >= DEPTH:
            raise JsonError(f"nested more than {DEPTH} levels deep", at, "too-deep")
        text = self.text
        entries: list[Entry] = []
        seen: dict[str, Span] = {}
        end = _SPACE(text, at + 1).end()  # type: ignore[union-attr]
        if text.startswith("}", end):
            return Mapping(Span(at, end + 1), entries), end + 1
        while True:
            if text[end : end + 1] != '"':
                raise JsonError("expected a key in double quotes", end)
            key, colon = self._string(end)
            name = key.value
            here = (*path, name)
            if name in seen:
                self.problems.append(duplicate_key(here, key.span, seen[name]))
            seen[name] = key.span
            colon = _SPACE(text, colon).end()  # type: ignore[union-attr]
            if text[colon : colon + 1] != ":":
                raise JsonError("expected ':' after the key", colon)
            node, end = self._value(_SPACE(text, colon + 1).end(), here, depth + 1)  # type: ignore[union-attr]
            entries.append(Entry(name, key.span, node))
            end = _SPACE(text, end).end()  # type: ignore[union-attr]
            mark = text[end : end + 1]
            if mark == "}":
                return Mapping(Span(at, end + 1), entries), end + 1
            if mark != ",":
                raise JsonError("expected ',' or '}'", end)
            end = _SPACE(text, end + 1).end()  # type: ignore[union-attr]
