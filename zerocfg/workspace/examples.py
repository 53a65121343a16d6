"""Linting the examples that rules carry, in a folder that is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from zerocfg.linter.engine import Result
from zerocfg.linter.selection import Selection
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.source import boundary
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from zerocfg.rulebook.example import Example
    from zerocfg.rulebook.pages import Page


def lint_example(example: Example) -> Result:
    """Lint an example as `zerocfg lint FOLDER` would, with its consumer."""
    with _written(example) as folder:
        return Job([folder], Settings(consumer=example.consumer), Selection(preview=True), root=folder).lint()


def as_shown(page: Page) -> Page:
    """The page with examples that know whether their files identify their consumer."""
    return replace(
        page, bad=tuple(map(_with_consumer_known, page.bad)), good=tuple(map(_with_consumer_known, page.good))
    )


def _with_consumer_known(example: Example) -> Example:
    if example.consumer is None:
        return example
    with _written(example) as folder:
        runs, _ = find_runs([folder], Files(), root=folder)
    return replace(example, told=all(run.consumer is not None for run in runs))


@contextmanager
def _written(example: Example) -> Iterator[Path]:
    with TemporaryDirectory(prefix="zerocfg-") as name, boundary.lent(name):
        folder = Path(name).resolve()
        for file, text in example.files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        yield folder
