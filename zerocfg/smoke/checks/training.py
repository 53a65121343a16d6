"""Whether training went as it should."""

from __future__ import annotations

import math
from typing import Any

from zerocfg.smoke.checks.check import Check


def check(reports: list[dict[str, Any]], steps: int) -> list[Check]:
    """Losses and steps."""
    losses = [loss for report in reports for loss in report.get("losses", [])]
    done = min(len(report.get("step_seconds", [])) for report in reports)
    finite = bool(losses) and all(math.isfinite(loss) for loss in losses)
    own = reports[0].get("losses", [])
    seen = f"{done}; loss {own[0]:.4g} to {own[-1]:.4g}" if own else str(done)
    return [Check("optimizer steps, loss finite", str(steps), seen, finite and done == steps)]
