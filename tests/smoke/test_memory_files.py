"""Checkpoints and saved weights in the host's memory: when, and what is left of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.smoke.standin import until
from zerocfg.hardware import linux
from zerocfg.smoke.launch import job_folder
from zerocfg.smoke.launch.scratch import LOCK, OWNER, make_twin, scratch, sweep, twin
from zerocfg.smoke.model.size import GIB, Room
from zerocfg.smoke.prepare import memory_files
from zerocfg.smoke.prepare import reduce as reducing
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import UNSAVED, reduce

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU = Device("cpu", "cpu")
WIDE = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 32000}  # fmt: skip
WIDE_PARAMETERS = 2 * 32000 * 256 + 2 * (4 * 256**2 + 3 * 256 * 1024 + 2 * 256) + 256
"""18.5 million: files of 407 MB, which are worth it; two ranks of a processor take 739 MB besides."""


@pytest.fixture(autouse=True)
def no_chosen_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in memory_files.CHOSEN_BY:
        monkeypatch.delenv(name, raising=False)


def machine(root: Path, kind: str = "tmpfs") -> Path:
    (root / "proc").mkdir()
    (root / "proc/mounts").write_text(f"/dev/vda / ext4 rw 0 0\nshm /dev/shm {kind} rw,nosuid 0 0\n")
    (root / "dev/shm").mkdir(parents=True)
    return root


def test_where_files_in_memory_go(tmp_path: Path) -> None:
    assert memory_files.memory_folder(machine(tmp_path)) == tmp_path / "dev/shm"


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP", "TMP"])
def test_a_folder_that_the_user_chose_wins(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, str(tmp_path))
    assert memory_files.memory_folder(machine(tmp_path)) is None
    assert memory_files.memory_room(tmp_path) == 0


def test_a_folder_that_is_on_a_disk(tmp_path: Path) -> None:
    assert memory_files.memory_folder(machine(tmp_path, "ext4")) is None


def test_a_system_without_such_a_folder(tmp_path: Path) -> None:
    assert memory_files.memory_folder(tmp_path) is None and memory_files.memory_room(tmp_path) == 0


GROUPS: dict[str, tuple[dict[str, str], int | None]] = {
    "no limit": ({"memory.max": "max\n", "memory.current": "5\n"}, None),
    "version 2": (
        {"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "anon 300\ninactive_file 100\nshmem 300\n"},
        400,
    ),
    "version 1": (
        {
            "memory.limit_in_bytes": "1000\n",
            "memory.usage_in_bytes": "700\n",
            "memory.stat": "inactive_file 5\ntotal_inactive_file 100\n",
        },
        305,
    ),
    "nothing said of its use": ({"memory.max": "1000\n"}, 1000),
    "above the limit": ({"memory.max": "1000\n", "memory.current": "1200\n"}, 0),
}


@pytest.mark.parametrize("name", GROUPS)
def test_what_a_control_group_leaves(name: str, tmp_path: Path) -> None:
    """Files in memory are used memory there; cached files of a disk are not."""
    files, left = GROUPS[name]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for file, text in files.items():
        (tmp_path / "sys/fs/cgroup" / file).write_text(text)
    assert linux.memory_left(tmp_path) == left


def wide(make_run: MakeRun, **lock: Any) -> Path:
    return make_run(2, model={"config": WIDE, "facts": {"parameters": WIDE_PARAMETERS}}, **lock)


@pytest.mark.parametrize(
    ("host", "files", "parts", "chosen"),
    [
        (1_146_000_000, 406_700_000, ("train", "resume", "reference"), True),
        (1_146_000_000, 406_600_000, ("train", "resume", "reference"), False),
        (1_145_900_000, 406_700_000, ("train", "resume", "reference"), False),
        (None, 406_700_000, ("train", "resume", "reference"), False),
        (10**12, 10**12, ("train",), False),  # 74 MB are not worth it
        (10**12, 10**12, ("train", "resume", UNSAVED), False),  # no checkpoint without saved weights
    ],
)
def test_when_files_go_into_memory(
    host: int | None,
    files: int,
    parts: tuple[str, ...],
    chosen: bool,
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reducing, "room_here", lambda *_: Room(0, host, 1000 * GIB, 1e6, files))
    assert WIDE_PARAMETERS * 22 == 406_613_504 and WIDE_PARAMETERS * 40 == 739_297_280
    assert reduce(read(wide(make_run)), CPU, 2, tmp_path, parts=parts).in_memory is chosen


def test_the_job_is_sent_there_and_nothing_is_left(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = read(make_run(2))
    with scratch() as folder:
        reduced = reduce(run, CPU, 2, folder)
        reduced.in_memory = True
        job_folder.prepare(run, reduced, CPU, 3, folder)
        job = json.loads((folder / "job.json").read_text())
        assert job["saved"] == str(twin(folder) / "weights")
        (twin(folder) / "weights" / "model.safetensors").write_text("x")
        assert (folder / "weights" / "model.safetensors").read_text() == "x"  # where --keep looks
        assert twin(folder).stat().st_mode & 0o777 == 0o700
        assert sweep() == [] and twin(folder).is_dir(), "of a zerocfg that lives"
    assert not folder.exists() and not twin(folder).exists()


def test_without_it_the_weights_are_in_the_scratch_folder(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(2))
    with scratch() as folder:
        job_folder.prepare(run, reduce(run, CPU, 2, folder), CPU, 3, folder)
        assert json.loads((folder / "job.json").read_text())["saved"] == str(folder / "weights")
        assert not twin(folder).exists()


def test_memory_that_cannot_be_written_means_the_disk(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zerocfg.smoke.launch.scratch.SHARED_MEMORY", tmp_path / "nothing")
    run = read(make_run(2))
    with scratch() as folder:
        reduced = reduce(run, CPU, 2, folder)
        reduced.in_memory = True
        job_folder.prepare(run, reduced, CPU, 3, folder)
        assert json.loads((folder / "job.json").read_text())["saved"] == str(folder / "weights")


PROGRAM = """
import os, sys, tempfile, time
tempfile.tempdir = {below!r}
sys.path.insert(0, {root!r})
from zerocfg.smoke.launch.scratch import make_twin, scratch
with scratch() as folder:
    print(make_twin(folder), flush=True)
    time.sleep(600)
