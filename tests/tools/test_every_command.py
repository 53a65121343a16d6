"""Every command over checkouts: a healthy one, and stand-ins for commands that go wrong in each way."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.conftest import ROOT
from tools import every_command
from tools.every_command import Row, main, play, table

FORGED = """
import json, sys
words = sys.argv[1:]
if "--show-runs" in words:
    print(json.dumps({"runs": [{"name": "a", "files": [{"role": "accelerate", "file": "acc.yaml"}]}]}))
elif words[0] == "explain" and "--run" in words:
    print("zerocfg: internal error: KeyError: 'x'"); sys.exit(2)
elif words[0] == "gate":
    open("recipe.yaml", "a").write("# changed")
elif words[0] == "plan":
    sys.exit(70)
elif words[0] == "build":
    import os; os.mkdir("zerocfg-output"); open("zerocfg-output/lock", "w"); open("other.txt", "w")
elif words[:2] == ["lint", "--no-cache"] and "--fix" in words:
    open("recipe.yaml", "a").write("# fixed")
    open("new.json", "w").write("{}")
elif words[0] == "migrate":
    sum(range(3_000_000))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkouts" / "one"
    shutil.copytree(ROOT / "examples" / "quickstart", folder, ignore=shutil.ignore_patterns("built"))
    return folder


def test_what_goes_wrong_is_told(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = tmp_path / "forged.py"
    forged.write_text(FORGED)
    monkeypatch.setattr(every_command, "SECONDS", 0.0)  # by which every command is slow
    rows = list(play(checkout, (sys.executable, str(forged))))
    assert all(row.wrong for row in rows)
    monkeypatch.setattr(every_command, "SECONDS", 1000.0)
    wrong = {row.command.split()[0] + (" --fix" if "--fix" in row.command else ""): row for row in rows if row.wrong}
    assert {name: (row.code, row.error, row.changed) for name, row in wrong.items()} == {
        "explain": (2, "zerocfg: internal error: KeyError: 'x'", ()),
        "gate": (0, "", ("recipe.yaml",)),
        "plan": (70, "exit code 70", ()),
        "build": (0, "", ("other.txt",)),
        "lint --fix": (0, "", ("new.json",)),
    }
    assert next(row for row in rows if row.command.startswith("migrate")).seconds > 0
    assert not (checkout / "new.json").exists(), "the checkout itself is left alone"


def test_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row("a", "lint .", 0, 0.2), Row("a", "plan .", 2, 0.3, "internal error: a|b"), Row("b", "lint .", 1, 11.0)]
    assert table(rows) == (
        "2 checkouts, 3 commands (2 lint, 1 plan):\n"
        "1 internal errors, 1 above 10 s of CPU, 0 that changed what they should not.\n\n"
        "| checkout | command | exit code | CPU, s | error | changed |\n|---|---|---:|---:|---|---|\n"
        "| a | `plan .` | 2 | 0.3 | internal error: a\\|b |  |\n| b | `lint .` | 1 | 11.0 |  |  |\n"
    )
    assert len(table(rows[:1]).splitlines()) == 2


def test_a_call_goes_on_where_the_last_one_stopped(checkout: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        json.dumps({"checkout": "one", "command": "lint .", "code": 0, "seconds": 0.1, "changed": []}) + "\n"
    )
    done = CliRunner().invoke(main, [str(checkout.parent), "--rows", str(rows)])
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "1 checkouts, 1 commands (1 lint):")


def test_a_real_checkout(checkout: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [str(checkout.parent), "--rows", str(tmp_path / "rows.jsonl")])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    codes = {row["command"].split()[0]: row["code"] for row in rows}
    assert codes["build"] == codes["report"] == codes["explain"] == 0
    assert codes["plan"] == 3, "the spec says nothing of the length of samples"
    assert {row["command"].split()[0] for row in rows} == {
        "init", "lint", "explain", "migrate", "diff", "gate", "check-resume", "convert", "report", "plan", "build",
    }  # fmt: skip
