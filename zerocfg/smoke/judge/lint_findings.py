"""Lint findings on the files of a run, at the installed releases, and the check of training arguments.

A smoke-run has its own loop, which never parses the arguments that the script's parser rejects.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.rules.api import Severity
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import consumer_of
from zerocfg.run.resolve_settings import with_settings
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.prepare.handwritten import CONSUMERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.run.model import Run
    from zerocfg.smoke.prepare.folder import RunFolder

ARGUMENTS = "training arguments"
_REFUSED = frozenset(("ZC801", "ZC802", "ZC840", "ZC841"))
"""Rules about arguments that a parser rejects."""
LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torch")


def linted_run(folder: RunFolder) -> Run | None:
    """The run as the linter links it; None when its files do not determine it."""
    if folder.handwritten is not None:
        return folder.handwritten.run
    if folder.line is not None or not (folder.hashes or folder.lock.plan):
        return folder.line  # of a command: what else lies in the current folder is no part of it
    try:
        runs, _ = find_runs([folder.path], Files(), root=_top(folder))
    except OSError:
        return None
    runs = [run for run in runs if run.accelerate or run.deepspeed or run.recipe]
    if not runs:
        return None
    run = runs[0]
    if run.consumer is None and folder.consumer in CONSUMERS:  # the lock tells
        return with_settings(replace(run, consumer=consumer_of(folder.consumer)))
    return run


def _top(folder: RunFolder) -> Path:
    """The folder of the spec, from which launch.sh starts the script, where it is still there."""
    built = folder.path.resolve()
    top = (built / (folder.lock.spec_folder or "")).resolve()
    return top if built.is_relative_to(top) and top.is_dir() else built


def lint_findings(run: Run | None) -> list[Diagnostic]:
    """Errors first, then warnings; notes explain no failure."""
    if run is None:
        return []
    run = replace(run, versions={**run.versions, **_installed()})  # whatever the project states, these ran
    found = [one for one in lint_runs([run]).diagnostics if one.severity is not Severity.NOTE]
    return sorted(found, key=lambda one: -one.severity.rank)


def _installed() -> dict[str, str]:
    """The releases of this environment, as clauses of PEP 440."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = f"=={metadata.version(name).partition('+')[0]}"
    return found


def check_arguments(findings: Sequence[Diagnostic]) -> list[Check]:
    """A failed check where the linter finds such arguments for the releases that ran; else none."""
    names = dict.fromkeys(one.span.path for one in findings if refuses(one))
    return [Check(ARGUMENTS, "accepted by the parser", f"refused: {', '.join(names)}", False)] if names else []


def refuses(finding: Diagnostic) -> bool:
    """Whether a finding says that the parser rejects an argument."""
    return finding.code in _REFUSED and finding.severity is Severity.ERROR and finding.span.file.kind == "recipe"
