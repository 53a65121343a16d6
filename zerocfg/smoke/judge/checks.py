"""The plan against what the live engines and the saved files showed. Pure functions, one module a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke.judge import requested_settings, settings, training, weights
from zerocfg.smoke.model.certificate import Check

if TYPE_CHECKING:
    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.model.reduced import Reduced
    from zerocfg.smoke.prepare.folder import RunFolder


def check(run: RunFolder, reduced: Reduced, outcome: Outcome, steps: int) -> list[Check]:
    """Every check that the reports allow, in the order of the table."""
    checks = [Check(f"{name} as built", "unchanged", "changed since", False) for name in sorted(run.changed)]
    if not all("world_size" in report.get("seen", {}) for report in outcome.reports):
        return checks
    found = settings.check(run, reduced, outcome.reports)
    if run.handwritten is not None:
        found = requested_settings.instead(found, run.handwritten.asked, reduced, outcome.reports)
    checks += found
    checks += training.check(outcome.reports, steps)
    return [*checks, *weights.check(outcome.reports)]
