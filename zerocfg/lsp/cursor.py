"""Where in a half-typed file the cursor stands: which mapping, at a key or at its value.

A parser has nothing to say about a text that does not parse, and a text that is being typed seldom does. JSON is read
token by token up to the cursor; of YAML the indentation of the lines above tells it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from zerocfg.source.node import Path
from zerocfg.source.text import Span


@dataclass(frozen=True)
class Cursor:
    """``path`` is that of the mapping around, ``key`` the key whose value is typed (``at`` "value").

    ``typed`` is the word that the cursor is in, which a completion replaces. ``present`` are the other keys of the
    mapping. ``follows``: what stands behind the word, without blanks.
    """

    path: Path
    at: Literal["key", "value"]
    key: str
    typed: Span
    present: frozenset[str] = frozenset()
    follows: str = ""


_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_BRACKETS = "{}[]:,"
_COMMENTS = ("//", "#", "/*")


@dataclass
class _Frame:
    """An open bracket of a JSON. ``named``: a colon followed ``key``, on the line that ends at ``line``; ``given``:
    and a value."""

    bracket: str
    key: str = ""
    keys: list[str] = field(default_factory=list)
    index: int = 0
    named: bool = False
    given: bool = False
    line: int = 0

    def wants_key(self, token: str, start: int) -> bool:
        """Whether a word is a key: also where a comma is missing before it, or the value of the key before."""
        return not self.named or self.given or (start > self.line and token.startswith('"'))


def in_json(text: str, offset: int) -> Cursor | None:
    """The place of the cursor in a JSON; None in a comment, in a list, and outside of all brackets."""
    stack: list[_Frame] = []
    typed = Span(offset, offset)
    tokens = list(_TOKEN.finditer(text))
    seen = 0
    for match in tokens:
        token, start, end = match[0], *match.span()
        if token.startswith(_COMMENTS):
            if start < offset <= end:
                return None
        elif token in _BRACKETS:
            if end > offset:
                break
        elif end >= offset:
            if start < offset:
                typed = Span(start, end)
            break
        _step(stack, token, start, text)
        seen += 1
    if not stack or stack[-1].bracket == "[":
        return None
    frame = stack[-1]
    path = tuple(item.index if item.bracket == "[" else item.key for item in stack[:-1])
    value = not frame.wants_key(text[typed.start : typed.end], typed.start)
    key, follows = frame.key, text[typed.end : typed.end + 200].lstrip()[:1]
    for match in tokens[seen:]:
        if frame in stack and match.start() != typed.start:
            _step(stack, match[0], match.start(), text)
    present = frozenset(frame.keys)
    return Cursor(path, "value" if value else "key", key if value else "", typed, present, follows)


def _step(stack: list[_Frame], token: str, start: int, text: str) -> None:
    if token.startswith(_COMMENTS):
        return
    if token in ("{", "["):
        stack.append(_Frame(token))
    elif token in ("}", "]"):
        if stack:
            stack.pop()
        if stack:
            stack[-1].given = True
    elif not stack:
        return
    elif token == ",":
        stack[-1].named = stack[-1].given = False
        stack[-1].index += 1
    elif token == ":":
        stack[-1].named = True
        end = text.find("\n", start)
        stack[-1].line = end if end >= 0 else len(text)
    elif stack[-1].bracket == "{" and stack[-1].wants_key(token, start):
        stack[-1].key = token.strip('"')
        stack[-1].keys.append(stack[-1].key)
        stack[-1].named = stack[-1].given = False
    else:
        stack[-1].given = True


_LINE = re.compile(r"(?P<indent> *)(?P<dashes>(?:- +)*)(?P<rest>.*)")
_KEY = re.compile(
    r"""(?P<quote>["']?)(?P<key>[^\s"'#:{}\[\],][^"'#:{}\[\],]*?)(?P=quote)[ ]*:(?P<gap>[ ]+|$)(?P<value>.*)"""
)
_COMMENT = re.compile(r"(?:^|\s)#.*")


def in_yaml(text: str, offset: int) -> Cursor | None:
    """The place of the cursor in block-style YAML; None in a comment, a list, or braces."""
    start = text.rfind("\n", 0, offset) + 1
    number = text.count("\n", 0, offset)
    lines = [line.rstrip("\r") for line in text.split("\n")]
    line, column = lines[number], offset - start
    before = line[:column]
    if _COMMENT.search(before) or "\t" in before:
        return None
    parts = _LINE.match(before)
    if parts is None or parts["dashes"]:
        return None
    indent = len(parts["indent"])
    match = _KEY.match(parts["rest"])
    if not parts["rest"].strip():
        indent = _indent_of_blank(lines[:number], column)
    elif match is None and re.search(r"[:{\[,]", parts["rest"]):
        return None
    path = _path_above(lines[:number], indent)
    if path is None:
        return None
    own = _LINE.match(line)
    own_key = _KEY.match(own["rest"]) if own else None
    present = frozenset(_siblings(lines, number, indent))
    if match is not None and match["value"].startswith(("{", "[")):
        return None
    if match is not None:
        begin = start + indent + match.start("value")
        written = _COMMENT.sub("", own_key["value"] if own_key else "").rstrip()
        return Cursor(path, "value", match["key"], Span(begin, max(begin + len(written), offset)), present)
    begin = start + (column if not parts["rest"].strip() else indent)
    end = offset
    while end < start + len(line) and (line[end - start].isalnum() or line[end - start] in "_-."):
        end += 1
    return Cursor(path, "key", "", Span(begin, end), present, line[end - start :].lstrip()[:1])


def _indent_of_blank(above: list[str], column: int) -> int:
    """The depth that an empty line with the cursor at a column belongs to."""
    for line in reversed(above):
        parts = _LINE.match(_COMMENT.sub("", line))
        if parts is None or not parts["rest"].strip():
            continue
        indent = len(parts["indent"])
        key = _KEY.match(parts["rest"])
        opens = key is not None and not key["value"].strip()
        return column if column <= indent or opens else indent
    return column


def _path_above(above: list[str], indent: int) -> Path | None:
    """The keys that a line of this depth stands below; None within a list."""
    path: list[str] = []
    for line in reversed(above):
        parts = _LINE.match(_COMMENT.sub("", line))
        if parts is None or not parts["rest"].strip() or len(parts["indent"]) >= indent > 0 or indent == 0:
            continue
        key = _KEY.match(parts["rest"])
        if parts["dashes"] or key is None or key["value"].strip():
            return None
        path.insert(0, key["key"])
        indent = len(parts["indent"])
    return tuple(path)


def _siblings(lines: list[str], number: int, indent: int) -> list[str]:
    """The keys of the same mapping on other lines."""
    found = []
    for part in (reversed(lines[:number]), lines[number + 1 :]):
        for line in part:
            parts = _LINE.match(_COMMENT.sub("", line))
            if parts is None or not parts["rest"].strip() or len(parts["indent"]) > indent:
                continue
            if len(parts["indent"]) < indent:
                break
            key = _KEY.match(parts["rest"])
            if key is not None:
                found.append(key["key"])
    return found
