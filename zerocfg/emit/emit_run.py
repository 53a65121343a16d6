"""The files of one resolved run, and what they get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.emit.files import Emitted, emit
from zerocfg.emit.values import InvalidConfigError
from zerocfg.emit.verify import OWN, REPORT, differences, unexplained
from zerocfg.resolve.plan import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.resolve.build import BuildResult
    from zerocfg.run.model import Run


def emit_run(built: BuildResult, out: Path) -> Emitted | None:
    """The files of a run; None, and a problem, where its library would refuse a value of them."""
    if built.plan is None:
        return None
    try:
        return emit(built.plan, out)
    except InvalidConfigError as error:
        built.problems.append(Problem(built.name, f"{OWN}: {error}", REPORT))
        return None


def unlike(emitted: Emitted, run: Run, source: Run) -> list[Problem]:
    """Where the files mean something else than what was planned, or, without a reason, than the sources."""
    return [*differences(emitted, run), *unexplained(emitted, source, run)]
