"""A repository of a fleet, and what came of its lint."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any

from zerocfg.record import record

SEVERITIES = ("error", "warning", "note")
"""The gravest first."""
Report = dict[str, Any]
"""What ``zerocfg lint --output-format json`` prints; each diagnostic has its ``fingerprint`` as well."""


@record(frozen=True)
class Repository:
    """``name``: as people call it, and by which an earlier report is compared; ``path``: its absolute path."""

    name: str
    path: str


@record(frozen=True)
class Outcome:
    """``problem``: why there is no report, in a line; else ``report``. ``fail_on``: the severity from which its
    findings fail, by the command line or its own settings. ``seconds``: how long the lint took, ``cpu_seconds`` how
    much of a core. ``sarif``: its run of a log, where one was asked for.
    """

    name: str
    path: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    problem: str = ""
    fail_on: str = "warning"
    report: Report = field(default_factory=dict)
    sarif: dict[str, object] | None = None

    @property
    def diagnostics(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.report.get("diagnostics", [])
        return found

    @property
    def failed_inside(self) -> list[str]:
        """What zerocfg itself failed at, a line each; everything else was checked."""
        return [
            f"{item['file']}: could not {item['doing']}: {item['error']}"
            if item["file"]
            else f"could not {item['doing']}: {item['error']}"
            for item in self.report.get("internal_errors", [])
        ]

    @property
    def incomplete(self) -> bool:
        return bool(self.problem or self.failed_inside)

    def counts(self) -> dict[str, int]:
        """Findings by severity."""
        return {name: sum(diagnostic["severity"] == name for diagnostic in self.diagnostics) for name in SEVERITIES}

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def fails(diagnostic: dict[str, Any], fail_on: str) -> bool:
    """Whether a finding is at least as grave."""
    return SEVERITIES.index(diagnostic["severity"]) <= SEVERITIES.index(fail_on)
