"""Training arguments that the script's parser rejects: a smoke-run has its own loop, which never parses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.rules.api import Severity
from zerocfg.smoke.model.certificate import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.lint.engine import Diagnostic

ARGUMENTS = "training arguments"
_REFUSED = frozenset(("ZC801", "ZC802", "ZC840", "ZC841"))
"""Rules about arguments that a parser rejects."""


def check(findings: Sequence[Diagnostic]) -> list[Check]:
    """A failed check where the linter finds such arguments for the releases that ran; else none."""
    names = dict.fromkeys(one.span.path for one in findings if refuses(one))
    return [Check(ARGUMENTS, "accepted by the parser", f"refused: {', '.join(names)}", False)] if names else []


def refuses(finding: Diagnostic) -> bool:
    """Whether a finding says that the parser rejects an argument."""
    return finding.code in _REFUSED and finding.severity is Severity.ERROR and finding.span.file.kind == "recipe"
