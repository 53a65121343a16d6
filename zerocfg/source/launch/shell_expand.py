"""Expansion of shell words: variables, arrays, defaults, arithmetic and quotes. Nothing is ever executed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.budgets import ELEMENT_CHARACTERS, EXPANSION_DEPTH, WORD_CHARACTERS
from zerocfg.source.launch.allowance import Allowance
from zerocfg.source.launch.shell_folders import command_output, parent
from zerocfg.source.launch.shell_places import exact_span, words_in_text
from zerocfg.source.launch.shell_words import UNKNOWN, Chars, dollar_end, nested_end, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.source.text import Span

Value = Chars | list[Chars] | None
"""A variable: its text, the elements of an array, or None when the value cannot be known."""

_NAME = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])", re.ASCII)
_LITERAL = re.compile(r"[^\"'\\$`]+")
_INSIDE = re.compile(r"[^\"\\$`]+")
_BRACE = re.compile(
    r"\$\{([A-Za-z_]\w*|0)(\[[@*0]\])?(?:(:?[-=+?]|%(?=/\*\})|##(?=\*/\}))(.*))?\}\Z", re.DOTALL | re.ASCII
)
_QUOTED = re.compile(r"\"|(?:[^\"\\]|\\[^\"]?)+")
_BLANKS = re.compile(r"[ \t\r\n]+")
_DECIMAL = re.compile(r"\s*[-+]?(?:0|[1-9][0-9]{0,17})\s*")  # bash reads 010 in base 8, and more digits modulo 2**64
_ARITHMETIC = re.compile(r"\s*(\d+|[A-Za-z_]\w*|\*\*|[-+*/%()])", re.ASCII)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b"}


class Builder:
    """Collects the fields that one word expands to."""

    def __init__(self) -> None:
        self.fields: list[Chars] = []
        self._text: list[str] = []
        self._at: list[int] = []
        self._written: Span | None = None
        self._open = False
        self._size = 0

    def add(self, chars: Chars) -> None:
        self._written = None if self._text else chars.written
        self._open = True
        self._size += len(chars.text)
        if self._size <= WORD_CHARACTERS:
            self._text.append(chars.text)
            self._at.extend(chars.at)

    def unknown(self, at: int) -> None:
        self.add(Chars(UNKNOWN, (at,)))

    def quote(self) -> None:
        """Quotes make a field even when nothing is between them."""
        self._open = True

    def split(self, chars: Chars) -> None:
        """Text of a variable outside quotes: white space in it ends a field."""
        at = 0
        if chars.written is not None and not _BLANKS.search(chars.text):
            self.add(chars)
            return
        for blank in _BLANKS.finditer(chars.text):
            if blank.start() > at:
                self.add(chars.part(at, blank.start()))
            self.close()
            at = blank.end()
        if at < len(chars.text):
            self.add(chars.part(at, len(chars.text)))

    def close(self) -> None:
        if self._open:
            if self._size > WORD_CHARACTERS:
                self.fields.append(Chars(UNKNOWN, self._at[:1] or (0,)))
            else:
                self.fields.append(Chars("".join(self._text), self._at, self._written))
        self._text, self._at, self._written, self._open, self._size = [], [], None, False, 0


class Expander:
    """Expands words with the variables known so far. ``source``: the text of the file; ``folder`` tells where commands
    run, None where nobody knows. ``in_texts``: the words that assigned texts hold, by the offset where they begin."""

    def __init__(
        self,
        source: str,
        variables: dict[str, Value],
        assign: Callable[[str, Value], None],
        folder: Callable[[], str | None],
        allowance: Allowance | None = None,
    ) -> None:
        self.source = source
        self.in_texts: dict[int, Span] = {}
        self.variables = variables
        self.assign = assign
        self.folder = folder
        self._depth = 0
        self._allowance = allowance or Allowance()

    def affords(self, value: Value, place: int) -> bool:
        """Whether one more copy of a value, used at an offset of the file, is within the budget."""
        if isinstance(value, list):
            size = sum(len(element.text) + ELEMENT_CHARACTERS for element in value)
        else:
            size = len(value.text) if value is not None else 0
        return self._allowance.expands(size, place)

    def fields(self, word: Chars) -> list[Chars]:
        """The words that the program receives for one written word."""
        if self._depth < EXPANSION_DEPTH and len(word.text) <= WORD_CHARACTERS and _LITERAL.fullmatch(word.text):
            return [Chars(word.text, list(word.at))]
        builder = Builder()
        self._expand(word, builder, split=True)
        builder.close()
        return builder.fields

    def text(self, word: Chars) -> Chars:
        """The word as one text, as on the right side of an assignment."""
        builder = Builder()
        self._expand(word, builder, split=False)
        builder.close()
        return builder.fields[0] if builder.fields else Chars("", ())

    def assigned(self, word: Chars) -> Chars:
        """The text of an assignment; the words in it are known by their places from now on."""
        for start, end in words_in_text(word):
            span = exact_span(self.source, word, start, end)
            if span is not None:
                self.in_texts[span.start] = span
        return self.text(word)

    def document(self, body: Chars) -> Chars:
        """The text of a here-document: expanded as between double quotes, which mean nothing by themselves."""
        builder = Builder()
        for piece in _QUOTED.finditer(body.text):
            part = body.part(piece.start(), piece.end())
            if part.text == '"':
                builder.add(part)
            else:
                self._expand(part, builder, split=False, quoted=True)
        builder.close()
        return builder.fields[0] if builder.fields else Chars("", ())

    def array(self, inside: Chars) -> list[Chars]:
        """The elements of ``( ... )``."""
        found: list[Chars] = []
        for token in tokens(inside.text):
            if token.kind == "word":
                fields = self.fields(inside.part(token.start, token.end))
                if len(fields) == 1:
                    fields = [fields[0]._replace(written=exact_span(self.source, inside, token.start, token.end))]
                found.extend(fields)
        return found

    def _expand(self, word: Chars, out: Builder, split: bool, quoted: bool = False, default: bool = False) -> None:
        self._depth += 1
        if self._depth > EXPANSION_DEPTH:
            out.unknown(word.at[0] if word.at else 0)
        else:
            self._walk(word, out, split, quoted, default)
        self._depth -= 1

    def _walk(self, word: Chars, out: Builder, split: bool, quoted: bool, default: bool) -> None:
        # The words of an unquoted default are split like the value of a variable.
        put = out.split if default and split else out.add
        text, size = word.text, len(word.text)
        literal = _INSIDE if quoted else _LITERAL
        at = 0
        while at < size:
            plain = literal.match(text, at)
            if plain:
                put(word.part(at, plain.end()))
                at = plain.end()
                continue
            mark = text[at]
            if mark == "\\":
                follows = text[at + 1 : at + 2]
                if text.startswith("\r\n", at + 1):
                    at += 3
                    continue
                if follows == "\n":
                    pass
                elif quoted and follows not in ('"', "\\", "$", "`"):
                    out.add(word.part(at, at + 2))
                else:
                    out.add(Chars(follows, word.at[at : at + 1] if follows else ()))
                at += 2
            elif mark == "'":
                end = text.find("'", at + 1)
                end = size if end < 0 else end
                out.quote()
                out.add(word.part(at + 1, end))
                at = end + 1
            elif mark == '"' and not quoted:
                end = nested_end(text, at + 1, '"')
                inside = word.part(at + 1, end - 1 if text[end - 1] == '"' and end - 1 > at else end)
                if not self._all_elements(inside, out):
                    out.quote()
                    self._expand(inside, out, split=False, quoted=True)
                at = end
            elif mark == "`":
                end = nested_end(text, at + 1, "`")
                self._substitute(word.part(at + 1, end - 1), word.at[at], out, split)
                at = end
            elif mark == "$":
                at = self._dollar(word, at, out, split, quoted)
            else:  # quotes of a default in quotes, `"${A:-"x y"}"`, are no part of it
                at += 1

    def _all_elements(self, inside: Chars, out: Builder) -> bool:
        """``"${name[@]}"`` gives one word for each element."""
        found = re.fullmatch(r"\$\{([A-Za-z_]\w*)\[@\]\}", inside.text)
        value = self.variables.get(found[1]) if found else None
        if not isinstance(value, list):
            return False
        if not self.affords(value, inside.at[0]):
            out.unknown(inside.at[0])
            return True
        for index, element in enumerate(value):
            if index:
                out.close()
            out.quote()
            out.add(element)
        return True

    def _dollar(self, word: Chars, at: int, out: Builder, split: bool, quoted: bool) -> int:
        text = word.text
        end = dollar_end(text, at, quoted=quoted)
        place = word.at[at]
        if text.startswith("$((", at):
            inside = word.part(at + 3, max(at + 3, end - 2))
            number = self.arithmetic(inside)
            if number is None:
                out.unknown(place)
            else:
                digits = str(number)
                out.add(Chars(digits, [place] * len(digits)))
            return end
        if text.startswith("$'", at) and not quoted:
            raw = text[at + 2 : end - 1]
            plain = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), raw, flags=re.DOTALL)
            out.quote()
            out.add(Chars(plain, [place] * len(plain)))
            return end
        if text.startswith("$(", at):
            self._substitute(word.part(at + 2, end - 1), place, out, split)
            return end
        if text.startswith("${", at):
            self._brace(word.part(at, end), out, split, quoted)
            return end
        name = _NAME.match(text, at)
        if not name:
            if text[at + 1 : at + 2] != '"':  # $"..." is a translated text
                out.add(word.part(at, at + 1))
            return at + 1
        self._put(self.variables.get(name[1]), place, out, split)
        return name.end()

    def _substitute(self, inside: Chars, place: int, out: Builder, split: bool) -> None:
        """The output of commands that only print a path."""
        text = command_output(inside, self.folder(), self.fields)
        self._put(None if text is None else Chars(text, [place] * len(text)), place, out, split)

    def _put(self, value: Value, place: int, out: Builder, split: bool) -> None:
        if value is None or not self.affords(value[:1] if isinstance(value, list) else value, place):
            out.unknown(place)
        elif isinstance(value, list):
            if value:
                (out.split if split else out.add)(value[0])
        elif split:
            out.split(value)
        else:
            out.add(value)

    def _brace(self, word: Chars, out: Builder, split: bool, quoted: bool) -> None:
        found = _BRACE.match(word.text)
        place = word.at[0]
        if not found:
            out.unknown(place)
            return
        name, every, operator, _ = found.groups()
        known = name in self.variables
        value = self.variables.get(name)
        if every == "[0]":
            every = None
            value = value[0] if isinstance(value, list) and value else value
        if operator in ("%", "##") and not every:  # `%/*` and `##*/`: the folder of a path, and the name in it
            text = value.text if isinstance(value, Chars) and UNKNOWN not in value.text and "/" in value.text else ""
            text = parent(text) if operator == "%" else text.rpartition("/")[2]
            self._put(Chars(text, [place] * len(text)) if text else None, place, out, split)
            return
        if every:
            if operator or not isinstance(value, list) or not self.affords(value, place):
                out.unknown(place)
                return
            for index, element in enumerate(value):
                if index and split:
                    out.close()
                elif index:
                    out.add(Chars(" ", (place,)))
                (out.split if split else out.add)(element)
            return
        if operator and operator[-1] == "+":
            out.unknown(place)
            return
        empty = isinstance(value, Chars) and not value.text
        if operator and operator[-1] in "-=" and (not known or (empty and operator[0] == ":")):
            default = word.part(found.start(4), found.end(4))
            if operator[-1] == "=":
                self.assign(name, self.text(default))
            self._expand(default, out, split, quoted, default=True)
            return
        self._put(value, place, out, split)

    def arithmetic(self, inside: Chars) -> int | None:
        """The integer that an arithmetic expression gives, or None."""
        text = self.text(inside).text
        if len(text) > 500:
            return None
        found: list[str] = []
        at = 0
        text = text.strip()
        while at < len(text):
            token = _ARITHMETIC.match(text, at)
            if not token:
                return None
            found.append(token[1])
            at = token.end()
        try:
            number, rest = self._sum(found, 0)
        except (ValueError, IndexError, ZeroDivisionError, RecursionError):
            return None
        return number if rest == len(found) and abs(number) < 10**18 else None

    def _sum(self, found: list[str], at: int) -> tuple[int, int]:
        left, at = self._product(found, at)
        while at < len(found) and found[at] in ("+", "-"):
            right, after = self._product(found, at + 1)
            left = left + right if found[at] == "+" else left - right
            at = after
        return left, at

    def _product(self, found: list[str], at: int) -> tuple[int, int]:
        left, at = self._atom(found, at)
        while at < len(found) and found[at] in ("*", "/", "%"):
            right, after = self._atom(found, at + 1)
            if found[at] == "*":
                left *= right
            else:  # the shell rounds towards zero
                quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
                left = quotient if found[at] == "/" else left - quotient * right
            at = after
        return left, at

    def _atom(self, found: list[str], at: int) -> tuple[int, int]:
        token = found[at]
        if token == "(":
            value, at = self._sum(found, at + 1)
            if found[at] != ")":
                raise ValueError(token)
            return value, at + 1
        if token in ("-", "+"):
            value, at = self._atom(found, at + 1)
            return (-value if token == "-" else value), at
        if token[0].isdigit():
            if len(token) > 18 or (token[0] == "0" and len(token) > 1):
                raise ValueError(token)
            return int(token), at + 1
        known = self.variables.get(token)
        if not isinstance(known, Chars) or _DECIMAL.fullmatch(known.text) is None:
            raise ValueError(token)
        return int(known.text), at + 1
