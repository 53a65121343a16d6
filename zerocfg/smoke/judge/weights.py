"""Whether the saved weights are whole, and those of the live model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke.judge import instruments
from zerocfg.smoke.model.certificate import LOADED, SAVED, Check
from zerocfg.smoke.worker.report_schema import WEIGHTS

if TYPE_CHECKING:
    from zerocfg.smoke.worker.report_schema import RankReport, Weights


def check(reports: list[RankReport], saves: bool = True) -> list[Check]:
    """The files that were saved. ``saves``: the run is to save them."""
    weights = reports[0].get("weights")
    if weights is None:
        # A run that failed before has no such row at all.
        if not saves or not all(report.get("trained") for report in reports):
            return []
        return [instruments.unmeasured(SAVED, instruments.why(reports, WEIGHTS))]
    expected, saved = weights["expected"], weights["saved"]
    wrong = [*weights["missing"], *weights["short"]]
    if not weights["file"]:
        seen = "no file of weights"
    elif wrong:
        seen = f"{saved:,} in {weights['file']}; not whole: {wrong[0]} and {len(wrong) - 1} more"
    else:
        seen = f"{saved:,} in {weights['file']}"
    checks = [Check(SAVED, f"{expected:,}", seen, bool(weights["file"]) and not wrong)]
    if weights["file"]:
        checks += _content(weights, str(reports[0]["seen"].get("engine")))
        loadable = weights["loadable"]
        checks.append(Check(LOADED, "yes", loadable or "yes", loadable is None))
    return checks


def _content(weights: Weights, engine: str) -> list[Check]:
    """Dtype and values against the live model. A dtype counts where the consumer keeps that of the model (not FSDP)."""
    if not weights.get("dtypes"):
        return []
    live, saved = ", ".join(sorted(weights["live_dtypes"])), ", ".join(sorted(weights["dtypes"]))
    same = live == saved
    checks = [Check("saved dtype", live, saved, same or (None if engine == "fsdp" else False))]
    compared, other = weights["compared"], weights["other"]
    if not compared:
        return [*checks, Check("saved values", "-", "not compared", None)]
    seen = f"{len(other)} of {compared} tensors differ, {other[0]} first" if other else f"{compared} tensors the same"
    return [*checks, Check("saved values", "as in the live model", seen, not other)]
