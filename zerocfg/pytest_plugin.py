"""``pytest --zerocfg``: every config of the project is a test that fails with what `zerocfg lint` finds in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from zerocfg.linter.engine import Result

_RESULTS = pytest.StashKey["dict[Path, Result]"]()
_RANK = {"note": 0, "warning": 1, "error": 2}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("zerocfg", "training configs")
    group.addoption("--zerocfg", action="store_true", help="lint the accelerate, DeepSpeed and trainer configs too")
    group.addoption(
        "--zerocfg-fail-on", choices=sorted(_RANK), help="findings that fail a test (default: as in the settings)"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not parent.config.getoption("--zerocfg"):
        return None
    from zerocfg.run.discover import CONFIG_SUFFIXES, Files, is_launch_file

    if file_path.suffix not in CONFIG_SUFFIXES and not is_launch_file(file_path):
        return None
    if Files().peek(file_path) is None:
        return None
    collector: pytest.Collector = ConfigFile.from_parent(parent, path=file_path)
    return collector


class ConfigFile(pytest.File):
    """A file that zerocfg can say something about."""

    def collect(self) -> Iterator[pytest.Item]:
        yield ConfigItem.from_parent(self, name="zerocfg")


class ConfigItem(pytest.Item):
    """Fails when there are findings in its file; the file is linted together with all others of the project."""

    def runtest(self) -> None:
        from zerocfg.api import ConfigError
        from zerocfg.linter.engine import Result
        from zerocfg.report.full import render_full

        result, threshold = self._project()
        here = [
            diagnostic
            for diagnostic in result.diagnostics
            if diagnostic.severity.rank >= _RANK[threshold]
            and diagnostic.span.file.path is not None
            and diagnostic.span.file.path.resolve() == self.path.resolve()
        ]
        if here:
            raise ConfigError(render_full(Result(here, files=1)), result)

    def _project(self) -> tuple[Result, str]:
        """What is found in the whole project, looked for once."""
        from zerocfg.api import lint
        from zerocfg.workspace.settings import find_settings

        root = self.config.rootpath
        results = self.config.stash.setdefault(_RESULTS, {})
        if root not in results:
            results[root] = lint(root, notes=True)
        threshold: str = self.config.getoption("--zerocfg-fail-on") or find_settings(root).fail_on
        return results[root], threshold

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        from zerocfg.api import Error

        if isinstance(excinfo.value, Error):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"zerocfg: {self.path.name}"
