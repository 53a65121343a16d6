"""All commands that a shell text starts. Edits of the text are checked against them."""

from __future__ import annotations

from typing import NamedTuple

from zerocfg.source.launch.launchers import SHELLS, program
from zerocfg.source.launch.line import Word
from zerocfg.source.launch.programs import NONE, Programs
from zerocfg.source.launch.shell import Shell
from zerocfg.source.launch.shell_expand import Value
from zerocfg.source.launch.shell_words import Chars
from zerocfg.source.text import SourceText, Span


def read_commands(source: SourceText, chars: Chars) -> list[list[Word]]:
    """The words of every command of one shell text."""
    shell = _Commands(source, {})
    shell.read(chars, Span(0, len(source.text)))
    return shell.started


class Started(NamedTuple):
    """A command as its program gets it. ``launch``: the place of the launch line that it is, None for any other."""

    words: list[Word]
    launch: Span | None


def read_started(source: SourceText, chars: Chars, programs: Programs = NONE) -> list[Started]:
    """The same, with those in the texts of other shells (`srun bash -c "..."`), and which of them are launch lines."""
    shell = _Started(source, {}, programs)
    shell.read(chars, Span(0, len(source.text)))
    return shell.started


class _Commands(Shell):
    """Keeps every command in place of those that start a training."""

    def __init__(self, source: SourceText, environment: dict[str, str | None]) -> None:
        super().__init__(source, environment)
        self.started: list[list[Word]] = []

    def start(self, words: list[Word], prefix: dict[str, Value], span: Span, nesting: int) -> None:
        if program(words[0]) in SHELLS:
            self.shell(words, 0, span, nesting)
        else:
            self.started.append(words)


class _Started(Shell):
    """Keeps every command, those that start a training marked."""

    def __init__(self, source: SourceText, environment: dict[str, str | None], programs: Programs) -> None:
        super().__init__(source, environment, programs=programs)
        self.started: list[Started] = []

    def start(self, words: list[Word], prefix: dict[str, Value], span: Span, nesting: int) -> None:
        at = next((at for at, word in enumerate(words) if program(word) in SHELLS), None)
        started, launched = len(self.started), len(self.lines)
        if at is not None:
            self.shell(words, at, span, nesting)
        if at is not None and len(self.started) > started:
            words = words[: at + 1]  # the words of the text that the shell is given are those of its commands
        else:
            super().start(words, prefix, span, nesting)
        self.started.append(Started(words, span if len(self.lines) > launched else None))
