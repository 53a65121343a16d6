"""Launch lines: what a shell script, Makefile or Markdown page starts, and with which arguments.

The data shapes only; the reader is :mod:`zerocfg.source.launch.files`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from zerocfg.record import field, record
from zerocfg.source.text import SourceText, Span

if TYPE_CHECKING:
    from zerocfg.source.launch.shell_words import Chars
    from zerocfg.source.node import Problem


@record(slots=True, frozen=True)
class Word:
    """One word of a command line. ``value`` is None when it holds a variable nobody assigned.

    ``text`` is the word as written (quotes kept), ``value`` the word as the program receives it. ``exact``: ``span``
    holds all of the word, with its quotes, and nothing else; otherwise it only shows where the word comes from.
    ``parts``: of a word without a value, the known texts before, between and behind what is not known.
    """

    text: str
    value: str | None
    span: Span
    exact: bool = True
    parts: tuple[str, ...] = ()


@record(slots=True, frozen=True)
class Option:
    """One option of a command: ``--name value``, ``--name=value``, or a bare ``--flag`` (``value`` is None).

    ``name`` keeps its leading dashes and its spelling. ``exact``: as of the word that holds the name.
    """

    name: str
    value: Word | None
    span: Span
    exact: bool = True

    @property
    def plain(self) -> str:
        """The name as parsers store it: without leading dashes, ``-`` read as ``_``."""
        return self.name.lstrip("-").replace("-", "_")


@record(slots=True, frozen=True, eq=False)
class Written:
    """A file that the script writes out before a line. ``name``: its path from where the script starts, or, where only
    the running shell knows it, as it is written. ``text``: what it will hold, None where nobody can tell. ``shown``: a
    page shows what stands in it, so that one that is there counts in its place."""

    name: str
    text: Chars | None
    shown: bool = False


@record(frozen=True)
class LaunchLine:
    """One command that starts a training.

    ``launcher`` is the program: "accelerate", "deepspeed", "torchrun", "python", or the front end that a program of its
    own starts (it takes no script: all its words are ``arguments``);
    ``options`` are the launcher's own, before the script; ``script`` is the training script or module (None when it
    could not be told); ``arguments`` are the script's words after it, and ``script_options`` the same read as options.
    ``environment`` holds ``NAME=value`` written before the command and exported in the file before it (None: the value
    is unknown). ``directory`` is the folder of a ``cd`` with a known value before the line, or None;
    ``directory_known`` False: the value of such a ``cd`` is unknown. ``written``: the files that the script itself has
    written by then, those of other branches of it, too. ``cut_off``: the words of the lines below that begin with an
    option, which the shell takes for commands of their own: a continuation is missing. ``as_program``: ``NAME=value``
    in the place of the program that ``srun`` or its like is to run, behind its name.
    """

    launcher: str
    options: tuple[Option, ...]
    script: Word | None
    arguments: tuple[Word, ...]
    script_options: tuple[Option, ...]
    environment: dict[str, str | None]
    span: Span
    module: bool = False
    directory: str | None = None
    written: tuple[Written, ...] = ()
    cut_off: tuple[Word, ...] = ()
    as_program: tuple[Word, Word] | None = None
    directory_known: bool = True

    @cached_property
    def last_options(self) -> dict[str, tuple[int, Option]]:
        """The launcher's options by plain name, each with its number among them; the last of a name counts."""
        return {option.plain: (at, option) for at, option in enumerate(self.options)}

    @cached_property
    def options_at(self) -> dict[Span, Option]:
        """Options of launcher and script by their place, the launcher's first."""
        return {option.span: option for option in reversed((*self.options, *self.script_options))}


@record(slots=True, frozen=True)
class OtherStart:
    """A command that starts a training program whose options are not read. ``started``: its module or script."""

    program: str
    started: str
    span: Span


@record(slots=True)
class LaunchFile:
    """A file with launch lines in it. ``others``: the commands that start other training programs. ``written``: the
    files that it has written at its end; ``exhausted``: the budgets that its text was too much for, each at the first
    place that was not read whole."""

    source: SourceText
    lines: list[LaunchLine] = field(default_factory=list)
    others: list[OtherStart] = field(default_factory=list)
    written: tuple[Written, ...] = ()
    exhausted: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        return self.source.name
