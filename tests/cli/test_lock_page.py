"""docs/lock.md shows what the commands really print."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

Cli = Callable[..., Any]
PAGE = (ROOT / "docs" / "lock.md").read_text(encoding="utf-8")


def steps() -> list[tuple[str, str]]:
    """(command, output) of every console block, in the order of the page."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S):
        for step in block.split("$ ")[1:]:
            command, _, output = step.partition("\n")
            found.append((command, output))
    return found


def test_the_page_shows_what_is_printed(zerocfg: Cli, tmp_path: Path) -> None:
    for name in ("quickstart", "grpo-zero3"):
        ignored = shutil.ignore_patterns("runs", "__pycache__")
        shutil.copytree(ROOT / "examples" / name, tmp_path / name, ignore=ignored)
    assert zerocfg("build", "quickstart", "-o", "out").code == 0
    lock = (tmp_path / "out" / "quickstart" / "zerocfg.lock").read_text()
    (excerpt,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)
    assert excerpt in lock
    ran = 0
    for command, output in steps():
        words = command.split()
        if words[0] == "zerocfg":
            found = zerocfg(*words[1:])
            assert output in ("...\n", found.out), command
            ran += 1
        else:
            subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert ran == 6


def test_every_key_of_a_lock_is_described(zerocfg: Cli, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "quickstart")
    assert zerocfg("build", "quickstart", "-o", "out").code == 0
    lock = json.loads((tmp_path / "out" / "quickstart" / "zerocfg.lock").read_text())
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    described = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    plain = {"version", "run", "consumer", "script", "arguments", "launcher", "hosts", "notes"}
    assert described == set(lock) - plain
