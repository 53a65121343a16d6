"""A verdict as JSON data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke import certificate
from zerocfg.smoke.proven import proof

if TYPE_CHECKING:
    from zerocfg.smoke.verdict import Verdict


def data(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON data."""
    outcome, reports = verdict.outcome, verdict.outcome.reports
    first = reports[0] if reports else {}
    failure, shown = None, proof(verdict)
    if outcome.failure is not None:
        failure = {"message": outcome.failure, "rank": outcome.rank, "detail": outcome.detail}
    return {
        "version": certificate.VERSION,
        "run": verdict.run.name,
        "passed": verdict.passed,
        "device": {
            "kind": verdict.device.kind,
            "name": first.get("seen", {}).get("device_name") or verdict.device.name,
        },
        "ranks": verdict.reduced.ranks,
        "reductions": verdict.reduced.words,
        "reduced": [one.data() for one in verdict.reduced.changes],
        "checks": [one.data() for one in verdict.checks],
        "proven": list(shown.proven),
        "not_proven": list(shown.not_proven),
        "failure": failure,
        "diagnosis": [one.data() for one in verdict.diagnosis],
        **({} if verdict.command is None else {"command": verdict.command.data()}),
        "measured": {
            "seconds": round(outcome.seconds, 1),
            "step_seconds": first.get("step_seconds", []),
            "losses": first.get("losses", []),
            "peak_memory_bytes": verdict.figures.peaks(verdict.figures.counter),
            **verdict.figures.data(),
            "predicted": {"unknown": verdict.expected}
            if isinstance(verdict.expected, str)
            else verdict.expected.data(),
        },
    }
