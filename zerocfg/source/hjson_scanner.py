"""The part of Hjson that DeepSpeed's config reader accepts, scanned with spans.

Follows the behaviour of the ``hjson`` package 3.1 (the tests compare the two on generated texts), its
oddities included: an unquoted word runs to the end of the line, ``5e8`` is an integer, ``NaN`` is text.
Every construct that strict JSON lacks is noted as a problem of kind "hjson-only".
"""

from __future__ import annotations

import re
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]

from zerocfg.budgets import DEPTH
from zerocfg.patterns import pattern
from zerocfg.source.node import Entry, Form, Mapping, Node, Path, Problem, Scalar, Sequence
from zerocfg.source.text import BOM, Span

_WHITESPACE = pattern(r"[ \t\n\r]*")
_LINE_END = pattern(r"[\r\n]|\Z")
_WORD_END = pattern(r"[\r\n,}\]#]|/[/*]|\Z")
_NUMBER = pattern(r"(-?(?:0|[1-9]\d*))(\.\d+)?([eE][-+]?\d+)?[\t ]*")
_KEY_END = pattern(r"[:{}\[\],]|\Z")
_INNER_SPACE = pattern(r"[ \t\n\r]")
_CHUNK = {quote: pattern(rf"[^{quote}\\\x00-\x1f]*") for quote in "\"'"}
_ESCAPES = {**{c: c for c in "\"'\\/"}, "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NAMES: dict[str, object] = {"null": None, "true": True, "false": False}


class JsonError(Exception):
    """The text stops being readable at ``position``.

    ``noticed``: comments were met before. ``final``: hjson does not catch its own exception here and so does
    not go on to try the text as a single value.
    """

    def __init__(self, message: str, position: int, kind: str = "syntax", final: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.kind = kind
        self.noticed = False
        self.final = final or kind != "syntax"

    def problem(self, text: str) -> Problem:
        at = min(self.position, len(text))
        span = Span(at, min(at + 1, len(text)))
        if self.kind != "syntax":
            return Problem(self.kind, self.message, span, fatal=True)
        return Problem("syntax", f"not valid JSON: {self.message}", span, fatal=True, why=self.message)


def duplicate_key(path: Path, span: Span, earlier: Span) -> Problem:
    message = (
        f"the key '{path[-1]}' is given more than once in this object: DeepSpeed refuses the file "
        "(ValueError: Duplicate keys in DeepSpeed config), accelerate and transformers use the last value"
    )
    return Problem("duplicate-key", message, span, path, related=earlier)


def scan_hjson(text: str) -> tuple[Node, list[Problem]]:
    """The tree and the notes on what is not strict JSON; raises :class:`JsonError` where hjson raises."""
    scanner = _Scanner(text)
    try:
        return scanner.document(), scanner.problems
    except JsonError as refused:
        refused.noticed = scanner.comments > 0
        raise


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self.comments = 0
        self._noted_comment = -1

    def document(self) -> Node:
        text = self.text
        start = 0
        if text.startswith(BOM):
            start = 1
            self._only("a byte-order mark is", Span(0, 1))
        elif text.startswith("\xef\xbb\xbf"):
            start = 3
            self._only("a byte-order mark is", Span(0, 3))
        at = self._skip(start)
        if start == 0 and at == len(text):
            self.problems.append(Problem("empty", "the file holds no value; DeepSpeed reads it as {}", Span(0, 0)))
            return Mapping(Span(0, 0))
        if text[at : at + 1] in ("{", "["):
            node, end = self._value(at, (), 0)
        else:
            node, end = self._without_braces(at)
        end = self._skip(end)
        if end != len(text):
            raise JsonError("text after the end of the document", end)
        return node

    def _without_braces(self, at: int) -> tuple[Node, int]:
        before, comments, noted = len(self.problems), self.comments, self._noted_comment
        try:
            self._only("an object without braces is", Span(at, at + 1))
            return self._object(at, (), 0, braces=False)
        except JsonError as refused:
            if refused.final:
                raise
            del self.problems[before:]
            self.comments, self._noted_comment = comments, noted  # what was met is told when it is met again
            try:
                return self._value(at, (), 0)
            except JsonError:
                raise refused from None

    def _only(self, what: str, span: Span, path: Path = (), form: Form = "") -> None:
        message = (
            f"{what} read by DeepSpeed (hjson), but accelerate and transformers stop here: json.decoder.JSONDecodeError"
        )
        self.problems.append(Problem("hjson-only", message, span, path, form=form))

    def _skip(self, at: int) -> int:
        """The offset of the next character that is neither white space nor in a comment."""
        text = self.text
        while True:
            at = _WHITESPACE.match(text, at).end()  # type: ignore[union-attr]
            if text.startswith(("#", "//"), at):
                end = _LINE_END.search(text, at).start()  # type: ignore[union-attr]
            elif text.startswith("/*", at):
                end = text.find("*/", at + 2) + 2
                if end < 2:
                    raise JsonError("a comment without its end '*/'", at, final=True)
            else:
                return at
            if at > self._noted_comment:  # the same place is passed more than once
                self._noted_comment = at
                self.comments += 1
                self._only("comments are", Span(at, end), form="comment")
            at = end

    def _value(self, at: int, path: Path, depth: int) -> tuple[Node, int]:
        text = self.text
        first = text[at : at + 1]
        if first == "{" or first == "[":
            if depth >= DEPTH:
                raise JsonError(f"nested more than {DEPTH} levels deep", at, "too-deep")
            if first == "{":
                return self._object(at, path, depth, braces=True)
            return self._array(at, path, depth)
        if text.startswith("'''", at):
            value, end = self._multiline(at)
            self._only("text in triple quotes is", Span(at, end), path)
            return Scalar(value, Span(at, end), text[at:end], True), end
        if first == '"' or first == "'":
            value, end = self._quoted(at, path)
            return Scalar(value, Span(at, end), text[at:end], True), end
        return self._word(at, path)

    def _array(self, at: int, path: Path, depth: int) -> tuple[Sequence, int]:
        text = self.text
        items: list[Node] = []
        end = self._skip(at + 1)
        if text.startswith("]", end):
            return Sequence(Span(at, end + 1), items), end + 1
        while True:
            node, end = self._value(end, (*path, len(items)), depth + 1)
            items.append(node)
            end, closed = self._separator(end, "]", path)
            if closed:
                return Sequence(Span(at, end + 1), items), end + 1

    def _object(self, at: int, path: Path, depth: int, braces: bool) -> tuple[Mapping, int]:
        text = self.text
        entries: list[Entry] = []
        seen: dict[str, Span] = {}
        end = self._skip(at + 1) if braces else at
        if braces and text.startswith("}", end):
            return Mapping(Span(at, end + 1), entries), end + 1
        while True:
            key, key_span, end = self._key(self._skip(end), path)
            here = (*path, key)
            if key in seen:
                self.problems.append(duplicate_key(here, key_span, seen[key]))
            seen[key] = key_span
            end = self._skip(end)
            if not text.startswith(":", end):
                raise JsonError("expected ':' after the key", end)
            node, end = self._value(self._skip(end + 1), here, depth + 1)
            entries.append(Entry(key, key_span, node))
            end, closed = self._separator(end, "}" if braces else "", path)
            if closed and braces:
                return Mapping(Span(at, end + 1), entries), end + 1
            if closed:
                return Mapping(Span(at, node.span.end), entries), end

    def _separator(self, at: int, closer: str, path: Path) -> tuple[int, bool]:
        """Past an optional comma; whether the collection ends there. ``closer`` "": with the text."""
        text = self.text
        at = self._skip(at)
        comma = text.startswith(",", at)
        after = self._skip(at + 1) if comma else at
        closed = text.startswith(closer, after) if closer else after == len(text)
        if comma and closed:
            self._only("a trailing comma is", Span(at, at + 1), path, "trailing comma")
        elif not comma and not closed and after < len(text):
            self._only("a missing comma between lines is", Span(after, after + 1), path)
        return after, closed

    def _key(self, at: int, path: Path) -> tuple[str, Span, int]:
        text = self.text
        if text[at : at + 1] in ('"', "'"):
            key, end = self._quoted(at, path)
            return key, Span(at, end), end
        end = _KEY_END.search(text, at).start()  # type: ignore[union-attr]
        if end == len(text):
            raise JsonError("the text ends where a key is expected", end)
        if text[end] != ":":
            raise JsonError(f"'{text[end]}' where a key is expected", end)
        key = text[at:end]
        if not key:
            raise JsonError("':' without a key before it", at)
        space = _INNER_SPACE.search(key)
        if space:
            if key[space.start() :].strip(" \t\n\r"):
                raise JsonError("white space inside a key without quotes", at + space.start())
            key = key.rstrip()
        span = Span(at, at + len(key))
        self._only("a key without double quotes is", span, (*path, key), "bare key")
        return key, span, end

    def _quoted(self, at: int, path: Path) -> tuple[str, int]:
        """A string in double or single quotes and the offset behind it."""
        quote = self.text[at]
        if quote == '"':
            try:
                value, end = scanstring(self.text, at + 1, True)
                return str(value), end
            except JSONDecodeError:
                pass  # hjson knows a few more escapes
        value, end = self._lenient(at, quote)
        if quote == "'":
            self._only("text in single quotes is", Span(at, end), path, "single quotes")
        else:
            self._only("this escape is", Span(at, end), path)
        return value, end

    def _lenient(self, at: int, quote: str) -> tuple[str, int]:
        text = self.text
        parts: list[str] = []
        end = at + 1
        while True:
            chunk = _CHUNK[quote].match(text, end)
            parts.append(chunk[0])  # type: ignore[index]
            end = chunk.end()  # type: ignore[union-attr]
            mark = text[end : end + 1]
            if mark == quote:
                return "".join(parts), end + 1
            if mark != "\\":
                reason = "a string without its closing quote" if not mark else "a control character in a string"
                raise JsonError(reason, end if mark else at)
            escape = text[end + 1 : end + 2]
            if escape == "u":
                character, end = self._unicode(end)
                parts.append(character)
            elif escape in _ESCAPES:
                parts.append(_ESCAPES[escape])
                end += 2
            else:
                raise JsonError("an invalid escape in a string", end)

    def _unicode(self, at: int) -> tuple[str, int]:
        code = self._hex(at)
        end = at + 6
        if code & 0xFC00 == 0xD800 and self.text.startswith("\\u", end):
            digits = self.text[end + 2 : end + 6]
            if len(digits) == 4 and digits[1] not in "xX":
                low = self._hex(end)
                if low & 0xFC00 == 0xDC00:
                    return chr(0x10000 + ((code - 0xD800) << 10 | low - 0xDC00)), end + 6
        try:
            return chr(code), end
        except ValueError:
            raise JsonError("an invalid \\u escape in a string", at, final=True) from None

    def _hex(self, at: int) -> int:
        digits = self.text[at + 2 : at + 6]
        try:
            if len(digits) == 4 and digits[1] not in "xX":
                return int(digits, 16)
        except ValueError:
            pass
        raise JsonError("an invalid \\u escape in a string", at)

    def _multiline(self, at: int) -> tuple[str, int]:
        """Text in triple single quotes; the column of the quotes is cut from the start of each line."""
        text = self.text
        newline = text.rfind("\n", 0, at)
        indent = at - newline - 1
        if newline < 0:  # on the first line hjson looks for a line end from the end of the text backwards
            last = text.rfind("\n")
            if last < 0:
                raise JsonError("text in triple quotes on the only line", at, final=True)
            indent = at - 1 - last + len(text)
        start = re.compile(r"[ \t\r]*").match(text, at + 3).end()  # type: ignore[union-attr]
        margin = re.compile(rf"[ \t\r]{{0,{indent}}}")
        if start == len(text):
            raise JsonError("text in triple quotes without its end", at, final=True)
        if text[start] == "\n":
            start = margin.match(text, start + 1).end()  # type: ignore[union-attr]
        close = text.find("'''", start)
        if close < 0:
            raise JsonError("text in triple quotes without its end", at)
        lines = text[start:close].split("\n")
        body = [lines[0], *(margin.sub("", line, count=1) for line in lines[1:])]
        value = "\n".join(body).replace("\r", "")
        return value.removesuffix("\n"), close + 3

    def _word(self, at: int, path: Path) -> tuple[Scalar, int]:
        """A number, a name, or text without quotes, which runs to the end of the line."""
        text = self.text
        first = text[at : at + 1]
        if first in "{}[],:":
            raise JsonError("expected a value", at)
        end = _WORD_END.search(text, at).start()  # type: ignore[union-attr]
        word = text[at:end].strip()
        if word in _NAMES and first == word[0]:
            return Scalar(_NAMES[word], Span(at, at + len(word)), word), end
        number = _NUMBER.match(text, at) if first == "-" or "0" <= first <= "9" else None
        if number is not None and number.end() == end:
            return self._number(number, word, at), end
        end = _LINE_END.search(text, at).start()  # type: ignore[union-attr]
        line = text[at:end]
        value = line.strip()
        start = at + len(line) - len(line.lstrip())
        span = Span(start, start + len(value))
        self._only("text without quotes is", span, path)
        return Scalar(value, span, value), end

    def _number(self, match: re.Match[str], raw: str, at: int) -> Scalar:
        whole, fraction, exponent = match.groups()
        try:
            if not fraction and not exponent:
                return Scalar(int(whole), Span(at, at + len(raw)), raw)
            value: float = float(whole + (fraction or "") + (exponent or ""))
            if int(value) == value and abs(value) < 1e10:
                value = int(value)
        except (ValueError, OverflowError) as error:
            raise JsonError(f"not a number that can be read: {error}", at, "bad-value") from None
        return Scalar(value, Span(at, at + len(raw)), raw)
