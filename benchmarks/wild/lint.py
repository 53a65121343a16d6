"""What `zerocfg lint` says of a folder, started in it as its owner would, and which runs it sees there."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.wild.data import HERE, Finding, Repository

ROOT = HERE.parents[1]
LIMIT = 300
_RUNS = """
import json, zerocfg
for run in zerocfg.runs("."):
    if run.launch is not None:
        foreign = run.script.foreign if run.script is not None else ""
        words = [*run.launch.options, *filter(None, [run.launch.script])]
        lines = {run.launch_file.source.place(word.span.start).line for word in words}
        names = [f"{run.launch_file.name}:{line}" for line in sorted(lines)]
        print(json.dumps([run.name, names, foreign or run.consumer or ""]))
"""


_SETTINGS = """
import json, zerocfg
for run in zerocfg.runs("."):
    files = {"deepspeed": run.deepspeed, "accelerate": run.accelerate, "recipe": run.recipe, "line": run.launch_file}
    values = {name: repr(setting.value) for name, setting in run.effective.settings.items()}
    failures = sorted({failure.kind for failure in run.effective.failures})
    line = run.launch
    options = [[one.name, one.value and one.value.value] for one in line.options] if line else []
    words = [word.value for word in line.arguments] if line else []
    files = {role: file.name for role, file in files.items() if file}
    print(json.dumps([run.name, run.consumer, files, values, failures, line and [line.launcher, options, words]]))
"""


class LintError(Exception):
    """zerocfg did not answer: it crashed, or took too long."""


def _answer(tree: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise LintError(f"{tree.name}: no answer after {LIMIT} s") from None
    if done.returncode or (not done.stdout and done.stderr):
        raise LintError(f"{tree.name}: {done.stderr.strip()[-400:]}")
    return done.stdout


def diagnostics(tree: Path) -> list[dict[str, Any]]:
    """The findings of a whole folder as the JSON report has them."""
    said = json.loads(_answer(tree, "-m", "zerocfg", "lint", "--output-format", "json", "--exit-zero", "."))
    found: list[dict[str, Any]] = said["diagnostics"]
    return found


def findings(trees: Mapping[Path, Repository]) -> tuple[list[Finding], list[str]]:
    """What is found in the repositories at these places, and a line for each that could not be linted."""
    listed = "".join(f"{tree}\n" for tree in trees)
    command = [sys.executable, "-m", "zerocfg", "lint", "--repos", "-", "--output-format", "json"]
    command += ["--time-limit", str(LIMIT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=listed, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    found: list[Finding] = []
    broken = []
    for one in json.loads(done.stdout)["repositories"]:
        repository = trees[Path(one["name"])]
        if one["problem"] is not None:
            broken.append(f"{repository.name}: {one['problem']}")
        else:
            found += _findings(repository, one["report"]["diagnostics"])
    return found, broken


def _findings(repository: Repository, told: list[dict[str, Any]]) -> list[Finding]:
    return [
        Finding(
            repository.name,
            repository.commit,
            one["file"],
            one["start"]["line"],
            one["path"],
            one["code"],
            one["severity"],
            hashlib.sha256(one["message"].encode()).hexdigest()[:12],
        )
        for one in told
    ]


def fix(tree: Path, *, unsafe: bool) -> None:
    """Applies the fixes to the tree."""
    _answer(tree, "-m", "zerocfg", "lint", "--fix", *(["--unsafe-fixes"] if unsafe else []), "--exit-zero", ".")


@dataclass(frozen=True)
class Line:
    """A launch line: options of the launcher and words of the script, with what nobody knows left out or None."""

    launcher: str
    options: tuple[tuple[str, str | None], ...]
    words: tuple[str | None, ...]


@dataclass(frozen=True)
class Run:
    """A run as zerocfg sees it: its files by their role, its effective settings as text, why it would stop."""

    name: str
    files: Mapping[str, str]
    settings: Mapping[str, str]
    failures: tuple[str, ...]
    consumer: str | None = None
    line: Line | None = None


def runs(tree: Path) -> list[Run]:
    said = (json.loads(line) for line in _answer(tree, "-c", _SETTINGS).splitlines())
    return [
        Run(name, files, settings, tuple(failures), consumer, _line(line))
        for name, consumer, files, settings, failures, line in said
    ]


def _line(said: list[Any] | None) -> Line | None:
    return said and Line(said[0], tuple((name, value) for name, value in said[1]), tuple(said[2]))


def consumers(tree: Path) -> dict[str, str]:
    """Who reads the configs of each launch line's run, by "path:line"; empty where zerocfg does not know.

    A line that a variable keeps until it starts (`CMD="deepspeed ..."`, `eval $CMD`) counts where it is written, too.
    """
    runs = [json.loads(line) for line in _answer(tree, "-c", _RUNS).splitlines()]
    written = {name: who for _, names, who in runs for name in names}
    return written | {name: who for name, _, who in runs}
