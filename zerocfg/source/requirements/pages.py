"""The packages that a Markdown page tells its readers to install.

Three forms: commands in fenced blocks, a command in backticks within a sentence, and a block of requirements, one a
line. Nothing here raises, as in `requirements`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.source.launch.markdown import blocks
from zerocfg.source.launch.shell_started import read_commands
from zerocfg.source.launch.shell_words import Chars
from zerocfg.source.requirements.installs import installed, read_installs
from zerocfg.source.requirements.pip import Requirement, parse_requirement
from zerocfg.source.text import SourceText

_INLINE = re.compile(r"(?<!`)`[ \t]*((?:python3?[ \t]+-m[ \t]+|uv[ \t]+|!)?pip3?[ \t]+install[ \t][^`\n]+)`(?!`)")
_LISTED = re.compile(r"[ \t]*([A-Za-z][\w.-]*(?:\[[\w,.-]*\])?[ \t]*==[ \t]*\d[\w.*+]*)[ \t]*(?:#[^\n]*)?\r?\n?")


def read_page(source: SourceText) -> list[Requirement]:
    """What a page says to install, in the order of the three forms."""
    found = [*read_installs(source)[0], *_in_sentences(source), *_listed(source.text)]
    return [item for item in found if not _is_upgrade(source.text, item)]


def _in_sentences(source: SourceText) -> Iterator[Requirement]:
    text, inside = source.text, [(start, end) for _, start, end in blocks(source.text)]
    for match in _INLINE.finditer(text):
        if any(start <= match.start() < end for start, end in inside):
            continue
        begin, end = match.span(1)
        begin += text[begin] == "!"
        yield from installed(text, read_commands(source, Chars(text[begin:end], range(begin, end))))[0]


def _listed(text: str) -> Iterator[Requirement]:
    """The lines of blocks in which every line names a package and its release."""
    for _, start, end in blocks(text):
        lines = re.compile(r"[^\n]*\n|[^\n]+").finditer(text, start, end)
        matches = [_LISTED.fullmatch(text, line.start(), line.end()) for line in lines if line[0].strip()]
        for match in matches if None not in matches else ():
            assert match is not None
            requirement = parse_requirement(match[1], match.start(1))
            if requirement is not None:
                yield requirement


def _is_upgrade(text: str, item: Requirement) -> bool:
    """Whether a command upgrades a package to the newest release: a reader of today gets today's."""
    if item.versions is not None:
        return False
    plain = parse_requirement(text[item.span.start : item.span.end], 0)
    return plain is not None and plain.versions == ""
