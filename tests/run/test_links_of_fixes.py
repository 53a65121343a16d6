"""What launch lines are linked to, across lints of the same files with other texts, as those that try fixes are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zerocfg.run import link
from zerocfg.run.discover import Files
from zerocfg.run.link import Links, find_runs
from zerocfg.run.model import Run

LINES = "".join(f"deepspeed train.py --deepspeed {name}.json\n" for name in "abc")
STAGE = '{"zero_optimization": {"stage": %d}}'


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(STAGE % 2)
    (tmp_path / "run.sh").write_text(LINES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stages_and_links(
    folder: Path, files: Files, links: Links, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[object], int]:
    """The stage of each line's run, and how many lines or configs were linked anew."""
    made: list[object] = []
    real = link._linked

    def counted(*given: Any) -> Run | None:
        made.append(given)
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(link, "_linked", counted)
        links.begin(files)
        runs, _ = find_runs([folder], files, kept=links)
    lines = sorted((run for run in runs if run.launch is not None), key=lambda run: run.launch.span)  # type: ignore[union-attr]
    return [run.effective.value("zero_optimization.stage") for run in lines], len(made)


def test_a_text_for_a_file_that_was_read_links_its_own_lines_anew(
    linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, links = Files(), Links()
    assert stages_and_links(linked, files, links, monkeypatch) == ([2, 2, None], 3)
    for text, wanted in (
        ({"a.json": STAGE % 3}, ([3, 2, None], 1)),
        ({"b.json": STAGE % 1}, ([2, 1, None], 2)),
        ({"b.json": STAGE % 1}, ([2, 1, None], 1)),
        ({}, ([2, 2, None], 1)),
        ({}, ([2, 2, None], 0)),
    ):
        texts = {str((linked / name).resolve()): value for name, value in text.items()}
        assert stages_and_links(linked, files.with_texts(texts), links, monkeypatch) == wanted


def test_a_text_for_a_file_that_was_not_there_links_everything_anew(
    linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line may have looked for it."""
    files, links = Files(), Links()
    stages_and_links(linked, files, links, monkeypatch)
    missing = str((linked / "c.json").resolve())
    given = files.with_texts({missing: STAGE % 3})
    given.open(Path(missing))
    assert stages_and_links(linked, given, links, monkeypatch)[1] == 3
    assert stages_and_links(linked, files, links, monkeypatch)[1] == 3
