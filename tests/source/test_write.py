"""Writing: old or new bytes, all files or none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from zerocfg.source import write
from zerocfg.source.write import Change, write_atomic, write_together


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_writing_keeps_the_mode_and_follows_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_atomic(link, b"new\r\n")
    assert link.is_symlink()
    assert target.read_bytes() == b"new\r\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]


def test_all_are_written(tmp_path: Path) -> None:
    one, two, new = (tmp_path / name for name in ("one", "two", "new"))
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    write_together([Change(one, b"1", b"I"), Change(two, b"2", b"II"), Change(new, None, b"III")])
    assert content(tmp_path) == {"new": b"III", "one": b"I", "two": b"II"}


def test_a_changed_file_is_left_alone_and_so_are_the_others(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2, edited since")
    with pytest.raises(OSError, match="changed while"):
        write_together([Change(one, b"1", b"I"), Change(two, b"2", b"II")])
    assert content(tmp_path) == {"one": b"1", "two": b"2, edited since"}
    with pytest.raises(OSError, match="was made while"):
        write_together([Change(one, None, b"I")])


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    two.chmod(0o444)
    with pytest.raises(PermissionError, match="read-only"):
        write_together([Change(one, b"1", b"I"), Change(two, b"2", b"II")])
    assert content(tmp_path) == {"one": b"1", "two": b"2"}


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_what_was_written_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int) -> None:
    """The rename of one of the files fails, as on a disk that goes away in between."""
    before = {"one": b"1", "two": b"2"}
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    replace, calls = Path.replace, iter(range(1, 99))

    def fail(self: Path, target: Path) -> Path:
        if next(calls) == broken:
            raise OSError("no space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    changes = [Change(tmp_path / "new", None, b"N"), *(Change(tmp_path / n, d, b"x") for n, d in before.items())]
    with pytest.raises(OSError, match="no space"):
        write_together(changes)
    assert content(tmp_path) == before


def test_hard_links_stay_one_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a longer text than the next")
    two.hardlink_to(one)
    write_atomic(one, b"new")
    assert content(tmp_path) == {"one": b"new", "two": b"new"}
    assert one.stat().st_ino == two.stat().st_ino
    write_together([Change(two, b"new", b"newer")])
    assert content(tmp_path) == {"one": b"newer", "two": b"newer"}


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away")
def test_root_leaves_a_file_its_owner(tmp_path: Path) -> None:
    target = tmp_path / "ds.json"
    target.write_bytes(b"old")
    os.chown(target, 1234, 4321)
    write_atomic(target, b"new")
    write_together([Change(target, b"new", b"newer")])
    assert (target.stat().st_uid, target.stat().st_gid, target.read_bytes()) == (1234, 4321, b"newer")


def test_what_killed_processes_left_is_swept(tmp_path: Path) -> None:
    """Only of this file, only with the suffix of zerocfg, and only what no running process can still be writing."""
    mine, young = tmp_path / ".ds.json.abcd1234.zerocfg", tmp_path / ".ds.json.efgh5678.zerocfg"
    others = [tmp_path / ".ds.json.swp", tmp_path / ".other.json.abcd1234.zerocfg", tmp_path / "ds.json.zerocfg"]
    for path in (mine, young, *others):
        path.write_bytes(b"")
    for path in (mine, *others):
        os.utime(path, (1, 1))
    write_atomic(tmp_path / "ds.json", b"new")
    assert set(content(tmp_path)) == {"ds.json", young.name, *(path.name for path in others)}


def _left(folder: Path) -> str:
    """The temporary file of a process that is killed while it writes."""
    child = os.fork()
    if not child:
        write._put = lambda staged, target: os.kill(os.getpid(), signal.SIGKILL)
        write_atomic(folder / "ds.json", b"half")
    os.waitpid(child, 0)
    (name,) = (name for name in content(folder) if name != "ds.json")
    return name


def test_what_a_process_left_that_runs_no_more_is_swept_at_once(tmp_path: Path) -> None:
    name = _left(tmp_path)
    writer = name.removeprefix(".ds.json.").partition(".")[0]
    here, _, _ = writer.partition("-")
    kept = [  # of a process that runs, of one elsewhere, and what is no number of a process
        tmp_path / f".ds.json.{mark}.abcd1234.zerocfg"
        for mark in (f"{here}-{os.getpid()}", f"{here}-1", "00000000-999999999", f"{here}-", f"{here}-{'9' * 30}")
    ]
    for path in kept:
        path.write_bytes(b"")
    write_atomic(tmp_path / "ds.json", b"new")
    assert content(tmp_path) == {"ds.json": b"new", **{path.name: b"" for path in kept}}


@pytest.mark.parametrize("mode", [0o444, 0o555, 0o400, 0o111])
def test_a_file_that_nobody_may_write_is_refused(mode: int, tmp_path: Path) -> None:
    """Also of root, who could; whether it may be executed does not matter."""
    path = tmp_path / "a.sh"
    path.write_bytes(b"old")
    path.chmod(mode)
    with pytest.raises(PermissionError, match="the file is read-only; nothing was written"):
        write_together([Change(path, b"old", b"new")])
    path.chmod(0o755)
    assert path.read_bytes() == b"old"
