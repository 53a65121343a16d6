"""Every command over checkouts: a healthy one, forked and started, and stand-ins for what goes wrong in each way."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.conftest import ROOT
from tools.every_command import processes, rows
from tools.every_command.__main__ import main
from tools.every_command.commands import commands
from tools.every_command.play import play
from tools.every_command.processes import PROGRAM, forked, started
from tools.every_command.rows import Row, read_rows, tables
from tools.every_command.syntax import broken
from tools.every_command.tree import Change, Copy

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
elif words[0] == "check-resume":
    sys.exit(2)
elif words[0] == "build":
    import os; os.mkdir("zerocfg-output"); open("zerocfg-output/lock", "w"); open("other.txt", "w")
elif words[:2] == ["lint", "--no-cache"] and "--fix" in words:
    open("recipe.yaml", "a").write("# fixed")
    open("new.json", "w").write("{}")
elif words[0] == "migrate" and "--write" in words:
    open("recipe.yaml", "a").write("\\n}: {")
elif words[0] == "lint" and "--add-ignore" in words:
    open("recipe.yaml", "a").write("# ignored"); print("no"); sys.exit(2)
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
    monkeypatch.setattr(rows, "SECONDS", 0.0)  # by which every command is slow
    played = list(play(checkout, started((sys.executable, str(forged)))))
    assert all(row.wrong for row in played)
    monkeypatch.setattr(rows, "SECONDS", 1000.0)
    wrong = {row.kind: row for row in played if row.wrong}
    assert {name: (row.code, row.error, row.changed, row.broken) for name, row in wrong.items()} == {
        "explain --run": (2, "zerocfg: internal error: KeyError: 'x'", (), ()),
        "gate": (0, "", ("recipe.yaml",), ()),
        "plan": (70, "exit code 70", (), ()),
        "check-resume": (2, "exit code 2 without a word", (), ()),
        "build": (0, "", ("other.txt",), ()),
        "lint --fix": (0, "", ("new.json",), ()),
        "migrate --write": (0, "", (), ("recipe.yaml",)),
        "lint --add-ignore": (2, "exit code 2, and it wrote recipe.yaml", (), ()),
    }
    assert next(row for row in played if row.kind == "migrate").seconds > 0
    assert not (checkout / "new.json").exists(), "the checkout itself is left alone"


def test_a_command_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LIMIT", 0.5)
    assert started((sys.executable, "-c", "import time; time.sleep(60)"))([], tmp_path).code == -9


def test_forked_and_started_say_the_same(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROCFG_TRACEBACK", "1")
    start = started(PROGRAM)
    for words in (["lint", "--no-cache", "."], ["explain", "--in", "."], ["gate", "--no-such-option"], ["--version"]):
        one, other = forked(words, checkout), start(words, checkout)
        assert (one.code, one.stdout, one.stderr) == (other.code, other.stdout, other.stderr)
        assert one.stdout or one.stderr


def test_a_large_checkout_is_played_with_fewer_commands() -> None:
    files = [{"role": "accelerate", "file": f"{number}.yaml"} for number in range(30)]
    shown = json.dumps({"runs": [{"name": file["file"], "files": [file]} for file in files]})
    lines = [" ".join(words) for words, _ in commands(shown, large=False)]
    fewer = [" ".join(words) for words, _ in commands(shown, large=True)]
    assert sum(line.startswith("explain --run") for line in lines) == 20
    assert sum(line.startswith("explain --run") for line in fewer) == 2
    assert {line.split()[0] for line in fewer} == {line.split()[0] for line in lines}
    assert set(fewer) < set(lines)


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        ("a.json", b'{"a": 1}', b'{"a": 1,}'),
        ("a.yaml", b"a: {b: 1}\n", b"a: {b: 1\n"),
        ("a.yml", b"a: &x 1\nb: *x\n", b"a: *x\n"),
        ("a.sh", b"if a; then b; fi\n", b"if a; then b\n"),
        ("a.py", b"print('\\d')\n", b"print(\n"),
    ],
)
def test_a_file_that_parsed_has_to_parse(path: str, good: bytes, bad: bytes) -> None:
    assert broken(Change(path, good, bad))
    assert broken(Change(path, None, bad))
    assert not broken(Change(path, bad, bad + b"\n"))
    assert not broken(Change(path, good, good + b"\n"))
    assert not broken(Change(path, good, None))
    assert not broken(Change("a.txt", good, bad))


def test_changes_of_a_copy(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("same", "rewritten", "changed", "removed", "mode"):
        (checkout / name).write_text(name)
    (checkout / "large").write_bytes(b"\0" + b"1" * 300_000)
    (checkout / "link").symlink_to("same")
    copy = Copy(checkout, tmp_path / "copy")
    copy.make()
    assert copy.changes() == []
    assert (copy.folder / "large").read_bytes() == b"\0" * 300_001
    (copy.folder / "rewritten").write_text("rewritten")
    (copy.folder / "changed").write_text("CHANGED")
    (copy.folder / "removed").unlink()
    (copy.folder / "mode").chmod(0o755)
    (copy.folder / "new").write_text("new")
    (copy.folder / "link").unlink()
    (copy.folder / "link").symlink_to("mode")
    assert copy.changes() == [
        Change("changed", b"changed", b"CHANGED"),
        Change("link", b"same", b"mode"),
        Change("mode", b"mode", b"mode"),
        Change("new", None, b"new"),
        Change("removed", b"removed", None),
    ]
    (copy.folder / "changed").write_text("again!!")
    assert copy.changes() == [Change("changed", b"CHANGED", b"again!!")]


def test_tables() -> None:
    played = [
        Row("a", "lint .", 0, 0.2),
        Row("a", "plan .", 2, 0.3, "internal error: a|b"),
        Row("b", "lint .", 1, 11.0),
        Row("b", "lint --fix .", 0, 0.1, "", ("x",), ("y",)),
    ]
    text = tables(played)
    assert "| `lint` | 2 | 2 | 1 | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 11.0 |" in text
    assert "| `lint --fix` | 1 | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 1 | 0.1 |" in text
    assert "| all | 2 | 4 | 2 | 1 | 1 | 0 | 1 | 1 | 1 | 1 | 11.0 |" in text
    assert text.splitlines()[-3:] == [
        "| `plan .` | a | 2 | 0.3 | internal error: a\\|b |  |  |",
        "| `lint .` | b | 1 | 11.0 |  |  |  |",
        "| `lint --fix .` | b | 0 | 0.1 |  | x | y |",
    ]
    assert "wrong" not in tables(played[:1])


def test_rows_are_read_as_they_were_written() -> None:
    row = Row("a", "lint .", 1, 0.25, "e", ("x",), ("y", "z"))
    assert read_rows(row.line() + row.line()) == [row, row]


def test_a_call_goes_on_where_the_last_one_stopped(checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(Row("one", "lint .", 0, 0.1).line())
    done = CliRunner().invoke(main, [str(checkout.parent), "--rows", str(file)])
    assert (done.exit_code, done.output.splitlines()[3]) == (0, "| all | 1 | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0.1 |")


def test_a_real_checkout(checkout: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [str(checkout.parent), "--rows", str(tmp_path / "rows.jsonl")])
    assert done.exit_code == 0, done.output
    played = read_rows((tmp_path / "rows.jsonl").read_text())
    codes = {row.command.split()[0]: row.code for row in played}
    assert codes["build"] == codes["report"] == codes["explain"] == 0
    assert codes["plan"] == 3, "the spec says nothing of the length of samples"
    assert set(codes) == {
        "init", "lint", "explain", "migrate", "diff", "gate", "check-resume", "convert", "report", "plan", "build",
    }  # fmt: skip
