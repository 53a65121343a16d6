"""What linting asks the file system goes through one place, and is asked again as it was."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zerocfg.source import disk

ROOT = Path(__file__).resolve().parents[2] / "zerocfg"
ROAD = ("source", "catalog", "run", "rules", "linter", "cli/linting", "workspace")
"""The packages that a lint runs through."""
ASKING = frozenset(
    "exists is_file is_dir is_symlink iterdir glob rglob read_text read_bytes lstat samefile readlink resolve realpath "
    "lexists isfile isdir islink listdir scandir walk".split()
)
OWN = {
    "source/disk.py": "the place itself",
    "source/boundary.py": "asks before a lint, about what the command line names; what is refused is noted as such",
    "source/write.py": "writes",
    "run/resolve_settings.py": "walks through its stages",
    "workspace/add_ignores.py": "writes; its lint is not kept",
    "workspace/cache.py": "zerocfg's own files, and the cache itself",
    "cli/linting/watch.py": "is not kept",
    "workspace/examples.py": "files of its own",
    "run/expand.py": "a spec, whose lint is not kept",
    "run/hub.py": "a spec, whose lint is not kept",
    "run/discover.py": "stamps of the language server",
    "catalog/known_models.py": "zerocfg's own files",
    "catalog/schema.py": "zerocfg's own files",
    "catalog/history.py": "zerocfg's own files",
    "catalog/clashes.py": "zerocfg's own files",
    "catalog/install_limits.py": "zerocfg's own files",
    "catalog/load_arguments.py": "zerocfg's own files",
    "catalog/rule_outcomes.py": "zerocfg's own files",
    "catalog/changes.py": "zerocfg's own files",
    "rules/outside.py": "where packages are installed; a lint with their rules is not kept",
    "linter/release_ranges.py": "zerocfg's own files",
    "run/widths.py": "zerocfg's own files",
    "workspace/baseline.py": "resolve, of a baseline that is written",
}


def _questions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKING:
            asked = node.func.value
            if not (isinstance(asked, ast.Name) and asked.id in ("disk", "ast", "fields")):
                yield f"{node.lineno}: {ast.unparse(node)[:80]}"


def test_nobody_on_the_road_asks_by_itself() -> None:
    found = {
        f"{name}:{one}"
        for package in ROAD
        for path in sorted((ROOT / package).rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in OWN
        for one in _questions(path)
    }
    assert found == set()


def _refused(error: type[Exception], ask: Callable[[], object]) -> None:
    with pytest.raises(error):
        ask()


def _link(folder: Path) -> None:
    (folder / "file").unlink()
    (folder / "file").symlink_to(folder / "other")


QUESTIONS: dict[str, Callable[[Path], object]] = {
    "is_file": lambda folder: disk.is_file(folder / "file"),
    "is_dir": lambda folder: disk.is_dir(folder / "inner"),
    "exists": lambda folder: disk.exists(folder / "absent"),
    "real": lambda folder: disk.real(folder / "file"),
    "names": lambda folder: disk.names(folder),
    "content": lambda folder: disk.content(folder / "file", 100, 10),
    "head": lambda folder: disk.content(folder / "large", 100, 10),
    "of a folder": lambda folder: _refused(disk.NotAFileError, lambda: disk.content(folder / "inner", 100, 10)),
    "of what is absent": lambda folder: _refused(FileNotFoundError, lambda: disk.content(folder / "absent", 100, 10)),
    "names of what is absent": lambda folder: _refused(FileNotFoundError, lambda: disk.names(folder / "absent")),
}
CHANGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "nothing": (lambda folder: None, set()),
    "a content": (lambda folder: (folder / "file").write_text("b"), {"content"}),
    "times": (lambda folder: os.utime(folder / "file", (1, 1)), set()),
    "a file that goes": (lambda folder: (folder / "file").unlink(), {"is_file", "names", "content"}),
    "a folder that goes": (lambda folder: (folder / "inner").rmdir(), {"is_dir", "names", "of a folder"}),
    "a file that comes": (
        lambda folder: (folder / "absent").write_text(""),
        {"exists", "names", "of what is absent", "names of what is absent"},
    ),
    "a folder that comes": (
        lambda folder: (folder / "absent").mkdir(),
        {"exists", "names", "of what is absent", "names of what is absent"},
    ),
    "a link in the place of a file": (_link, {"real"}),
    "the beginning of a large file": (lambda folder: (folder / "large").write_text("y" * 101), {"head"}),
    "the size of a large file": (lambda folder: (folder / "large").write_text("x" * 102), {"head"}),
    "the end of a large file, which nobody read": (
        lambda folder: (folder / "large").write_text("x" * 100 + "y"),
        set(),
    ),
}


@pytest.mark.parametrize(("change", "seen"), CHANGES.values(), ids=CHANGES)
def test_a_question_repeats_until_its_answer_changes(
    tmp_path: Path, change: Callable[[Path], object], seen: set[str]
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "file").write_text("a")
    (tmp_path / "other").write_text("a")
    (tmp_path / "large").write_text("x" * 101)
    notes = {}
    for name, ask in QUESTIONS.items():
        with disk.looking() as notes[name]:
            ask(tmp_path)
        assert notes[name], name
    assert all(map(disk.repeats, notes.values()))
    change(tmp_path)
    assert {name for name, asked in notes.items() if not disk.repeats(asked)} == seen


def test_what_is_answered_in_two_ways_never_repeats(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a")
    with disk.looking() as notes:
        disk.content(path, 100, 10)
        path.write_text("b")
        disk.content(path, 100, 10)
    assert not disk.repeats(notes)
    path.write_text("a")
    assert not disk.repeats(notes)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(disk.NotAFileError):
        disk.content(tmp_path / "pipe", 100, 10)
    assert not disk.repeats({"content 100 10": {str(tmp_path / "pipe"): ""}})


def test_outside_of_a_look_nothing_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert not disk.exists(path)
    path.write_text("")
    assert disk.is_file(path)


def _asked_of(folder: Path, names: list[str]) -> dict[str, tuple[bool, bool, str]]:
    """Of each name whether it is a file and a folder, and its real path."""
    return {name: (disk.is_file(folder / name), disk.is_dir(folder / name), disk.real(folder / name)) for name in names}


def _counting(ask: Callable[..., os.stat_result], asked: list[str]) -> Callable[..., os.stat_result]:
    def call(path: str | os.PathLike[str], **how: bool) -> os.stat_result:
        asked.append(os.fspath(path))
        return ask(path, **how)

    return call


def test_a_listed_folder_answers_as_the_disk_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "inner"
    for folder in (inner, tmp_path / "elsewhere"):
        folder.mkdir()
        (folder / "file").write_text("a")
    os.mkfifo(inner / "pipe")
    (inner / "to-file").symlink_to(tmp_path / "elsewhere" / "file")
    (inner / "to-folder").symlink_to(tmp_path / "elsewhere")
    (inner / "to-nothing").symlink_to(tmp_path / "absent")
    names = ["file", "pipe", "to-file", "to-folder", "to-nothing", "absent", "FILE", "file.", "fil~1", "\u00e9"]
    by_the_disk = {
        name: ((inner / name).is_file(), (inner / name).is_dir(), os.path.realpath(inner / name)) for name in names
    }
    assert _asked_of(inner, names) == by_the_disk
    with disk.looking():
        assert _asked_of(inner, names) == by_the_disk
    asked: list[str] = []
    with disk.looking():
        assert disk.names(inner) == ([], ["file", "pipe", "to-file", "to-folder", "to-nothing"])
        disk.real(inner)
        for name, ask in (("stat", os.stat), ("lstat", os.lstat)):
            monkeypatch.setattr(os, name, _counting(ask, asked))
        assert _asked_of(inner, names) == by_the_disk
    about = {Path(path).name for path in asked if Path(path).parent == inner}
    assert not {"file", "pipe", "absent"} & about, "the listing says it"
    # A file system may take these for another name: one without case, with short names, or without the last dot.
    assert set(names) - {"file", "pipe", "absent"} <= about


def test_folders_are_listed_before_what_lies_in_them_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a")
    with disk.looking() as notes:
        disk.is_file(tmp_path / "file")
        disk.names(tmp_path)
    assert list(notes) == ["kind", "names"]
    with disk.looking() as again:
        assert disk.still(notes, again)
    assert list(again) == ["names", "kind"]
    assert {name: dict(answers) for name, answers in again.items()} == notes
