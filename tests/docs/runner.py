"""Runs what a page shows, and compares it with what one sees. How pages say what is to be run: ``blocks.py``.

    from tests.docs.runner import check
    check(Path("README.md"), tmp_path)        # every scenario of a page that needs no torch

    session = Session(folder)                 # or step by step: folder and variables last from one command to the next
    done = session.run("zerocfg lint .")      # done.code, done.text (what a terminal shows)

Shown output is the whole output, but for ``...``: on a line of its own it stands for any lines, inside of a line
for any text. Any date stands for any other. A command without output below it is compared by its exit code alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from unittest import mock

from tests.conftest import ROOT
from tests.docs.blocks import File, Scenario, Step, read
from tools.slurm_nodes import slurm_nodes

BIN = Path(sys.executable).parent
_PLAIN = re.compile(r"zerocfg [^|&;<>$`*?~(){}\\#\n]*")
_OWN_PROCESS = {"smoke", "probe", "preflight"}
"""Commands that start ranks or read the machine: with processes and signals of their own."""
_ANY = re.compile(r"(?<!\.)\.\.\.(?!\.)")
"""Three dots, not the leaders of a table."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Done:
    code: int
    text: str
    """Standard output and error in the order they were printed, as in a terminal."""


class Session:
    """A shell in a folder: working directory and environment last from one command to the next.

    Its home is an empty folder beside it; ``env`` wins over all that is set here.
    """

    def __init__(self, folder: Path, **env: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._state = folder.parent / f".{folder.name}.state"
        (self._state / "home").mkdir(parents=True, exist_ok=True)
        own = {"PYTHONPATH": str(ROOT), "HOME": str(self._state / "home"), "HF_HUB_CACHE": str(self._state / "hub")}
        self.env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **own, **env}
        for name in ("FORCE_COLOR", "CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
            self.env.pop(name, None)

    def run(self, command: str, timeout: float = 540) -> Done:
        """``zerocfg`` without a shell's signs runs in this process, which is ten times as fast; all else in bash."""
        words = shlex.split(command) if _PLAIN.fullmatch(command) else []
        own = shutil.which("zerocfg", path=self.env["PATH"]) == str(BIN / "zerocfg")
        if words and own and words[1] not in _OWN_PROCESS:
            return self._in_process(words)
        return self._in_bash(command, timeout)

    def _in_process(self, words: list[str]) -> Done:
        from zerocfg.cli.main import run

        out = io.StringIO()
        with (
            mock.patch.dict(os.environ, {**self.env, "ZEROCFG_TRACEBACK": "1"}, clear=True),
            mock.patch.object(sys, "argv", words),
            mock.patch.object(sys, "stdin", io.StringIO()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            _inside(self.folder),
        ):
            code = run()
        return Done(code, out.getvalue())

    def _in_bash(self, command: str, timeout: float) -> Done:
        where, env = self._state / "cwd", self._state / "env"
        script = f'{command}\n_code=$?; pwd > "{where}"; env -0 > "{env}"; exit $_code'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        if where.is_file():
            self.folder = Path(where.read_text().rstrip("\n"))
            pairs = (pair.partition("=") for pair in env.read_text().split("\0") if pair)
            self.env = {name: value for name, _, value in pairs if name not in ("_", "SHLVL", "OLDPWD")}
        return Done(done.returncode, done.stdout)


@contextlib.contextmanager
def _inside(folder: Path):  # type: ignore[no-untyped-def]
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def copied(start: str, folder: Path) -> Path:
    """A fresh folder with what ``start in`` names."""
    left = shutil.ignore_patterns("runs", "__pycache__")
    if start == ".":
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=left)
    elif start != "nothing":
        shutil.copytree(ROOT / start, folder, ignore=left)
    return folder


def differs(shown: str, seen: str) -> str:
    """A diff, "" where ``seen`` is what ``shown`` says."""

    def pattern(line: str) -> str:
        if line.strip() == "...":
            return r"(?:.*\n)*?"
        parts = (_DATE.sub("0000-00-00", part) for part in _ANY.split(line.rstrip()))
        return ".*?".join(re.escape(part) for part in parts) + r"[ \t]*\n"

    expected = "".join(pattern(line) for line in shown.strip("\n").splitlines())
    real = _DATE.sub("0000-00-00", seen.strip("\n")) + "\n"
    if re.fullmatch(expected, real):
        return ""
    return "".join(unified_diff(shown.splitlines(True), seen.splitlines(True), "shown", "printed"))


def play(page: Path, scenario: Scenario, folder: Path) -> int:
    """Run a scenario in ``folder``, which must not exist; the number of commands. Raises AssertionError."""
    with slurm_nodes() if scenario.slurm else contextlib.nullcontext() as nodes:
        env = {**nodes.environment, "PATH": f"{BIN}{os.pathsep}{nodes.environment['PATH']}"} if nodes else {}
        return _play(page, scenario, Session(copied(scenario.start, folder), **env))


def _play(page: Path, scenario: Scenario, session: Session) -> int:
    ran = 0
    for part in scenario.parts:
        if isinstance(part, File):
            path = session.folder / part.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(part.text, encoding="utf-8")
            continue
        _judge(f"{page.name}:{part.line}: {part.command}", part, session.run(part.command))
        ran += 1
    return ran


def _judge(place: str, step: Step, done: Done) -> None:
    assert done.code == step.code, f"{place}\nexit code {done.code}, not {step.code}:\n{done.text}"
    assert "Traceback" not in done.text, f"{place}\n{done.text}"
    if step.shown:
        difference = differs(step.shown, done.text)
        assert not difference, f"{place}\nprints something else:\n{difference}"


def check(page: Path, folder: Path, *, libs: bool = False) -> int:
    """Run the scenarios of a page that need the training libraries, or those that do not; the number of commands."""
    return sum(
        play(page, scenario, folder / str(number))
        for number, scenario in enumerate(read(page).scenarios)
        if scenario.libs == libs
    )
