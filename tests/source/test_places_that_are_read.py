"""Which files are read for the sake of what the user names: decided on paths alone, before anything is opened."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from zerocfg.source import boundary, disk
from zerocfg.source.text import SourceText, Span, Where


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a project, a plain folder and a file beside them; the current folder is far away."""
    home = tmp_path.resolve() / "home"
    for folder in ("project/.git", "project/sub/deep", "plain/inner", "other/.git", "far"):
        (home / folder).mkdir(parents=True)
    for name in ("project/a.json", "project/sub/b.json", "project/.git/config", "plain/c.json", "plain/inner/d.json"):
        (home / name).write_text("{}")
    (home / "secret.json").write_text("{}")
    (home / "other/e.json").write_text("{}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv(boundary.VARIABLE, raising=False)
    monkeypatch.chdir(home / "far")
    return home


FILES = (
    "project/a.json",
    "project/sub/b.json",
    "project/.git/config",
    "plain/c.json",
    "plain/inner/d.json",
    "secret.json",
    "other/e.json",
)


def read_for(place: Path, *targets: str, **more: list[str]) -> list[str]:
    """The files that are read for some targets."""
    given = {
        key: [value if value.startswith("~") else str(place / value) for value in some] for key, some in more.items()
    }
    with boundary.reading([place / target for target in targets], **given):  # type: ignore[arg-type]
        assert boundary.is_drawn()
        return [name for name in FILES if boundary.lies_inside(str(place / name))]


PROJECT, PLAIN = ["project/a.json", "project/sub/b.json"], ["plain/c.json", "plain/inner/d.json"]


def test_a_target_stands_for_its_project(place: Path) -> None:
    for target in ("project", "project/a.json", "project/sub", "project/sub/deep", "project/sub/b.json"):
        assert read_for(place, target) == PROJECT, target
    assert read_for(place, "plain") == read_for(place, "plain/c.json") == PLAIN
    assert read_for(place, "plain/inner/d.json") == ["plain/inner/d.json"], "without a project its folder"
    assert read_for(place, "project", "plain") == [*PROJECT, *PLAIN]
    assert read_for(place) == [], "the current folder"
    assert read_for(place, "other", exactly=["secret.json"]) == ["secret.json", "other/e.json"]
    assert not boundary.is_drawn() and all(boundary.lies_inside(str(place / name)) for name in FILES)


def test_the_current_folder_counts_around_what_lies_in_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a folder that a job is started in; not where it holds a home with private files."""
    monkeypatch.chdir(place / "plain")
    assert read_for(place, "plain/inner/d.json") == PLAIN and read_for(place) == PLAIN
    assert read_for(place, "plain/inner") == ["plain/inner/d.json"], "a folder stands for itself"
    monkeypatch.chdir(place)
    assert read_for(place, "plain/inner/d.json") == ["plain/inner/d.json"]
    monkeypatch.chdir(place.parent)
    assert read_for(place, "plain/inner/d.json") == ["plain/inner/d.json"]


def test_a_home_under_version_control_is_no_project(place: Path) -> None:
    (place / ".git").mkdir()
    assert read_for(place, "plain/c.json") == PLAIN and read_for(place, "project/a.json") == PROJECT


def test_what_is_opened_besides(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_for(place, "project", opened=["plain/inner"]) == [*PROJECT, "plain/inner/d.json"]
    assert read_for(place, "project", opened=["~/secret.json"]) == [*PROJECT, "secret.json"]
    monkeypatch.setenv(boundary.VARIABLE, os.pathsep.join([str(place / "other"), "", "~/plain"]))
    assert read_for(place, "project") == [*PROJECT, *PLAIN, "other/e.json"]


def test_links_that_lead_out_of_a_project(place: Path) -> None:
    """Whoever wrote the project made them; one outside of any project is the user's own."""
    (place / "project/link.json").symlink_to(place / "secret.json")
    (place / "project/inner.json").symlink_to(place / "project/sub/b.json")
    assert read_for(place, "project/link.json") == PROJECT == read_for(place, "project/inner.json")
    (place / "way").symlink_to(place / "plain")
    assert read_for(place, "way") == PLAIN and read_for(place, "way/c.json") == PLAIN
    (place / "project/away").symlink_to(place / "other")
    assert read_for(place, "project/away") == PROJECT, "no link of a project leads into another one"
    assert "other/e.json" in read_for(place, "project", exactly=["other/e.json"])
    assert read_for(place, "project", exactly=["project/link.json"]) == PROJECT


def test_what_is_said_of_a_file_outside(place: Path) -> None:
    with boundary.reading([place / "project"]):
        secret, config = str(place / "secret.json"), str(place / "project/.git/config")
        where = f"it lies outside of {place / 'project'}, where zerocfg reads and changes nothing; "
        assert boundary.why_outside(secret) == f"{where}--allow-outside {secret} opens it"
        assert boundary.why_outside(config).startswith("it belongs to git, where zerocfg reads and changes nothing")
        with pytest.raises(disk.OutsideError) as refused:
            disk.content(secret, 100, 100)
        assert (refused.value.errno, refused.value.filename) == (errno.EPERM, secret)
        with boundary.lent(secret):
            assert disk.content(secret, 100, 100) == (2, b"{}")
        assert not boundary.lies_inside(secret)
        boundary.lend(secret)
        assert boundary.lies_inside(secret) and not boundary.lies_inside(f"{secret}x")
        assert boundary.is_above(str(place)) and boundary.is_above(str(place / "project"))
        assert not boundary.is_above(str(place / "plain")) and not boundary.is_above(str(place / "proj"))
    assert boundary.is_above(str(place / "plain"))
    boundary.lend(secret)
    assert not boundary.is_drawn()


def test_only_gits_own_files_are_left_out(place: Path) -> None:
    names = (".github/x.yaml", ".gitx/y", "a.git/z", ".git", "sub/.git/config")
    with boundary.reading([place / "project"]):
        inside = [name for name in names if boundary.lies_inside(str(place / "project" / name))]
    assert inside == [".github/x.yaml", ".gitx/y", "a.git/z"]


# --- what is asked of the disk ----------------------------------------------------------------------------------------


def test_real_paths_are_those_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/f").write_text("")
    (tmp_path / "l").symlink_to(tmp_path / "a")
    (tmp_path / "a/up").symlink_to("..")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    written = (
        "a a/ a/b a/b/ ./a a/./b a/../a a/.. .. . l l/b l/up/l/f loop loop/x gone gone/x/y a//b a/up/a l/.. /".split()
    )
    paths = [*written, *(str(tmp_path / item) for item in written), ""]
    with disk.looking():
        for path in (*paths, *paths):
            assert disk.real(path) == os.path.realpath(path), path
    assert [disk.real(path) for path in paths] == [os.path.realpath(path) for path in paths]


def test_what_lies_in_folders(tmp_path: Path) -> None:
    for name in ("b/2", "a/x/y", ".hid/z"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("f", "b/g", "a/x/h"):
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert disk.names(tmp_path) == ([".hid", "a", "b"], ["f", "link"])
    walked = list(disk.tree(tmp_path, lambda folder, name: not name.startswith(".")))
    assert [(Path(folder).relative_to(tmp_path).as_posix(), names) for folder, names in walked] == [
        (".", ["f", "link"]),
        ("a", []),
        ("a/x", ["h"]),
        ("a/x/y", []),
        ("b", ["g"]),
        ("b/2", []),
    ]
    assert list(disk.tree(tmp_path / "gone", lambda folder, name: True)) == []


def test_how_much_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    assert disk.content(path, 10, 3) == (10, b"0123456789") and disk.content(path, 9, 3) == (10, b"012")
    assert disk.content(path, 9, 0) == (10, b"") and disk.whole(path, 10) == b"0123456789"
    with pytest.raises(OSError, match="it is larger than 0 KiB") as refused:
        disk.whole(path, 9)
    assert refused.value.errno == errno.EFBIG
    path.write_bytes(b"x" * (2 << 20))
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        disk.whole(path, 1 << 20)
    with disk.opened(path) as file:
        assert file.read(3) == b"xxx"
    for ask in (disk.opened, lambda item: disk.content(item, 1, 1)):
        with pytest.raises(disk.NotAFileError) as no_file:
            ask(tmp_path)
        assert (no_file.value.errno, no_file.value.filename) == (errno.EINVAL, str(tmp_path))


def test_questions_that_nobody_can_ask() -> None:
    for question in ("kinds", "content 1", "content a b", f"content {'9' * 20} 1", "content 1 2 3", ""):
        assert not disk.repeats({question: {}}), question
    assert disk.repeats({"kind": {}, "real": {}, "names": {}, "content 1 2": {}})
    assert not disk.repeats({"names": {"a\0b": ""}})


def test_trusted_files_are_not_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a")
    with disk.looking() as notes:
        disk.content(path, 9, 9)
        disk.is_file(path)
    path.write_text("b")
    with disk.looking() as now:
        assert disk.still(notes, now, {str(path)}) and not disk.still(notes, now)
    path.unlink()
    with disk.looking() as now:
        assert not disk.still(notes, now, {str(path)}), "that it is there is asked all the same"


# --- places of a text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["ab\ncd\r\n\ne", "\ufeffab\ncd", "", "\n", "a"])
def test_lines_and_columns_of_offsets(text: str) -> None:
    """Line ends count to their line; a byte-order mark is no column."""
    source = SourceText("f", text)
    lines = text.split("\n")
    assert source.line_count == len(lines)
    at = 0
    for number, line in enumerate(lines, start=1):
        bom = line.startswith("\ufeff")
        for column in range(len(line) + 1):
            expected = max(column + 1 - bom, 1)
            assert source.place(at + column) == (number, expected)
            assert source.offset(number - 1, column) == at + column
        assert source.line(number) == line.rstrip("\r").removeprefix("\ufeff")
        end = at + len(line) + (number < len(lines))
        assert source.line_span(number) == Span(at, end)
        at = end
    assert source.place(len(text) + 5) == source.place(len(text)) and source.place(-3) == source.place(0)
    assert source.line(0) == source.line(len(lines) + 1) == ""
    assert source.offset(-1, 0) == 0 and source.offset(99, 99) == len(text)


def test_places_in_words() -> None:
    for text, where in (
        ("a.json:12:5", Where("a.json", 12, 5)),
        ("a.json", Where("a.json")),
        ("C:\\a.json", Where("C:\\a.json")),
        ("a:1", Where("a:1")),
        (":1:2", Where(":1:2")),
        (f"a:{'1' * 41}:2", Where(f"a:{'1' * 41}:2")),
        (f"a:{'1' * 40}:2", Where("a", int("1" * 40), 2)),
    ):
        assert Where.parse(text) == where
        assert str(where) == text


def test_within_a_look_the_disk_is_asked_once(tmp_path: Path) -> None:
    """So that all of one lint sees the same; the next look asks anew."""
    path = tmp_path / "f"
    path.write_text("a")
    with disk.looking():
        assert disk.is_file(path)
        path.unlink()
        assert disk.is_file(path) and disk.exists(path) and not disk.is_dir(path)
    assert not disk.is_file(path)
    with disk.looking():
        assert not disk.exists(path)
