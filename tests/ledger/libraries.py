"""The marker `libs` is true: a test without it that imports a training library, here or in what it starts, fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from .inputs import LIBRARIES

WATCHED = Path(__file__).parent / "watched"
"""A folder for PYTHONPATH."""


class Watch:
    """Of one process that runs tests. ``notes`` is a file of its own, which started processes write to.

    A process has a library from the first import on, so a later test can be told only by what it starts.
    """

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        self.loaded = loaded()
        self.wrong: list[str] = []
        """Modules of unmarked tests that import a library when they are collected."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        new, self.loaded = loaded() - self.loaded, loaded()
        if new and isinstance(collector, pytest.Module):
            unmarked = [item.name for item in report.result if item.get_closest_marker("libs") is None]
            if unmarked:
                report.outcome = "failed"
                report.longrepr = (
                    f"{collector.nodeid} imports {_words(new)} for {unmarked[0]}, which is not marked libs"
                )
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if item.get_closest_marker("libs") is not None:
            return (yield)
        before = os.environ.get("PYTHONPATH")
        self.notes.unlink(missing_ok=True)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WATCHED), before]))
        os.environ.update(ZEROCFG_LIBRARIES=" ".join(LIBRARIES), ZEROCFG_LIBRARIES_NOTED=str(self.notes))
        try:
            return (yield)
        finally:
            for name in ("PYTHONPATH", "ZEROCFG_LIBRARIES", "ZEROCFG_LIBRARIES_NOTED"):
                os.environ.pop(name, None)
            if before is not None:
                os.environ["PYTHONPATH"] = before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        result = yield
        new, self.loaded = loaded() - self.loaded, loaded()
        if item.get_closest_marker("libs") is None:
            noted = set(self.notes.read_text(encoding="utf-8").splitlines()) if self.notes.exists() else set()
            if new or noted:
                pytest.fail(f"runs a training library, so mark it libs: {_words(new | noted)}", pytrace=False)
        return result

    def pytest_unconfigure(self) -> None:
        self.notes.unlink(missing_ok=True)


def loaded() -> set[str]:
    return {name for name in LIBRARIES if name in sys.modules}


def _words(names: set[str]) -> str:
    return ", ".join(sorted(names))
