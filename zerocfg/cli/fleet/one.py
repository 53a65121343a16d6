"""The lint of one repository from its root, as its owner would start it."""

from __future__ import annotations

import gc
import json
import os
import time
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocfg.errors import UsageError
from zerocfg.fleet.model import Outcome, Repository
from zerocfg.fleet.pool import Lost, results
from zerocfg.internal_errors import in_a_line
from zerocfg.record import record
from zerocfg.report.fingerprints import fingerprints
from zerocfg.report.json_format import render_json
from zerocfg.report.sarif import run_of
from zerocfg.rules.api import Severity
from zerocfg.source import boundary, disk
from zerocfg.source.foreign import harmless
from zerocfg.source.secrets import masked
from zerocfg.workspace.baseline import read_baseline_file
from zerocfg.workspace.job import Job
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import Settings, SettingsOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zerocfg.linter.engine import Result


@record(frozen=True)
class How:
    """What the command line says for every repository. ``sarif``: whether a run of a SARIF log is wanted."""

    select: str = ""
    ignore: str = ""
    preview: bool = False
    notes: bool = False
    consumer: str | None = None
    fail_on: str | None = None
    settings: SettingsOptions = field(default_factory=SettingsOptions)
    sarif: bool = False


def lint_all(repositories: Sequence[Repository], how: How, *, jobs: int, limit: float) -> Iterator[Outcome]:
    """The outcomes, as they come, of so many processes at a time. ``limit``: seconds for one repository."""
    for repository, result in results(
        partial(lint_one, how=how), repositories, jobs=jobs, limit=limit, preload=[__name__, "zerocfg.linter.engine"]
    ):
        if isinstance(result, Lost):
            yield Outcome(repository.name, repository.path, result.seconds, problem=result.why)
        else:
            yield result


def lint_one(repository: Repository, how: How) -> Outcome:
    """Lint it in this process, which is spent afterwards: its current folder is the repository."""
    began, worked = time.monotonic(), time.process_time()
    gc.disable()
    outcome = Outcome(repository.name, repository.path)
    try:
        os.chdir(repository.path)
        os.scandir().close()  # what cannot be read is told, and not taken for empty
        with boundary.reading([repository.path], [word for word in how.settings.config if disk.is_file(word)]):
            outcome = _linted(outcome, how)
    except OSError as error:
        where = f"{error.filename}: " if error.filename and error.filename != repository.path else ""
        outcome = replace(outcome, problem=f"{where}{error.strerror or error}")
    except UsageError as error:
        outcome = replace(outcome, problem=str(error))
    except Exception as error:
        if os.environ.get("ZEROCFG_TRACEBACK"):
            raise
        else:
            outcome = replace(outcome, problem=f"internal error of zerocfg: {in_a_line(error)}")
    return replace(outcome, seconds=time.monotonic() - began, cpu_seconds=time.process_time() - worked)


def _linted(outcome: Outcome, how: How) -> Outcome:
    settings = _settings(how.settings)
    fail_on = how.fail_on or settings.fail_on
    notes = how.notes or settings.notes or fail_on == Severity.NOTE.value
    selection = selection_of(settings, how.select, how.ignore, how.preview)
    known = read_baseline_file(None, settings)
    job = Job([Path()], settings, selection, how.consumer, known, notes=notes)
    result = job.reported(job.with_sound_fixes(job.lint()))
    sarif = _clean(run_of(result, Path(outcome.path))) if how.sarif else None
    return replace(outcome, fail_on=fail_on, report=_report(result), sarif=sarif)


def _settings(options: SettingsOptions) -> Settings:
    """Those of the repository: a file in a folder above it is of the place where it lies, not of its owner."""
    found = options.settings(Path())
    if found.source is None or any(disk.is_file(word) for word in options.config):
        return found
    if disk.resolved(found.source).is_relative_to(disk.resolved(Path())):
        return found
    return replace(options, isolated=True).settings(Path())


def _report(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render_json(result))
    for item, key in zip(document["diagnostics"], fingerprints(result.diagnostics), strict=True):
        item["fingerprint"] = key
    return _clean(document)


def _clean(document: dict[str, Any]) -> dict[str, Any]:
    """Without secrets and what steers a reader's terminal, as every report is."""
    cleaned: dict[str, Any] = json.loads(harmless(masked(json.dumps(document, indent=2)), commands=False))
    return cleaned
