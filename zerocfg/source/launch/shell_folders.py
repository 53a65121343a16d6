"""Folders of a shell text: the one it was started in, the one it lies in, and what `dirname` and its like make of them.

A path that begins with `START` is one from the folder in which the text was started, wherever it is used; nobody knows
which that is. Where the text lies is known, so a path from there is whole.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from collections.abc import Callable

from zerocfg.budgets import PATH_CHARACTERS
from zerocfg.source.launch.shell_words import START, UNKNOWN, Chars, tokens

_TELLS = re.compile(r"\s*(?:cd|pushd|pwd|dirname|basename|realpath|readlink)\b")
"""How the commands begin that only look at the text of paths, or give the folder."""
_ALWAYS_THERE = re.compile(r"^#SBATCH\b", re.MULTILINE)
_FAILED = ""
"""Stands for command output that cannot be predicted."""
_OPTIONS = {
    "cd": frozenset({"--", "-P", "-L"}),
    "pwd": frozenset({"-P", "-L"}),
    "dirname": frozenset({"--"}),
    "basename": frozenset({"--"}),
    "realpath": frozenset({"--", "-e", "-m", "-s"}),
    "readlink": frozenset({"--", "-f", "-e", "-m"}),
}


def own_path(name: str, text: str) -> str | None:
    """The whole path of the script of that name; None where a scheduler starts a copy of it from somewhere else."""
    if not name or "\0" in name or name.endswith((".slurm", ".sbatch")) or _ALWAYS_THERE.search(text):
        return None
    return os.path.abspath(name).replace("\\", "/")  # noqa: PTH100


def relative_to_start(path: str) -> str | None:
    """The path relative to the folder where the text was started; None for one that is not below it."""
    if not path.startswith(START) or path[1:2] not in ("", "/") or START in path[1:] or ":" in path:
        return None
    return posixpath.normpath(path[2:] or ".")


def path_for_program(path: str, directory: str | None, known: bool) -> str | None:
    """A path as a program that runs in the folder ``directory`` would write it; None where nobody can tell. ``known``:
    whether that folder is."""
    if START not in path:
        return path
    option, equals, value = path.partition("=")
    if equals and option.startswith("-") and START not in option:
        value = path_for_program(value, directory, known) or ""
        return f"{option}={value}" if value else None
    found = relative_to_start(path)
    if found is None or not known or not directory or directory.startswith("/"):
        return found
    return _relative(found, directory)


def _relative(path: str, folder: str) -> str:
    """``path`` from ``folder``; both start at one place, above which nothing is known by name."""
    to, at = path.split("/"), [word for word in folder.split("/") if word != "."]
    same = 0
    while same < min(len(to), len(at)) and to[same] == at[same]:
        same += 1
    if ".." in at[same:]:
        return path
    steps = [".."] * len(at[same:]) + [item for item in to[same:] if item != "."]
    return "/".join(steps) or "."


def command_output(inside: Chars, folder: str | None, fields: Callable[[Chars], list[Chars]]) -> str | None:
    """What the commands of `$(...)` print; None where only the running shell knows. ``folder``: where they run;
    ``fields``: expands a word."""
    if not _TELLS.match(inside.text):
        return None
    printed: list[str] = []
    command: list[str] = []
    skipped = moved = False
    for token in tokens(inside.text):
        if token.kind == "word":
            words = fields(inside.part(token.start, token.end)) if not skipped else []
            if any(UNKNOWN in word.text for word in words) or (moved and "PWD" in token.text):
                return None
            command += [word.text for word in words]
        elif token.kind == "operator":
            if token.text not in ("&&", ";", "\n", "||"):
                return None
            folder = _run(command, folder, printed)
            moved = moved or command[:1] == ["cd"]
            command, skipped = [], token.text == "||"  # what comes after a failure does not come
    folder = _run(command, folder, printed)
    text = printed[0] if len(printed) == 1 else None
    return text if text and len(text) <= PATH_CHARACTERS and _FAILED not in printed else None


def _run(command: list[str], folder: str | None, printed: list[str]) -> str | None:
    """The folder after a command; its output is appended, or `_FAILED` where it is unknown."""
    if not command:
        return folder
    name = command[0]
    words = [word for word in command[1:] if word not in _OPTIONS.get(name, ())]
    if name in ("cd", "pushd"):
        if len(words) == 1 and not words[0].startswith(("-", "~")):
            return _whole(folder, words[0])
        printed.append(_FAILED)
        return None
    printed.append(_printed(name, words, folder) or _FAILED)
    return folder


def _printed(name: str, words: list[str], folder: str | None) -> str | None:
    if name == "pwd":
        return folder if not words else None
    if not words or not words[0] or words[0].startswith("-"):
        return None
    if name == "dirname" and len(words) == 1:
        return parent(words[0])
    if name == "basename" and len(words) <= 2:
        last = posixpath.basename(words[0].rstrip("/"))
        suffix = words[1] if len(words) == 2 else ""
        return None if last in ("", START, "..") else last.removesuffix(suffix) or last
    if name in ("realpath", "readlink") and len(words) == 1:
        return _whole(folder, words[0])
    return None


def parent(path: str) -> str:
    """The output of `dirname`."""
    trimmed = path.rstrip("/") or "/"
    if trimmed == START or (trimmed.startswith(START) and posixpath.basename(trimmed) in ("..", ".")):
        return f"{trimmed}/.."
    head, slash, _ = trimmed.rpartition("/")
    return head or slash or "."


def _whole(folder: str | None, path: str) -> str | None:
    """The whole path of ``path`` where the commands run in ``folder``."""
    if not path.startswith((START, "/")):
        if folder is None:
            return None
        path = f"{folder}/{path}"
    if not path.startswith(START):
        return posixpath.normpath(path)
    found = relative_to_start(path)
    return None if found is None else START if found == "." else f"{START}/{found}"
