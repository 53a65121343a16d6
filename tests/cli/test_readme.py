"""The README tells the truth: every zerocfg command in it runs, and what it shows is what one sees."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.strip()
    for block in re.findall(r"^```bash\n(.*?)^```", README, re.M | re.S)
    for line in block.splitlines()
    if line.startswith("zerocfg ")
]
FINDS = "examples/pitfalls"


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(shlex.split(command), cwd=folder, env=env, capture_output=True, text=True, timeout=540)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout as a newcomer has it: only the examples matter."""
    path = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "examples", path / "examples")
    return path


@pytest.mark.libs
def test_every_command_of_the_readme(folder: Path) -> None:
    assert len(COMMANDS) >= 7
    for command in COMMANDS:
        done = _run(command, folder)
        expected = 1 if command.startswith((f"zerocfg lint {FINDS}", "zerocfg diff ")) else 0
        assert done.returncode == expected, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        assert done.stdout or "-o" in command


def test_the_output_shown_is_the_real_one(folder: Path) -> None:
    shown = re.findall(r"^```console\n\$ (zerocfg [^\n]*)\n(.*?)^```", README, re.M | re.S)
    assert shown
    for command, text in shown:
        real = _run(command, folder).stdout
        for paragraph in text.strip().split("\n\n"):
            assert paragraph.strip() in real, f"{command} does not print:\n{paragraph}"


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_exist(command: str) -> None:
    assert command in README
    target = command.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
