"""The packages that commands install: `pip install` and its like in Dockerfiles and shell scripts.

Nothing here raises, as in `requirements`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from zerocfg.source.launch.image_heredocs import is_script, marks, size_of
from zerocfg.source.launch.launchers import program
from zerocfg.source.launch.line import Word
from zerocfg.source.launch.shell_started import read_commands
from zerocfg.source.launch.shell_words import Chars
from zerocfg.source.requirements.manifests import Read
from zerocfg.source.requirements.pip import Requirement, argument, conda_requirement
from zerocfg.source.text import SourceText, Span

_PIP = re.compile(r"pip(?:[23](?:\.\d+)?)?\Z")
_PYTHON = re.compile(r"python(?:[23](?:\.\d+)?)?\Z")
_CONDA = frozenset(("conda", "mamba", "micromamba"))
_PREFIXES = frozenset(("sudo", "time", "env", "uv"))
_ENVIRONMENTS = _CONDA | {"poetry", "pipenv", "pdm"}
_RUN_WITH_VALUES = frozenset(("-n", "--name", "-p", "--prefix", "--cwd", "--root-prefix", "-r", "-e", "--env", "-a"))
_FILES = frozenset(("-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints"))
_UPGRADES = frozenset(("-U", "--upgrade", "--pre"))
_WITH_VALUES = frozenset(
    "-i --index-url --extra-index-url --index --default-index -f --find-links -t --target --prefix --root --platform "
    "--python-version --python -p --torch-backend --only-binary --no-binary --config-settings --global-option "
    "--install-option --trusted-host --timeout --retries --proxy --cache-dir --channel --name -n --file".split()
)
_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)(?=[ \t])")
_FLAGS = re.compile(r"(?:[ \t]+--[a-z-]+(?:=\S+)?)+")
_OLD_ENV = re.compile(r"[ \t]+(\w+)([ \t]+)(?!=)")


def read_dockerfile(source: SourceText) -> Read:
    """What a Dockerfile's RUN lines install, with the values that its ARG and ENV lines give."""
    return installed(source.text, commands_of_image(source))


def read_installs(source: SourceText) -> Read:
    """What a shell script, the fenced commands of a page or the cells of a notebook (`!pip install`) install."""
    return installed(source.text, commands_of(source, " install"))


def commands_of_image(source: SourceText) -> list[list[Word]]:
    """The commands that a Dockerfile runs."""
    return read_commands(source, Chars(_as_shell(source.text), range(len(source.text))))


def commands_of(source: SourceText, having: str = "") -> Iterator[list[Word]]:
    """The commands of a shell script, a Markdown page or a notebook, by its name. ``having``: of a page or a notebook
    only those blocks and cells that hold this text."""
    if source.name.endswith(".ipynb"):
        from zerocfg.source.launch.notebook import shell_of

        texts: Iterable[Chars] = shell_of(source)
    elif source.name.endswith(".md"):
        from zerocfg.source.launch.markdown import shell_blocks

        texts = shell_blocks(source.text)
    else:
        texts = (Chars(source.text, range(len(source.text))),)
    for text in texts:
        if having in text.text:
            yield from read_commands(source, text)


def _as_shell(text: str) -> str:
    """A Dockerfile as the shell text that it runs; every character keeps its place, the others are blanks."""
    found: list[str] = []
    word = ""
    continued = False
    every = text.splitlines(keepends=True)
    lines = iter(enumerate(every))
    for at, line in lines:
        if line.lstrip().startswith("#"):
            found.append(" " * len(line))  # between the lines of an instruction, too
            continue
        start = 0
        if not continued:
            match = _INSTRUCTION.match(line)
            word = match[1].upper() if match else ""
            start = match.end() if match else 0
            flags = _FLAGS.match(line, start) if word == "RUN" else None
            start = flags.end() if flags else start
        waiting = marks(word, line[start:])
        keeps = word in ("RUN", "ARG", "ENV")
        size = size_of(waiting, every[at + 1 :]) if waiting else 0
        document = [next(lines)[1] for _ in range(size)]
        if document and not continued and word == "RUN" and is_script(line[start:], document[0]):
            found += [_blank(line), *document[:-1], *map(_blank, document[-1:])]
            continue
        continued = not document and line.rstrip("\r\n").endswith("\\")
        shell = _assignment(line, start) if word == "ENV" and start else " " * start + line[start:]
        found += [part if keeps else _blank(part) for part in (shell, *document)]
    return "".join(found)


