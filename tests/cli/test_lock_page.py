"""docs/lock.md describes the lock that is written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

Cli = Callable[..., Any]
PAGE = (ROOT / "docs" / "lock.md").read_text(encoding="utf-8")


def test_the_excerpt_is_real(zerocfg: Cli, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "quickstart")
    assert zerocfg("build", "quickstart", "-o", "out").code == 0
    (excerpt,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)
    assert excerpt in (tmp_path / "out" / "quickstart" / "zerocfg.lock").read_text()


def test_every_key_of_a_lock_is_described(zerocfg: Cli, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "quickstart")
    assert zerocfg("build", "quickstart", "-o", "out").code == 0
    lock = json.loads((tmp_path / "out" / "quickstart" / "zerocfg.lock").read_text())
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    described = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    plain = {"version", "run", "consumer", "script", "arguments", "launcher", "hosts", "notes"}
    assert described == set(lock) - plain
