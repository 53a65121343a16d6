"""Whether the saved weights are whole."""

from __future__ import annotations

from typing import Any

from zerocfg.smoke.checks.check import Check


def check(reports: list[dict[str, Any]]) -> list[Check]:
    """The files that were saved."""
    weights = reports[0].get("weights")
    if weights is None:
        return []
    expected, saved = weights["expected"], weights["saved"]
    wrong = [*weights["missing"], *weights["short"]]
    if not weights["file"]:
        seen = "no file of weights"
    elif wrong:
        seen = f"{saved:,} in {weights['file']}; not whole: {wrong[0]} and {len(wrong) - 1} more"
    else:
        seen = f"{saved:,} in {weights['file']}"
    checks = [Check("saved parameters", f"{expected:,}", seen, bool(weights["file"]) and not wrong)]
    if weights["file"]:
        loadable = weights["loadable"]
        checks.append(Check("loaded by from_pretrained", "yes", loadable or "yes", loadable is None))
    return checks
