"""Paths as Windows has them: backslashes, drives, names without regard to case. Pure Python, on every system.

What a function asks of a real file (``resolve``, the current folder) is answered by a stand-in for ``Path`` that
knows only Windows; all else is ``PureWindowsPath`` as it is.
"""

from __future__ import annotations

import ntpath
import os
import posixpath
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest

from zerocfg.api import lint
from zerocfg.emit import files as emitted
from zerocfg.linter import baseline
from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.linter.selection import names
from zerocfg.report import checkout, sarif
from zerocfg.report.gitlab import render_gitlab
from zerocfg.run import discover
from zerocfg.source import paths
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText
from zerocfg.workspace import add_ignores

CWD = "C:\\Users\\me\\repo"


class WindowsPath(PureWindowsPath):
    """A path on a Windows machine whose current folder is CWD; nothing is a link."""

    @classmethod
    def cwd(cls) -> WindowsPath:
        return cls(CWD)

    def resolve(self) -> WindowsPath:
        return WindowsPath(ntpath.normpath(ntpath.join(CWD, str(self))))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("C:\\Users\\me\\repo\\configs\\ds.json", "configs/ds.json"),
        ("configs\\ds.json", "configs/ds.json"),
        ("configs/..\\ds.json", "ds.json"),
        ("c:\\users\\ME\\Repo\\configs\\ds.json", "configs/ds.json"),
        ("C:\\Users\\me\\other\\ds.json", "C:/Users/me/other/ds.json"),
        ("D:\\configs\\ds.json", "D:/configs/ds.json"),
        ("\\\\server\\share\\ds.json", "//server/share/ds.json"),
    ],
)
def test_names_in_messages(path: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discover, "Path", WindowsPath)
    assert discover.display_name(WindowsPath(path)) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "folder", "found"),
    [
        ("C:\\job\\configs\\ds.json", "C:\\job", "configs/ds.json"),
        ("C:\\ds.json", "C:\\job\\built", "../../ds.json"),
        ("c:\\JOB\\ds.json", "C:\\job", "ds.json"),
        ("D:\\ds.json", "C:\\job", "D:/ds.json"),
    ],
)
def test_from_one_folder_to_another(path: str, folder: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "system", ntpath)
    assert paths.relative(PureWindowsPath(path), PureWindowsPath(folder)) == found


def test_a_backslash_is_a_letter_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "system", posixpath)
    assert paths.relative(PurePosixPath("/job/a\\b.json"), PurePosixPath("/job")) == "a\\b.json"


def test_an_output_on_another_drive_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch.sh could not go from one to the other."""
    monkeypatch.setattr(paths, "system", ntpath)
    assert emitted.relative(WindowsPath("C:\\job\\out"), WindowsPath("C:\\job")) == "out"  # type: ignore[arg-type]
    with pytest.raises(OSError, match="different drives"):
        emitted.relative(WindowsPath("D:\\out"), WindowsPath("C:\\job"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("configs/ds.json", "configs/ds.json"),
        ("configs\\my ds.json", "configs/my%20ds.json"),
        ("C:/Users/me/ds.json", "file:///C:/Users/me/ds.json"),
        ("D:\\data\\dé.json", "file:///D:/data/d%C3%A9.json"),
        ("configs/50%#.json", "configs/50%25%23.json"),
    ],
)
def test_sarif_addresses(name: str, uri: str, found: Diagnostic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(checkout.GITHUB, raising=False)
    monkeypatch.setattr(sarif, "Path", PureWindowsPath)
    assert sarif._artifact(_named(found, name).span.file, False) == {"uri": uri}


def test_gitlab_paths(found: Diagnostic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(checkout.GITLAB, raising=False)
    text = render_gitlab(Result([_named(found, "configs\\sub\\ds.json")], files=1))
    assert '"path": "configs/sub/ds.json"' in text


def test_a_baseline_goes_from_one_system_to_the_other(found: Diagnostic) -> None:
    """Written on Windows, read on Linux, and back: the same entries, nothing stale, nothing fresh."""
    there = _at(found, WindowsPath(f"{CWD}\\configs\\ds.json"))
    folder = WindowsPath(CWD)
    assert found.span.file.path is not None
    here = Path.cwd()
    written = baseline.baseline_text(Result([there], files=1), folder)  # type: ignore[arg-type]
    assert written == baseline.baseline_text(Result([found], files=1), here) and "\\\\" not in written
    known = baseline.read_baseline(written)
    looked_at = frozenset({str(there.span.file.path)})
    result = Result([there], files=1)
    seen = baseline.without_known(result, known, folder, looked_at)  # type: ignore[arg-type]
    assert not seen.diagnostics and len(seen.suppressed) == 1 and seen.stale == 0
    gone = baseline.without_known(replace(result, diagnostics=[]), known, folder, looked_at)  # type: ignore[arg-type]
    assert gone.stale == 1, "the entry's file was looked at, so it no longer occurs"


def test_patterns_of_the_settings(found: Diagnostic) -> None:
    file = _at(found, WindowsPath(f"{CWD}\\configs\\ds.json")).span.file
    assert names(file, WindowsPath(CWD))[1:] == ["configs/ds.json"]  # type: ignore[arg-type]
    assert add_ignores._pattern(file, "a.b", WindowsPath(CWD)) == "configs/ds.json:a.b"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        "'C:\\Program Files\\Python\\Scripts\\accelerate.exe' launch --config_file configs/acc.yaml train.py",
        '"C:\\venv\\Scripts\\accelerate" launch --config_file configs/acc.yaml train.py',
        "C:/venv/Scripts/python.exe -m accelerate.commands.launch --config_file configs/acc.yaml train.py",
        "accelerate.exe launch --config_file 'configs/acc.yaml' \\\n  train.py",
        "accelerate launch --config_file=configs/acc.yaml train.py",
    ],
)
def test_launchers_of_windows(line: str) -> None:
    """As Git's bash starts them."""
    (found,) = read_launch_lines(SourceText("run.sh", line + "\n")).lines
    assert found.launcher == "accelerate"
    assert found.script is not None and found.script.value == "train.py"
    (option,) = found.options
    assert option.name == "--config_file" and option.value is not None and option.value.value == "configs/acc.yaml"


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Diagnostic:
    """One finding of a real file."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ds.json").write_text('{"train_batch_size": 8, "gradient_cliping": 1.0}')
    monkeypatch.chdir(tmp_path)
    (diagnostic,) = lint("configs/ds.json").diagnostics
    assert os.fspath(diagnostic.span.file.name) == "configs/ds.json"
    return diagnostic


def _at(diagnostic: Diagnostic, path: Any) -> Diagnostic:
    file = replace(diagnostic.span.file, path=path)
    return replace(diagnostic, span=replace(diagnostic.span, file=file))


def _named(diagnostic: Diagnostic, name: str) -> Diagnostic:
    file = replace(diagnostic.span.file, name=name)
    return replace(diagnostic, span=replace(diagnostic.span, file=file))
