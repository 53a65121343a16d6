"""What a build may replace, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.conftest import Workplace, job

ZERO_2 = {"zero_optimization": {"stage": 2}}


@pytest.fixture
def out(workplace: Workplace) -> Path:
    workplace.built(job(deepspeed=ZERO_2))
    return workplace.folder / "out" / "a"


def test_replaces_its_own_files(workplace: Workplace, out: Path) -> None:
    before = (out / "ds_config.json").read_text()
    workplace.built(job({"per_device_train_batch_size": 4}, ZERO_2))
    assert (out / "ds_config.json").read_text() != before


@pytest.mark.parametrize("name", ["accelerate.yaml", "ds_config.json", "launch.sh"])
def test_refuses_a_changed_file(workplace: Workplace, out: Path, name: str) -> None:
    (out / name).write_text("mine\n")
    others = {path.name: path.read_bytes() for path in out.iterdir()}
    result = workplace.build(workplace.write(job({"per_device_train_batch_size": 4}, ZERO_2)))
    assert result.exit_code == 2
    assert name in result.output and "--force" in result.output
    assert {path.name: path.read_bytes() for path in out.iterdir()} == others
    assert workplace.build(workplace.folder / "zerocfg.yaml", "--force").exit_code == 0
    assert (out / name).read_text() != "mine\n"


@pytest.mark.parametrize("lock", [None, "{}", "not json", '{"version": 1, "files": []}'])
def test_refuses_files_without_its_lock(workplace: Workplace, out: Path, lock: str | None) -> None:
    if lock is None:
        (out / "zerocfg.lock").unlink()
    else:
        (out / "zerocfg.lock").write_text(lock)
    result = workplace.build(workplace.write(job({"per_device_train_batch_size": 4}, ZERO_2)))
    assert result.exit_code == 2
    assert "not written by zerocfg" in result.output


def test_removes_nothing(workplace: Workplace, out: Path) -> None:
    (out / "notes.txt").write_text("mine")
    workplace.built(job({"per_device_train_batch_size": 4}, ZERO_2))
    assert (out / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in out.iterdir()) == [
        "accelerate.yaml",
        "ds_config.json",
        "launch.sh",
        "notes.txt",
        "zerocfg.lock",
    ]


def test_a_file_where_the_folder_should_be(workplace: Workplace) -> None:
    (workplace.folder / "out").mkdir()
    (workplace.folder / "out" / "a").write_text("mine")
    result = workplace.build(workplace.write(job(deepspeed=ZERO_2)))
    assert result.exit_code == 2
    assert "not a folder" in result.output


def test_the_script_is_executable_and_nothing_else(workplace: Workplace, out: Path) -> None:
    modes = {path.name: os.access(path, os.X_OK) for path in out.iterdir()}
    assert modes == {"accelerate.yaml": False, "ds_config.json": False, "launch.sh": True, "zerocfg.lock": False}


def test_a_failing_run_costs_no_other_its_files(workplace: Workplace) -> None:
    files = job(deepspeed=ZERO_2)
    broken = json.loads(json.dumps(files["zerocfg.yaml"]))
    broken["runs"]["b"] = {**broken["runs"]["a"], "script": "missing.py"}
    result = workplace.build(workplace.write({**files, "zerocfg.yaml": broken}))
    assert result.exit_code == 1
    assert "missing.py" in result.output and "built 1 of 2 runs; not b" in result.output
    assert workplace.build(workplace.folder / "zerocfg.yaml", "--run", "a", "--check").exit_code == 0
    assert [path.name for path in (workplace.folder / "out").iterdir()] == ["a"]


KILLED = """
import os, sys
from zerocfg.source import write

left = int(sys.argv.pop(1))
put = write._put

def counting(staged, target):
    global left
    if left == 0:
        os._exit(9)
    left -= 1
    put(staged, target)

write._put = counting
from zerocfg.cli.main import run
sys.exit(run())
"""


@pytest.mark.parametrize("written", range(6))
def test_a_killed_build_is_healed_by_the_next(workplace: Workplace, out: Path, written: int) -> None:
    """Killed before its first file, between any two, and before the lock: journal, three files, lock."""
    spec = workplace.write(job({"per_device_train_batch_size": 4}, ZERO_2))
    words = [sys.executable, "-c", KILLED, str(written), "build", str(spec), "-o", str(workplace.folder / "out")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=workplace.folder)
    assert done.returncode == (9 if written < 5 else 0), done.stderr
    assert all(path.read_bytes() for path in out.iterdir())
    workplace.built(job({"per_device_train_batch_size": 8}, ZERO_2))
    names = ["accelerate.yaml", "ds_config.json", "launch.sh", "zerocfg.lock"]
    assert sorted(path.name for path in out.iterdir() if not path.name.endswith(".zerocfg")) == names
    assert '"per_device_train_batch_size"' in (out / "zerocfg.lock").read_text()


def test_a_first_build_that_was_killed(workplace: Workplace) -> None:
    spec = workplace.write(job(deepspeed=ZERO_2))
    words = [sys.executable, "-c", KILLED, "3", "build", str(spec), "-o", str(workplace.folder / "out")]
    assert subprocess.run(words, capture_output=True, cwd=workplace.folder).returncode == 9
    assert not (workplace.folder / "out" / "a" / "zerocfg.lock").exists()
    workplace.built(job(deepspeed=ZERO_2))


def test_what_was_edited_after_a_kill_is_the_users(workplace: Workplace, out: Path) -> None:
    spec = workplace.write(job({"per_device_train_batch_size": 4}, ZERO_2))
    words = [sys.executable, "-c", KILLED, "4", "build", str(spec), "-o", str(workplace.folder / "out")]
    subprocess.run(words, capture_output=True, cwd=workplace.folder)
    (out / "launch.sh").write_text("mine\n")
    result = workplace.build(spec)
    assert result.exit_code == 2
    assert "launch.sh" in result.output and "was changed since zerocfg wrote it" in result.output
    assert (out / "launch.sh").read_text() == "mine\n"
