"""Fenced shell blocks of a Markdown page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.source.shell_words import UNKNOWN, Chars

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})[ \t]*([^\s`{]*)[^\n]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>\n]*>|<\.\.\.>|(?<![$\w])\{[A-Za-z][\w-]*(?: [\w-]+)+\}")
_LANGUAGES = frozenset(("", "bash", "sh", "shell", "console", "zsh", "shell-session", "shellscript", "terminal"))
_PROMPT = re.compile(r"[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.@~:/-]*[$%])[ \t]+")


def shell_blocks(text: str) -> Iterator[Chars]:
    """The shell text of each block, prompts left out."""
    at = 0
    while True:
        opening = _FENCE.search(text, at)
        if not opening:
            return
        start = min(opening.end() + 1, len(text))
        # another block that opens is the end of one that nobody closed
        closing = re.compile(rf"^[ \t>]*{re.escape(opening[1])}+[ \t]*(\w*)[ \t\r]*$", re.MULTILINE).search(text, start)
        end = closing.start() if closing else len(text)
        at = len(text) if closing is None else end if closing[1] else closing.end()
        if opening[2].lower() in _LANGUAGES or text.startswith("$ ", start):  # a session, whatever it is called
            block = _without_prompts(text, start, end)
            yield Chars(_PLACEHOLDER.sub(lambda found: UNKNOWN * len(found[0]), block.text), block.at)


def _without_prompts(text: str, start: int, end: int) -> Chars:
    lines = list(re.compile(r"[^\n]*\n|[^\n]+").finditer(text, start, end))
    if not any(_PROMPT.match(line[0]) for line in lines):
        return Chars(text[start:end], range(start, end))
    parts: list[str] = []
    at: list[int] = []
    continued = False
    for line in lines:
        prompt = _PROMPT.match(line[0])
        if not prompt and not continued:
            continue  # what the command printed
        begin = line.start() + (prompt.end() if prompt else 0)
        parts.append(text[begin : line.end()])
        at.extend(range(begin, line.end()))
        continued = line[0].rstrip("\r\n").endswith("\\")
    return Chars("".join(parts), at)
