"""Files that a shell script writes out itself, `cat > ds.json << EOF`: their names, and what is in them.

A file that several branches write may be any of theirs; one that the script adds to, or hands to a program that may
change it, is not known.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zerocfg.source.launch.line import Word, Written
from zerocfg.source.launch.shell_folders import relative_to_start
from zerocfg.source.launch.shell_words import START, UNKNOWN, Chars, Token

if TYPE_CHECKING:
    from zerocfg.source.launch.shell_expand import Expander

_READS = frozenset(
    "cat echo printf ls test [ [[ head tail less rm mkdir chmod realpath dirname basename export set true".split()
)
"""Programs that do not modify the files that they are given."""
_QUOTES = re.compile(r"[\"'\\]")
_AROUND = re.compile(r"\A\s+|\s+\Z")
"""What `read` takes away from a text."""
_TABS = re.compile(r"^\t+", re.MULTILINE)
_START = re.compile(rf"{START}/?")
"""What a path from the folder of the start loses where the text of a file names it: such files are looked for there."""


class _Awaited(NamedTuple):
    """A here-document whose text is still to come. ``to``: the path of the file, None where it goes elsewhere;
    ``written``: the same as it stands in the script. ``variable``: the name that `read -d ''` gives it."""

    to: Chars | None
    written: str
    quoted: bool
    tabs: bool
    adds: bool
    variable: str = ""


class Heredocs:
    """What one shell text has written so far. By path, or as the script writes a path that only the shell knows.

    The blocks of a page, and the cells of a notebook, are one text. ``choices``: its parts may be alternatives, one of
    which a reader takes.
    """

    def __init__(self, choices: bool = False) -> None:
        self.choices = choices
        self._files: dict[str, tuple[Written, ...]] = {}
        self._unknown: list[tuple[str, Chars]] = []
        self._awaited: list[_Awaited] = []

    def known(self) -> tuple[Written, ...]:
        return tuple(file for ways in self._files.values() for file in ways)

    def put(self, file: Written) -> None:
        """A file is written as a whole, by no command of the text."""
        name = posixpath.normpath(file.name)
        self._files[name] = () if file.text is None else (Written(name, file.text),)

    def command(self, chars: Chars, command: Sequence[Token], redirects: Sequence[Token], expander: Expander) -> None:
        """A command ended: note the here-documents that follow it, and forget the files that it writes otherwise."""
        marks, outputs = [], []
        for sign, word in zip(redirects[::2], redirects[1::2], strict=False):
            if "<<" in sign.text and "<<<" not in sign.text:
                marks.append((sign.text, word.text))
            elif ">" in sign.text and "&" not in sign.text:
                outputs.append((sign.text, word))
        words = [token.text for token in command]
        to, adds = None, False
        if len(marks) == 1 and words == ["cat"] and len(outputs) == 1:
            sign_text, to = outputs.pop()
            adds = ">>" in sign_text
        elif len(marks) == 1 and words[:1] == ["tee"] and len(words) in (2, 3) and words[1:-1] in ([], ["-a"]):
            to, adds = command[-1], len(words) == 3
        variable = words[-1] if len(marks) == 1 and words[:1] == ["read"] and _whole_text(words) else ""
        for sign_text, mark in marks:
            target = expander.text(chars.part(to.start, to.end)) if to is not None else None
            written = to.text.strip("\"'") if to is not None else ""
            quoted = _QUOTES.search(mark) is not None
            self._awaited.append(_Awaited(target, written, quoted, sign_text.endswith("-"), adds, variable))
        for _, word in outputs if self._files else ():
            self._forget(expander.text(chars.part(word.start, word.end)))

    def body(self, chars: Chars, directory: str | None, branch: bool, expander: Expander) -> tuple[str, Chars] | None:
        """The text of the next here-document; a variable that it goes to, with its value. ``directory``: where relative
        paths start, None where nobody knows; ``branch``: it may not be written at all."""
        awaited = self._awaited.pop(0) if self._awaited else None
        if awaited is None:
            return None
        if awaited.tabs:
            chars = _without(chars, _TABS)
        if awaited.variable:
            return awaited.variable, _without(chars if awaited.quoted else expander.document(chars), _AROUND)
        self._file(awaited, chars, directory, branch, expander)
        return None

    def _file(self, awaited: _Awaited, chars: Chars, directory: str | None, branch: bool, expander: Expander) -> None:
        if awaited.to is None or not awaited.to.text:
            return
        name = self._name(awaited.to, awaited.written, directory)
        if name is None:
            return
        text = chars if awaited.quoted else _without(self.with_names(expander.document(chars)), _START)
        if awaited.adds:
            self._files[name] = ()
        elif name not in self._files or not (branch or self.choices):
            self._files[name] = (Written(name, text),)
        elif self._files[name]:
            self._files[name] += (Written(name, text),)

    def _name(self, target: Chars, written: str, directory: str | None) -> str | None:
        if UNKNOWN not in target.text:
            path = relative_to_start(target.text)
            if path is not None:
                return path
            if directory is None and not target.text.startswith("/"):
                return None
            return posixpath.normpath(posixpath.join(directory or "", target.text))
        if not any(_same(known, target) for _, known in self._unknown):
            self._unknown.append((written, target))
        return next(name for name, known in self._unknown if _same(known, target))

    def with_names(self, chars: Chars) -> Chars:
        """A text with the names of unknown files in place of the paths that only the shell knows."""
        for name, target in self._unknown:
            at = chars.text.find(target.text) if self._files.get(name) else -1
            end = at + len(target.text)
            if at >= 0 and _same(chars.part(at, end), target):
                text = chars.text[:at] + name + chars.text[end:]
                chars = Chars(text, [*chars.at[:at], *[target.at[0]] * len(name), *chars.at[end:]])
        return chars

    def not_launched(self, program: str, words: Sequence[Word]) -> None:
        """A program that starts no training may change the files that it is given."""
        if self._files and program not in _READS:
            for word in words[-1:] if program == "cp" else words[1:]:
                name = posixpath.normpath(word.value) if word.value else ""
                if name in self._files:
                    self._files[name] = ()

    def _forget(self, target: Chars) -> None:
        known = relative_to_start(target.text) or posixpath.normpath(target.text)
        names = {known, *(name for name, known in self._unknown if _same(known, target))}
        for name in names & self._files.keys():
            self._files[name] = ()


def _whole_text(words: Sequence[str]) -> bool:
    """Whether `read` takes all of its input into one variable: `read -r -d '' NAME`."""
    return words[1:-1] in (["-r", "-d", "''"], ["-d", "''", "-r"], ["-r", "-d", '""'], ["-rd", "''"], ["-rd", '""'])


def _same(item: Chars, other: Chars) -> bool:
    """Whether two paths are equal: the same text, with unknown parts from the same place of the script."""
    return item.text == other.text and all(
        here == there for here, there, mark in zip(item.at, other.at, item.text, strict=True) if mark == UNKNOWN
    )


def _without(chars: Chars, pattern: re.Pattern[str]) -> Chars:
    """A text without what a pattern finds."""
    kept = list(_between(pattern, chars))
    return Chars("".join(part.text for part in kept), [at for part in kept for at in part.at])


def _between(pattern: re.Pattern[str], chars: Chars) -> Iterator[Chars]:
    done = 0
    for found in pattern.finditer(chars.text):
        yield chars.part(done, found.start())
        done = found.end()
    yield chars.part(done, len(chars.text))
