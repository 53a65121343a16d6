"""Writing: old or new bytes, all files or none."""

from __future__ import annotations

from pathlib import Path

import pytest

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
