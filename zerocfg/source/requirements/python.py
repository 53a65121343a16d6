"""The Python that commands and small files ask for, as requirements of a package called ``python``.

Nothing here raises, as in `requirements`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from zerocfg.source.launch.launchers import program
from zerocfg.source.launch.line import Word
from zerocfg.source.requirements.installs import commands_of, commands_of_image
from zerocfg.source.requirements.pip import Requirement, conda_requirement
from zerocfg.source.text import SourceText, Span

PYTHON = "python"
_CONDA = frozenset(("conda", "mamba", "micromamba"))
_FROM = re.compile(r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*((?:\S*/)?python:(\S+))", re.MULTILINE | re.IGNORECASE)
_RELEASE = re.compile(r"(\d+\.\d+)(?:\.\d+)?(?![\d.])")
_INTERPRETER = re.compile(r"(?:c?python[@-]?)?(\d+\.\d+)(?:\.\d+)?\Z")
_NAMED = re.compile(r"python(3\.\d+)\Z")


def read_setup(source: SourceText) -> list[Requirement]:
    """The Python that the commands of a shell script, a Markdown page or a notebook set up."""
    return list(_set_up(commands_of(source)))


def read_image(source: SourceText) -> list[Requirement]:
    """The Python of the images that a Dockerfile starts from, and what its commands set up."""
    found = [_release(match[2], Span(*match.span(1)), _RELEASE.match) for match in _FROM.finditer(source.text)]
    return [*found, *_set_up(commands_of_image(source))]


def read_version_file(source: SourceText) -> list[Requirement]:
    """``.python-version`` of pyenv and uv (a line each), ``runtime.txt`` of Heroku: ``python-3.9.18``."""
    found = []
    for line in re.finditer(r"^[ \t]*([^\s#]+)", source.text, re.MULTILINE):
        found.append(_release(line[1], Span(*line.span(1)), _INTERPRETER.match))
    return found


def _release(text: str, span: Span, reads: Callable[[str], re.Match[str] | None]) -> Requirement:
    found = reads(text)
    return Requirement(PYTHON, f"=={found[1]}.*" if found else None, span)


def _set_up(commands: Iterable[list[Word]]) -> Iterator[Requirement]:
    for words in commands:
        names = [program(word) for word in words[:3]]
        if names and names[0] in _CONDA:
            yield from _of_conda(words[1:])
        elif names:
            yield from _of_interpreter(names, words)


def _of_conda(words: list[Word]) -> Iterator[Requirement]:
    """``conda create -n x python=3.9``, ``conda install python=3.9``."""
    if not any(word.value in ("create", "install") for word in words[:3]):
        return
    for word in words:
        text = word.value if word.value is not None else word.text.strip("\"'")
        if re.match(r"(?:[\w.-]+::)?python\s*[=<>~!]", text):
            requirement = conda_requirement(text, word.span)
            if requirement is not None:
                yield requirement


def _of_interpreter(names: list[str], words: list[Word]) -> Iterator[Requirement]:
    """``python3.9 -m venv``, ``uv venv --python 3.9``, ``virtualenv -p python3.9``, ``pyenv local 3.9.1``."""
    named = _NAMED.match(names[0])
    makes = [word.value for word in words[1:3]] in (["-m", "venv"], ["-m", "virtualenv"])
    if named and makes:
        yield Requirement(PYTHON, f"=={named[1]}.*", words[0].span)
    elif names[0] == "virtualenv" or names[:2] == ["uv", "venv"]:
        for at, word in enumerate(words[1:], 1):
            option, sign, value = (word.value or "").partition("=")
            if option in ("-p", "--python") and (sign or at + 1 < len(words)):
                release_word = word if sign else words[at + 1]
                yield _release(value if sign else release_word.value or "", release_word.span, _INTERPRETER.match)
    elif names[0] == "pyenv" and names[1:2] in (["local"], ["global"], ["virtualenv"]) and len(words) > 2:
        yield _release(words[2].value or "", words[2].span, _INTERPRETER.match)
    elif names == ["uv", PYTHON, "pin"] and len(words) > 3:
        yield _release(words[3].value or "", words[3].span, _INTERPRETER.match)
