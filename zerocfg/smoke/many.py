"""Several smoke-runs, one after another."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.smoke.certify.result import data
from zerocfg.smoke.launch import warm
from zerocfg.smoke.model.certificate import WORDS, exit_code_of
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import LOCK
from zerocfg.smoke.smoke import smoke
from zerocfg.source import disk
from zerocfg.terminal.table import Column, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zerocfg.smoke.judge.verdict import Verdict
    from zerocfg.smoke.smoke import Options

VERSION = 1
SKIPPED = ("__pycache__", "node_modules", "site-packages")
"""Folders that hold no builds of the project; hidden ones are skipped too."""


@dataclass(frozen=True)
class Result:
    """The verdict of the run in ``path``, or ``problem``: why it could not be tried."""

    path: Path
    verdict: Verdict | None = None
    problem: str | None = None

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed

    @property
    def interrupted(self) -> bool:
        return self.verdict is not None and self.verdict.outcome.interrupted

    @property
    def name(self) -> str:
        return self.verdict.run.name if self.verdict is not None else str(self.path)


def find(paths: list[Path]) -> list[Path]:
    """The run folders that ``paths`` mean, each once, in the order given.

    A path is a run folder, or one that has builds somewhere below; anything else stays as it is, for `folder.read` to
    read or to refuse. Without any path the builds below the current folder. Raises SmokeError when there are none.
    """
    if not paths:
        found = list(_builds(Path()))
        if not found:
            raise SmokeError(
                f"no build is below {Path.cwd()}: no folder there holds a {LOCK}; "
                "name one, or write one with `zerocfg build SPEC -o OUT`"
            )
        return found
    runs: dict[Path, Path] = {}
    for path in paths:
        below = [] if (path / LOCK).is_file() else list(_builds(path))
        for run in below or [path]:
            runs.setdefault(run.resolve(), run)
    return list(runs.values())


def _builds(folder: Path) -> Iterator[Path]:
    def is_entered(above: str, name: str) -> bool:
        return not name.startswith(".") and name not in SKIPPED and above not in builds

    builds: set[str] = set()
    for at, files in disk.tree(folder, is_entered):
        if LOCK in files:
            builds.add(at)
            yield Path(at)


def run_all(
    runs: list[Path],
    options: Options,
    ended: Callable[[Result], None],
    progress: Callable[[str], None] | None = None,
    fail_fast: bool = False,
) -> list[Result]:
    """Smoke-run each folder; ``ended`` is called with each result.

    What could not be tried or failed does not keep the others from running, unless ``fail_fast``. The list ends early
    when a run was interrupted. ``options.keep`` gets a folder for each run when there are several.
    """
    results: list[Result] = []
    taken: Counter[str] = Counter()
    # Of one run too, whose launcher and ranks would each import the libraries.
    with warm.shared_imports() if options.command is None else contextlib.nullcontext():
        for number, path in enumerate(runs, 1):
            own, tell = options, progress
            if len(runs) > 1:
                name = path.resolve().name
                taken[name] += 1
                if options.keep is not None:
                    own = replace(options, keep=options.keep / (name if taken[name] == 1 else f"{name}-{taken[name]}"))
                if progress is not None:
                    tell = _prefixed(progress, f"{number} of {len(runs)}: {name}: ")
            try:
                result = Result(path, smoke(path, own, tell))
            except SmokeError as error:
                result = Result(path, problem=str(error))
            results.append(result)
            ended(result)
            if result.interrupted or (fail_fast and not result.passed):
                break
    return results


def _prefixed(progress: Callable[[str], None], before: str) -> Callable[[str], None]:
    return lambda phase: progress(before + phase)


_SUMMARY = (Column("run", hangs=24), Column("verdict"), Column("seconds", right=True), Column(least=24))


def summary(results: list[Result], width: int | None = None) -> str:
    """A table of what was run: name, verdict, seconds, and what is wrong first. ``width``: columns of a terminal."""
    rows = []
    for result in results:
        seconds = f"{result.verdict.outcome.seconds:.0f}" if result.verdict is not None else "-"
        rows.append((result.name, _word(result), seconds, _first(result)))
    return "".join(f"{line}\n" for line in table(_SUMMARY, rows, width, ""))


def _word(result: Result) -> str:
    if result.verdict is None:
        return "not tried"
    return "interrupted" if result.interrupted else WORDS[result.verdict.state]


def _first(result: Result) -> str:
    if result.verdict is None:
        return result.problem or ""
    if result.verdict.outcome.failure is not None:
        return result.verdict.outcome.failure[:160]
    if result.verdict.state == "incomplete":
        return f"not measured: {', '.join(result.verdict.unmeasured)}"[:160]
    failed = next((check for check in result.verdict.checks if check.ok is False), None)
    return f"{failed.name}: planned {failed.planned}, seen {failed.seen}"[:160] if failed is not None else ""


def as_data(results: list[Result]) -> dict[str, object]:
    """{"version": 1, "runs": one verdict each (`verdict.data`) with its "path"; "problem" where it was not tried}."""
    return {
        "version": VERSION,
        "runs": [
            {"path": str(result.path), **data(result.verdict)}
            if result.verdict is not None
            else {"path": str(result.path), "run": result.name, "passed": False, "problem": result.problem}
            for result in results
        ],
    }


def exit_code(results: list[Result]) -> int:
    """0 every run passed, 1 one failed, 2 one could not be tried, 3 one is incomplete and none failed."""
    return exit_code_of("problem" if result.verdict is None else result.verdict.state for result in results)
