"""What a smoke-run cannot do without: checks that must have a result before it has passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke.model.certificate import CHANGE, ENGINE, LOADED, SAVED, STAGE, STEPS, WORLD_SIZE
from zerocfg.smoke.model.reduction import Kind

if TYPE_CHECKING:
    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.model.certificate import Check
    from zerocfg.smoke.model.reduction import Reduced


def essential(reduced: Reduced, outcome: Outcome) -> list[str]:
    """The essential checks of a run, by name."""
    names = [ENGINE, WORLD_SIZE, STEPS, CHANGE]
    if reduced.deepspeed is not None or any(_engine(report) == "deepspeed" for report in outcome.reports):
        names.append(STAGE)
    if not reduced.has(Kind.SAVING):
        names += [SAVED, LOADED]
    return names


def unmeasured(checks: list[Check], reduced: Reduced, outcome: Outcome, own_command: bool = False) -> list[str]:
    """Essential checks that are missing or have no result.

    That parameters change has to be shown, and not only looked at. ``own_command``: the user's own training, whose
    learning rate is left alone, so that its first steps may be too small to show.
    """
    rows = {row.name: row for row in checks}
    missing = [name for name in essential(reduced, outcome) if name not in rows or not rows[name].measured]
    if CHANGE not in missing and not own_command and rows[CHANGE].ok is None:
        missing.append(CHANGE)
    return missing


def _engine(report: object) -> object:
    seen = report.get("seen") if isinstance(report, dict) else None
    return seen.get("engine") if isinstance(seen, dict) else None