"""


def program(below: Path) -> tuple[subprocess.Popen[str], Path]:
    below.mkdir()
    code = PROGRAM.format(below=str(below), root=str(Path(__file__).resolve().parents[2]))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_guard_removes_it_when_zerocfg_is_killed(tmp_path: Path) -> None:
    process, made = program(tmp_path / "t")
    assert made.is_dir() and made.parent == Path("/dev/shm")
    process.kill()
    process.wait()
    until(lambda: not made.exists() and not list((tmp_path / "t").iterdir()))


def test_the_next_run_removes_what_a_dead_guard_left(tmp_path: Path) -> None:
    """From any temporary folder: that of the dead run is not known any more."""
    process, made = program(tmp_path / "t")
    until(lambda: len(guards(made)) == 1)
    os.kill(guards(made)[0], 9)
    process.kill()
    process.wait()
    assert made.is_dir()
    with scratch():
        assert not made.exists()


def guards(made: Path) -> list[int]:
    """The processes that would remove this folder."""
    entries = Path("/proc").glob("[0-9]*/cmdline")
    return [int(entry.parent.name) for entry in entries if str(made).encode() in read_bytes(entry).split(b"\0")]


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_folder_of_somebody_else_stays(tmp_path: Path) -> None:
    """One whose lock was never taken: it is just being made, or is none of ours."""
    other = Path("/dev/shm") / f"zerocfg-smoke-{os.getpid()}-other"
    other.mkdir()
    try:
        (other / LOCK).write_bytes(b"")
        (other / OWNER).write_text(str(tmp_path / "gone"))
        assert other not in sweep() and other.is_dir()
        assert make_twin(tmp_path / other.name) is None
    finally:
        for file in other.iterdir():
            file.unlink()
        other.rmdir()
