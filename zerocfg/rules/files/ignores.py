"""ZC01x: comments that suppress findings. What they find is told by `zerocfg.lint`, which knows which rules ran."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.subjects import COMMENTS
from zerocfg.run.model import Run


@rule("ZC010", "unused-ignore", Severity.WARNING, COMMENTS)
def unused_ignore(run: Run) -> Iterator[Finding]:
    # Only when every other rule has run is it known: see `zerocfg.linter.ignores.Ignores.unused`.
    return iter(())


@rule("ZC011", "unknown-code-in-ignore", Severity.WARNING, COMMENTS)
def unknown_code_in_ignore(run: Run) -> Iterator[Finding]:
    # Takes the list of all rules: see `zerocfg.linter.ignores.not_understood`.
    return iter(())
