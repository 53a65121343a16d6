"""The run is the unit: whichever of its files is named, all that is found in the run is told."""

from __future__ import annotations

from pathlib import Path

from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run, files_of

Place = tuple[str, str, int, int, str]


def _place(one: Diagnostic) -> Place:
    return one.code, one.span.file.name, *one.span.start, one.span.path


def _found(runs: list[Run]) -> set[Place]:
    return {_place(one) for one in lint_runs(runs).diagnostics}


def test_every_file_stands_for_its_runs(corpus: Path) -> None:
    files_named = 0
    for repository in sorted(path for path in corpus.iterdir() if path.is_dir()):
        files = Files()
        runs, _ = find_runs([repository], files, root=repository, scripts=True)
        expected = {run.name: _found([run]) for run in runs}
        by_file: dict[Path, set[str]] = {}
        for run in runs:
            for file in files_of(run):
                if file.path is not None:
                    by_file.setdefault(file.path.resolve(), set()).add(run.name)
            if run.entry_point is not None:
                by_file.setdefault(run.entry_point.resolve(), set()).add(run.name)
        for path, names in by_file.items():
            files_named += 1
            alone, _ = find_runs([path], files, root=repository, scripts=True)
            assert {run.name for run in alone} == names, path
            told = _found(alone)
            assert all(expected[name] <= told for name in names), path
    assert files_named > 300
