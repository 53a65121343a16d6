"""The result of a smoke-run, for its certificate and as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.smoke.certify.evidence import evidence, failed_stage
from zerocfg.smoke.judge import instruments
from zerocfg.smoke.model.certificate import Failure, Measured, RecordedReduction, SmokeResult

if TYPE_CHECKING:
    from zerocfg.smoke.judge.verdict import Verdict


def data(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON data."""
    return smoke_result(verdict).data()


def smoke_result(verdict: Verdict) -> SmokeResult:
    """The result that a certificate states."""
    outcome, reports, shown = verdict.outcome, verdict.outcome.reports, evidence(verdict)
    first = reports[0] if reports else {}
    failure = None
    if outcome.failure is not None:
        failure = Failure(outcome.failure, outcome.rank, tuple(outcome.detail), failed_stage(outcome))
    return SmokeResult(
        run=verdict.run.name,
        state=verdict.state,
        device_kind=verdict.device.kind,
        device_name=first.get("seen", {}).get("device_name") or verdict.device.name,
        ranks=verdict.reduced.ranks,
        reductions=tuple(
            RecordedReduction(change.kind.value, str(change), change.data()) for change in verdict.reduced.changes
        ),
        checks=tuple(verdict.checks),
        proven=shown.proven,
        not_proven=shown.not_proven,
        failure=failure,
        diagnosis=tuple(verdict.diagnosis),
        command=verdict.command,
        measured=_measured(verdict),
        unmeasured=tuple(verdict.unmeasured),
        instruments=tuple(instruments.working(reports)),
        not_measured=instruments.broken(reports),
    )


def _measured(verdict: Verdict) -> Measured:
    outcome, expected = verdict.outcome, verdict.expected
    first = outcome.reports[0] if outcome.reports else {}
    return replace(
        verdict.figures.measured(),
        seconds=round(outcome.seconds, 1),
        step_seconds=tuple(first.get("step_seconds", [])),
        losses=tuple(first.get("losses", [])),
        predicted={"unknown": expected} if isinstance(expected, str) else expected.data(),
    )
