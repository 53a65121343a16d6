"""The commands of a Markdown page: fenced blocks, and what HTML comments before them say to the tests.

Blocks of ``console`` hold lines that start with ``$ `` and, below them, what is printed. Blocks of ``bash``, ``sh`` and
``shell`` hold one command a line; ``#`` begins a comment, a backslash at the end continues a line. Comments
directly before a block:

``<!-- start in: examples/quickstart -->``
    what follows runs in a fresh copy of that folder (``.``: a checkout with ``examples`` alone; ``nothing``: an empty
    one), until the next such comment. A page begins with ``.``
``<!-- first: COMMAND -->``
    run before the block, and not shown
``<!-- file: NAME -->``
    the block, in whatever language, is written to this file
``<!-- exit 1 -->``, ``<!-- exit 1: zerocfg diff; zerocfg gate -->``
    the code of the block's last command; of all that begin so. Anything else must exit with 0
``<!-- libs -->``
    the scenario needs torch, or is slow: it runs with the tests of that mark
``<!-- slurm -->``
    likewise, beside two Slurm nodes on this machine; where Slurm is not installed it is skipped
``<!-- not run: REASON -->``
    the block is not run, because it needs what is not here: a GPU, a cluster, a network
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

SHELL = {"console", "bash", "sh", "shell"}
_COMMENT = re.compile(r"^\s*<!-- *(start in|first|file|exit \d+|libs|slurm|not run)(?:: *(.*?))? *-->\s*$")
_COMMAND = re.compile(r"(\$|zerocfg|python3?|pip|torchrun|accelerate|deepspeed|srun|make|[A-Z_]+=\S+) ")
_FENCE = re.compile(r"^(\s*)(`{3,})\s*([\w-]*).*$")


@dataclass(frozen=True)
class Step:
    """One command; ``shown`` is the output that the page has below it, "" where it has none."""

    line: int
    command: str
    shown: str = ""
    code: int = 0


@dataclass(frozen=True)
class File:
    line: int
    name: str
    text: str


@dataclass
class Scenario:
    """What runs in one fresh folder, in the order of the page."""

    start: str
    line: int
    parts: list[Step | File] = field(default_factory=list)
    libs: bool = False
    slurm: bool = False


@dataclass
class Page:
    path: Path
    scenarios: list[Scenario] = field(default_factory=list)
    not_run: list[tuple[int, str]] = field(default_factory=list)
    """Line and reason of each block of commands that is not run here. "tests/x ..." says which other test runs it."""
    make: list[str] = field(default_factory=list)
    """Targets of make that commands name."""
    loose: list[int] = field(default_factory=list)
    """Lines that look like commands and stand in no block that is run."""


def read(path: Path) -> Page:
    page = Page(path)
    said: list[tuple[str, str]] = []
    current = Scenario(".", 1)
    lines = path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        comment, fence = _COMMENT.match(line), _FENCE.match(line)
        if comment:
            said.append((comment[1], comment[2] or ""))
        elif fence:
            begin = number
            while number < len(lines) and lines[number].strip() != fence[2]:
                number += 1
            text = "".join(f"{one.removeprefix(fence[1])}\n" for one in lines[begin:number])
            number += 1
            current = _block(page, current, said, fence[3], begin, text)
            said = []
        elif line.strip():
            if said:
                raise ValueError(f"{path}:{number}: `{said[-1][0]}` stands before no block")
            if line.startswith("    ") and _COMMAND.match(line.strip()):
                page.loose.append(number)
    _keep(page, current)
    return page


def _keep(page: Page, scenario: Scenario) -> None:
    if any(isinstance(part, Step) for part in scenario.parts):
        page.scenarios.append(scenario)


def _block(page: Page, current: Scenario, said: list[tuple[str, str]], language: str, line: int, text: str) -> Scenario:
    words = dict(said)
    if language in SHELL:
        page.make += re.findall(r"^(?:\$ )?make ([\w-]+)", text, re.M)
    if "not run" in words:
        if not words["not run"]:
            raise ValueError(f"{page.path}:{line}: `not run` without a reason")
        if language in SHELL:
            page.not_run.append((line, words["not run"]))
        return current
    if "start in" in words:
        _keep(page, current)
        current = Scenario(words["start in"], line)
    current.slurm |= "slurm" in words
    current.libs |= "libs" in words or current.slurm
    current.parts += [Step(line, command) for word, command in said if word == "first"]
    if "file" in words:
        current.parts.append(File(line, words["file"], text))
    elif language in SHELL:
        steps = _console(text, line) if language == "console" else _shell(text, line)
        current.parts += _coded(steps, {word: rest for word, rest in said if word.startswith("exit ")})
    elif (not language and _COMMAND.match(text)) or re.search(r"^\$ ", text, re.M):
        page.loose.append(line)
    return current


def _coded(steps: list[Step], codes: dict[str, str]) -> list[Step]:
    for word, rest in codes.items():
        code, starts = int(word.split()[1]), tuple(one.strip() for one in rest.split(";") if one.strip())
        steps = [
            Step(step.line, step.command, step.shown, code)
            if (step.command.startswith(starts) if starts else step is steps[-1])
            else step
            for step in steps
        ]
    return steps


def _console(text: str, line: int) -> list[Step]:
    steps: list[Step] = []
    for offset, one in enumerate(text.splitlines(keepends=True), 1):
        last = steps[-1] if steps else None
        if one.startswith("$ "):
            steps.append(Step(line + offset, one[2:].rstrip("\n")))
        elif last is None:
            raise ValueError(f"line {line + offset}: output without a command before it")
        elif last.command.endswith("\\") and not last.shown:
            steps[-1] = Step(last.line, f"{last.command}\n{one.removeprefix('> ').rstrip()}")
        else:
            steps[-1] = Step(last.line, last.command, last.shown + one)
    return steps


def _shell(text: str, line: int) -> list[Step]:
    steps: list[Step] = []
    open_ = False
    for offset, one in enumerate(text.splitlines(), 1):
        if open_:
            steps[-1] = Step(steps[-1].line, f"{steps[-1].command}\n{one}")
        elif one.strip() and not one.lstrip().startswith("#"):
            steps.append(Step(line + offset, one))
        else:
            continue
        open_ = one.endswith("\\")
    return steps
