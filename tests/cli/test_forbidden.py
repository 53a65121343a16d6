"""Folders that this user may not enter or list (a volume of a container) stop no command and are named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534
CONFIG = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'
ROOT = os.name == "posix" and os.getuid() == 0
ALONE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if ROOT else ()
"""Before a command of root's, who may enter every folder with these rights."""

pytestmark = pytest.mark.skipif(ROOT and shutil.which("setpriv") is None, reason="no setpriv here")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A config beside a folder that may be passed through and not listed, as those of a container's images are, and one
    that may not be entered."""
    (tmp_path / "ds.json").write_text(CONFIG)
    (tmp_path / "zerocfg.yaml").write_text("version: 1\nruns: {}\n")
    folders = [tmp_path / "docker", tmp_path / "volume"]
    for folder, mode in zip(folders, (0o111, 0o000), strict=True):
        folder.mkdir()
        (folder / "other.json").write_text(CONFIG)
        folder.chmod(mode)
        if ROOT:
            os.chown(folder, NOBODY, NOBODY)
    yield tmp_path
    for folder in folders:
        folder.chmod(0o755)


def command(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output."""
    done = subprocess.run(
        [*ALONE, sys.executable, "-m", "zerocfg", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_lint_checks_the_rest_and_names_what_it_did_not_enter(project: Path) -> None:
    code, text = command(project, "lint")
    assert code == 0, text
    assert text.startswith("All checks passed in 2 files."), text
    assert "2 files were not checked:" in text
    for name in ("docker", "volume"):
        assert f"  {name}: this folder cannot be entered: permission denied\n" in text


@pytest.mark.parametrize("words", ["lint ds.json", "explain --run ds.json", "gate --only lint", "init --print --force"])
def test_other_commands_go_on(project: Path, words: str) -> None:
    code, text = command(project, *words.split())
    assert "denied" not in text and "internal error" not in text, text
    assert code in (0, 1), text


def test_a_folder_that_was_asked_for_is_wrong_use(project: Path) -> None:
    code, text = command(project, "lint", "volume")
    assert code == 2
    assert "'volume' is not readable" in text
