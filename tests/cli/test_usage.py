"""Wrong use is an error of zerocfg's own, and the command line shows it with the usage of the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import zerocfg
from zerocfg.errors import UsageError
from zerocfg.workspace.selection import checked

USAGE = "Usage: python -m zerocfg {}\nTry 'python -m zerocfg {} --help' for help.\n\n"
CONFIG = "--config: '=' is no file and no setting in TOML, such as 'fail-on = \"error\"'"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # Plain paths are read without click, which alone knows a usage.
        (["lint", "missing.json"], "Error: there is no file or folder 'missing.json'\n"),
        (
            ["lint", "--no-cache", "missing.json"],
            USAGE.format("lint [OPTIONS] [PATHS]...", "lint") + "Error: there is no file or folder 'missing.json'\n",
        ),
        (["explain", "--config", "="], USAGE.format("explain [OPTIONS] [WHAT]", "explain") + f"Error: {CONFIG}\n"),
        (["gate", "--config", "="], USAGE.format("gate [OPTIONS] [FOLDER]", "gate") + f"Error: {CONFIG}\n"),
    ],
)
def test_usage_is_shown_where_click_read_the_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zerocfg", *words],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_from_python_it_is_an_error_of_zerocfg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no rule is called 'ZCX' or begins with it; see 'zerocfg rules'"):
        checked(["ZCX"])
    (tmp_path / "zerocfg.toml").write_text("selec = []\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for call in (zerocfg.lint, zerocfg.check_or_raise):
        with pytest.raises(zerocfg.Error, match=r"zerocfg\.toml: \[tool\.zerocfg\] has no setting 'selec'"):
            call()


def test_the_python_functions_and_the_guard_need_no_click() -> None:
    code = "import sys, zerocfg.api, zerocfg.guard; print('click' in sys.modules, 'zerocfg.cli' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
