"""GitLab's code quality report: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""

from __future__ import annotations

import json

from zerocfg.linter.engine import Result
from zerocfg.report.checkout import GITLAB, in_checkout
from zerocfg.report.fingerprints import fingerprints

_SEVERITIES = {"error": "critical", "warning": "major", "note": "info"}


def render_gitlab(result: Result) -> str:
    """A JSON array, one object a finding."""
    entries = [
        {
            "description": f"{diagnostic.code}: {diagnostic.full_message}",
            "check_name": diagnostic.name,
            "fingerprint": key,
            "severity": _SEVERITIES[diagnostic.severity.value],
            "location": {
                "path": in_checkout(diagnostic.span.file.name, GITLAB),
                "lines": {"begin": diagnostic.span.start.line, "end": diagnostic.span.end.line},
            },
        }
        for diagnostic, key in zip(result.diagnostics, fingerprints(result.diagnostics), strict=True)
    ]
    return json.dumps(entries, indent=2) + "\n"