def _assignment(line: str, start: int) -> str:
    """What `ENV` sets, also in its old form without a sign, with blanks in the place of what stands before it."""
    old, rest = _OLD_ENV.match(line, start), line[start:]
    if old:
        rest = _tight(f"{line[start : old.start(2)]}={line[old.end(2) :].rjust(len(line) - old.start(2) - 1)}")
    return " " * start + rest


def _blank(line: str) -> str:
    return re.sub(r"[^\r\n]", " ", line)


def _tight(text: str) -> str:
    """``NAME=   value`` with the blanks before the name: an assignment of the shell has none after its sign."""
    name, _, value = text.partition("=")
    stripped = value.lstrip(" ")
    return f"{' ' * (len(value) - len(stripped))}{name}={stripped}"


def installed(text: str, commands: Iterable[list[Word]]) -> Read:
    """The packages that commands install, and the files of requirements that they name."""
    found: list[Requirement] = []
    includes: list[str] = []
    for words in commands:
        given = _given(words)
        if given is not None:
            conda, rest = given
            found += [_unquoted(text, package) for package in _packages(rest, includes, conda)]
    return found, includes


def _unquoted(text: str, requirement: Requirement) -> Requirement:
    """Its place without the quotes around the word."""
    start, end = requirement.span
    quoted = end - start > 1 and text[start] in "\"'" and text[end - 1] == text[start]
    return replace(requirement, span=Span(start + 1, end - 1)) if quoted else requirement


def _command_at(words: list[Word]) -> int:
    """Where the command itself begins, after assignments, `sudo` and the tools that run a command in an environment:
    ``micromamba run -n train pip install ...``."""
    at = 0
    while at < len(words):
        name = program(words[at])
        if name in _ENVIRONMENTS and at + 1 < len(words) and words[at + 1].value == "run":
            at += 2
            while at < len(words) and (words[at].value or "").startswith("-"):
                at += 2 if words[at].value in _RUN_WITH_VALUES else 1
        elif name in _PREFIXES or "=" in (words[at].value or ""):
            at += 1
        else:
            break
    return at


def _given(words: list[Word]) -> tuple[bool, list[Word]] | None:
    """What an installing command is given, and whether conda installs it; None of any other command."""
    at = _command_at(words)
    names = [program(word) for word in words[at : at + 3]]
    if len(names) == 3 and _PYTHON.match(names[0]) and names[1:] == ["-m", "pip"]:
        at += 2
        names = names[2:]
    if not names or not (_PIP.match(names[0]) or names[0] in _CONDA):
        return None
    rest = words[at + 1 :]
    verb = next((index for index, word in enumerate(rest) if not (word.value or "-").startswith("-")), None)
    return (names[0] in _CONDA, rest[verb + 1 :]) if verb is not None and rest[verb].value == "install" else None


def _packages(words: list[Word], includes: list[str], conda: bool) -> Iterator[Requirement]:
    newest = any(word.value in _UPGRADES for word in words)
    left = iter(words)
    for word in left:
        text = word.value if word.value is not None else word.text.strip("\"'")
        if text in _WITH_VALUES or (conda and text == "-c"):  # a channel
            next(left, None)
        elif text in _FILES:
            includes += [value for value in (getattr(next(left, None), "value", None),) if value]
        elif not text.startswith("-") or text.startswith("-e"):
            yield from _package(text, word.span, newest, conda)


def _package(text: str, span: Span, newest: bool, conda: bool) -> Iterator[Requirement]:
    requirement = conda_requirement(text, span) if conda else argument(text, span.start)
    if requirement is not None:
        # What is upgraded without a version is the newest of its day, whatever was there before.
        versions = None if newest and requirement.versions == "" else requirement.versions
        yield replace(requirement, span=span, versions=versions)
