"""The report of a fleet as JSON, version 1: written, and read again to be compared with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from zerocfg.fleet.changes import Changes
from zerocfg.fleet.model import SEVERITIES, Outcome
from zerocfg.fleet.summary import rule_counts, totals
from zerocfg.version import __version__

VERSION = 1


class ReadError(Exception):
    """Why a file is no report of a fleet."""


def render_json(outcomes: Sequence[Outcome], changes: Changes | None) -> str:
    document = {
        "version": VERSION,
        "zerocfg": __version__,
        "totals": asdict(totals(outcomes)),
        "rules": [asdict(rule_count) for rule_count in rule_counts(outcomes)],
        "since": None if changes is None else asdict(changes),
        "repositories": [_repository(outcome) for outcome in outcomes],
    }
    return json.dumps(document, indent=2) + "\n"


def _repository(outcome: Outcome) -> dict[str, object]:
    """``report`` is what ``zerocfg lint --output-format json`` prints in the repository, with a fingerprint of each
    diagnostic; null where ``problem`` says why there is none."""
    return {
        "name": outcome.name,
        "path": outcome.path,
        "seconds": round(outcome.seconds, 3),
        "cpu_seconds": round(outcome.cpu_seconds, 3),
        "problem": outcome.problem or None,
        "fail_on": outcome.fail_on,
        "report": outcome.report or None,
    }


def read(text: str) -> tuple[list[Outcome], str]:
    """The outcomes of a report, and the zerocfg that made it. Raises ReadError."""
    try:
        data: Any = json.loads(text)
        if not isinstance(data, dict) or "repositories" not in data:
            raise ReadError("it is no report of `zerocfg lint --repos ... --output-format json`")
        if data["version"] != VERSION:
            raise ReadError(f"it has version {data['version']!r}; this zerocfg reads version {VERSION}")
        return [_outcome(item) for item in data["repositories"]], str(data["zerocfg"])
    except (ValueError, RecursionError):
        raise ReadError("it is no JSON") from None
    except (KeyError, TypeError, AttributeError):
        raise ReadError("it is no report of `zerocfg lint --repos ... --output-format json`") from None


def _outcome(data: dict[str, Any]) -> Outcome:
    report = data["report"] or {}
    for item in report.get("diagnostics", []):
        if item["severity"] not in SEVERITIES or not all(isinstance(item[key], str) for key in ("code", "fingerprint")):
            raise TypeError
    seconds = float(data["seconds"]), float(data["cpu_seconds"])
    return Outcome(str(data["name"]), str(data["path"]), *seconds, data["problem"] or "", data["fail_on"], report)
