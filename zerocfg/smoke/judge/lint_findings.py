"""Lint findings on the files of a run, at the installed releases, and the check of training arguments.

A smoke-run has its own loop, which never parses the arguments that the script's parser rejects.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.rules.api import Severity
from zerocfg.smoke.model.certificate import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.run.model import Run

ARGUMENTS = "training arguments"
_REFUSED = frozenset(("ZC801", "ZC802", "ZC840", "ZC841"))
"""Rules about arguments that a parser rejects."""
LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torch")


def lint_findings(run: Run | None) -> list[Diagnostic]:
    """Errors first, then warnings; notes explain no failure."""
    if run is None:
        return []
    run = replace(run, versions={**run.versions, **_installed()})  # whatever the project states, these ran
    found = [diagnostic for diagnostic in lint_runs([run]).diagnostics if diagnostic.severity is not Severity.NOTE]
    return sorted(found, key=lambda item: -item.severity.rank)


def _installed() -> dict[str, str]:
    """The releases of this environment, as clauses of PEP 440."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = f"=={metadata.version(name).partition('+')[0]}"
    return found


def check_arguments(findings: Sequence[Diagnostic]) -> list[Check]:
    """A failed check where the linter finds such arguments for the releases that ran; else none."""
    names = dict.fromkeys(finding.span.path for finding in findings if refuses(finding))
    return [Check(ARGUMENTS, "accepted by the parser", f"refused: {', '.join(names)}", False)] if names else []


def refuses(finding: Diagnostic) -> bool:
    """Whether a finding says that the parser rejects an argument."""
    return finding.code in _REFUSED and finding.severity is Severity.ERROR and finding.span.file.kind == "recipe"
