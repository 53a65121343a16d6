"""Which functions are above the limit of complexity is written down, with the reason, and stays true."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "decisions" / "0055-few-functions-decide-more-than-fifteen-times.md"
LIMIT = 15


def above_the_limit() -> dict[tuple[str, str], int]:
    """File, function and complexity, as ruff counts it where nothing is excepted."""
    words = ["check", "--isolated", "--select", "C901", "--ignore-noqa", "--output-format", "concise"]
    limit = ["--config", f"lint.mccabe.max-complexity = {LIMIT}"]
    folders = ["zerocfg", "tools", "website", "benchmarks", "tests"]
    command = [sys.executable, "-m", "ruff", *words, *limit, *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    found = re.findall(r"^(\S+?):\d+:\d+: C901 `(\w+)` is too complex \((\d+) > 15\)$", done.stdout, re.MULTILINE)
    assert len(found) == done.stdout.count("C901")
    return {(name.removeprefix("zerocfg/"), function): int(number) for name, function, number in found}


def test_each_exception_is_listed_with_its_complexity() -> None:
    rows = re.findall(r"^\| `([^`]+)`, `(\w+)` \| (\d+) \| \S.* \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {(name, function): int(number) for name, function, number in rows} == above_the_limit()
