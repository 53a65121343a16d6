"""The verdict of a smoke-run: every check, what the ranks measured, and the rules that explain a failure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from zerocfg.smoke.judge import essentials, instruments, requested_settings, settings, training, weights
from zerocfg.smoke.judge.diagnosis import diagnose
from zerocfg.smoke.judge.figures import Figures, figures
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.reduction import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.smoke.judge.prediction import Expected
    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.model.certificate import Command, Diagnosis, VerdictState
    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.device import Device
    from zerocfg.smoke.prepare.folder import RunFolder
    from zerocfg.smoke.worker.report_schema import RankReport


@dataclass
class Verdict:
    """``state``: "failed" when the run ended with a failure or a check failed, else "incomplete" when an essential
    check has no result, else "passed"."""

    run: RunFolder
    device: Device
    reduced: Reduced
    outcome: Outcome
    checks: list[Check] = field(default_factory=list)
    kept: Path | None = None
    certificate: Path | None = None
    uncertified: str | None = None
    command: Command | None = None

    @property
    def state(self) -> VerdictState:
        if self.outcome.failure is not None or any(check.ok is False for check in self.checks):
            return "failed"
        return "incomplete" if self.unmeasured else "passed"

    @property
    def passed(self) -> bool:
        return self.state == "passed"

    @property
    def unmeasured(self) -> list[str]:
        """The essential checks without a result, by name."""
        return essentials.unmeasured(self.checks, self.reduced, self.outcome, own_command=self.command is not None)

    @cached_property
    def expected(self) -> Expected | str:
        """What was predicted of this very run, or why nothing was."""
        from zerocfg.smoke.judge.prediction import expect

        if self.command is not None:
            return "the training of a command is not predicted"
        return expect(self.reduced, self.device, self.run.consumer)

    @cached_property
    def diagnosis(self) -> list[Diagnosis]:
        """The rules that explain what failed."""
        return diagnose(self.run, self.checks, self.outcome)

    @cached_property
    def figures(self) -> Figures:
        """What the ranks measured."""
        found = figures(self.reduced, self.device, self.outcome.reports, self.expected)
        # How long the samples of a command are is not known.
        return found if self.command is None else replace(found, tokens=None)


def run_checks(run: RunFolder, reduced: Reduced, outcome: Outcome, steps: int) -> list[Check]:
    """Every check that the reports allow, in the order of the table."""
    checks = [Check(f"{name} as built", "unchanged", "changed since", False) for name in sorted(run.changed)]
    if not outcome.reports or not all(_stood(report) for report in outcome.reports):
        return checks
    found = settings.check(run, reduced, outcome.reports)
    if run.handwritten is not None:
        found = requested_settings.replace_planned(found, run.handwritten.requested, reduced, outcome.reports)
    checks += found
    checks += training.check(outcome.reports, steps, outcome.cut)
    checks += weights.check(outcome.reports, saves=not reduced.has(Kind.SAVING))
    return [*checks, *instruments.check(outcome.reports)]


def _stood(report: RankReport) -> bool:
    """Whether the rank had its engine."""
    return "rates" in report or "world_size" in report.get("seen", {})
