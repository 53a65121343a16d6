"""The report of a fleet as SARIF: one log with a run for each repository, whose paths are relative to its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from zerocfg.fleet.model import Outcome
from zerocfg.report.sarif import BASE, log
from zerocfg.version import __version__


def render_sarif(outcomes: Sequence[Outcome]) -> str:
    return json.dumps(log([_run(outcome) for outcome in outcomes]), indent=2) + "\n"


def _run(outcome: Outcome) -> dict[str, object]:
    run = outcome.sarif if outcome.sarif is not None else _nothing(outcome)
    # Services tell the runs of one log apart by this.
    return {**run, "automationDetails": {"id": f"zerocfg/{outcome.name}"}}


def _nothing(outcome: Outcome) -> dict[str, object]:
    notification = {"level": "error", "message": {"text": f"{outcome.name} was not linted: {outcome.problem}"}}
    return {
        "tool": {"driver": {"name": "zerocfg", "version": __version__, "semanticVersion": __version__, "rules": []}},
        "originalUriBaseIds": {BASE: {"uri": f"{Path(outcome.path).as_uri()}/"}},
        "invocations": [{"executionSuccessful": False, "toolExecutionNotifications": [notification]}],
        "results": [],
    }
