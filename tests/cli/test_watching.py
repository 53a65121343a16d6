"""``lint --watch``: changes are seen, files that go away are no trouble, and the command reports again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from zerocfg.cli.linting.watch import changes, state

Cli = Callable[..., Outcome]
GOOD = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"


def test_only_what_can_matter_is_looked_at(tmp_path: Path) -> None:
    for name in ("a.yaml", "sub/b.json", "train.sh", "data.bin", ".git/c.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    names = {Path(path).relative_to(tmp_path).as_posix() for path in state([tmp_path])}
    assert names == {"a.yaml", "sub/b.json", "train.sh"}
    # A single file brings those beside it along: what it says may depend on them.
    assert state([tmp_path / "sub" / "b.json"]).keys() == {str(tmp_path / "sub" / "b.json")}
    assert state([tmp_path / "gone.yaml"]).keys() == state([tmp_path]).keys()


def test_each_change_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("1")
    seen = changes([tmp_path], pause=0.01)
    first = next(seen)
    file.write_text("22")
    second = next(seen)
    file.unlink()
    assert first != second and next(seen) == {}


def test_the_command_reports_after_a_change(tmp_path: Path) -> None:
    file = tmp_path / "accelerate.yaml"
    file.write_text(GOOD)
    command = [sys.executable, "-u", "-m", "zerocfg", "lint", "--watch", "--output-format", "concise"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell starts background jobs, such as a whole test run, with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    output = process.stdout
    guard = threading.Timer(120, process.kill)
    guard.start()
    try:
        lines: list[str] = []

        def until(text: str) -> None:
            while not lines or text not in lines[-1]:
                line = output.readline()
                assert line, lines
                lines.append(line)

        until("All checks passed")
        until("watching for changes")
        file.write_text(GOOD + "  overlap_comm: true\n")
        until("error[ZC103]")
        until("watching for changes")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        guard.cancel()
        process.kill()
        process.wait()


@pytest.mark.parametrize("words", [["--fix"], ["--diff"], ["--add-ignore"], ["--write-baseline", "b.json"]])
def test_watching_changes_nothing(words: list[str], zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(GOOD)
    refused = zerocfg("lint", "--watch", *words)
    assert refused.code == 2 and "--watch only looks" in refused.err
