"""The recipes of a Makefile, with make's own variables put in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.budgets import WORD_CHARACTERS
from zerocfg.source.launch.shell_words import UNKNOWN, Chars

if TYPE_CHECKING:
    from collections.abc import Iterator

_ASSIGNMENT = re.compile(r" *(export +|override +)*([\w.-]+)[ \t]*(\?=|::?:?=|\+=|=)[ \t]*")
_EXPORT = re.compile(r" *export((?: +[\w.-]+)*) *\r?\n?\Z")
_DOLLAR = re.compile(r"\$(\$|\((\w+)\)|\{(\w+)\}|\(|\{|.)?", re.DOTALL)
_LINES = re.compile(r"(?:[^\n]*\\\r?\n)*[^\n]*\n?")


def recipes(text: str) -> Iterator[tuple[Chars, dict[str, str | None]]]:
    """Each logical recipe line, which a shell of its own runs, and the variables that make exports to it."""
    variables: dict[str, Chars | None] = {}
    exported: set[str] = set()
    conditional = 0
    for match in _LINES.finditer(text):
        line = match[0]
        if not line:
            continue
        whole = Chars(line, range(match.start(), match.end()))
        if line.startswith("\t"):
            start = len(line) - len(line[1:].lstrip("@-+ \t"))
            environment = {name: _known(variables.get(name)) for name in sorted(exported)}
            yield _expand(whole.part(start, len(line)), variables), environment
            continue
        word = line.split(None, 1)[0] if line.strip() else ""
        if word in ("ifeq", "ifneq", "ifdef", "ifndef"):
            conditional += 1
        elif word == "endif":
            conditional -= 1
        assigned = _ASSIGNMENT.match(line)
        if assigned:
            _assign(whole, assigned, variables, conditional > 0)
            if "export" in (assigned[0].split("=")[0]).split()[:1]:
                exported.add(assigned[2])
        else:
            named = _EXPORT.match(line)
            if named:
                exported.update(named[1].split() or variables)


def _assign(whole: Chars, assigned: re.Match[str], variables: dict[str, Chars | None], conditional: bool) -> None:
    name, operator = assigned[2], assigned[3]
    end = len(whole.text.split("#", 1)[0].rstrip())
    value: Chars | None = _expand(whole.part(assigned.end(), max(end, assigned.end())), variables)
    if operator == "?=" and name in variables:
        return
    before = variables.get(name)
    if operator == "+=" and name in variables:
        if before is None or value is None:
            value = None
        else:
            place = assigned.start(3) + whole.at[0]
            value = Chars(f"{before.text} {value.text}", [*before.at, place, *value.at])
    if conditional and name in variables and (before is None or value is None or before.text != value.text):
        value = None  # which branch counts is for make to tell
    variables[name] = value


def _expand(chars: Chars, variables: dict[str, Chars | None]) -> Chars:
    parts: list[str] = []
    at: list[int] = []
    size = 0
    start = 0
    text = chars.text

    def put(piece: Chars) -> None:
        nonlocal size
        size += len(piece.text)
        parts.append(piece.text)
        at.extend(piece.at)

    while True:
        dollar = _DOLLAR.search(text, start)
        if not dollar or size > WORD_CHARACTERS:
            put(chars.part(start, len(text)))
            return Chars("".join(parts), at)
        put(chars.part(start, dollar.start()))
        place = chars.at[dollar.start()]
        start = dollar.end()
        name = dollar[2] or dollar[3]
        if dollar[1] == "$":
            put(Chars("$", (place,)))
        elif name and variables.get(name) is not None:
            # All of it at the place of use: the recipe's own characters then stay in order.
            known = variables[name] or Chars("", ())
            put(Chars(known.text, [place] * len(known.text)))
        else:
            if not name and dollar[1] in ("(", "{"):
                start = _closing(text, start, dollar[1])
            put(Chars(UNKNOWN, (place,)))


def _closing(text: str, at: int, opener: str) -> int:
    closer = ")" if opener == "(" else "}"
    depth = 1
    while at < len(text) and depth:
        depth += (text[at] == opener) - (text[at] == closer)
        at += 1
    return at


def _known(value: Chars | None) -> str | None:
    return None if value is None or UNKNOWN in value.text else value.text
