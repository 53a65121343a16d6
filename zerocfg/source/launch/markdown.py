"""Fenced blocks of a Markdown page: those that a shell reads, and those that stand in a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.source.launch.line import Written
from zerocfg.source.launch.shell_words import UNKNOWN, Chars

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})[ \t]*([^\s`{]*)[^\n]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(
    r"(?<!\S)(?:\.\.\.|…)(?!\S)|<(?:[A-Za-z][^<>\n]*|\.\.\.)>|\{(?<![$\w].)[A-Za-z][\w-]*(?: [\w-]+)+\}"
)
_LANGUAGES = frozenset(("", "bash", "sh", "shell", "console", "zsh", "shell-session", "shellscript", "terminal"))
_FORMS = frozenset(("json", "jsonc", "json5", "hjson", "yaml", "yml"))
_FILE_NAME = re.compile(r"(?<![\w./:-])[\w./-]*\w\.(?:json|hjson|yaml|yml)\b")
_COMMENT = re.compile(r"[ \t]*(?:#|//)[^\n]*")
_MOST_NAMES = 2
_PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.@~:/-]*[$%])[ \t]+", re.MULTILINE)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def shell_blocks(text: str) -> Iterator[Chars]:
    """The shell text of each block, prompts left out."""
    for opening, start, end in blocks(text):
        if opening[2].lower() in _LANGUAGES or text.startswith("$ ", start):  # a session, whatever it is called
            block = _without_prompts(text, start, end)
            yield Chars(_PLACEHOLDER.sub(lambda found: UNKNOWN * len(found[0]), block.text), block.at)


def named_blocks(text: str) -> Iterator[Written]:
    """The blocks of JSON and YAML of which the page says that they stand in a file: in the line that opens them, in the
    one above it, or in a comment at their start. One that is cut short with `...` is no whole file."""
    for opening, start, end in blocks(text):
        form = opening[2].lower().partition(":")[0]
        if form not in _FORMS or ">" in opening[0][: opening.start(1) - opening.start()] or "..." in text[start:end]:
            continue
        above = text[: opening.start()].rstrip().rpartition("\n")[2]
        comment = _COMMENT.match(text, start, end)
        names = dict.fromkeys(
            found[0]
            for said in (opening[0], above, comment[0] if comment is not None else "")
            for found in _FILE_NAME.finditer(said)
        )
        if len(names) <= _MOST_NAMES:
            for name in names:
                yield Written(name.removeprefix("./"), Chars(text[start:end], range(start, end)), shown=True)


def blocks(text: str) -> Iterator[tuple[re.Match[str], int, int]]:
    """The line that opens each fenced block, and where its text starts and ends."""
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
        yield opening, start, end


def _without_prompts(text: str, start: int, end: int) -> Chars:
    if not _PROMPT.search(text, start, end):
        return Chars(text[start:end], range(start, end))
    parts: list[str] = []
    at: list[int] = []
    continued = False
    for line in _LINE.finditer(text, start, end):
        prompt = _PROMPT.match(line[0])
        if not prompt and not continued:
            continue  # what the command printed
        begin = line.start() + (prompt.end() if prompt else 0)
        parts.append(text[begin : line.end()])
        at.extend(range(begin, line.end()))
        continued = line[0].rstrip("\r\n").endswith("\\")
    return Chars("".join(parts), at)
