"""Completion as the shell has it: the installed script, asked by the real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from zerocfg.cli.completion import SHELLS, place

Cli = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"source '{script}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _zerocfg_completion zerocfg"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    line = f'{code}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", line], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_options_and_values(zerocfg: Cli) -> None:
    told = zerocfg("completion", "bash", "--install")
    assert told.code == 0 and "new shells complete" in told.out
    script = place("bash")
    assert completed(script, "zerocfg", "sm") == ["smoke"]
    assert completed(script, "zerocfg", "check") == ["check-resume"]
    assert "--fail-on" in completed(script, "zerocfg", "lint", "--fa")
    assert completed(script, "zerocfg", "lint", "--fail-on", "w") == ["warning"]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_at_its_place(shell: str, zerocfg: Cli, home: Path) -> None:
    printed = zerocfg("completion", shell)
    assert printed.code == 0 and f"_ZEROCFG_COMPLETE={shell}_complete" in printed.out
    assert zerocfg("completion", shell, "--install").code == 0
    assert place(shell).read_text().strip() == printed.out.strip() and place(shell).is_relative_to(home)


def test_the_shell_is_that_of_the_user(zerocfg: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/local/bin/fish")
    assert "fish_complete" in zerocfg("completion").out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    refused = zerocfg("completion")
    assert refused.code == 2 and "which shell?" in refused.err


def test_a_place_that_cannot_be_written(zerocfg: Cli, home: Path) -> None:
    (home / ".local").write_text("a file")
    refused = zerocfg("completion", "bash", "--install")
    assert refused.code == 2 and "cannot be written" in refused.err
