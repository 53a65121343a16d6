"""The input of a report: a run and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.compare.check_outputs import OutputCheck
    from zerocfg.emit.lock import Lock
    from zerocfg.linter.engine import Result
    from zerocfg.resolve.build import BuildResult
    from zerocfg.resolve.explain.alternatives import Alternative
    from zerocfg.resolve.explain.forecast import Forecast
    from zerocfg.run.model import Run


class PageError(Exception):
    """Why there can be no page, in one line."""


@dataclass(slots=True)
class ReportInput:
    """One run. None means unknown; the page then names the command that produces it.

    ``spec``      how the spec is called on the command line; empty: the configs were written by hand, or it is gone
    ``built``     the run as a build resolves it now
    ``lock``      its lock: of the files that a build would write now, else of the build on disk
    ``found``     the findings of lint about this run
    ``forecast``  what is predicted, or in words why nothing is
    ``build``     the folder of the last build; ``checked`` compares it with what the sources give now
    ``builds``    the folders of several builds, when it cannot be told which is meant
    """

    name: str
    spec: str = ""
    run: Run | None = None
    built: BuildResult | None = None
    lock: Lock | None = None
    found: Result | None = None
    forecast: Forecast | str | None = None
    alternatives: list[Alternative] = field(default_factory=list)
    build: Path | None = None
    checked: OutputCheck | None = None
    builds: list[Path] = field(default_factory=list)
