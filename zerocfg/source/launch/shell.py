"""Launch lines of a shell text.

The text is walked once from top to bottom, with the variables that are certain at each point. What only the
running shell can know stays unknown; nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from zerocfg.source.launch.allowance import Allowance
from zerocfg.source.launch.heredocs import Heredocs
from zerocfg.source.launch.launchers import (
    GRAMMARS,
    OF_MACHINES,
    RUNNERS,
    SHELLS,
    WRAPPERS,
    assignment_as_program,
    head,
    like_script,
    program,
    read_options,
    split_launcher,
)
from zerocfg.source.launch.line import LaunchLine, Option, OtherStart, Word
from zerocfg.source.launch.programs import NONE, Programs
from zerocfg.source.launch.shell_expand import Expander, Value
from zerocfg.source.launch.shell_functions import FUNCTION, Functions, with_functions
from zerocfg.source.launch.shell_loops import any_of
from zerocfg.source.launch.shell_scope import Scope, text_of
from zerocfg.source.launch.shell_spans import Placed, joined, span_of, words_of
from zerocfg.source.launch.shell_words import START, UNKNOWN, Chars, Token
from zerocfg.source.text import SourceText, Span

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_NAMES = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DECLARES = frozenset(("export", "declare", "typeset", "local", "readonly"))
_OPENS = frozenset(("if", "for", "while", "until", "case", "select", "{"))
_CLOSES = frozenset(("fi", "done", "esac", "}"))
_BRANCHES = frozenset(("elif", "else"))
_PASSES = frozenset(("then", "do", "!", "function", "coproc"))
_ASKS = frozenset(("--deepspeed", "--deepspeed_config", "--per_device_train_batch_size"))
"""Options of a script that plain Python starts for which it may be a training that is looked at."""
_TELLS = frozenset(("-h", "--help", "--version"))
_OPTION = re.compile(r"--?[A-Za-z]")


def read_words(
    source: SourceText, words: list[Word], allowance: Allowance | None = None, programs: Programs = NONE
) -> list[LaunchLine]:
    """The launch line that is a list of words, which no shell reads."""
    if not words:
        return []
    shell = Shell(source, {}, allowance=allowance, programs=programs)
    shell.start(words, {}, Span(words[0].span.start, words[-1].span.end), 0)
    return shell.lines


def read_shell(
    source: SourceText,
    chars: Chars,
    environment: dict[str, str | None] | None = None,
    *,
    heredocs: Heredocs | None = None,
    script: bool = False,
    allowance: Allowance | None = None,
    others: list[OtherStart] | None = None,
    programs: Programs = NONE,
) -> list[LaunchLine]:
    """The launch lines of one shell text, a part of the source. ``heredocs``: what other parts have written before;
    ``script``: the text is all of it, with a name of its own; ``allowance``: what other parts left of the budgets;
    ``others`` gets the commands that start other training programs; ``programs``: those that start a training."""
    shell = Shell(source, environment or {}, heredocs, allowance, programs)
    if script:
        shell.scope.lies_at(source.name, source.text)
    shell.read(chars, Span(0, len(source.text)))
    if others is not None:
        others += shell.others
    return shell.lines


class Shell:
    """Reads one shell text. What becomes of a program that the text starts is `start`'s to say."""

    def __init__(
        self,
        source: SourceText,
        environment: dict[str, str | None],
        heredocs: Heredocs | None = None,
        allowance: Allowance | None = None,
        programs: Programs = NONE,
    ) -> None:
        self.source = source
        self.programs = programs
        self.scope = Scope(environment)
        self.allowance = allowance or Allowance()
        scope = self.scope
        self.expander = Expander(source.text, scope.variables, scope.assign, scope.folder, self.allowance)
        self.lines: list[LaunchLine] = []
        self.others: list[OtherStart] = []
        self.heredocs = heredocs or Heredocs()
        self._functions = Functions()
        self._again = 0  # how many of the calls that are being followed are not the first ones of their functions
        self._ended_by_newline = False  # the last command was a launch line, and no operator ended it

    def read(self, chars: Chars, outer: Span) -> None:
        """Read a whole text: functions that it does not call by their name count as started at its end."""
        self.run(chars, outer, 0)
        while (function := self._functions.uncalled()) is not None:
            self.scope.open("(")
            self._call(*function)
            self.scope.close(("(",))
        self.lines.sort(key=lambda line: line.span.start)

    def run(self, chars: Chars, outer: Span, nesting: int) -> None:
        command: list[Token] = []
        redirects: list[Token] = []
        depth = self.scope.depth
        for token in with_functions(chars.text):
            if token.kind == FUNCTION:
                self._functions.define(token.text, chars.part(token.start, token.end))
                continue
            if token.kind in ("redirect", "target"):
                redirects.append(token)
                continue
            if token.kind == "body":
                self._body(chars.part(token.start, token.end))
                continue
            if token.kind == "word":
                if not command and self._keyword(token.text):
                    continue
                command.append(token)
                if len(command) == 3 and command[0].text == "case" and token.text == "in":
                    command = []
                continue
            if redirects:
                self.heredocs.command(chars, command, redirects, self.expander)
                redirects = []
            if token.text == "(":
                if len(command) == 1 and command[0].text not in ("", "case"):  # name() with a body of another kind
                    command = []
                self.scope.open("(")
            elif token.text == ")":
                if self.scope.innermost == "case":
                    command = []  # a pattern
                    continue
                self._complete(chars, command, outer, nesting)
                self.scope.close(("(",))
            else:
                self._complete(chars, command, outer, nesting, newline=token.text == "\n")
                if token.text.startswith(";;") or token.text == ";&":
                    self.scope.branch()
            command = []
        self._complete(chars, command, outer, nesting)
        self.scope.leave(depth)

    def _complete(
        self, chars: Chars, command: list[Token], outer: Span, nesting: int, *, newline: bool = False
    ) -> None:
        """A simple command is complete. Options in the place of one belong to the launch line above them."""
        if command and self._ended_by_newline and _OPTION.match(command[0].text):
            words = [word for token in command for word in self._words(chars, token, outer)]
            self.lines[-1] = replace(self.lines[-1], cut_off=(*self.lines[-1].cut_off, *words))
        elif command:
            before = len(self.lines)
            self._command(chars, command, outer, nesting)
            self._ended_by_newline = len(self.lines) > before
        self._ended_by_newline = self._ended_by_newline and newline

    def _body(self, chars: Chars) -> None:
        directory = (self.scope.directory or "") if self.scope.directory_known else None
        read = self.heredocs.body(chars, directory, self.scope.depth > 0, self.expander)
        if read is not None:
            self.scope.assign(*read)

    # Compound commands

    def _keyword(self, word: str) -> bool:
        """Whether the word at the start of a command belongs to a compound command and not to the command."""
        if word in _OPENS:
            self.scope.open(word)
            return word not in ("for", "select", "case")
        if word in _BRANCHES:
            self.scope.branch(last=word == "else")
            return True
        if word in _CLOSES:
            self.scope.close(tuple(_OPENS))
            return True
        return word in _PASSES

    # Simple commands

    def _command(self, chars: Chars, command: list[Token], outer: Span, nesting: int) -> None:
        if not command:
            return
        at = 0
        prefix: list[tuple[str, Value]] = []
        while at < len(command) and _ASSIGNMENT.match(command[at].text):
            prefix.append(self._assigned(chars, command[at]))
            at += 1
        if at == len(command):
            for name, value in prefix:
                self.scope.set(name, value)
            return
        first = command[at].text
        if first in ("for", "select") and at + 1 < len(command):
            self._loop(chars, command[at:])
            return
        if first.startswith("((") or first == "let":
            self._computed(first if first != "let" else " ".join(token.text for token in command[at + 1 :]))
            return
        if first == "case":
            return
        if first in _DECLARES:
            self._declare(chars, command[at:])
            return
        words: list[Word] = []
        for token in command[at:]:
            words += self._words(chars, token, outer)
        if not words:
            return
        span = span_of(chars.at[command[0].start : command[-1].end], outer)
        self._simple(words, dict(prefix), span, nesting)

    def _words(self, chars: Chars, token: Token, outer: Span) -> list[Word]:
        return words_of(
            self.source.text, chars, token, self.expander, outer, self.heredocs.with_names, self.scope.as_argument
        )

    def _loop(self, chars: Chars, command: list[Token]) -> None:
        """The head of a loop: `for NAME in WORDS` or `for ((...))`."""
        name = command[1].text
        if command[0].text == "for" and _NAME.match(name) and len(command) > 3 and command[2].text == "in":
            words = [part for token in command[3:] for part in self.expander.fields(chars.part(token.start, token.end))]
            self.scope.assign(name, any_of(words))
        else:
            self._computed(name)

    def _computed(self, expression: str) -> None:
        """Variables of a loop or of arithmetic, whose values only the running shell knows."""
        for name in _NAMES.findall(expression) if re.search(r"\A\w+\Z|(?<![=!<>])=(?!=)|\+\+|--", expression) else ():
            self.scope.assign(name, None)

    def _assigned(self, chars: Chars, token: Token) -> tuple[str, Value]:
        """Name and value of an assignment word."""
        found = _ASSIGNMENT.match(token.text)
        assert found is not None
        name, index, append = found.groups()
        start = token.start + found.end()
        if index:
            return name, None
        value: Value
        if chars.text.startswith("(", start):
            value = self.expander.array(chars.part(start + 1, max(start + 1, token.end - 1)))
        else:
            value = self.expander.assigned(chars.part(start, token.end))
        if not append:
            return name, value
        before = self.scope.variables.get(name)
        if not self.expander.affords(before, chars.at[token.start]):
            return name, None
        if isinstance(before, Chars) and isinstance(value, Chars):
            return name, Chars(before.text + value.text, [*before.at, *value.at])
        if isinstance(before, list) and isinstance(value, list):
            return name, before + value
        return name, None

    def _declare(self, chars: Chars, command: list[Token]) -> None:
        export = command[0].text == "export"
        for token in command[1:]:
            if token.text.startswith("-"):
                export = export or "x" in token.text
            elif _ASSIGNMENT.match(token.text):
                name, value = self._assigned(chars, token)
                if command[0].text != "readonly" and not export:
                    self._functions.make_local(name, self.scope)
                self.scope.set(name, value)
                if export:
                    self.scope.exported.add(name)
            elif export and _NAME.match(token.text):
                self.scope.exported.add(token.text)

    def _simple(self, words: list[Word], prefix: dict[str, Value], span: Span, nesting: int) -> None:
        name = program(words[0])
        if name == "cd" or name == "pushd":
            to = [word for word in words[1:] if word.value not in ("--", "-P", "-L")]
            self.scope.change_directory(_target(to[0]) if to else None)
        elif name == "popd":
            self.scope.change_directory(None)
        elif name == "unset":
            for word in words[1:]:
                self.scope.unset(word.value or "")
        elif name in ("read", "mapfile", "readarray", "getopts"):
            for word in words[1:]:
                if word.value and _NAME.match(word.value):
                    self.scope.assign(word.value, None)
        elif name == "set" and len(words) > 1:
            self.scope.export_all = self.scope.export_all or words[1].value in ("-a", "-o")
        elif name == "eval":
            self._nested(joined(words[1:]), span, nesting)
        elif self._functions.calls(words[0].value):
            self._call(name, self._functions.body(name))
        elif self._again:
            return
        else:
            before = len(self.lines)
            self.start(words, prefix, span, nesting)
            if len(self.lines) == before:
                self.heredocs.not_launched(name, words)

    def _call(self, name: str, body: Chars) -> None:
        """A function is called: its body is read with what is set here. What it starts counts the first time."""
        with self._functions.running(name, body, self.scope) as again:
            self._again += again
            self._ended_by_newline = False
            self.run(body, span_of(body.at, Span(0, len(self.source.text))), 0)
            self._again -= again

    def _nested(self, chars: Chars, span: Span, nesting: int) -> None:
        if self.allowance.nests(nesting + 1, len(chars.text), span):
            self.run(chars, span, nesting + 1)

    def start(self, words: list[Word], prefix: dict[str, Value], span: Span, nesting: int) -> None:  # noqa: C901
        """A program is started: find the launcher in it, if need be behind ``srun`` and its like."""
        if program(words[0]) == "ray":
            self._submitted(words, span)
            return
        environment = {name: text_of(value) for name, value in prefix.items()}
        wrapped = False
        for at, word in enumerate(words):
            name = program(word)
            found = head(words, at, self.programs)
            if found:
                launcher, begin = found
                options, script, module, arguments = split_launcher(launcher, words[begin:])
                script_options = read_options(arguments)
                module = module or any(option.name == "-m" for option in options)
                self._note_other(script, module, script_options, span)
                if launcher == "python":
                    if self._handed_on(arguments, span, nesting):
                        return
                    if script is None or not self._may_train(script, module, script_options):
                        return
                elif launcher not in GRAMMARS:
                    pass
                elif script is None and (not options or any(option.name in _TELLS for option in options)):
                    return
                named = at > 0 and (words[at - 1].value or "").startswith("-")  # docker build -t deepspeed .
                if named and not module and script is not None and not like_script(script):
                    continue
                inherited = self.scope.exports() + len(environment)
                if not self.allowance.launches(inherited, span):
                    return
                self.lines.append(
                    LaunchLine(
                        launcher,
                        options,
                        script,
                        arguments,
                        script_options,
                        {**self.scope.environment(), **environment},
                        span,
                        module,
                        self.scope.directory,
                        self.heredocs.known() if self.scope.directory_known else (),
                        as_program=assignment_as_program(words, at) if wrapped else None,
                        directory_known=self.scope.directory_known,
                    )
                )
                return
            if name in SHELLS:
                self.shell(words, at, span, nesting)
                return
            if name in WRAPPERS:
                if name in RUNNERS and not any(word.value in ("run", "exec") for word in words[at + 1 :]):
                    return  # conda install deepspeed
                wrapped = True
            elif not wrapped:
                return
            elif word.value and name == word.value and _ASSIGNMENT.match(word.value):
                left, _, right = word.value.partition("=")
                environment[left] = right

    def _may_train(self, script: Word, module: bool, options: Sequence[Option]) -> bool:
        """Whether what plain Python starts may be a training that is looked at."""
        if any(option.name in _ASKS for option in options):
            return True
        prints_help = any(option.name in _TELLS for option in options)
        return self.programs.training_of(script.value, module) is not None and not prints_help

    def _submitted(self, words: list[Word], span: Span) -> None:
        """`ray job submit ... -- python3 train.py`: where it runs, and in which environment, only the cluster knows."""
        command = words[next((at + 1 for at, word in enumerate(words) if word.value == "--"), len(words)) :]
        found = head(command, 0, self.programs) if command else None
        if found is not None:
            options, script, module, arguments = split_launcher(found[0], command[found[1] :])
            self._note_other(
                script, module or any(option.name == "-m" for option in options), read_options(arguments), span
            )

    def _note_other(self, script: Word | None, module: bool, options: Sequence[Option], span: Span) -> None:
        name = script.value if script is not None else None
        if name is None:
            return
        found = next((item for item in self.programs.unread if item.is_started(name, module, options)), None)
        if found is not None:
            self.others.append(OtherStart(found.name, name, span))

    def _handed_on(self, arguments: tuple[Word, ...], span: Span, nesting: int) -> bool:
        """Whether a program starts the commands behind `--`, as one for a cluster's queue does. It knows the machines,
        and may tell them to the launcher by itself."""
        at = next((at for at, word in enumerate(arguments) if word.value == "--"), len(arguments))
        command: list[Word] = []
        before = len(self.lines)
        for word in (*arguments[at + 1 :], None):
            if word is not None and word.value not in ("&&", ";", "||"):
                command.append(word)
            elif command and self.allowance.nests(nesting + 1, 0, span):
                self.start(command, {}, span, nesting + 1)
                command = []
        for index in range(before, len(self.lines)):
            line = self.lines[index]
            open_ = tuple(
                Option(name, Word("", None, line.span), line.span) for name in OF_MACHINES.get(line.launcher, ())
            )
            self.lines[index] = replace(line, options=line.options + open_)
        return len(self.lines) > before

    def shell(self, words: list[Word], at: int, span: Span, nesting: int) -> None:
        """``bash -c "..."``: the text is read with the variables known here."""
        for index in range(at + 1, len(words) - 1):
            option = words[index].value or ""
            if not option.startswith("-"):
                return
            if re.fullmatch(r"-[a-z]*c", option):
                word = words[index + 1]
                if isinstance(word, Placed):
                    self._nested(word.chars, span, nesting)
                return


def _target(word: Word) -> str | None:
    """The folder that `cd` is given, relative to the start folder where possible."""
    if isinstance(word, Placed) and START in word.chars.text and UNKNOWN not in word.chars.text:
        return word.chars.text
    return word.value
